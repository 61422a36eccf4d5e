"""What the cluster rig needs from the machine: Linux, root, and a few Debian packages.

Who calls it: the cluster, the image builder and the command line, before they start anything.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from rigs.progress import Progress
from rigs.rootfs import RigError, apt_proxy_environment

#: Program (or absolute path) -> the Debian and Ubuntu package that has it.
CLUSTER_PROGRAMS: Mapping[str, str] = {
    "runc": "runc",
    "ip": "iproute2",
    "nft": "nftables",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "nsenter": "util-linux",
    "busybox": "busybox-static",
    "cni/ptp": "containernetworking-plugins",
}
IMAGE_PROGRAMS: Mapping[str, str] = {"buildah": "buildah", "debootstrap": "debootstrap", "busybox": "busybox-static"}
VM_PROGRAMS: Mapping[str, str] = {"qemu-system-x86_64": "qemu-system-x86", "mkfs.ext4": "e2fsprogs"}

#: Directories that hold administration programs but are often missing from a user's PATH.
_PATH = os.pathsep.join(
    (os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/go/bin")
)

#: Where distributions put the CNI plugins: Debian's package, then the upstream convention.
_CNI_DIRECTORIES = ("/usr/lib/cni", "/opt/cni/bin")


class MachineUnsuitable(RigError):
    """This machine, or this user, cannot run the rig; the sentence says what is needed."""


def search_path() -> str:
    """PATH for programs that the rigs start: the caller's, and the administration directories."""
    return _PATH


def find_program(name: str) -> str | None:
    """Absolute path of a program, of the name `cni/NAME` for a CNI plugin, or None."""
    if name.startswith("cni/"):
        for directory in _CNI_DIRECTORIES:
            if os.access(Path(directory) / name.removeprefix("cni/"), os.X_OK):
                return str(Path(directory) / name.removeprefix("cni/"))
        return None
    return shutil.which(name, path=_PATH)


def program(name: str) -> str:
    """Absolute path of a program that `ensure_packages` has seen to."""
    found = find_program(name)
    if found is None:
        raise MachineUnsuitable(f"the program {name} is not installed")
    return found


def cni_directory() -> Path:
    return Path(program("cni/ptp")).parent


def require_linux_root(purpose: str) -> None:
    """Raise MachineUnsuitable, in one sentence, unless this is Linux and we are root."""
    if platform.system() != "Linux":
        raise MachineUnsuitable(
            f"{purpose} needs Linux (it starts a real kubelet and containerd), and this is {platform.system()}; "
            "use a Linux machine or VM."
        )
    if os.geteuid() != 0:
        raise MachineUnsuitable(f"{purpose} needs root (network namespace, mounts, cgroups): run it with sudo.")


def ensure_packages(progress: Progress, programs: Mapping[str, str]) -> None:
    """Install the packages of those programs that are missing; Debian and Ubuntu, as root.

    Raises:
        MachineUnsuitable: something is missing and cannot be installed from here; all of it is named.
    """
    missing = sorted(name for name in programs if find_program(name) is None)
    if not missing:
        return
    packages = sorted({programs[name] for name in missing})
    named = ", ".join(name.removeprefix("cni/") for name in missing)
    if os.geteuid() != 0 or find_program("apt-get") is None:
        raise MachineUnsuitable(
            f"not installed: {named}; on Debian or Ubuntu, run: apt-get install {' '.join(packages)}"
        )
    progress(f"installing {' '.join(packages)}")
    failure = _apt_get("install", "--yes", "--no-install-recommends", *packages)
    if failure is not None:  # a fresh machine has no package lists, or old ones
        _apt_get("update")
        failure = _apt_get("install", "--yes", "--no-install-recommends", *packages)
    still = [name for name in missing if find_program(name) is None]
    if still:
        raise MachineUnsuitable(f"apt-get install {' '.join(packages)} did not provide {', '.join(still)}: {failure}")


def _apt_get(*arguments: str) -> str | None:
    """Run apt-get; None, or the last lines it said when it failed."""
    environment = {**os.environ, **apt_proxy_environment(), "DEBIAN_FRONTEND": "noninteractive", "PATH": _PATH}
    done = subprocess.run(
        ["apt-get", "--quiet=2", *arguments], capture_output=True, text=True, env=environment, check=False
    )
    if done.returncode == 0:
        return None
    return "\n".join((done.stdout + done.stderr).strip().splitlines()[-5:])


def answers(address: Path) -> bool:
    """Whether something listens on this unix socket."""
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(address))
        except OSError:
            return False
        return True
