"""``slackwater idle`` on files: what is printed, where, and with which exit status."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from cli.main import main

NOW = "2026-01-02T00:00:00Z"
LABEL = "tensorstack.dev/resource-keeper"
POLICY = f"""
policy:
  notebook:
    scanInterval: 300
    idleTimeout: 3600
    namespaceSelector:
      matchLabels:
        {LABEL}: true
  tensorboard: {{}}
"""
Write = Callable[[str, Any], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes text, or objects as one YAML stream, under a name, and gives the path."""

    def file(name: str, content: Any) -> str:
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else yaml.safe_dump_all(content), encoding="utf-8")
        return str(path)

    return file


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, ["idle", *arguments], input=stdin)


def idle(
    kind: str, name: str, namespace: str | None = "shop", *, since: str = "2026-01-01T00:00:00Z"
) -> dict[str, Any]:
    return {
        "apiVersion": "tensorstack.dev/v1beta1",
        "kind": kind,
        "metadata": {"name": name} | ({} if namespace is None else {"namespace": namespace}),
        "status": {"conditions": [{"type": "Idle", "status": "True", "lastTransitionTime": since}]},
    }


def namespace(name: str, **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def config_map(name: str, text: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "t9k-system"},
        "data": {"policy.yaml": text},
    }  # fmt: skip


OBJECTS = [
    idle("Notebook", "old"),
    idle("Notebook", "fresh", since="2026-01-01T23:30:00Z"),
    idle("Notebook", "elsewhere", "other"),
    idle("TensorBoard", "board", "other", since="2026-01-01T23:00:00Z"),
    idle("Explorer", "untouched"),
    namespace("shop", **{LABEL: "true"}),
    namespace("other"),
]


def row(kind: str, where: str, action: str, reason: str, due_at: str, message: str) -> dict[str, Any]:
    space, name = where.split("/")
    return {
        "kind": kind, "namespace": space, "name": name, "action": action,
        "reason": reason, "dueAt": due_at, "message": message,
    }  # fmt: skip


ROWS = [
    row(
        "Notebook", "shop/old", "suspend", "IdleTimeoutExceeded", "2026-01-01T01:00:00Z",
        "idle for 86400 s since 2026-01-01T00:00:00Z, longer than idleTimeout 3600 s",
    ),
    row(
        "Notebook", "shop/fresh", "keep", "IdleTimeoutNotReached", "2026-01-02T00:30:00Z",
        "idle for 1800 s since 2026-01-01T23:30:00Z, idleTimeout is 3600 s",
    ),
    row(
        "TensorBoard", "other/board", "keep", "IdleTimeoutNotReached", "2026-01-02T23:00:00Z",
        "idle for 3600 s since 2026-01-01T23:00:00Z, idleTimeout is 86400 s",
    ),
]  # fmt: skip


