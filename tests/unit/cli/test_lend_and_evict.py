"""``slackwater lend`` and ``slackwater evict`` on files: what is printed, where, and with which exit status."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import config_map, node, pod, reading, slo_config
from click.testing import CliRunner, Result

from cli.main import main
from slackwater import names

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes objects as one YAML stream and gives the path."""

    def stream(*objects: Any, name: str = "state.yaml") -> str:
        path = tmp_path / name
        path.write_text(yaml.safe_dump_all([getattr(item, "raw", item) for item in objects]), encoding="utf-8")
        return str(path)

    return stream


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, list(arguments), input=stdin)


BATCH = pod("be1").be().priority(5000).uses("5G")


def test_lend_prints_the_documented_terms(write: Write) -> None:
    web, batch = pod("web").uses("30Gi"), pod("batch").be().blocks(16).uses("6Gi")
    state = write(node().capacity("100Gi", "98Gi"), reading(used="40Gi").of(web, batch), web, batch)
    result = run("lend", "-f", state, "-o", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout) == {
        "node": "node-1",
        "capacity": 107374182400,
        "margin": 10737418240,
        "system": 4294967296,
        "online": 32212254720,
        "lendable": 60129542144,
        "blocks": 112,
        "lent": 16,
        "free": 96,
        "enabled": True,
        "line": 101468602368,
        "used": 42949672960,
        "blockSize": 536870912,
    }


def test_evict_prints_the_documented_answer(write: Write) -> None:
    idle = pod("be2").be().priority(9000).uses("1G")
    measured = reading(capacity="120G", used="115G").of(BATCH, idle)
    result = run("evict", "-f", write(node(), measured, BATCH, idle), "-o", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout) == {
        "node": "node-1",
        "release": 3400000000,
        "victims": [
            {"namespace": "default", "name": "be1", "bytes": 5000000000, "reason": "EvictPodByNodeMemoryUsage"}
        ],
        "spared": [{"namespace": "default", "name": "be2", "bytes": 1000000000, "reason": "not-needed"}],
        "message": "evict Pod:be1, reason: EvictPodByNodeMemoryUsage, message: killAndEvictBEPods for node(node-1), "
        "need to release memory: 3400000000",
        "enabled": True,
    }


@pytest.mark.parametrize("command", ["lend", "evict"])
def test_yaml_says_the_same_as_json(write: Write, command: str) -> None:
    state = write(node(), reading(capacity="120G", used="115G").of(BATCH), BATCH)
    as_json, as_yaml = (run(command, "-f", state, "-o", form).stdout for form in ("json", "yaml"))
    assert yaml.safe_load(as_yaml) == json.loads(as_json)


def test_a_table_is_for_people(write: Write) -> None:
    state = write(node(), reading(capacity="120G", used="115G").of(BATCH), BATCH)
    assert "blocks of 512Mi may be lent" in run("lend", "-f", state).stdout
    assert "evict  default/be1" in run("evict", "-f", state).stdout


@pytest.mark.parametrize("command", ["lend", "evict"])
def test_several_nodes_are_a_list_in_the_order_of_the_input(write: Write, command: str) -> None:
    state = write(node("b"), node("a"), reading("a"), reading("b"), pod("p").on("a"))
    found = json.loads(run(command, "-f", state, "-o", "json").stdout)
    assert [entry["node"] for entry in found] == ["b", "a"]
    assert len(run(command, "-f", state).stdout.split("\n\n")) == 2


def test_files_folders_and_standard_input_add_up(write: Write, tmp_path: Path) -> None:
    folder = tmp_path / "objects"
    folder.mkdir()
    (folder / "node.json").write_text(json.dumps(node().raw), encoding="utf-8")
    pods = json.dumps({"apiVersion": "v1", "kind": "List", "items": [BATCH.raw]})
    measured = write(reading(capacity="120G", used="115G").of(BATCH))
    result = run("evict", "-f", str(folder), "-f", measured, "-f", "-", "-o", "json", stdin=pods)
    assert [victim["name"] for victim in json.loads(result.stdout)["victims"]] == ["be1"]


def test_the_config_map_is_found_by_name_in_any_namespace(write: Write) -> None:
    data = slo_config({"enable": True, "memoryReclaimThresholdPercent": 65})
    state = write(
        node(),
        reading(capacity="100G"),
        config_map(names.SLO_CONFIG_MAP, data, "koordinator-system"),
        config_map("other", {"colocation-config": "{"}),
        config_map("other", {}, "elsewhere"),
    )
    assert json.loads(run("lend", "-f", state, "-o", "json").stdout)["margin"] == 35_000_000_000


def test_off_is_shown(write: Write) -> None:
    state = write(node(), reading(used="40Gi"), config_map(names.SLO_CONFIG_MAP, slo_config({})))
    found = json.loads(run("lend", "-f", state, "-o", "json").stdout)
    assert (found["enabled"], found["blocks"], found["lendable"]) == (False, 0, 65 * 1024**3 - 40 * 1024**3)
    assert [reason["reason"] for reason in found["reasons"]] == ["Disabled"]
    assert "lending is off" in run("lend", "-f", state).stdout


def test_now_is_the_readings_time_unless_given(write: Write) -> None:
    leaving = pod("leaving").be().uses("6G").deleted("2026-01-01T00:00:00Z")
    state = write(node(), reading(capacity="120G", used="115G").of(BATCH, leaving), BATCH, leaving)
    victims = [
        json.loads(run("evict", "-f", state, "-o", "json", *now).stdout)["victims"]
        for now in ((), ("--now", "2026-01-01T00:00:30Z"), ("--now", "2026-01-01T00:00:31Z"))
    ]
    assert [len(found) for found in victims] == [0, 0, 1]


