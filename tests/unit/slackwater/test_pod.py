"""What a pod is, asked for and holds."""

from datetime import UTC, datetime

import pytest
from builders import PodBuilder, pod

from slackwater import names
from slackwater.errors import InputError
from slackwater.pod import Owner, read_pod

GIB = 1024**3


@pytest.mark.parametrize(
    ("built", "request_bytes"),
    [
        pytest.param(pod("p"), 0, id="nothing-asked"),
        pytest.param(pod("p").requests(memory="1Gi"), GIB, id="request"),
        pytest.param(pod("p").limits(memory="2Gi"), 2 * GIB, id="limit-stands-for-request"),
        pytest.param(pod("p").requests(memory="0").limits(memory="2Gi"), 0, id="explicit-zero-is-a-request"),
        pytest.param(pod("p").requests(memory="1Gi").container("b", memory="2Gi"), 3 * GIB, id="containers-add-up"),
        pytest.param(pod("p").requests(memory="1Gi").init_container("i", memory="5Gi"), 5 * GIB, id="init-peak"),
        pytest.param(
            pod("p").requests(memory="4Gi").init_container("i", memory="3Gi").init_container("j", memory="2Gi"),
            4 * GIB,
            id="init-containers-run-one-by-one",
        ),
        pytest.param(
            pod("p").requests(memory="1Gi").init_container("s", sidecar=True, memory="2Gi"), 3 * GIB, id="sidecar-adds"
        ),
        pytest.param(
            pod("p")
            .requests(memory="1Gi")
            .init_container("s", sidecar=True, memory="2Gi")
            .init_container("i", memory="4Gi"),
            6 * GIB,
            id="init-beside-the-sidecars-before-it",
        ),
        pytest.param(
            pod("p")
            .requests(memory="1Gi")
            .init_container("i", memory="4Gi")
            .init_container("s", sidecar=True, memory="2Gi"),
            4 * GIB,
            id="init-before-the-sidecar",
        ),
        pytest.param(pod("p").requests(memory="1Gi").set("spec.overhead", {"memory": "1Gi"}), 2 * GIB, id="overhead"),
        pytest.param(
            pod("p").requests(memory="1Gi").set("spec.resources", {"requests": {"memory": "8Gi"}}),
            8 * GIB,
            id="pod-level",
        ),
    ],
)
def test_effective_memory_request(built: PodBuilder, request_bytes: int) -> None:
    assert read_pod(built.raw).memory_request == request_bytes


@pytest.mark.parametrize(
    ("built", "qos"),
    [
        pytest.param(pod("p"), "BestEffort", id="nothing"),
        pytest.param(pod("p").requests(memory="0"), "BestEffort", id="zero-is-nothing"),
        pytest.param(pod("p").requests(memory="1Gi"), "Burstable", id="request-only"),
        pytest.param(pod("p").guaranteed(), "Guaranteed", id="guaranteed"),
        pytest.param(pod("p").limits(cpu="1", memory="1Gi"), "Guaranteed", id="limits-only"),
        pytest.param(pod("p").guaranteed().container("b"), "Burstable", id="one-container-without"),
        pytest.param(
            pod("p").guaranteed().init_container("i", memory="1Gi"), "Burstable", id="an-init-container-counts"
        ),
        pytest.param(pod("p").limits(memory="1Gi"), "Burstable", id="no-cpu"),
        pytest.param(pod("p").be().blocks(2), "Burstable", id="as-the-webhook-leaves-it"),
        pytest.param(pod("p").set("status.qosClass", "Guaranteed"), "Guaranteed", id="status-decides"),
        pytest.param(
            pod("p").set("spec.resources", {"limits": {"cpu": "1", "memory": "1Gi"}}), "Guaranteed", id="pod-level"
        ),
        pytest.param(
            pod("p").guaranteed().set("spec.resources", {"requests": {"memory": "4Gi"}}),
            "Burstable",
            id="pod-level-decides",
        ),
    ],
)
def test_kubernetes_qos_class(built: PodBuilder, qos: str) -> None:
    assert read_pod(built.raw).kubernetes_qos == qos


