"""Placement over several nodes: the real scheduler and extender, fake nodes with NodeSlacks that the test writes."""

import copy
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rigs.cluster import Cluster
from rigs.installation import RESOURCE, Installation
from rigs.workloads import BE, Namespace, memory

FAKE = {"nodeSelector": {"type": "kwok"}}


@pytest.fixture(scope="module")
def fake_nodes(slackwater: Installation) -> Iterator[list[str]]:
    """Three fake nodes whose kubelets would offer eight blocks each."""
    cluster = slackwater.cluster
    names = cluster.add_fake_nodes(3, resources={RESOURCE: "8"})
    yield names
    cluster.kubectl("delete", "node", *names)
    cluster.kubectl("delete", "nodeslack", *names, "--ignore-not-found")


def publish(slackwater: Installation, node: str, free: int, age: timedelta = timedelta(0)) -> None:
    """Write a fake node's NodeSlack: the real node's, with ``free`` blocks and none lent, at another time."""
    status: dict[str, Any] = copy.deepcopy(slackwater.nodeslack())
    status["blocks"] = {"total": free, "lendable": free, "lent": 0, "free": free}
    status["time"] = (datetime.now(UTC) - age).strftime("%Y-%m-%dT%H:%M:%SZ")
    status["avoiding"] = []
    cluster = slackwater.cluster
    cluster.apply({"apiVersion": "slackwater.io/v1alpha1", "kind": "NodeSlack", "metadata": {"name": node}})
    patch = json.dumps({"status": status})
    cluster.kubectl("patch", "nodeslack", node, "--subresource=status", "--type=merge", "-p", patch)


def refusal(cluster: Cluster, namespace: Namespace, name: str) -> str:
    """What the scheduler says about a Pending pod, or ``""``."""
    for condition in namespace.get(name).get("status", {}).get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition["message"])
    return ""


def test_pod_goes_where_the_live_headroom_is(
    slackwater: Installation, namespace: Namespace, fake_nodes: list[str]
) -> None:
    for node, free in zip(fake_nodes, (1, 5, 3), strict=True):
        publish(slackwater, node, free)
    namespace.pod("be", labels=BE, resources=memory("2Gi"), **FAKE)
    pod = namespace.running("be")
    assert pod["spec"]["nodeName"] == fake_nodes[1]


def test_stale_reading_and_missing_room_close_a_node_with_the_numbers(
    slackwater: Installation, namespace: Namespace, fake_nodes: list[str]
) -> None:
    cluster = slackwater.cluster
    publish(slackwater, fake_nodes[0], 8, age=timedelta(minutes=10))
    publish(slackwater, fake_nodes[1], 2)
    publish(slackwater, fake_nodes[2], 1)
    namespace.pod("be", labels=BE, resources=memory("2Gi"), **FAKE)
    cluster.wait(lambda: "blocks" in refusal(cluster, namespace, "be"), 60, "the pod to be refused by the extender")
    message = refusal(cluster, namespace, "be")
    assert "4 blocks (2Gi) needed" in message
    assert "2 blocks (1Gi) available" in message
    assert "older than 300 s" in message


def test_last_blocks_are_not_given_twice(slackwater: Installation, namespace: Namespace, fake_nodes: list[str]) -> None:
    for node, free in zip(fake_nodes, (4, 0, 0), strict=True):
        publish(slackwater, node, free)
    for name in ("one", "two", "three"):
        namespace.pod(name, labels=BE, resources=memory("1Gi"), **FAKE)
    cluster = slackwater.cluster

    def settled() -> bool:
        pods = [namespace.get(name) for name in ("one", "two", "three")]
        placed = sum(bool(pod["spec"].get("nodeName")) for pod in pods)
        return placed == 2 and any(refusal(cluster, namespace, pod["metadata"]["name"]) for pod in pods)

    cluster.wait(settled, 60, "two pods of two blocks to be placed on four, and the third to be refused")


def test_garbage_in_a_nodeslack_never_admits_a_pod(
    slackwater: Installation, namespace: Namespace, fake_nodes: list[str]
) -> None:
    cluster = slackwater.cluster
    for node in fake_nodes:
        publish(slackwater, node, 0)
    answer = cluster.kubectl(
        "patch", "nodeslack", fake_nodes[0], "--subresource=status", "--type=merge",
        "-p", '{"status":{"blocks":{"free":-3,"total":"many"}}}', check=False,
    )  # fmt: skip
    assert "nvalid" in answer
    namespace.pod("be", labels=BE, resources=memory("600Mi"), **FAKE)
    cluster.wait(lambda: refusal(cluster, namespace, "be"), 60, "the pod to be refused")
    assert "nodeName" not in namespace.get("be")["spec"]
