"""Write initramfs archives: the "newc" form of cpio that the kernel unpacks at boot.

Who calls it: the VM rig. The kernel unpacks several archives one after the other, if each is padded to
four bytes (Documentation/driver-api/early-userspace/buffer-format.rst); so the big part is written once
and the small part at every run. Written by hand because the archive needs device nodes and directories
that do not exist on this machine, which the cpio program cannot invent.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

#: The name that ends an archive.
_TRAILER = "TRAILER!!!"


class Archive:
    """One cpio archive, written in the order of the calls. Parent directories are added on demand."""

    def __init__(self, output: BinaryIO) -> None:
        self._output = output
        self._inode = 0
        self._directories: set[str] = set()

    def directory(self, name: str, mode: int = 0o755) -> None:
        """Add a directory and the parents it lacks; once is enough."""
        self._parents(name)
        if name not in self._directories:
            self._directories.add(name)
            self._entry(name, stat.S_IFDIR | mode)

    def file(self, name: str, content: bytes, mode: int = 0o644, mtime: int = 0) -> None:
        """Add a regular file."""
        self._parents(name)
        self._entry(name, stat.S_IFREG | mode, content, mtime=mtime)

    def link(self, name: str, target: str) -> None:
        """Add a symbolic link."""
        self._parents(name)
        self._entry(name, stat.S_IFLNK | 0o777, target.encode())

    def character_device(self, name: str, major: int, minor: int) -> None:
        """Add a character device node, without the need to be root."""
        self._parents(name)
        self._entry(name, stat.S_IFCHR | 0o600, device=(major, minor))

    def tree(self, source: Path, name: str, wanted: Callable[[str], bool] = lambda _: True) -> None:
        """Add what lies below `source` as `name`: directories, files and links, no devices or sockets.

        `wanted` gets each path relative to `source` and says whether to take it; a directory that is
        not wanted is left out with all it holds. Modes and modification times are kept, because Python
        compares the latter with what its compiled files say.
        """
        for parent, directories, files in os.walk(source):
            relative = Path(parent).relative_to(source)
            directories[:] = sorted(one for one in directories if wanted(str(relative / one)))
            for entry in [*directories, *sorted(files)]:
                below = relative / entry
                if wanted(str(below)):
                    self._copy(source / below, str(Path(name) / below))

    def close(self) -> None:
        """End the archive and pad it, so that another may follow; the file stays open."""
        self._entry(_TRAILER, 0)
        self._output.write(b"\0" * (-self._output.tell() % 512))

    def _copy(self, path: Path, name: str) -> None:
        found = path.lstat()
        mode = stat.S_IMODE(found.st_mode)
        if stat.S_ISLNK(found.st_mode):
            self.link(name, os.readlink(path))
        elif stat.S_ISDIR(found.st_mode):
            self.directory(name, mode)
        elif stat.S_ISREG(found.st_mode):
            self.file(name, path.read_bytes(), mode, int(found.st_mtime))

    def _parents(self, name: str) -> None:
        parent = os.path.dirname(name)
        if parent:
            self.directory(parent)

    def _entry(
        self, name: str, mode: int, content: bytes = b"", mtime: int = 0, device: tuple[int, int] = (0, 0)
    ) -> None:
        self._inode += 1
        encoded = name.encode() + b"\0"
        # ino mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check
        numbers = (self._inode, mode, 0, 0, 1, mtime, len(content), 0, 0, *device, len(encoded), 0)
        head = b"070701" + b"".join(b"%08X" % number for number in numbers) + encoded
        self._output.write(head + b"\0" * (-len(head) % 4))
        self._output.write(content + b"\0" * (-len(content) % 4))
