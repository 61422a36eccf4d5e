"""The machine's mount table, and unmounting what a rig has mounted.

Who calls it: the cgroup tree (where are the hierarchies?) and the teardown.
"""

from __future__ import annotations

import ctypes
import os
import re
from dataclasses import dataclass
from pathlib import Path

_MNT_DETACH = 2


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of /proc/PID/mountinfo."""

    point: Path
    kind: str
    options: frozenset[str]


def parse_mountinfo(text: str) -> list[Mount]:
    """The mounts in the order of the file, later ones above earlier ones.

    proc(5): `36 35 98:0 /root /point rw,noatime master:1 - ext3 /dev/x rw,errors=continue`; blanks in
    paths are octal escapes, the fields before the dash vary in number.
    """
    found = []
    for line in text.splitlines():
        before, dash, after = line.partition(" - ")
        if dash:
            kind, _source, options = after.split(" ", 2)
            found.append(Mount(Path(_unescape(before.split(" ")[4])), kind, frozenset(options.split(","))))
    return found


def mounts() -> list[Mount]:
    return parse_mountinfo(Path("/proc/self/mountinfo").read_text())


def mount_points_below(directory: Path) -> list[Path]:
    """Mount points at or below a directory, innermost and latest first: the order to unmount them."""
    return [mount.point for mount in reversed(mounts()) if mount.point.is_relative_to(directory)]


def unmount_below(directory: Path) -> list[Path]:
    """Unmount everything at or below `directory`; returns what could not be unmounted.

    A mount that is still in use is detached: it disappears from the tree now and is freed by the kernel
    with its last user.
    """
    for _ in range(3):  # a mount can appear twice, and hide another one
        points = mount_points_below(directory)
        if not points:
            return []
        for point in points:
            unmount(point)
    return mount_points_below(directory)


def unmount(point: Path) -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    path = os.fsencode(point)
    return bool(libc.umount2(path, 0) == 0 or libc.umount2(path, _MNT_DETACH) == 0)


def _unescape(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)
