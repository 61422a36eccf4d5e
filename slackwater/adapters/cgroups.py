"""The memory files of a Linux node: cgroups v1 and v2, ``/proc/meminfo``, NUMA nodes.

The only place that reads or writes them; used by the node agent and the tests. Standard library only. Every path is
below an injectable ``host_root``: a folder of plain files serves as a node in tests, and the host's ``/`` may be
mounted anywhere in a container. Calls block, mostly for microseconds (``memory.stat`` may wait for the kernel to
gather its counters).
"""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from slackwater.cgroup import parse
from slackwater.cgroup.layout import Driver, container_id, pod_uid, qos_directories
from slackwater.cgroup.parse import MachineMemory, Stat, Unreadable, Version
from slackwater.errors import SlackwaterError, Unavailable

_READ_SIZE = 64 * 1024
_LIMIT_FILES = {Version.V1: "memory.limit_in_bytes", Version.V2: "memory.max"}
_Number = TypeVar("_Number", int, int | None)
_USAGE_FILES = {Version.V1: "memory.usage_in_bytes", Version.V2: "memory.current"}


class Vanished(SlackwaterError):
    """The cgroup is gone: its pod or container has ended. For a writer that is success."""


class LimitRefused(SlackwaterError):
    """A limit was not lowered because more than that is in use; it is unchanged."""


@dataclass(frozen=True, slots=True)
class PodCgroup:
    """One pod's directory. ``uid`` is the kubelet's (a static pod's file hash), ``path`` absolute."""

    uid: str
    path: Path
    driver: Driver


@dataclass(frozen=True, slots=True)
class NumaMemory:
    """Bytes of one NUMA node."""

    id: int
    memory: MachineMemory


