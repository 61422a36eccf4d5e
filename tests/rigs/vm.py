"""A virtual machine with what this machine may lack: cgroup v2 and three NUMA nodes, one without CPUs.

Who calls it: tests/vm, which runs the tests of tests/vm/inside in it, and whoever needs a real kernel to
ask. `run_in_vm` boots Debian's cloud kernel in QEMU with software emulation, runs one command on the
repository's own code and returns its result. Nothing of the host is visible inside, there is no network,
and nothing survives: the root lives in memory, the disk is a throw-away copy.

The memory image is two archives. The large one (system, Python, test tools) depends only on installed
versions and is cached; the small one (our code, the command) is written at every run. Neither is
compressed: QEMU hands the file over at the host's speed, while the emulated CPU would need seconds to
decompress it.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from rigs.initramfs import Archive
from rigs.requirements import ensure_packages, program
from rigs.rootfs import RigError, cache_dir, debian_root, locked, refresh_package_lists

Progress = Callable[[str], None]

REPOSITORY = Path(__file__).resolve().parents[2]

#: What is packed of the repository, relative to it. The host's side of tests/vm stays outside: its
#: conftest would start another VM.
SOURCES = ("pyproject.toml", "slackwater", "nodeagent", "tests/builders.py", "tests/vm/inside", "tests/vm/reports.py")

#: Distributions of the running environment that are wanted inside, with what they need. Only their pure
#: Python parts are copied, because compiled ones belong to the host's Python; each of these works without.
#: (hypothesis does not, and nothing that needs a kernel is a matter of random inputs.)
DISTRIBUTIONS = ("pytest", "pytest-timeout", "pyyaml", "click", "prometheus-client")

#: The first of these that apt knows is used: Debian's kernel for virtual machines, then Ubuntu's.
_KERNEL_PACKAGES = ("linux-image-cloud-amd64", "linux-image-virtual")

_PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "debootstrap": "debootstrap",
    "mkfs.ext4": "e2fsprogs",
    "dpkg-deb": "dpkg",
    "setpriv": "util-linux",
}

#: Parts of the root file system that no test uses; leaving them out halves what the kernel has to unpack.
_LEFT_OUT = re.compile(
    r"(boot|dev|home|media|mnt|opt|proc|run|srv|sys|tmp|var|usr/(share|include|src|games|libexec|local)"
    r"|usr/lib/(apt|dpkg|systemd|udev|valgrind|locale)"
    r"|usr/lib/x86_64-linux-gnu/(perl-base|gconv|libapt-.*|libdb-.*|libgnutls.*|libp11-kit.*|libunistring.*)"
    r"|usr/lib/python3\.\d+/(ensurepip|lib2to3|pydoc_data|idlelib|turtledemo|distutils))"
)

_CODE_IN_VM = "/repository"
_TOOLS_IN_VM = "/tools"
_DISK_BYTES = 1 << 30

#: Boots in seconds; the rest is room for a busy machine.
DEFAULT_TIMEOUT_S = 300.0

_PROGRESS_INTERVAL_S = 10.0


class VmFailed(RigError):
    """The VM gave no result: it panicked, hung, or could not be started."""


@dataclass(frozen=True, slots=True)
class VmResult:
    """What a command in the VM left: exit status, output, the collected files that exist, and the log."""

    returncode: int
    output: str
    files: Mapping[str, bytes]
    log: Path
    seconds: float


def run_in_vm(
    argv: Sequence[str],
    progress: Progress,
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    collect: Sequence[str] = (),
    log: Path | None = None,
) -> VmResult:
    """Boot, run `argv` as root in the repository's copy, power off; return what it left.

    Python there finds the repository's packages and `DISTRIBUTIONS`. `collect` names files inside that
    are handed back. Blocks for at most `timeout_s` after the images are ready; QEMU has ended when this
    returns or raises. A status other than 0 is returned, not raised.

    Raises:
        VmFailed: no whole result came back; the sentence has the reason and the console's last lines.
        RigError: the machine lacks something that cannot be installed from here.
    """
    ensure_packages(progress, _PROGRAMS)
    kernel = _kernel(progress)
    base = _base_image(progress)
    disk = _disk()
    console = log or cache_dir() / "logs" / f"vm-{os.getpid()}.log"
    console.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="slackwater-vm-") as name:
        work = Path(name)
        image = work / "image.cpio"
        _write_image(image, base, argv, collect)
        answer = work / "answer"
        command = qemu_command(kernel, image, disk, console, answer)
        started = time.monotonic()
        reason = _run_qemu(command, console, timeout_s, progress)
        seconds = time.monotonic() - started
        text = answer.read_text(errors="replace") if answer.exists() else ""
    return read_answer(text, console, seconds, reason)


def qemu_command(kernel: Path, image: Path, disk: Path, console: Path, answer: Path) -> list[str]:
    """The QEMU command line: two CPUs on nodes 0 and 1, and 1 GiB on each of nodes 0, 1 and 2.

    Software emulation is chosen because /dev/kvm may exist and yet not work. `setpriv` lets the kernel
    end QEMU when this process is killed.
    """
    nodes = [
        part
        for node in range(3)
        for part in (
            "-object",
            f"memory-backend-ram,id=m{node},size=1G",
            "-numa",
            f"node,nodeid={node},memdev=m{node}" + (f",cpus={node}" if node < 2 else ""),
        )
    ]
    boot = "console=ttyS0 rdinit=/init psi=1 panic=1 loglevel=5 random.trust_cpu=on"
    return [
        *("setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64"),
        *("-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "3G", *nodes),
        *("-kernel", str(kernel), "-initrd", str(image), "-append", boot),
        *("-drive", f"file={disk},format=raw,if=none,id=disk,snapshot=on"),
        *("-device", "nvme,drive=disk,serial=disk"),
        *("-serial", f"file:{console}", "-serial", f"file:{answer}"),
        *("-display", "none", "-monitor", "none", "-nic", "none", "-no-reboot"),
    ]


def read_answer(text: str, console: Path, seconds: float, reason: str | None) -> VmResult:
    """Turn what came over the second serial port into a result; `reason` says why QEMU was ended, if it was.

    Raises:
        VmFailed: the answer is absent or was cut off.
    """
    if reason is None and text.endswith("\n"):
        answer = json.loads(text)
        files = {name: base64.b64decode(content) for name, content in answer["files"].items()}
        return VmResult(answer["returncode"], answer["output"], files, console, seconds)
    lines = console.read_text(errors="replace").splitlines() if console.exists() else []
    if reason is None:
        panics = [line for line in lines if "Kernel panic" in line]
        reason = panics[0].strip() if panics else "the VM stopped without a result"
    tail = "\n".join(lines[-40:])
    raise VmFailed(f"{reason} after {seconds:.0f} s; the console is in {console}, its last lines:\n{tail}")


def _run_qemu(command: Sequence[str], console: Path, timeout_s: float, progress: Progress) -> str | None:
    """Run QEMU to its end, or end it; return why it was ended, None where it ended by itself."""
    progress("booting the VM")
    started = time.monotonic()
    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=complaints, stderr=complaints)
        try:
            while True:
                remaining = timeout_s - (time.monotonic() - started)
                if remaining <= 0:
                    return f"the VM did not finish within {timeout_s:.0f} s and was ended"
                try:
                    status = process.wait(timeout=min(_PROGRESS_INTERVAL_S, remaining))
                    break
                except subprocess.TimeoutExpired:
                    progress(f"VM: {time.monotonic() - started:.0f} s, {_last_line(console)}")
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if status != 0:
            complaints.seek(0)
            return f"QEMU ended with status {status}: {complaints.read().decode(errors='replace').strip()}"
    return None


def _last_line(console: Path) -> str:
    if not console.exists():
        return "nothing on the console yet"
    lines = console.read_text(errors="replace").split("\n")
    return next((line.strip()[:120] for line in reversed(lines) if line.strip()), "nothing on the console yet")


def _write_image(path: Path, base: Path, argv: Sequence[str], collect: Sequence[str]) -> None:
    """The small archive (our code and the job), with the large one behind it."""
    job = {
        "argv": list(argv),
        "directory": _CODE_IN_VM,
        "collect": list(collect),
        "environment": {
            "PATH": "/usr/sbin:/usr/bin",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "TMPDIR": "/tmp",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": f"{_CODE_IN_VM}:{_CODE_IN_VM}/tests:{_TOOLS_IN_VM}",
        },
    }
    with open(path, "wb") as output:
        archive = Archive(output)
        archive.character_device("dev/console", 5, 1)
        archive.file("init", Path(__file__).with_name("vm_init.py").read_bytes(), 0o755)
        archive.file("job.json", json.dumps(job).encode())
        for source in SOURCES:
            _add_source(archive, source)
        archive.close()
        with open(base, "rb") as large:
            shutil.copyfileobj(large, output, 1 << 20)


def _add_source(archive: Archive, source: str) -> None:
    path, name = REPOSITORY / source, f"{_CODE_IN_VM}/{source}".lstrip("/")
    if path.is_dir():
        archive.tree(path, name, lambda below: "__pycache__" not in below)
    elif path.is_file():
        archive.file(name, path.read_bytes())


def _kernel(progress: Progress) -> Path:
    """The kernel image of the distribution's kernel for virtual machines, fetched but not installed."""
    package = _kernel_package(progress)
    target = cache_dir() / "kernel" / package
    with locked(target):
        if not target.is_dir():
            progress(f"fetching the kernel {package}")
            work = Path(tempfile.mkdtemp(prefix="making-", dir=target.parent))
            try:
                # apt downloads as the user _apt where it can, and that user must be able to write here.
                work.chmod(0o777)
                _checked(["apt-get", "download", package], work)
                [archive] = work.glob("*.deb")
                _checked(["dpkg-deb", "-x", str(archive), str(work / "all")], work)
                (work / "all" / "boot").rename(target)
            finally:
                shutil.rmtree(work, ignore_errors=True)
    [image] = target.glob("vmlinuz-*")
    return image


