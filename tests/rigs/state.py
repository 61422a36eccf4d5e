"""The state file of a cluster: what was started and made, so that any later Python can end and remove it.

Who calls it: the cluster, and every part of it that starts or mounts something. It is written before or
right after each thing comes to life, by rename, and read again at every use: nothing is held in memory only.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

VERSION = 1


def start_time(pid: int) -> int | None:
    """Clock ticks since boot at which the process started: with the pid, its identity (proc(5), field 22).

    None if there is no such process, or only its zombie: what has ended no longer counts as running.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return parse_start_time(text)


def parse_start_time(stat: str) -> int | None:
    """Field 22 of /proc/PID/stat; the second field, the command in brackets, may contain blanks and brackets."""
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in {"Z", "X"} else int(fields[19])


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """One started process: `argv` and `environment` start it again, `pid` with `started` identify it."""

    pid: int
    started: int
    argv: tuple[str, ...]
    environment: dict[str, str]

    @property
    def running(self) -> bool:
        return start_time(self.pid) == self.started


@dataclass(slots=True)
class State:
    """Everything that teardown has to undo."""

    name: str
    node: bool
    #: pid and start time of the Python that will tear the cluster down; None once it was left up on purpose.
    owner: tuple[int, int] | None
    cgroup_root: str
    netns: str
    #: Program -> absolute path, of those that the cluster runs with.
    binaries: dict[str, str] = field(default_factory=dict)
    processes: dict[str, ProcessRecord] = field(default_factory=dict)
    #: Kernel settings that the kubelet changes for the whole machine, as they were before: path -> text.
    sysctls: dict[str, str] = field(default_factory=dict)
    #: Absolute paths outside the run directory that did not exist before and are removed at the end.
    made_paths: list[str] = field(default_factory=list)
    version: int = VERSION

    @property
    def owned(self) -> bool:
        """Whether the Python that started the cluster still lives."""
        return self.owner is not None and start_time(self.owner[0]) == self.owner[1]

    @property
    def stale(self) -> bool:
        """Whether this is what a crash left: its owner died without teardown, or nothing of it runs any more."""
        if self.owner is not None:
            return not self.owned
        return not any(record.running for record in self.processes.values())


def current_process() -> tuple[int, int]:
    pid = os.getpid()
    return pid, start_time(pid) or 0


class StateFile:
    """`state.json` in a run directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def exists(self) -> bool:
        return self.path.is_file()

    def read(self) -> State:
        return decode(json.loads(self.path.read_text()))

    def write(self, state: State) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=self.path.parent, prefix=".state-")
        with os.fdopen(handle, "w") as output:
            json.dump(encode(state), output, indent=1)
        os.replace(temporary, self.path)

    @contextmanager
    def change(self) -> Iterator[State]:
        """Read, let the caller change it, write."""
        state = self.read()
        yield state
        self.write(state)


def encode(state: State) -> dict[str, Any]:
    return asdict(state)


def decode(raw: dict[str, Any]) -> State:
    processes = {
        name: ProcessRecord(one["pid"], one["started"], tuple(one["argv"]), dict(one["environment"]))
        for name, one in raw["processes"].items()
    }
    owner = (int(raw["owner"][0]), int(raw["owner"][1])) if raw["owner"] is not None else None
    return State(**{**raw, "processes": processes, "owner": owner})
