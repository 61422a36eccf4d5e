"""``slackwater admit`` on files: what is printed, where, and with which exit status."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonpatch
import pytest
import yaml
from click.testing import CliRunner, Result

from cli.main import main
from slackwater import names

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes objects as one YAML stream and gives the path."""

    def stream(*objects: Any, name: str = "objects.yaml") -> str:
        path = tmp_path / name
        path.write_text(yaml.safe_dump_all(objects), encoding="utf-8")
        return str(path)

    return stream


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, ["admit", *arguments], input=stdin)


def pod(name: str = "be", qos: str | None = "BE", **spec: Any) -> dict[str, Any]:
    containers = [{"name": "app", "resources": {"limits": {"memory": "1Gi"}}}]
    labels = {} if qos is None else {"labels": {names.QOS_LABEL: qos}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **labels},
        "spec": {"containers": containers, **spec},
    }


PROFILE = {
    "apiVersion": names.API_VERSION,
    "kind": "ColocationProfile",
    "metadata": {"name": "all"},
    "spec": {"namespaceSelector": {"matchLabels": {"lend": "yes"}}, "qosClass": "BE", "priorityClassName": "cheap"},
}
CLASS = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "cheap"},
    "value": 5700,
    "preemptionPolicy": "Never",
}
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"lend": "yes"}}}


def test_one_object_comes_out_as_itself(write: Write) -> None:
    result = run("-f", write(pod()), "-o", "json")
    assert result.exit_code == 0
    after = json.loads(result.stdout)
    assert after["kind"] == "Pod"
    assert after["spec"]["containers"][0]["resources"]["limits"][names.RESOURCE] == "2"
    assert "Pod be: PriorityClass slackwater-batch (5000), never preempting" in result.stderr


def test_context_in_the_same_file_is_used_and_not_echoed(write: Write) -> None:
    plain = {**pod(qos=None), "metadata": {"name": "web", "namespace": "shop"}}
    result = run("-f", write(plain, PROFILE, CLASS, NAMESPACE), "-o", "json")
    assert json.loads(result.stdout)["spec"]["priority"] == 5700


def test_context_may_stand_in_files_of_its_own(write: Write) -> None:
    plain = {**pod(qos=None), "metadata": {"name": "web", "namespace": "shop"}}
    context = write(PROFILE, CLASS, NAMESPACE, name="context.yaml")
    result = run("-f", write(plain), "--profiles", context, "-o", "yaml")
    assert yaml.safe_load(result.stdout)["spec"]["priority"] == 5700


def test_several_objects_come_out_as_a_list_in_their_order(write: Write) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}}
    result = run("-f", write(pod("a"), config, pod("b", qos=None)), "-o", "json")
    listed = json.loads(result.stdout)
    assert (listed["apiVersion"], listed["kind"]) == ("v1", "List")
    assert [item["metadata"]["name"] for item in listed["items"]] == ["a", "c", "b"]
    assert listed["items"][1:] == [config, pod("b", qos=None)]


def test_twice_is_once(write: Write) -> None:
    once = run("-f", write(pod(), pod("online", qos=None)))
    twice = run("-f", "-", stdin=once.stdout)
    assert twice.exit_code == 0
    assert twice.stdout == once.stdout


def test_the_patch_applies(write: Write) -> None:
    patch = json.loads(run("-f", write(pod()), "-o", "patch").stdout)
    after = json.loads(run("-f", write(pod()), "-o", "json").stdout)
    assert jsonpatch.apply_patch(pod(), patch) == after
    assert json.loads(run("-f", write(pod(qos=None)), "-o", "patch").stdout) == []


def test_patches_of_several_objects_carry_names(write: Write) -> None:
    patches = json.loads(run("-f", write(pod("a"), pod("b", qos=None)), "-o", "patch").stdout)
    assert [(patch["name"], bool(patch["patch"])) for patch in patches] == [("a", True), ("b", False)]


def test_a_table_for_people(write: Write) -> None:
    result = run("-f", write(pod("a"), pod("b", qos=None), pod("c", priorityClassName="koord-prod")), "-o", "table")
    assert [line.split() for line in result.stdout.splitlines()[1:]] == [
        ["Pod", "a", "changed", "BE", "slackwater-batch", "2"],
        ["Pod", "b", "unchanged:", "NotSelected"],
        ["Pod", "c", "denied:", "PriorityNotAllowed"],
    ]


def test_a_denied_object_is_left_out_and_named(write: Write) -> None:
    denied = pod("greedy", priorityClassName="slackwater-prod")
    result = run("-f", write(denied, pod("fine")), "-o", "json")
    assert result.exit_code == 1
    assert [item["metadata"]["name"] for item in json.loads(result.stdout)["items"]] == ["fine"]
    assert "Pod greedy: denied (PriorityNotAllowed)" in result.stderr
    alone = run("-f", write(denied), "-o", "json")
    assert (alone.exit_code, alone.stdout) == (1, "")


def test_warnings_go_to_standard_error_and_do_not_change_the_status(write: Write) -> None:
    empty = {**pod(), "spec": {"containers": [{"name": "app"}]}}
    result = run("-f", write(empty))
    assert result.exit_code == 0
    assert "warning: Pod be: no container states any memory; app gets 1 block of 512Mi" in result.stderr


def test_strings_that_look_like_numbers_stay_strings() -> None:
    odd = pod(qos=None)
    odd["metadata"]["annotations"] = {f"k{index}": text for index, text in enumerate(
        ["1e3", "0o17", "0x1F", "1_000", "12e-2", "yes", "null", "1:30", "2026-01-01", "~", "a\nb\n", " x", ".5", "+1"]
    )}  # fmt: skip
    once = run("-f", "-", stdin=json.dumps(odd))
    assert json.loads(run("-f", "-", "-o", "json", stdin=once.stdout).stdout) == odd


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        pytest.param([], "holds no object", id="empty"),
        pytest.param([{"kind": "Pod"}], "has no apiVersion", id="no-apiversion"),
        pytest.param([PROFILE, PROFILE], "ColocationProfile all stands in", id="a-profile-twice"),
        pytest.param([{**PROFILE, "spec": {"qosClass": "best"}}], "spec.qosClass: is 'best'", id="bad-profile"),
        pytest.param(
            [{**pod(), "spec": {"containers": [{"name": "a", "resources": {"limits": {"memory": "lots"}}}]}}],
            "spec.containers[0].resources.limits[memory]: 'lots' is not a quantity",
            id="bad-quantity",
        ),
    ],
)
def test_an_unusable_input_prints_nothing_and_ends_with_2(write: Write, objects: list[Any], message: str) -> None:
    result = run("-f", write(*objects))
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_only_context_gives_an_empty_list(write: Write) -> None:
    result = run("-f", write(NAMESPACE), "-o", "json")
    assert (result.exit_code, json.loads(result.stdout)["items"]) == (0, [])


def test_profiles_must_be_context(write: Write) -> None:
    result = run("-f", write(pod()), "--profiles", write(pod(), name="wrong.yaml"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "wrong.yaml: is a Pod; give it with -f" in result.stderr