def _kernel_package(progress: Progress) -> str:
    """The name of the package with the newest kernel image. The names above are only pointers to it."""
    for attempt in range(2):
        for pointer in _KERNEL_PACKAGES:
            done = subprocess.run(
                ["apt-cache", "depends", "--important", pointer], capture_output=True, text=True, check=False
            )
            found = re.search(r"Depends: (linux-image-\d\S+)", done.stdout)
            if found:
                return found[1]
        if attempt == 0:
            refresh_package_lists(progress)
    raise RigError(f"apt knows none of the kernels {', '.join(_KERNEL_PACKAGES)}; enable the archive that has one")


def _base_image(progress: Progress) -> Path:
    """The large archive: the system, its Python and the test tools. Made once for these versions."""
    root = debian_root(progress)
    tools = tuple(_with_needs(DISTRIBUTIONS))
    versions = [f"{one.name}=={one.version}" for one in tools]
    digest = hashlib.sha256("\n".join((root.name, _LEFT_OUT.pattern, *versions)).encode()).hexdigest()[:12]
    target = cache_dir() / "vm" / f"base-{digest}.cpio"
    with locked(target):
        if not target.is_file():
            progress("packing the VM's system (once)")
            making = target.with_suffix(".making")
            with open(making, "wb") as output:
                archive = Archive(output)
                archive.tree(root, "", lambda below: _LEFT_OUT.fullmatch(below) is None)
                for distribution in tools:
                    _add_distribution(archive, distribution)
                archive.close()
            making.rename(target)
    return target