@pytest.mark.parametrize(
    ("annotation", "size"),
    [("1073741824", GIB), ("", 7), ("0", 7), ("-5", 7), ("512Mi", 7), ("5_12", 7), ("٣", 7), ("9" * 5000, 7)],
)
def test_block_size_comes_from_the_pod_or_the_installation(annotation: str, size: int) -> None:
    assert read_pod(pod("p").annotation(names.BLOCK_SIZE_ANNOTATION, annotation).raw).block_size(7) == size


def test_only_app_containers_hold_blocks() -> None:
    held = pod("p").blocks(3).init_container("i", requests={names.RESOURCE: "9"})
    assert read_pod(held.raw).blocks == 3


def test_memory_lent_by_somebody_else_counts_where_containers_run_together() -> None:
    built = pod("p").requests(**{names.KOORDINATOR_BATCH_MEMORY: "1Gi"})
    built = built.init_container("s", sidecar=True, requests={names.KOORDINATOR_BATCH_MEMORY: "1Gi"})
    assert read_pod(built.raw).batch_memory == 2 * GIB


@pytest.mark.parametrize(
    ("built", "traits"),
    [
        pytest.param(pod("p"), set(), id="ordinary"),
        pytest.param(pod("p").be(), {"is_be"}, id="be"),
        pytest.param(pod("p").phase("Succeeded"), {"is_finished"}, id="succeeded"),
        pytest.param(pod("p").phase("Failed"), {"is_finished"}, id="failed"),
        pytest.param(pod("p").phase("Unknown"), set(), id="unknown-is-not-finished"),
        pytest.param(pod("p").deleted("2026-01-01T00:00:00Z"), {"is_terminating"}, id="terminating"),
        pytest.param(pod("p").annotation(names.CONFIG_MIRROR_ANNOTATION, "x"), {"is_static"}, id="mirror"),
        pytest.param(pod("p").annotation(names.CONFIG_SOURCE_ANNOTATION, "file"), {"is_static"}, id="static"),
        pytest.param(pod("p").annotation(names.CONFIG_SOURCE_ANNOTATION, "api"), set(), id="from-the-api"),
        pytest.param(pod("p").owned_by("DaemonSet"), {"is_daemonset"}, id="daemonset"),
        pytest.param(pod("p").owned_by("ReplicaSet"), set(), id="replicaset"),
        pytest.param(pod("p").priority(2_000_000_000), {"is_critical"}, id="critical-number"),
        pytest.param(
            pod("p").set("spec.priorityClassName", "system-node-critical"), {"is_critical"}, id="critical-class"
        ),
    ],
)
def test_traits(built: PodBuilder, traits: set[str]) -> None:
    view = read_pod(built.raw)
    every = ("is_be", "is_finished", "is_terminating", "is_static", "is_daemonset", "is_critical")
    assert {trait for trait in every if getattr(view, trait)} == traits


def test_identity_and_owner() -> None:
    view = read_pod(pod("p", "n").owned_by("ReplicaSet", "web").deleted("2026-01-01T00:00:00Z").raw)
    assert (view.key, view.uid, view.node_name) == ("n/p", "uid-n-p", "node-1")
    assert view.owner == Owner("apps/v1", "ReplicaSet", "web", "uid-web")
    assert view.deleted_at == datetime(2026, 1, 1, tzinfo=UTC)


def test_a_pod_without_a_namespace_is_in_default() -> None:
    assert read_pod({"metadata": {"name": "p"}}).key == "default/p"


def test_every_unusable_field_is_named_at_once() -> None:
    broken = pod("p").requests(memory="1GB").limits(memory="-1Gi").limits(**{names.RESOURCE: "-2"})
    broken = broken.set("metadata.deletionTimestamp", "yesterday")
    with pytest.raises(InputError) as refusal:
        read_pod(broken.raw, "file.yaml")
    assert {problem.where for problem in refusal.value.problems} == {
        "file.yaml.spec.containers[0].resources.requests.memory",
        "file.yaml.spec.containers[0].resources.limits.memory",
        f"file.yaml.spec.containers[0].resources.limits[{names.RESOURCE}]",
        "file.yaml.metadata.deletionTimestamp",
    }
