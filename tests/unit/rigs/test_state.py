"""The state file: what it survives and when it is stale."""

import os
from pathlib import Path

import pytest
from rigs.state import ProcessRecord, State, StateFile, current_process, decode, encode, start_time


def state(*, owner: tuple[int, int] | None, processes: dict[str, ProcessRecord] | None = None) -> State:
    return State("rig", True, owner, "/slackwater-rig", "slackwater-rig", processes=processes or {})


def running() -> ProcessRecord:
    return ProcessRecord(os.getpid(), start_time(os.getpid()) or 0, ("python",), {"PATH": "/bin"})


def reused_pid() -> ProcessRecord:
    """Our pid with another start time: the process that had it has ended."""
    return ProcessRecord(os.getpid(), 1, ("python",), {})


def test_state_survives_encoding() -> None:
    before = state(owner=(1, 2), processes={"etcd": running()})
    assert decode(encode(before)) == before


def test_a_change_is_on_disk_when_the_block_ends(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "run" / "state.json")
    file.write(state(owner=None))
    with file.change() as changed:
        changed.processes["etcd"] = running()
    assert list(file.read().processes) == ["etcd"]
    assert [entry.name for entry in file.path.parent.iterdir()] == ["state.json"]


def test_a_pid_with_another_start_time_is_somebody_else() -> None:
    assert running().running
    assert not reused_pid().running


@pytest.mark.parametrize(
    ("one", "stale"),
    [
        pytest.param(state(owner=current_process()), False, id="its Python lives"),
        pytest.param(state(owner=(os.getpid(), 1), processes={"etcd": running()}), True, id="its Python was killed"),
        pytest.param(state(owner=None, processes={"etcd": running()}), False, id="left up on purpose"),
        pytest.param(state(owner=None, processes={"etcd": reused_pid()}), True, id="left up, then rebooted"),
    ],
)
def test_stale_is_what_nobody_will_clean_up(one: State, stale: bool) -> None:
    assert one.stale is stale