def test_an_old_reading_is_a_warning(write: Write) -> None:
    result = run("lend", "-f", write(node(), reading()), "-o", "json", "--now", "2026-01-01T01:00:00Z")
    assert result.exit_code == 0
    assert "3600 s old" in result.stderr


def test_the_table_shows_every_term_that_bounds_the_answer(write: Write) -> None:
    capped = slo_config({"enable": True, "batchMemoryThresholdPercent": 20}, {"clusterStrategy": {"enable": False}})
    halves = reading().numa(("50Gi", "0"), ("50Gi", "0"))
    table = run("lend", "-f", write(node(), halves, config_map(names.SLO_CONFIG_MAP, capped))).stdout
    assert "batchMemoryThresholdPercent" in table
    assert "the eviction line" not in table
    assert "NUMA node 1: 20 blocks" in table


def test_the_block_size_is_the_installations(write: Write) -> None:
    state = write(node(), reading(capacity="100Gi"))
    assert json.loads(run("lend", "-f", state, "-o", "json", "--block-size", "1Gi").stdout)["blocks"] == 90


@pytest.mark.parametrize(
    ("objects", "warning"),
    [
        pytest.param([pod("p").label(names.QOS_LABEL, "be")], "is not a class", id="label"),
        pytest.param(
            [config_map(names.SLO_CONFIG_MAP, slo_config({"enabled": True}))], "did you mean enable", id="key"
        ),
        pytest.param(
            [{"apiVersion": "apps/v1", "kind": "Deployment"}], "1 of kind Deployment not used here", id="kind"
        ),
        pytest.param([reading("elsewhere")], "the MemoryReading of elsewhere is not used", id="reading"),
    ],
)
def test_warnings_go_to_standard_error_and_change_nothing(write: Write, objects: list[Any], warning: str) -> None:
    result = run("lend", "-f", write(node(), reading(), *objects), "-o", "json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["node"] == "node-1"
    assert [warning in line for line in result.stderr.splitlines()].count(True) == 1


SLO = names.SLO_CONFIG_MAP


@pytest.mark.parametrize(
    ("objects", "complaint"),
    [
        pytest.param([reading()], "there is no Node", id="no-node"),
        pytest.param([node()], "there is no MemoryReading", id="no-reading"),
        pytest.param([node(), reading("other")], "Node node-1: has no MemoryReading", id="another-nodes-reading"),
        pytest.param([node(), node(), reading()], "second Node node-1", id="two-nodes-of-one-name"),
        pytest.param([node(), reading(), reading()], "second MemoryReading node-1", id="two-readings"),
        pytest.param([node(), reading(), pod("p"), pod("p")], "second Pod default/p", id="two-pods"),
        pytest.param(
            [node(), reading(), config_map(SLO, {}), config_map(SLO, {}, "other")], "2 ConfigMaps", id="two-config-maps"
        ),
        pytest.param(
            [node(), reading(), config_map(SLO, slo_config("{"))], "data.colocation-config: is not JSON", id="not-json"
        ),
        pytest.param(
            [node(), reading(), config_map(SLO, slo_config({"degradeTimeMinutes": 0}))],
            "data.colocation-config.degradeTimeMinutes: is 0",
            id="out-of-range",
        ),
        pytest.param(
            [node(), reading(), {**config_map(SLO, {}), "data": ["x"]}], "data: is ['x']", id="data-no-mapping"
        ),
        pytest.param([node(), reading(used="5GB")], "MemoryReading node-1: node.used: '5GB'", id="quantity"),
        pytest.param([node(), reading(), pod("p").requests(memory="x")], "Pod p: spec.containers[0]", id="pod"),
        pytest.param([node(), reading(), {"metadata": {"name": "x"}}], "has no kind", id="no-kind"),
    ],
)
@pytest.mark.parametrize("command", ["lend", "evict"])
def test_what_cannot_be_used_is_exit_status_2(write: Write, command: str, objects: list[Any], complaint: str) -> None:
    result = run(command, "-f", write(*objects), "-o", "json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert complaint in result.stderr
    assert "Traceback" not in result.stderr


def test_every_mistake_is_told_at_once(write: Write) -> None:
    state = write(node(), reading(used="x"), pod("p").requests(memory="y"), config_map(SLO, slo_config("{")))
    result = run("lend", "-f", state)
    assert len(result.stderr.splitlines()) == 3


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["lend"], id="no-file"),
        pytest.param(["lend", "-f", "/does/not/exist"], id="no-such-file"),
        pytest.param(["lend", "-f", "-", "-o", "xml"], id="form"),
        pytest.param(["lend", "-f", "-", "--now", "today"], id="time"),
        pytest.param(["lend", "-f", "-", "--block-size", "0"], id="block-size"),
        pytest.param(["lend", "-f", "-", "--block-size", "1MB"], id="block-size-unit"),
        pytest.param(["borrow"], id="command"),
    ],
)
def test_wrong_usage_is_exit_status_2(arguments: list[str]) -> None:
    result = run(*arguments, stdin="")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr


def test_help_names_the_commands() -> None:
    result = run("--help")
    assert result.exit_code == 0
    assert {"lend", "evict"} <= {line.split()[0] for line in result.stdout.splitlines() if line.strip()}
