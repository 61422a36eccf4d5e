"""Certificates and configuration files of a cluster."""

import stat
import tomllib
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID
from rigs import kwok, node
from rigs.cluster import Cluster
from rigs.controlplane import Credentials, make_credentials
from rigs.node import NodePaths, cni_configuration, containerd_configuration, kubelet_configuration
from rigs.rootfs import RigError


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Credentials:
    directory = tmp_path_factory.mktemp("pki")
    return make_credentials(directory, directory / "admin", "rig-node")


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NodePaths:
    """Paths on a machine that has the CNI plugins and runc, whether or not this one does."""
    monkeypatch.setattr(node, "cni_directory", lambda: Path("/usr/lib/cni"))
    monkeypatch.setattr(node, "program", lambda name: f"/usr/sbin/{name}")
    return NodePaths(tmp_path)


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_the_kubelet_is_a_node_of_the_group_of_nodes(credentials: Credentials) -> None:
    subject = certificate(credentials.kubelet.certificate).subject
    assert subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == "system:node:rig-node"
    assert subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)[0].value == "system:nodes"


def test_what_the_authority_issues_is_signed_by_it(credentials: Credentials) -> None:
    issued = certificate(credentials.api_server.certificate)
    issued.verify_directly_issued_by(certificate(credentials.authority.certificate))
    with pytest.raises(ValueError, match="subject does not match"):
        issued.verify_directly_issued_by(certificate(credentials.front_proxy_authority.certificate))


def test_nobody_else_can_read_keys_and_kubeconfigs(credentials: Credentials) -> None:
    secrets = (credentials.authority.key, credentials.service_accounts.key, credentials.admin, credentials.scheduler)
    assert {stat.S_IMODE(path.stat().st_mode) for path in secrets} == {0o600}


def test_a_kubeconfig_stands_alone(credentials: Credentials) -> None:
    config = yaml.safe_load(credentials.admin.read_text())
    assert set(config["users"][0]["user"]) == {"client-certificate-data", "client-key-data"}


def test_containerd_keeps_everything_below_the_run_directory(paths: NodePaths) -> None:
    config = tomllib.loads(containerd_configuration(paths))
    assert {config["root"], config["state"]} == {
        str(paths.run_dir / "containerd" / "root"),
        str(paths.run_dir / "containerd" / "state"),
    }
    runtime = config["plugins"]["io.containerd.cri.v1.runtime"]
    assert runtime["restrict_oom_score_adj"] is True
    assert runtime["containerd"]["runtimes"]["runc"]["options"]["SystemdCgroup"] is False


def test_the_pod_network_is_named_after_the_cluster(paths: NodePaths) -> None:
    assert cni_configuration(paths)["name"] == f"slackwater-{paths.run_dir.name}"


def test_changes_replace_fields_of_the_kubelet_configuration(credentials: Credentials, paths: NodePaths) -> None:
    plain = kubelet_configuration(paths, credentials, "/slackwater-rig", {})
    changed = kubelet_configuration(paths, credentials, "/slackwater-rig", {"failSwapOn": True, "maxPods": 7})
    assert changed == {**plain, "failSwapOn": True, "maxPods": 7}
    assert plain["cgroupRoot"] == "/slackwater-rig"


def test_a_run_directory_too_long_for_sockets_is_refused_before_anything_starts() -> None:
    with pytest.raises(RigError, match=r"50 characters too long .* SLACKWATER_CACHE"):
        NodePaths(Path("/" + "x" * (107 + 50 - len("/kubelet/pod-resources/kubelet.sock") - 1))).check()


def test_a_fake_node_offers_what_it_was_given() -> None:
    made = kwok.node("fake-00000", {"memory": "64Gi", "slackwater.io/colocation-memory": "8"}, {"zone": "a"}, True)
    assert made["status"]["allocatable"] == {"memory": "64Gi", "slackwater.io/colocation-memory": "8"}
    assert made["metadata"]["annotations"]["kwok.x-k8s.io/node"] == "fake"
    assert made["metadata"]["labels"]["zone"] == "a"
    assert made["spec"]["taints"] == [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}]


def test_attaching_to_no_cluster_names_the_missing_file(tmp_path: Path) -> None:
    with pytest.raises(RigError, match=r"there is no cluster rig \(no .*state\.json\)"):
        Cluster.attach("rig", run_dir=tmp_path)