def _with_needs(names: Iterable[str]) -> Iterator[importlib.metadata.Distribution]:
    """The named distributions and, once each, all that they need in this environment."""
    seen: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop(0).lower().replace("_", "-")
        if name in seen:
            continue
        seen.add(name)
        distribution = importlib.metadata.distribution(name)
        yield distribution
        for line in distribution.requires or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)


def _add_distribution(archive: Archive, distribution: importlib.metadata.Distribution) -> None:
    for recorded in distribution.files or ():
        path = Path(str(distribution.locate_file(recorded)))
        # Compiled parts belong to the host's Python and libraries; programs lie above the packages.
        if path.suffix == ".so" or recorded.parts[0] == ".." or not path.is_file():
            continue
        archive.file(f"{_TOOLS_IN_VM}/{recorded}".lstrip("/"), path.read_bytes(), 0o644, int(path.stat().st_mtime))


def _disk() -> Path:
    """An empty ext4 disk, sparse. QEMU writes to a copy of its own, so that every run finds it empty."""
    target = cache_dir() / "vm" / f"disk-{_DISK_BYTES >> 20}M.ext4"
    with locked(target):
        if not target.is_file():
            making = target.with_suffix(".making")
            with open(making, "wb") as output:
                output.truncate(_DISK_BYTES)
            _checked([program("mkfs.ext4"), "-q", "-F", "-E", "lazy_itable_init=1", str(making)], target.parent)
            making.rename(target)
    return target


def _checked(command: Sequence[str], directory: Path) -> None:
    done = subprocess.run(
        command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != 0:
        raise RigError(f"`{' '.join(command)}` failed with status {done.returncode}:\n{done.stdout.strip()}")
