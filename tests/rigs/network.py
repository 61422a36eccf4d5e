"""A network namespace with one node in it, from which no packet can leave.

Who calls it: the cluster. Commands enter it with nsenter, not with `ip netns exec`: the latter remounts
/sys and hides the cgroup file systems from the kubelet.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from rigs.requirements import program
from rigs.rootfs import RigError

#: Addresses exist only inside the namespace, so every cluster has the same ones.
NODE_ADDRESS = "192.168.250.1"
POD_CIDR = "10.244.0.0/24"
SERVICE_CIDR = "10.96.0.0/16"
KUBERNETES_SERVICE_ADDRESS = "10.96.0.1"

_DIRECTORY = Path("/var/run/netns")
_INTERFACE = "node0"


class NetworkNamespace:
    """A named namespace of iproute2: `ip netns` lists it."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def path(self) -> Path:
        return _DIRECTORY / self.name

    @property
    def enter(self) -> tuple[str, ...]:
        """The command prefix that runs the rest inside."""
        return (program("nsenter"), f"--net={self.path}")

    def create(self) -> None:
        """Make it: `lo`, a bridge without ports as the node's interface, and a default route that leads nowhere.

        A bridge, because not every kernel has the type `dummy`. The route is there because the kubelet and
        the API server look for the address that a default route would use.
        """
        ip = program("ip")
        _run(ip, "netns", "add", self.name)
        _run(*self.enter, ip, "link", "set", "lo", "up")
        _run(*self.enter, ip, "link", "add", _INTERFACE, "type", "bridge")
        _run(*self.enter, ip, "address", "add", f"{NODE_ADDRESS}/24", "dev", _INTERFACE)
        _run(*self.enter, ip, "link", "set", _INTERFACE, "up")
        _run(*self.enter, ip, "route", "add", "default", "via", "192.168.250.254", "dev", _INTERFACE)
        # Pods reach each other and the node through routes; the setting belongs to the namespace.
        _run(*self.enter, "/bin/sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")

    def exists(self) -> bool:
        return self.path.exists()

    def delete(self) -> None:
        if self.exists():
            _run(program("ip"), "netns", "delete", self.name)


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RigError(f"{' '.join(argv)}: {done.stderr.strip() or done.stdout.strip()}")
