"""Long-running processes of a rig: started in its cgroup and network namespace, logged to files, ended by id.

Who calls it: the control plane, the node and the cluster. What is needed to end or restart a process from
another Python (its command, pid and the pid's start time) is kept in the cluster's state file.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rigs.rootfs import RigError
from rigs.state import ProcessRecord, StateFile, start_time

#: Moves itself into each cgroup named before `--`, then becomes the command after it: the pid stays.
_ENTER = 'while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs" || exit 70; shift; done; shift; exec "$@"'


class Process:
    """One named process. Every method works on whatever Python started it, as long as the state file knows it."""

    def __init__(self, name: str, supervisor: Supervisor) -> None:
        self.name = name
        self._supervisor = supervisor

    @property
    def record(self) -> ProcessRecord:
        found = self._supervisor.state.read().processes.get(self.name)
        if found is None:
            raise RigError(f"no process {self.name} was started in this cluster")
        return found

    @property
    def pid(self) -> int:
        return self.record.pid

    @property
    def running(self) -> bool:
        return self.record.running

    @property
    def log(self) -> Path:
        return self._supervisor.log_path(self.name)

    def start(self) -> None:
        """Start it again with the same command; nothing happens while it runs."""
        record = self.record
        if not record.running:
            self._supervisor.start(self.name, record.argv, record.environment)

    def stop(self, grace_s: float = 10.0) -> None:
        """SIGTERM, and SIGKILL after `grace_s`; returns when it has ended."""
        self._supervisor.end(self.record, grace_s)

    def kill9(self) -> None:
        """SIGKILL, as a crash; returns when it has ended."""
        self._supervisor.end(self.record, 0.0)

    def log_tail(self, lines: int = 15) -> str:
        with suppress(FileNotFoundError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        return "(no log)"

    def death(self) -> str | None:
        """A sentence with the log's end if the process is not running: the `give_up` of a wait."""
        if self.running:
            return None
        return f"{self.name} has ended; the end of {self.log}:\n{self.log_tail()}"


class Supervisor:
    """Starts and ends processes inside given cgroups and behind a command prefix (the entry to a namespace)."""

    def __init__(self, state: StateFile, logs: Path, cgroups: Sequence[Path], prefix: Sequence[str]) -> None:
        self.state = state
        self._logs = logs
        self._cgroups = tuple(cgroups)
        self._prefix = tuple(prefix)
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    def log_path(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def start(self, name: str, argv: Sequence[str], environment: Mapping[str, str]) -> Process:
        """Start in the background, in a session of its own so that Ctrl-C at a terminal does not reach it."""
        self._logs.mkdir(parents=True, exist_ok=True)
        command = ["/bin/sh", "-c", _ENTER, "sh", *map(str, self._cgroups), "--", *self._prefix, *argv]
        with open(self.log_path(name), "ab") as log:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
                cwd="/",
            )
        self._children[child.pid] = child
        record = ProcessRecord(child.pid, start_time(child.pid) or 0, tuple(argv), dict(environment))
        with self.state.change() as state:
            state.processes[name] = record
        return Process(name, self)

    def process(self, name: str) -> Process:
        return Process(name, self)

    def end(self, record: ProcessRecord, grace_s: float) -> None:
        """End one process and wait for it; a pid that meanwhile belongs to somebody else is left alone."""
        if grace_s > 0:
            self._signal(record, signal.SIGTERM, grace_s)
        if record.running and not self._signal(record, signal.SIGKILL, 10.0):
            raise RigError(f"process {record.pid} ({record.argv[0]}) did not end after SIGKILL")
        child = self._children.pop(record.pid, None)
        if child is not None:
            child.wait()

    def _signal(self, record: ProcessRecord, number: signal.Signals, timeout_s: float) -> bool:
        """Signal through a pidfd (no race with pid reuse) and wait; whether the process has ended."""
        try:
            handle = os.pidfd_open(record.pid)
        except OSError:
            return True
        try:
            if not record.running:
                return True
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
            poller = select.poll()
            poller.register(handle, select.POLLIN)
            return bool(poller.poll(timeout_s * 1000))
        finally:
            os.close(handle)
