#!/usr/bin/python3 -B
"""The first process of the VM: sets the system up, runs one command, hands back its results, powers off.

Who runs it: the kernel that `rigs.vm` boots, as /init; it is never imported. It speaks to the host over
two serial ports: on the first (the console) everything is shown as it happens, on the second goes one
line of JSON with the result. If this process fails, the kernel panics, which the host sees.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import subprocess
import sys
import termios
import threading
import tty
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_POWER_OFF = 0x4321FEDC  # LINUX_REBOOT_CMD_POWER_OFF, reboot(2)

#: What is mounted where: source, target, type, options.
_MOUNTS = (
    ("proc", "/proc", "proc", ""),
    ("sysfs", "/sys", "sysfs", ""),
    ("devtmpfs", "/dev", "devtmpfs", ""),
    ("tmpfs", "/dev/shm", "tmpfs", ""),
    ("tmpfs", "/run", "tmpfs", ""),
    ("tmpfs", "/tmp", "tmpfs", ""),
    ("cgroup2", "/sys/fs/cgroup", "cgroup2", ""),
    # The root of an initramfs is memory that cannot be reclaimed. Tests of page cache need files of a disk.
    ("/dev/nvme0n1", "/disk", "ext4", "noinit_itable"),
)
_CONTROLLERS = "+cpu +cpuset +io +memory +pids"


def main() -> None:
    """Run the job that the host packed into /job.json."""
    for source, target, kind, options in _MOUNTS:
        _mount(source, target, kind, options)
    Path("/sys/fs/cgroup/cgroup.subtree_control").write_text(_CONTROLLERS)
    job = json.loads(Path("/job.json").read_text())
    returncode, output = _run(job["argv"], job["environment"], job["directory"])
    files = {name: _read(name) for name in job["collect"] if os.path.exists(name)}
    _answer({"returncode": returncode, "output": output, "files": files})
    os.sync()
    _LIBC.reboot(ctypes.c_uint(_POWER_OFF))


def _mount(source: str, target: str, kind: str, options: str) -> None:
    os.makedirs(target, exist_ok=True)
    if _LIBC.mount(source.encode(), target.encode(), kind.encode(), 0, options.encode()) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount {kind} on {target}: {os.strerror(number)}")


def _run(argv: list[str], environment: dict[str, str], directory: str) -> tuple[int, str]:
    """Run the command; show its output on the console as it comes, and return it."""
    child = subprocess.Popen(
        argv, env=environment, cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    chunks: list[bytes] = []
    reader = threading.Thread(target=_show, args=(child, chunks), daemon=True)
    reader.start()
    # The first process inherits every orphan, and has to wait for it.
    while True:
        pid, status = os.wait()
        if pid == child.pid:
            break
    child.returncode = os.waitstatus_to_exitcode(status)
    reader.join(timeout=2)  # an orphan may still hold the pipe open
    return child.returncode, b"".join(chunks).decode(errors="replace")


def _show(child: subprocess.Popen[bytes], chunks: list[bytes]) -> None:
    assert child.stdout is not None
    while chunk := os.read(child.stdout.fileno(), 65536):
        chunks.append(chunk)
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()


def _read(name: str) -> str:
    return base64.b64encode(Path(name).read_bytes()).decode()


def _answer(result: dict[str, object]) -> None:
    """Send one line of JSON over the second serial port. The line's end tells the host it is whole."""
    port = os.open("/dev/ttyS1", os.O_WRONLY | os.O_NOCTTY)
    tty.setraw(port)
    remaining = json.dumps(result).encode() + b"\n"
    while remaining:
        remaining = remaining[os.write(port, remaining) :]
    termios.tcdrain(port)
    os.close(port)


if __name__ == "__main__":
    main()
