"""containerd, kubelet and kube-proxy: one real node.

Who calls it: the cluster. Everything they write is below the run directory, except what cannot be moved:
the device plugin directory, the shims' sockets, the CNI result cache and the kubelet's log links; `remove_leftovers`
takes those away again.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rigs.controlplane import Credentials
from rigs.images import PAUSE
from rigs.network import NODE_ADDRESS, POD_CIDR
from rigs.processes import Supervisor
from rigs.requirements import answers, cni_directory, program, search_path
from rigs.rootfs import RigError
from rigs.state import State

#: A constant in the kubelet: two kubelets on one machine share it, whatever their --root-dir.
DEVICE_PLUGIN_DIR = Path("/var/lib/kubelet/device-plugins")

#: Started in this order, ended in the reverse one.
PROCESSES = ("containerd", "kubelet", "kube-proxy")

_SHIM_SOCKETS = Path("/run/containerd/s")
_CNI_RESULTS = Path("/var/lib/cni/results")
_CONTAINER_LOG_LINKS = Path("/var/log/containers")

#: The kubelet sets these for the whole machine at its start (its setupKernelTunables); teardown sets them back.
KERNEL_SETTINGS = tuple(
    Path("/proc/sys") / name
    for name in (
        "vm/overcommit_memory",
        "vm/panic_on_oom",
        "kernel/panic",
        "kernel/panic_on_oops",
        "kernel/keys/root_maxkeys",
        "kernel/keys/root_maxbytes",
    )
)

#: What cannot be moved below the run directory and would otherwise stay behind, parents first.
SHARED_DIRECTORIES = (
    Path("/var/run/netns"),
    Path("/var/lib/kubelet"),
    DEVICE_PLUGIN_DIR,
    Path("/run/containerd"),
    _SHIM_SOCKETS,
    Path("/var/lib/cni"),
    _CNI_RESULTS,
    _CONTAINER_LOG_LINKS,
)

#: sun_path of a unix socket address holds 107 bytes (unix(7)); the longest of ours below the run directory.
_LONGEST_SOCKET = "kubelet/pod-resources/kubelet.sock"
_SOCKET_PATH_LIMIT = 107


@dataclass(frozen=True, slots=True)
class NodePaths:
    """Where the node's parts live below the run directory."""

    run_dir: Path

    @property
    def containerd_socket(self) -> Path:
        return self.run_dir / "containerd" / "containerd.sock"

    @property
    def containerd_state(self) -> Path:
        return self.run_dir / "containerd" / "state"

    @property
    def kubelet_root(self) -> Path:
        return self.run_dir / "kubelet"

    @property
    def pod_resources_socket(self) -> Path:
        return self.kubelet_root / "pod-resources" / "kubelet.sock"

    @property
    def cni_network(self) -> str:
        return f"slackwater-{self.run_dir.name}"

    def check(self) -> None:
        """Raise RigError if a unix socket would not fit, or another kubelet uses the device plugin directory."""
        longest = len(os.fsencode(self.run_dir / _LONGEST_SOCKET))
        if longest > _SOCKET_PATH_LIMIT:
            raise RigError(
                f"{self.run_dir} is {longest - _SOCKET_PATH_LIMIT} characters too long for the sockets inside; "
                "set SLACKWATER_CACHE to a shorter directory"
            )
        if answers(DEVICE_PLUGIN_DIR / "kubelet.sock"):
            raise RigError(
                f"a kubelet already runs on this machine and listens in {DEVICE_PLUGIN_DIR}, which every kubelet "
                "uses; stop it, or use another machine"
            )


def start_containerd(supervisor: Supervisor, binaries: Mapping[str, Path], paths: NodePaths) -> None:
    directory = paths.run_dir / "containerd"
    network = directory / "cni"
    network.mkdir(parents=True, exist_ok=True)
    (network / "10-rig.conflist").write_text(json.dumps(cni_configuration(paths), indent=1))
    config = directory / "config.toml"
    config.write_text(containerd_configuration(paths))
    # containerd looks for its shim on PATH.
    path = os.pathsep.join((str(binaries["containerd-shim-runc-v2"].parent), search_path()))
    supervisor.start(
        "containerd", [str(binaries["containerd"]), f"--config={config}"], {"PATH": path, "HOME": str(directory)}
    )


def start_kubelet(
    supervisor: Supervisor,
    binaries: Mapping[str, Path],
    credentials: Credentials,
    paths: NodePaths,
    node_name: str,
    configuration: Mapping[str, Any],
) -> None:
    config = paths.run_dir / "kubelet.yaml"
    config.write_text(yaml.safe_dump(dict(configuration)))
    supervisor.start(
        "kubelet",
        [
            str(binaries["kubelet"]),
            f"--config={config}",
            f"--kubeconfig={credentials.kubelet_config}",
            f"--hostname-override={node_name}",
            f"--node-ip={NODE_ADDRESS}",
            f"--root-dir={paths.kubelet_root}",
            f"--cert-dir={paths.run_dir / 'pki'}",
            "--v=2",
        ],
        {"PATH": search_path(), "HOME": str(paths.kubelet_root)},
    )


