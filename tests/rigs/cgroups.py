"""The cgroup that holds everything of one rig: the node's daemons in `system`, the pods in `kubepods`.

Who calls it: the cluster. On cgroup v1 the same path exists in every hierarchy, on v2 once. Because every
process of the rig is started inside, and children stay where their parents are, membership is the proof
that a process is ours: teardown ends what is in there and nothing else.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rigs.mounts import Mount, mounts
from rigs.rootfs import RigError
from rigs.waiting import NotInTime, wait_until

_V2_CONTROLLERS = ("cpuset", "cpu", "io", "memory", "hugetlb", "pids")


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """One mounted cgroup file system. `controllers` is empty for a named v1 hierarchy such as systemd's."""

    mount: Path
    unified: bool
    controllers: frozenset[str]


def find_hierarchies(table: list[Mount]) -> list[Hierarchy]:
    """The cgroup file systems below /sys/fs/cgroup in a mount table; copies mounted elsewhere do not count."""
    known = frozenset({"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "hugetlb", "rdma"})
    known |= {"net_cls", "net_prio", "perf_event", "misc"}
    return [
        Hierarchy(mount.point, mount.kind == "cgroup2", mount.options & known)
        for mount in table
        if mount.kind in {"cgroup", "cgroup2"} and mount.point.is_relative_to("/sys/fs/cgroup")
    ]


@dataclass(frozen=True, slots=True)
class CgroupTree:
    """Our own cgroup, by its path below the root of every hierarchy: `/slackwater-rig`."""

    root: str
    hierarchies: tuple[Hierarchy, ...]

    @classmethod
    def on_this_machine(cls, root: str) -> CgroupTree:
        found = tuple(find_hierarchies(mounts()))
        if not found:
            raise RigError("no cgroup file system is mounted below /sys/fs/cgroup")
        return cls(root, found)

    def create(self) -> None:
        for hierarchy, directory in self._directories():
            if self._pure_v2:
                _enable_controllers(hierarchy.mount)
            for one in (directory, directory / "system"):
                one.mkdir(exist_ok=True)
                if "cpuset" in hierarchy.controllers:  # empty on v1, and no process may enter until it is not
                    for name in ("cpuset.cpus", "cpuset.mems"):
                        (one / name).write_text((one.parent / name).read_text())
            if self._pure_v2:
                _enable_controllers(directory)

    @property
    def system_directories(self) -> list[Path]:
        """Where a daemon of the node enters: one directory per hierarchy."""
        return [directory / "system" for _, directory in self._directories()]

    @property
    def memory(self) -> Path:
        """The directory of the root in the hierarchy that has the memory controller."""
        for hierarchy, directory in self._directories():
            if "memory" in hierarchy.controllers or self._pure_v2:
                return directory
        raise RigError("no cgroup hierarchy of this machine has the memory controller")

    def processes(self) -> set[int]:
        """Process ids in any cgroup of the tree, in any hierarchy."""
        found: set[int] = set()
        for _, directory in self._directories():
            for one in _subtree(directory):
                with suppress(OSError):  # it may end while we look
                    found.update(int(pid) for pid in (one / "cgroup.procs").read_text().split())
        return found

    def kill(self, timeout_s: float = 20.0) -> int:
        """End every process in the tree with SIGKILL and wait until none is left; returns how many there were.

        A pid is signalled through a pidfd after its membership was read again, so a number that was reused
        in between is never hit.
        """
        killed: set[int] = set()

        def none_left() -> bool:
            pids = self.processes()
            for pid in pids:
                self._kill_member(pid)
            killed.update(pids)
            return not pids

        try:
            wait_until("ending the processes of the rig's cgroup", none_left, timeout_s, interval_s=0.05)
        except NotInTime as error:
            raise RigError(f"{error}; still there: {sorted(self.processes())}") from error
        return len(killed)

    def remove(self, timeout_s: float = 10.0) -> None:
        """Remove the cgroups, leaves first; the kernel may need a moment after the last process."""

        def removed() -> bool:
            left = False
            for _, directory in self._directories():
                for one in reversed(list(_subtree(directory))):
                    with suppress(FileNotFoundError):
                        try:
                            one.rmdir()
                        except OSError:
                            left = True
            return not left

        wait_until(f"removing the cgroups {self.root}", removed, timeout_s, interval_s=0.1)

    def exists(self) -> bool:
        return any(directory.is_dir() for _, directory in self._directories())

    @property
    def _pure_v2(self) -> bool:
        """Beside v1 hierarchies the v2 one only tracks processes and is left as it is."""
        return all(hierarchy.unified for hierarchy in self.hierarchies)

    def _directories(self) -> list[tuple[Hierarchy, Path]]:
        return [(hierarchy, hierarchy.mount / self.root.lstrip("/")) for hierarchy in self.hierarchies]

    def _kill_member(self, pid: int) -> None:
        try:
            handle = os.pidfd_open(pid)
        except (ProcessLookupError, OSError):
            return
        try:
            memberships = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
            if any(is_within(line.split(":", 2)[2], self.root) for line in memberships):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        except OSError:
            pass  # it has ended by itself
        finally:
            os.close(handle)


def is_within(path: str, root: str) -> bool:
    """Whether a cgroup path is `root` or below it; `/slackwater-rig2` is not below `/slackwater-rig`."""
    return path == root or path.startswith(root + "/")


def _subtree(directory: Path) -> Iterator[Path]:
    """The directory and everything below, parents first."""
    for name, _, _ in os.walk(directory):
        yield Path(name)


def _enable_controllers(directory: Path) -> None:
    """Let children of a v2 cgroup have the controllers that this one has; the kubelet expects them."""
    available = (directory / "cgroup.controllers").read_text().split()
    for controller in _V2_CONTROLLERS:
        if controller in available:
            with suppress(OSError):  # a hierarchy in use elsewhere may refuse some; the kubelet names what it misses
                (directory / "cgroup.subtree_control").write_text(f"+{controller}")