class CgroupTree:
    """The memory hierarchy of one node, as its kubelet uses it.

    Args:
        host_root: where the host's ``/`` (or the needed part of it) is mounted.
        kubelet_root: the kubelet's ``--cgroup-root``.
        node_cgroup: a cgroup that stands for the node, relative to the memory hierarchy; empty = the whole machine.
        node_capacity: bytes of that node; empty = the cgroup's own limit.

    Raises:
        Unavailable: no memory controller is mounted below ``host_root``.
    """

    def __init__(
        self,
        host_root: str | Path = "/",
        *,
        kubelet_root: str = "",
        node_cgroup: str = "",
        node_capacity: int | None = None,
    ) -> None:
        self.host_root = Path(host_root)
        mount = self.host_root / "sys/fs/cgroup"
        if _controllers(mount / "cgroup.controllers") & {"memory"}:
            self.version, self.memory_root = Version.V2, mount
        elif (mount / "memory" / "memory.stat").exists():
            self.version, self.memory_root = Version.V1, mount / "memory"
        else:
            raise Unavailable(
                f"no memory controller below {mount}: neither v2 (cgroup.controllers with memory) nor v1 "
                "(memory/memory.stat); mount the host's /sys/fs/cgroup there"
            )
        self._node = self.memory_root / node_cgroup.strip("/") if node_cgroup.strip("/") else None
        self._node_capacity = node_capacity
        self._pod_parents = [
            (driver, self.memory_root / directory)
            for driver in Driver
            for directory in qos_directories(kubelet_root, driver)
        ]

    # -- the node ---------------------------------------------------------------------------------------------

    def node_memory(self) -> MachineMemory:
        """Capacity and use of the node.

        Raises:
            Unavailable: a file cannot be read or makes no sense.
        """
        try:
            if self._node is None:
                return self._of_machine(parse.parse_meminfo(_read(self.host_root / "proc/meminfo")))
            return self._of_cgroup(self._node)
        except (OSError, Unreadable) as error:
            raise Unavailable(f"the node's memory cannot be read: {error}") from error

    def numa_memory(self) -> tuple[NumaMemory, ...]:
        """Each NUMA node with memory, where there is more than one; else nothing (also where a cgroup is the node).

        Raises:
            Unavailable: a file cannot be read or makes no sense.
        """
        if self._node is not None:
            return ()
        found = []
        for directory in _directories(self.host_root / "sys/devices/system/node"):
            number = directory.name.removeprefix("node")
            if number == directory.name or not number.isdigit():
                continue
            try:
                memory = parse.parse_numa_meminfo(_read(directory / "meminfo"))
            except (OSError, Unreadable) as error:
                raise Unavailable(f"the memory of NUMA node {number} cannot be read: {error}") from error
            if memory.capacity > 0:
                found.append(NumaMemory(int(number), memory))
        found.sort(key=lambda numa: numa.id)
        return tuple(found) if len(found) > 1 else ()

    def _of_machine(self, machine: MachineMemory) -> MachineMemory:
        return MachineMemory(self._node_capacity or machine.capacity, machine.used)

    def _of_cgroup(self, directory: Path) -> MachineMemory:
        usage = parse.parse_bytes(_read(directory / _USAGE_FILES[self.version]))
        used = parse.node_used(usage, parse.parse_stat(_read(directory / "memory.stat")), self.version)
        capacity = self._node_capacity
        if capacity is None:
            capacity = parse.parse_limit(_read(directory / _LIMIT_FILES[self.version]))
        if capacity is None:
            raise Unreadable(f"{directory} has no memory limit to take as the node's capacity; give the capacity")
        return MachineMemory(capacity, used)

    # -- pods and containers ----------------------------------------------------------------------------------

    def pods(self) -> dict[str, PodCgroup]:
        """Every pod's directory by the uid in its name, whatever its QoS class and the kubelet's driver."""
        found: dict[str, PodCgroup] = {}
        for driver, parent in self._pod_parents:
            for directory in _directories(parent):
                uid = pod_uid(directory.name)
                if uid is not None:
                    found[uid] = PodCgroup(uid, directory, driver)
        return found

    def containers(self, pod: PodCgroup) -> dict[str, Path]:
        """The directories of a pod's containers (its sandbox too) by runtime id."""
        return {name: path for path in _directories(pod.path) if (name := container_id(path.name)) is not None}

    def pod_used(self, pod: PodCgroup) -> int:
        """Bytes the pod holds, cache that can be dropped not counted.

        Raises:
            Vanished: the pod has ended.
            Unavailable: its files make no sense.
        """
        try:
            return parse.pod_used(self.stat(pod.path), self.version)
        except Unreadable as error:
            raise Unavailable(f"{pod.path}/memory.stat: {error}") from error

    def pod_used_by_numa(self, pod: PodCgroup) -> dict[int, int]:
        """Bytes the pod holds on each NUMA node; nothing where the kernel does not tell.

        Raises:
            Vanished, Unavailable: as for :meth:`pod_used`.
        """
        try:
            text = _read_existing(pod.path / "memory.numa_stat")
        except Vanished:
            return {}
        return parse.pod_used_by_numa(text, self.version, os.sysconf("SC_PAGE_SIZE"))

    def stat(self, directory: Path) -> Stat:
        """``memory.stat`` of a cgroup.

        Raises:
            Vanished, Unavailable: as for :meth:`pod_used`.
        """
        return parse.parse_stat(_read_existing(directory / "memory.stat"))

    def usage(self, directory: Path) -> int:
        """Bytes charged to a cgroup, cache included: what its limit is compared with.

        Raises:
            Vanished, Unavailable: as for :meth:`pod_used`.
        """
        return self._number(directory / _USAGE_FILES[self.version], parse.parse_bytes)

    def limit(self, directory: Path) -> int | None:
        """The memory limit in force on a cgroup; None = none.

        Raises:
            Vanished, Unavailable: as for :meth:`pod_used`.
        """
        return self._number(directory / _LIMIT_FILES[self.version], parse.parse_limit)

    def set_limit(self, directory: Path, limit: int) -> None:
        """Put a limit in force without ever killing for it.

        Raising is one write. Lowering below what is charged: v1's kernel drops cache and refuses with EBUSY where that
        is not enough. v2's would reclaim and then OOM-kill (cgroup-v2.rst, memory.max), so there cache is reclaimed
        first (``memory.reclaim``, Linux 5.19) and the limit is written only once the charge fits under it. Neither is
        tried where what cannot be dropped is more than the limit: that would cost the pod its cache for nothing.

        Raises:
            LimitRefused: more than ``limit`` stays in use; nothing was changed.
            Vanished: the cgroup has ended.
            Unavailable: the write failed for another reason (no right, a read-only mount).
        """
        self._make_room(directory, limit)
        try:
            _write(directory / _LIMIT_FILES[self.version], str(limit))
        except OSError as error:
            if error.errno == errno.EBUSY:
                raise LimitRefused(f"{directory.name} uses {self.usage(directory)} bytes of {limit}") from error
            if error.errno in _GONE:
                raise Vanished(str(directory)) from error
            raise Unavailable(f"limit {limit} cannot be written to {directory}: {error}") from error

    def _make_room(self, directory: Path, limit: int) -> None:
        excess = self.usage(directory) - limit
        if excess <= 0:
            return
        try:
            held = parse.pod_used(self.stat(directory), self.version)
        except Unreadable as error:
            raise Unavailable(f"{directory}/memory.stat: {error}") from error
        if held > limit:
            raise LimitRefused(f"{directory.name} holds {held} bytes of {limit}")
        if self.version is Version.V1:
            return
        # EAGAIN: less than asked was reclaimed; ENOENT: an older kernel. What counts is the charge afterwards.
        with suppress(OSError):
            _write(directory / "memory.reclaim", str(excess))
        charged = self.usage(directory)
        if charged > limit:
            raise LimitRefused(f"{directory.name} uses {charged} bytes of {limit}")

    def _number(self, file: Path, parser: Callable[[str], _Number]) -> _Number:
        try:
            return parser(_read_existing(file))
        except Unreadable as error:
            raise Unavailable(f"{file}: {error}") from error


_GONE = (errno.ENOENT, errno.ENODEV)
"""ENODEV: the file was open or looked up while its cgroup went away."""


def _read(file: Path) -> str:
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        chunks = []
        while chunk := os.read(descriptor, _READ_SIZE):
            chunks.append(chunk)
    finally:
        os.close(descriptor)
    return b"".join(chunks).decode("ascii", "replace")


def _read_existing(file: Path) -> str:
    try:
        return _read(file)
    except OSError as error:
        if error.errno in _GONE:
            raise Vanished(str(file)) from error
        raise Unavailable(f"{file} cannot be read: {error}") from error


def _write(file: Path, text: str) -> None:
    """One write(2): Python's buffered files report EBUSY at close, where it is easily lost."""
    descriptor = os.open(file, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode("ascii"))
    finally:
        os.close(descriptor)


def _controllers(file: Path) -> set[str]:
    try:
        return set(_read(file).split())
    except OSError:
        return set()


def _directories(parent: Path) -> Iterator[Path]:
    try:
        with os.scandir(parent) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return  # no pod of this class and driver, or the pod has just ended
    for name in names:
        yield parent / name
