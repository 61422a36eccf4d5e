"""The kernel's memory texts as values: ``memory.stat``, limits, ``/proc/meminfo``, a NUMA node's meminfo. No files.

Two questions are asked of a cgroup, and the answer must not count page cache that can be dropped:

*pod*: what would not go away by itself?
    ``inactive_anon + active_anon + unevictable``, the LRU lists. tmpfs and shared memory are in them (they are swap
    backed), file cache is not, mlocked pages are counted once. This is also what Koordinator measures. On v2 the
    kernel's own share without reclaimable slab and the socket buffers are added; v1 cannot tell reclaimable slab
    apart, so there it falls into the node's ``system`` term.
*node* (where a cgroup stands for the node): the same question as MemTotal − MemAvailable of a machine.
    ``usage − inactive_file − active_file`` and, on v2, ``− slab_reclaimable``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

_V1_UNLIMITED = 2**63 - 2**16
"""v1 shows "no limit" as the largest page-aligned value, for pages of up to 64 KiB."""
_KIB = 1024

Stat: TypeAlias = Mapping[str, int]


class Version(StrEnum):
    """Of the hierarchy that holds the memory controller."""

    V1 = "v1"
    V2 = "v2"


class Unreadable(ValueError):
    """A text of the kernel lacks what it must have. The message names the key or shows the text."""


@dataclass(frozen=True, slots=True)
class MachineMemory:
    """Bytes of a machine or of one NUMA node, pages reserved as hugepages taken out of both."""

    capacity: int
    used: int


def parse_stat(text: str) -> dict[str, int]:
    """Lines of ``key value`` (``memory.stat``, ``memory.events``); lines of another form are skipped."""
    read: dict[str, int] = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if value.isascii() and value.isdigit():
            read[key] = int(value)
    return read


def parse_bytes(text: str) -> int:
    """A file that holds one number (``memory.current``).

    Raises:
        Unreadable: it does not.
    """
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit()):
        raise Unreadable(f"{text[:80]!r} is not a number of bytes")
    return int(digits)


def parse_limit(text: str) -> int | None:
    """``memory.max`` or ``memory.limit_in_bytes``; None = no limit.

    Raises:
        Unreadable: neither a number nor ``max``.
    """
    if text.strip() == "max":
        return None
    limit = parse_bytes(text)
    return None if limit >= _V1_UNLIMITED else limit


def pod_used(stat: Stat, version: Version) -> int:
    """Bytes that a pod's cgroup, and everything below it, really holds.

    Raises:
        Unreadable: an LRU list is missing: this is no memory.stat.
    """
    prefix = "total_" if version is Version.V1 else ""
    held = sum(_need(stat, f"{prefix}{name}") for name in ("inactive_anon", "active_anon", "unevictable"))
    if version is Version.V1:
        return held
    return held + max(0, _kernel(stat) - stat.get("slab_reclaimable", 0)) + stat.get("sock", 0)


def pod_used_by_numa(text: str, version: Version, page_size: int) -> dict[int, int]:
    """``memory.numa_stat`` of a pod: bytes of :func:`pod_used`'s LRU lists by NUMA node (v1 counts pages)."""
    wanted: tuple[str, ...] = ("hierarchical_anon", "hierarchical_unevictable")
    if version is Version.V2:
        wanted, page_size = ("inactive_anon", "active_anon", "unevictable"), 1
    used: dict[int, int] = {}
    for line in text.splitlines():
        name, *places = line.split() or [""]
        if name.partition("=")[0] not in wanted:
            continue
        for place in places:
            numa, _, amount = place.removeprefix("N").partition("=")
            if numa.isdigit() and amount.isdigit():
                used[int(numa)] = used.get(int(numa), 0) + int(amount) * page_size
    return used


def node_used(usage: int, stat: Stat, version: Version) -> int:
    """Bytes used of a cgroup that stands for a node, cache that can be dropped taken out.

    Raises:
        Unreadable: an LRU list is missing.
    """
    prefix = "total_" if version is Version.V1 else ""
    droppable = _need(stat, f"{prefix}inactive_file") + _need(stat, f"{prefix}active_file")
    if version is Version.V2:
        droppable += stat.get("slab_reclaimable", 0)
    return max(0, usage - droppable)


def parse_meminfo(text: str) -> MachineMemory:
    """``/proc/meminfo``: used is MemTotal − MemAvailable; hugepages belong to neither side.

    Raises:
        Unreadable: MemTotal or MemAvailable is missing.
    """
    lines = _kib_lines(text)
    capacity = _need(lines, "MemTotal") - _hugepages(lines)
    return MachineMemory(capacity, max(0, capacity - _need(lines, "MemAvailable")))


def parse_numa_meminfo(text: str) -> MachineMemory:
    """``/sys/devices/system/node/nodeN/meminfo``: without a MemAvailable, so cache and reclaimable slab are taken out.

    Raises:
        Unreadable: a needed line is missing.
    """
    without_prefix = "\n".join(line.split(maxsplit=2)[-1] for line in text.splitlines() if line.strip())
    lines = _kib_lines(without_prefix)
    capacity = _need(lines, "MemTotal") - _hugepages(lines)
    free = (
        _need(lines, "MemFree")
        + _need(lines, "Active(file)")
        + _need(lines, "Inactive(file)")
        + lines.get("SReclaimable", 0)
    )
    return MachineMemory(capacity, max(0, capacity - free))


def _kernel(stat: Stat) -> int:
    """``kernel`` stands in memory.stat since Linux 5.18; before it is the sum of its parts."""
    if "kernel" in stat:
        return stat["kernel"]
    return sum(stat.get(part, 0) for part in ("kernel_stack", "pagetables", "percpu", "vmalloc", "slab"))


def _kib_lines(text: str) -> dict[str, int]:
    """``Name: 12 kB`` as bytes; a count without a unit stays a count."""
    read: dict[str, int] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isascii() and words[0].isdigit():
            read[name.strip()] = int(words[0]) * (_KIB if words[1:] == ["kB"] else 1)
    return read


def _hugepages(lines: Mapping[str, int]) -> int:
    """``Hugetlb`` covers every page size (Linux 4.20); a NUMA node's file has only the count of the default size."""
    if "Hugetlb" in lines:
        return lines["Hugetlb"]
    return lines.get("HugePages_Total", 0) * lines.get("Hugepagesize", 2 * _KIB * _KIB)


def _need(values: Mapping[str, int], key: str) -> int:
    try:
        return values[key]
    except KeyError:
        raise Unreadable(f"{key} is missing") from None
