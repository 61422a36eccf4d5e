"""Which clusters exist on this machine: one file per cluster, so that two never get into each other's way.

Who calls it: the cluster, at its start and end. There can be one cluster with a real node at a time, because the
device plugin directory is a constant of the kubelet; control planes without a node can run beside it.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

#: Emptied by a reboot, as the clusters are.
_DIRECTORY = Path("/run/lock/slackwater-rigs")


@dataclass(frozen=True, slots=True)
class Claim:
    """A cluster's name and where its state file is."""

    name: str
    run_dir: Path
    node: bool


@contextmanager
def exclusive() -> Iterator[None]:
    """Hold the machine-wide lock under which claims are read and changed."""
    _DIRECTORY.mkdir(parents=True, exist_ok=True)
    with open(_DIRECTORY / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def claims() -> list[Claim]:
    found = []
    for file in sorted(_DIRECTORY.glob("*.json")):
        with suppress(OSError, ValueError, KeyError):  # half-written by a machine that went down
            raw = json.loads(file.read_text())
            found.append(Claim(raw["name"], Path(raw["run_dir"]), bool(raw["node"])))
    return found


def add(claim: Claim) -> None:
    content = {"name": claim.name, "run_dir": str(claim.run_dir), "node": claim.node}
    _file(claim.name).write_text(json.dumps(content))


def drop(name: str) -> None:
    """Forget a cluster. The lock stays: removing a lock that somebody waits for would make it two locks."""
    _file(name).unlink(missing_ok=True)


def _file(name: str) -> Path:
    return _DIRECTORY / f"{name}.json"
