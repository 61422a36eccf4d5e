"""``slackwater filter`` on files: the answer as served, exit status, what goes to which stream."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import pod
from click.testing import CliRunner, Result
from unit.extender.states import nodeslack, pending

from cli.main import main


def run(folder: Path, arguments: Any, *state: dict[str, Any], options: tuple[str, ...] = ()) -> Result:
    asked, known = folder / "args.json", folder / "state.yaml"
    asked.write_text(json.dumps(arguments), encoding="utf-8")
    known.write_text(yaml.safe_dump_all(state), encoding="utf-8")
    return CliRunner().invoke(main, ["filter", "-f", str(asked), "--state", str(known), *options])


def args(*names: str) -> dict[str, Any]:
    return {"Pod": pending(2).raw, "Nodes": None, "NodeNames": list(names)}


def test_prints_what_the_extender_would_answer(tmp_path: Path) -> None:
    held = pod("other").be().blocks(9).on("full").raw
    result = run(tmp_path, args("free", "full", "gone"), nodeslack("free"), nodeslack("full"), held)
    assert result.exit_code == 0, result.stderr
    answer = json.loads(result.stdout)
    assert answer["NodeNames"] == ["free"]
    assert answer["FailedNodes"]["full"] == "colocation memory: 2 blocks (1Gi) needed, 1 block (512Mi) available"
    assert "no NodeSlack" in answer["FailedNodes"]["gone"]
    assert (answer["FailedAndUnresolvableNodes"], answer["Error"]) == ({}, "")


def test_time_is_that_of_the_newest_reading_unless_given(tmp_path: Path) -> None:
    state = [nodeslack("old", age_s=400), nodeslack("new")]
    answer = json.loads(run(tmp_path, args("old", "new"), *state).stdout)
    assert answer["NodeNames"] == ["new"]
    assert "older than 300 s" in answer["FailedAndUnresolvableNodes"]["old"]
    later = run(tmp_path, args("old", "new"), *state, options=("--now", "2026-01-01T00:10:00Z"))
    assert json.loads(later.stdout)["NodeNames"] == []


def test_unreadable_nodeslack_closes_its_node_with_a_warning(tmp_path: Path) -> None:
    broken = nodeslack("broken")
    broken["status"]["blocks"]["total"] = -1
    result = run(tmp_path, args("broken", "free"), broken, nodeslack("free"))
    assert result.exit_code == 0
    assert json.loads(result.stdout)["NodeNames"] == ["free"]
    assert "warning:" in result.stderr
    assert "status.blocks.total: is -1" in result.stderr


def test_table_for_people(tmp_path: Path) -> None:
    result = run(tmp_path, args("free", "full"), nodeslack("free"), nodeslack("full", total=0), options=("-o", "table"))
    assert [line.split()[:2] for line in result.stdout.splitlines()] == [
        ["node", "verdict"], ["free", "fits"], ["full", "no"]
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "state", "words"),
    [
        pytest.param({"Pod": 3}, [nodeslack()], ["args.json", "Pod: is missing", "NodeNames"], id="no-args"),
        pytest.param(args("a"), [], ["has no readable NodeSlack"], id="no-state"),
        pytest.param(args("a"), [nodeslack(), nodeslack()], ["second NodeSlack"], id="doubled"),
        pytest.param(args("a"), [nodeslack(), {"a": 1}], ["has no kind"], id="no-kind"),
    ],
)
def test_unusable_input_ends_with_2_and_prints_nothing(
    tmp_path: Path, arguments: Any, state: list[dict[str, Any]], words: list[str]
) -> None:
    result = run(tmp_path, arguments, *state)
    assert result.exit_code == 2
    assert result.stdout == ""
    for word in words:
        assert word in result.stderr