def start_kube_proxy(
    supervisor: Supervisor, binaries: Mapping[str, Path], credentials: Credentials, node_name: str
) -> None:
    supervisor.start(
        "kube-proxy",
        [
            str(binaries["kube-proxy"]),
            f"--kubeconfig={credentials.kube_proxy}",
            f"--hostname-override={node_name}",
            "--proxy-mode=nftables",
            f"--cluster-cidr={POD_CIDR}",
            # 0 = leave as it is: these belong to the machine, not to the network namespace.
            "--conntrack-max-per-core=0",
            "--conntrack-tcp-timeout-established=0",
            "--conntrack-tcp-timeout-close-wait=0",
        ],
        {"PATH": search_path()},
    )


def kubelet_configuration(
    paths: NodePaths, credentials: Credentials, cgroup_root: str, changes: Mapping[str, Any]
) -> dict[str, Any]:
    """A KubeletConfiguration; the fields in `changes` replace the rig's own."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(credentials.authority.certificate)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(credentials.kubelet.certificate),
        "tlsPrivateKeyFile": str(credentials.kubelet.key),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup_root,
        "failCgroupV1": False,
        "failSwapOn": False,
        "containerRuntimeEndpoint": f"unix://{paths.containerd_socket}",
        # There is no cluster DNS. A server that refuses at once is better than an Event for every pod that
        # the kubelet has no ClusterDNS address.
        "resolvConf": "",
        "clusterDNS": ["127.0.0.1"],
        # The disk is the developer's own: full enough for eviction on many machines, and none of our business.
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "nodefs.inodesFree": "1%",
            "imagefs.available": "1%",
            "imagefs.inodesFree": "1%",
        },
        "imageGCHighThresholdPercent": 100,
        "serializeImagePulls": False,
        "makeIPTablesUtilChains": False,
        "podLogsDir": str(paths.run_dir / "pod-logs"),
        "volumePluginDir": str(paths.run_dir / "volume-plugins"),
        **changes,
    }


def containerd_configuration(paths: NodePaths) -> str:
    """containerd's config version 3: everything below the run directory, runc on cgroupfs, no pull from anywhere."""
    directory = paths.run_dir / "containerd"
    return f"""\
version = 3
root = "{directory / "root"}"
state = "{paths.containerd_state}"
imports = []

[grpc]
address = "{paths.containerd_socket}"

[plugins."io.containerd.internal.v1.opt"]
path = "{directory / "opt"}"

[plugins."io.containerd.nri.v1.nri"]
disable = true

[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE}"

[plugins."io.containerd.cri.v1.runtime"]
# Without CAP_SYS_RESOURCE nobody may lower oom_score_adj, and every container would fail to start.
restrict_oom_score_adj = true
# Pods' network namespaces are mounts too: keep them where teardown unmounts them.
netns_mounts_under_state_dir = true

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{cni_directory()}"]
conf_dir = "{directory / "cni"}"
# The plugin `loopback` would leave a file per pod in {_CNI_RESULTS}, by a name that does not say whose it is.
use_internal_loopback = true

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "{program("runc")}"
Root = "{directory / "runc"}"
SystemdCgroup = false
"""


def cni_configuration(paths: NodePaths) -> dict[str, Any]:
    """Pods behind routed pairs (`ptp`): needs no bridge netfilter for Services between pods of one node."""
    return {
        "cniVersion": "1.0.0",
        "name": paths.cni_network,
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": False,
                "ipam": {
                    "type": "host-local",
                    "dataDir": str(paths.run_dir / "containerd" / "addresses"),
                    "ranges": [[{"subnet": POD_CIDR}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            }
        ],
    }


def record_machine(state: State) -> None:
    """Note in the state what the node will change outside the run directory, before it does."""
    for path in KERNEL_SETTINGS:
        with suppress(OSError):
            state.sysctls[str(path)] = path.read_text()
    state.made_paths += [str(path) for path in SHARED_DIRECTORIES if not path.exists()]


def restore_machine(state: State) -> None:
    """Set the kernel settings back that the kubelet has changed."""
    for name, before in state.sysctls.items():
        with suppress(OSError):
            if Path(name).read_text() != before:
                Path(name).write_text(before)


def shim_sockets(paths: NodePaths) -> list[Path]:
    """The sockets of this containerd's shims, from their bundles: read before the state directory goes."""
    found = []
    for file in paths.containerd_state.glob("io.containerd.runtime.v2.task/*/*/bootstrap.json"):
        with suppress(OSError, ValueError):
            address = str(json.loads(file.read_text()).get("address", ""))
            if address.startswith("unix://"):
                found.append(Path(address.removeprefix("unix://")))
    return found


def remove_leftovers(paths: NodePaths, sockets: list[Path]) -> None:
    """Remove our own files in directories that belong to nobody in particular; all processes have ended."""
    for socket in sockets:
        socket.unlink(missing_ok=True)
    for result in _CNI_RESULTS.glob(f"{paths.cni_network}-*"):
        result.unlink(missing_ok=True)
    for link in _CONTAINER_LOG_LINKS.glob("*"):
        if link.is_symlink() and Path(os.readlink(link)).is_relative_to(paths.run_dir):
            link.unlink()
    # The kubelet that ended was the only one, so no socket and no checkpoint in here is anybody's.
    with suppress(FileNotFoundError):
        for entry in DEVICE_PLUGIN_DIR.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