@pytest.mark.parametrize("as_config_map", [False, True], ids=["bare policy", "ConfigMap"])
@pytest.mark.parametrize(("form", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_a_row_for_every_object_that_the_policy_reaches(
    write: Write, form: str, read: Callable[[str], Any], as_config_map: bool
) -> None:
    policy = write("policy.yaml", [config_map("resource-keeper-policy-config", POLICY)] if as_config_map else POLICY)
    result = run("-f", write("objects.yaml", OBJECTS), "--policy", policy, "--now", NOW, "-o", form)
    assert (result.exit_code, result.stderr) == (0, "")
    assert read(result.stdout) == ROWS


def test_people_get_a_table(write: Write) -> None:
    result = run("-f", write("objects.yaml", OBJECTS), "--policy", write("p.yaml", POLICY), "--now", NOW)
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["kind", "object", "action", "due", "at", "why"]
    assert [line.split()[:3] for line in lines[1:]] == [
        ["Notebook", "shop/old", "suspend"],
        ["Notebook", "shop/fresh", "keep"],
        ["TensorBoard", "other/board", "keep"],
    ]


def test_now_decides(write: Write) -> None:
    objects, policy = write("objects.yaml", OBJECTS), write("p.yaml", POLICY)
    at_the_limit = run("-f", objects, "--policy", policy, "--now", "2026-01-02T01:30:00+01:00", "-o", "json")
    beyond = run("-f", objects, "--policy", policy, "--now", "2026-01-02T00:30:01Z", "-o", "json")
    assert [r["action"] for r in json.loads(at_the_limit.stdout)] == ["suspend", "keep", "keep"]
    assert [r["action"] for r in json.loads(beyond.stdout)] == ["suspend", "suspend", "keep"]


def test_without_now_the_clock_decides(write: Write) -> None:
    result = run("-f", write("objects.yaml", [idle("TensorBoard", "ancient", since="2001-01-01T00:00:00Z")]),
                 "--policy", write("p.yaml", POLICY), "-o", "json")  # fmt: skip
    assert [r["action"] for r in json.loads(result.stdout)] == ["suspend"]


def test_an_empty_policy_reaches_nothing(write: Write) -> None:
    objects, policy = write("objects.yaml", OBJECTS), write("p.yaml", "policy: {}")
    assert json.loads(run("-f", objects, "--policy", policy, "-o", "json").stdout) == []
    assert run("-f", objects, "--policy", policy).stdout == "the policy reaches no object\n"


def test_a_namespace_whose_labels_are_unknown_is_told(write: Write) -> None:
    result = run(
        "-f", write("objects.yaml", [idle("Notebook", "old"), idle("TensorBoard", "board", None)]),
        "--policy", write("p.yaml", POLICY), "--now", NOW, "-o", "json",
    )  # fmt: skip
    assert result.exit_code == 0
    assert [(r["namespace"], r["name"]) for r in json.loads(result.stdout)] == [("default", "board")]
    assert "labels of namespace shop are not known" in result.stderr
    assert "add the Namespace to the input" in result.stderr


def test_one_type_that_cannot_be_used_is_a_warning_and_off(write: Write) -> None:
    policy = "policy: {notebook: {idleTimeout: 1h}, tensorboard: {}, noteboks: {}}"
    result = run(
        "-f", write("objects.yaml", OBJECTS), "--policy", write("p.yaml", policy), "--now", NOW, "-o", "json"
    )  # fmt: skip
    assert result.exit_code == 0
    assert [r["kind"] for r in json.loads(result.stdout)] == ["TensorBoard"]
    warnings = result.stderr.splitlines()
    assert any("policy.notebook.idleTimeout: is '1h'" in line and "switched off" in line for line in warnings)
    assert any("policy.noteboks" in line and "did you mean notebook?" in line for line in warnings)
    assert all(line.startswith("warning: ") for line in warnings)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        pytest.param("", "holds 0 documents", id="empty"),
        pytest.param("policy: [", "is not YAML", id="no YAML"),
        pytest.param("hello", "is a str", id="text"),
        pytest.param("notebook: {}", "has no key policy", id="no policy"),
        pytest.param("policy: all", "policy: is 'all'", id="types are text"),
        pytest.param("policy: {}\n---\npolicy: {}\n", "holds 2 documents", id="two policies"),
        pytest.param([config_map("a", "policy: {")], "is not YAML", id="ConfigMap with broken YAML"),
        pytest.param(
            [config_map("a", {"policy": {"notebook": {}}})], "data.policy.yaml: is missing or no text", id="nested map"
        ),
        pytest.param([config_map("a", None)], "data.policy.yaml: is missing", id="ConfigMap without the key"),
        pytest.param([config_map("a", POLICY)] * 2, "2 ConfigMaps", id="two ConfigMaps"),
    ],
)
def test_a_policy_that_cannot_be_used_is_status_2_and_prints_nothing(write: Write, policy: Any, words: str) -> None:
    path = write("p.yaml", policy)
    result = run("-f", write("objects.yaml", OBJECTS), "--policy", path, "-o", "json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert path in result.stderr
    assert words in result.stderr


def test_the_named_config_map_is_taken_among_others(write: Write) -> None:
    policy = write("p.yaml", [config_map("other", "policy: ["), config_map("resource-keeper-policy-config", POLICY)])
    result = run("-f", write("objects.yaml", OBJECTS), "--policy", policy, "--now", NOW, "-o", "json")
    assert json.loads(result.stdout) == ROWS


def test_foreign_objects_are_named_and_left_alone(write: Write) -> None:
    kubeflow = idle("Notebook", "theirs") | {"apiVersion": "kubeflow.org/v1"}
    result = run(
        "-f", write("o.yaml", [kubeflow, {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}}]),
        "--policy", write("p.yaml", POLICY), "-o", "json",
    )  # fmt: skip
    assert (result.exit_code, json.loads(result.stdout)) == (0, [])
    assert "o.yaml[0]: Notebook (kubeflow.org/v1) is not one of Notebook (tensorstack.dev)" in result.stderr


def test_an_object_without_a_name_is_status_2(write: Write) -> None:
    nameless = idle("TensorBoard", "x")
    del nameless["metadata"]["name"]
    result = run("-f", write("o.yaml", [nameless]), "--policy", write("p.yaml", POLICY))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "metadata.name: is missing" in result.stderr


def test_objects_may_come_from_standard_input(write: Write) -> None:
    text = json.dumps({"kind": "List", "apiVersion": "v1", "items": OBJECTS})
    result = run("-f", "-", "--policy", write("p.yaml", POLICY), "--now", NOW, "-o", "json", stdin=text)
    assert json.loads(result.stdout) == ROWS


@pytest.mark.parametrize("now", ["yesterday", "2026-01-01", "2026-13-01T00:00:00Z", "2026-01-01T00:00:00"])
def test_a_time_that_is_none_is_status_2(write: Write, now: str) -> None:
    result = run("-f", write("o.yaml", OBJECTS), "--policy", write("p.yaml", POLICY), "--now", now)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "RFC 3339" in result.stderr


def test_the_last_moment_of_the_calendar_is_decided_too(write: Write) -> None:
    objects = [idle("TensorBoard", "one", since="9999-12-31T23:59:59Z")]
    result = run(
        "-f", write("o.yaml", objects), "--policy", write("p.yaml", POLICY), "--now", "9999-12-31T23:59:59Z",
        "-o", "json",
    )  # fmt: skip
    assert [(r["action"], r["dueAt"]) for r in json.loads(result.stdout)] == [("keep", None)]
