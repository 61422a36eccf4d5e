"""etcd, API server, controller manager and scheduler, configured as kubeadm would.

Who calls it: the cluster. Differences from kubeadm, each for a reason: etcd does not sync to disk (the data
lives as long as the cluster), one CA signs everything but the front proxy's certificate, and there is
no cluster DNS.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rigs import pki
from rigs.network import KUBERNETES_SERVICE_ADDRESS, NODE_ADDRESS, SERVICE_CIDR, NetworkNamespace
from rigs.processes import Supervisor
from rigs.requirements import search_path
from rigs.waiting import wait_until

API_SERVER = f"https://{NODE_ADDRESS}:6443"
_ETCD = "http://127.0.0.1:2379"

#: Started in this order, ended in the reverse one.
PROCESSES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


@dataclass(frozen=True, slots=True)
class Credentials:
    """What `make_credentials` left in the run directory."""

    authority: pki.KeyPair
    front_proxy_authority: pki.KeyPair
    front_proxy: pki.KeyPair
    service_accounts: pki.KeyPair
    api_server: pki.KeyPair
    api_server_to_kubelet: pki.KeyPair
    kubelet: pki.KeyPair
    admin: Path
    controller_manager: Path
    scheduler: Path
    kubelet_config: Path
    kube_proxy: Path


def make_credentials(directory: Path, admin: Path, node_name: str) -> Credentials:
    """Write all certificates, keys and kubeconfigs below `directory`, and the administrator's to `admin`."""
    authority = pki.Authority(directory, "ca")
    front_proxy_authority = pki.Authority(directory, "front-proxy-ca")

    def kubeconfig(path: Path, user: str, organization: str | None = None) -> Path:
        client = authority.issue(f"client-{path.stem}", user, organization=organization)
        return pki.write_kubeconfig(path, API_SERVER, authority.files, client)

    service_names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    api_names = [*service_names, "kubernetes.default.svc.cluster.local", "localhost", node_name]
    return Credentials(
        authority=authority.files,
        front_proxy_authority=front_proxy_authority.files,
        front_proxy=front_proxy_authority.issue("front-proxy-client", "front-proxy-client"),
        service_accounts=pki.service_account_keys(directory),
        api_server=authority.issue(
            "kube-apiserver",
            "kube-apiserver",
            names=[*api_names, "127.0.0.1", NODE_ADDRESS, KUBERNETES_SERVICE_ADDRESS],
        ),
        api_server_to_kubelet=authority.issue(
            "kube-apiserver-kubelet-client", "kube-apiserver-kubelet-client", organization="system:masters"
        ),
        kubelet=authority.issue(
            "kubelet", f"system:node:{node_name}", organization="system:nodes", names=[node_name, NODE_ADDRESS]
        ),
        admin=kubeconfig(admin, "rig-admin", "system:masters"),
        controller_manager=kubeconfig(
            directory / "kube-controller-manager.kubeconfig", "system:kube-controller-manager"
        ),
        scheduler=kubeconfig(directory / "kube-scheduler.kubeconfig", "system:kube-scheduler"),
        kubelet_config=kubeconfig(directory / "kubelet.kubeconfig", f"system:node:{node_name}", "system:nodes"),
        kube_proxy=kubeconfig(directory / "kube-proxy.kubeconfig", "system:kube-proxy"),
    )


def start_api(supervisor: Supervisor, binaries: Mapping[str, Path], credentials: Credentials, data: Path) -> None:
    """Start etcd and the API server; `wait_for_api` says when they answer."""
    environment = {"PATH": search_path(), "HOME": str(data)}
    supervisor.start(
        "etcd",
        [
            str(binaries["etcd"]),
            f"--data-dir={data}",
            f"--listen-client-urls={_ETCD}",
            f"--advertise-client-urls={_ETCD}",
            "--listen-peer-urls=http://127.0.0.1:2380",
            "--unsafe-no-fsync",
            "--quota-backend-bytes=4294967296",
            "--auto-compaction-retention=5m",
        ],
        environment,
    )
    keys = credentials.service_accounts
    supervisor.start(
        "kube-apiserver",
        [
            str(binaries["kube-apiserver"]),
            f"--etcd-servers={_ETCD}",
            f"--advertise-address={NODE_ADDRESS}",
            "--secure-port=6443",
            f"--tls-cert-file={credentials.api_server.certificate}",
            f"--tls-private-key-file={credentials.api_server.key}",
            f"--client-ca-file={credentials.authority.certificate}",
            f"--kubelet-certificate-authority={credentials.authority.certificate}",
            f"--kubelet-client-certificate={credentials.api_server_to_kubelet.certificate}",
            f"--kubelet-client-key={credentials.api_server_to_kubelet.key}",
            "--kubelet-preferred-address-types=InternalIP",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={keys.certificate}",
            f"--service-account-signing-key-file={keys.key}",
            f"--service-cluster-ip-range={SERVICE_CIDR}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--enable-aggregator-routing=true",
            f"--requestheader-client-ca-file={credentials.front_proxy_authority.certificate}",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-username-headers=X-Remote-User",
            f"--proxy-client-cert-file={credentials.front_proxy.certificate}",
            f"--proxy-client-key-file={credentials.front_proxy.key}",
            "--allow-privileged=true",
            "--v=1",
        ],
        environment,
    )


def wait_for_api(
    supervisor: Supervisor, binaries: Mapping[str, Path], credentials: Credentials, namespace: NetworkNamespace
) -> None:
    """Block until the API server calls itself ready; raises NotInTime with its log if it ends instead."""
    ask = [*namespace.enter, str(binaries["kubectl"]), f"--kubeconfig={credentials.admin}", "get", "--raw=/readyz"]

    def ready() -> bool:
        done = subprocess.run(ask, capture_output=True, text=True, check=False)
        return done.returncode == 0 and done.stdout.strip() == "ok"

    def death() -> str | None:
        return supervisor.process("etcd").death() or supervisor.process("kube-apiserver").death()

    wait_until("the API server being ready", ready, 90.0, interval_s=0.3, give_up=death)


def start_controllers(
    supervisor: Supervisor, binaries: Mapping[str, Path], credentials: Credentials, data: Path
) -> None:
    """Start the controller manager and the default scheduler."""
    environment = {"PATH": search_path(), "HOME": str(data)}
    manager, scheduler = credentials.controller_manager, credentials.scheduler
    supervisor.start(
        "kube-controller-manager",
        [
            str(binaries["kube-controller-manager"]),
            f"--kubeconfig={manager}",
            f"--authentication-kubeconfig={manager}",
            f"--authorization-kubeconfig={manager}",
            "--bind-address=127.0.0.1",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={credentials.service_accounts.key}",
            f"--root-ca-file={credentials.authority.certificate}",
            f"--cluster-signing-cert-file={credentials.authority.certificate}",
            f"--cluster-signing-key-file={credentials.authority.key}",
            f"--requestheader-client-ca-file={credentials.front_proxy_authority.certificate}",
            f"--client-ca-file={credentials.authority.certificate}",
            f"--flex-volume-plugin-dir={data.parent / 'volume-plugins'}",
            "--leader-elect=false",
            # Thousands of fake nodes are created at once; the default of 20 a second is for a shared API server.
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
        ],
        environment,
    )
    supervisor.start(
        "kube-scheduler",
        [
            str(binaries["kube-scheduler"]),
            f"--kubeconfig={scheduler}",
            f"--authentication-kubeconfig={scheduler}",
            f"--authorization-kubeconfig={scheduler}",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
        ],
        environment,
    )
