"""Real cgroups with real processes in them, for the tests that run in the VM.

Who calls it: the tests beside it. A `Workload` is one process that sits in a cgroup and holds as much
anonymous memory, shared memory and page cache as it was told to, until it is stopped.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

ROOT = Path("/sys/fs/cgroup")

#: A file system on a real block device: the page cache of its files can be reclaimed, unlike that of a tmpfs.
DISK = Path("/disk")

MIB = 1 << 20

#: The process moves itself first, so that every page it takes is charged to the cgroup it was given.
_PROGRAM = """
import mmap, os, sys
cgroup, path = sys.argv[1:3]
anonymous, shared, cached = map(int, sys.argv[3:])
with open(cgroup + "/cgroup.procs", "w") as procs:
    procs.write(str(os.getpid()))
if cached:
    with open(path, "wb") as file:
        for _ in range(cached >> 20):
            file.write(bytes(1 << 20))
        file.flush()
        os.fsync(file.fileno())  # dirty pages cannot be dropped
held = []
for size, kind in ((anonymous, mmap.MAP_PRIVATE), (shared, mmap.MAP_SHARED)):
    if size:
        held.append(mmap.mmap(-1, size, flags=kind | mmap.MAP_ANONYMOUS))
        for offset in range(0, size, mmap.PAGESIZE):
            held[-1][offset] = 1
print("ready", flush=True)
sys.stdin.read()
"""


class Workload:
    """A process in a cgroup. Leaving the `with` block ends it."""

    def __init__(self, cgroup: Path, *, anonymous: int = 0, shared: int = 0, cached: int = 0) -> None:
        self._file = DISK / uuid.uuid4().hex
        arguments = [str(cgroup), str(self._file), str(anonymous), str(shared), str(cached)]
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", _PROGRAM, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ready(self) -> bool:
        """Wait until the process holds all it was told to; False where it died before."""
        assert self._process.stdout is not None
        return self._process.stdout.readline() == "ready\n"

    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def killed(self) -> bool:
        """Wait for the end; whether SIGKILL, which is what the OOM killer sends, was the cause."""
        return self._process.wait() == -signal.SIGKILL

    def close(self) -> None:
        """End the process, wait for it, and remove its file and with it the page cache."""
        self._process.kill()
        self._process.communicate()
        self._file.unlink(missing_ok=True)

    def __enter__(self) -> Workload:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextlib.contextmanager
def cgroup(name: str) -> Iterator[Path]:
    """A cgroup below the root, with memory and cpuset switched on down to it; removed with all below it."""
    path = ROOT / name
    make(path)
    top = ROOT / Path(name).parts[0]
    try:
        yield path
    finally:
        remove(top)


def make(path: Path) -> None:
    """Make a cgroup and its parents, and let each parent pass the controllers on."""
    path.mkdir(parents=True, exist_ok=True)
    for parent in reversed(path.relative_to(ROOT).parents):
        write(ROOT / parent / "cgroup.subtree_control", "+memory +cpuset")


def remove(top: Path) -> None:
    """Remove a cgroup and all below it; its processes must have ended."""
    for directory, _, _ in os.walk(top, topdown=False):
        os.rmdir(directory)


def write(path: Path, value: str) -> None:
    """Write one value to a kernel file in one call, so that the kernel's refusal is raised here."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, value.encode())
    finally:
        os.close(descriptor)


def number(path: Path) -> int:
    """The number in a kernel file."""
    return int(path.read_text())


def counters(path: Path) -> dict[str, int]:
    """A kernel file of `name value` lines, such as memory.stat and memory.events."""
    return {name: int(value) for name, value in (line.split() for line in path.read_text().splitlines())}
