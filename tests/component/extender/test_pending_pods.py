"""Pods without a node are told why, by Events on an API server: once, with the amounts, and again when they change."""

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from builders import PodBuilder
from component.extender.process import PODS, Extender, live
from component.extender.watched import WatchedCollections
from component.https_process import eventually
from prometheus_client import CollectorRegistry
from unit.extender.states import BLOCK, NOW, nodeslack, pending, unschedulable

from extender.metrics import Metrics
from extender.observe import Cluster
from extender.pending import PendingPods
from slackwater.adapters.kube import KubeClient
from slackwater.names import NODESLACKS_PATH
from slackwater.nodeslack import NodeSlackView


def after(seconds: int) -> datetime:
    return NOW + timedelta(seconds=seconds)


class Told:
    """Two replicas' explaining part over one API server, at times that the test chooses."""

    def __init__(self, folder: Path) -> None:
        self.collections = WatchedCollections()
        self.stop = threading.Event()
        self.registry = CollectorRegistry()
        self._client = KubeClient.connect(str(self.collections.write_kubeconfig(folder / "kubeconfig")))
        self._clusters: list[Cluster] = []
        self.pods = self._replica(self.registry)
        self.replica = self._replica(CollectorRegistry())

    def _replica(self, registry: CollectorRegistry) -> PendingPods:
        cluster = Cluster(self._client, BLOCK)
        self._clusters.append(cluster)
        metrics = Metrics(registry, known_nodes=cluster.known_nodes, assumed_pods=cluster.assumed_pods)
        pods = PendingPods(self._client, cluster, metrics, BLOCK)
        cluster.start(self.stop)
        pods.watch(self.stop)
        assert eventually(pods.is_complete)
        return pods

    def lends(self, name: str, total: int) -> None:
        """Until both replicas know it."""
        self.collections.put(NODESLACKS_PATH, nodeslack(name, total=total))

        def known() -> bool:
            slacks = [cluster.view()[0].slacks.get(name) for cluster in self._clusters]
            return all(isinstance(slack, NodeSlackView) and slack.total == total for slack in slacks)

        assert eventually(known)

    def known_nodes(self) -> int:
        """Of the replica that knows fewer."""
        return min(cluster.known_nodes() for cluster in self._clusters)

    def waits(self, *built: PodBuilder) -> None:
        """Until both replicas know it."""
        for pod in built:
            self.collections.put(PODS, unschedulable(pod).raw)
        assert eventually(lambda: min(self.pods.waiting(), self.replica.waiting()) >= len(built))

    @property
    def events(self) -> list[dict[str, Any]]:
        return list(self.collections.events.values())

    @property
    def messages(self) -> list[str]:
        return [event["message"] for event in self.events]

    @property
    def count(self) -> float:
        return self.registry.get_sample_value("slackwater_pending_explanations_total") or 0.0


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    running = Told(tmp_path)
    yield running
    running.stop.set()
    running.collections.close()


ONE_OF_TWO = (
    "2 blocks (1Gi) needed; 1 block (512Mi) available in total; best of 1 node: node-1 1 block (512Mi) available"
)


def test_event_stands_on_the_pod_and_is_counted(told: Told) -> None:
    told.lends("node-1", 1)
    told.waits(pending(2))
    told.pods.turn(NOW)
    (event,) = told.events
    assert event["involvedObject"]["uid"] == "uid-default-be"
    assert event["reason"] == "InsufficientColocationMemory"
    assert event["message"] == ONE_OF_TWO
    assert told.count == 1


def test_second_replica_does_not_write_it_again(told: Told) -> None:
    told.lends("node-1", 1)
    told.waits(pending(2))
    told.pods.turn(NOW)
    told.replica.turn(after(2))
    told.replica.turn(after(100))
    assert len(told.collections.creations) == 2
    assert told.messages == [ONE_OF_TWO]
    assert told.events[0]["lastTimestamp"] == "2026-01-01T00:00:00Z"


def test_told_again_only_after_a_change_and_a_minute(told: Told) -> None:
    told.lends("node-1", 1)
    told.waits(pending(2))
    for seconds in (0, 3, 61):
        told.pods.turn(after(seconds))
    assert len(told.collections.creations) == 1
    told.lends("node-1", 0)
    told.pods.turn(after(64))
    assert "; 0 blocks (0) available in total; " in told.messages[1]
    told.lends("node-1", 1)
    told.pods.turn(after(67))
    assert told.events[0]["lastTimestamp"] == "2026-01-01T00:00:00Z"
    told.pods.turn(after(64 + 120))
    assert len(told.events) == 2, "what is true again is the same Event, made the latest"
    assert told.events[0]["lastTimestamp"] == "2026-01-01T00:03:04Z"


def test_change_within_the_minute_waits_for_its_end(told: Told) -> None:
    told.lends("node-1", 1)
    told.waits(pending(2))
    told.pods.turn(NOW)
    told.lends("node-1", 0)
    told.pods.turn(after(59))
    assert len(told.events) == 1
    told.pods.turn(after(60))
    assert len(told.events) == 2


def test_silent_where_a_node_has_room_and_where_memory_is_not_the_reason(told: Told) -> None:
    told.lends("node-1", 2)
    told.collections.put(PODS, pending(9, "not-tried-yet").raw)
    told.collections.put(PODS, unschedulable(pending(9, "gated"), "SchedulingGated").raw)
    told.waits(pending(2, "fits"), pending(3, "large"))
    told.pods.turn(NOW)
    assert [event["involvedObject"]["name"] for event in told.events] == ["large"]


def test_fifty_pods_a_turn_and_a_placed_pod_is_forgotten(told: Told) -> None:
    told.waits(*(pending(1, f"pod-{number}") for number in range(70)))
    told.pods.turn(NOW)
    assert len(told.events) == 50
    told.pods.turn(after(3))
    assert len(told.events) == 70
    bound = pending(1, "pod-0").on("node-1").raw
    told.collections.put(PODS, bound)
    assert eventually(lambda: told.pods.waiting() == 69)


def test_work_of_a_turn_is_bounded_by_nodes_too_and_every_pod_is_told(told: Told) -> None:
    nodes = 2500
    for index in range(nodes):
        told.collections.put(NODESLACKS_PATH, nodeslack(f"node-{index}", total=0))
    assert eventually(lambda: told.known_nodes() == nodes)
    told.waits(*(pending(blocks, f"pod-{blocks}") for blocks in range(1, 31)), pending(1, "same-question"))
    told.pods.turn(NOW)
    assert len(told.events) == 20 + 1
    told.pods.turn(after(3))
    assert len(told.events) == 31


@pytest.mark.parametrize(
    ("refusal", "tries"),
    [
        pytest.param((403, "Forbidden"), 2, id="may-not"),
        pytest.param((503, "ServiceUnavailable"), 1, id="server-away"),
        pytest.param((429, "TooManyRequests"), 1, id="server-busy"),
    ],
)
def test_refused_event_is_made_up_for(told: Told, refusal: tuple[int, str], tries: int) -> None:
    told.waits(pending(1, "a"), pending(1, "b"))
    told.collections.refusal = refusal
    told.pods.turn(NOW)
    assert len(told.collections.creations) == tries, "a server in trouble is left alone until the next turn"
    told.collections.refusal = None
    told.pods.turn(after(60))
    assert len(told.events) == 2
    assert told.count == 2


def test_processes_of_two_replicas_write_one_event(tmp_path: Path) -> None:
    collections = WatchedCollections()
    collections.put(NODESLACKS_PATH, live("node-1", total=1))
    replicas = []
    try:
        for name in ("one", "two"):
            folder = tmp_path / name
            folder.mkdir()
            replicas.append(Extender(folder, collections))
        collections.put(PODS, unschedulable(pending(2)).raw)
        assert eventually(lambda: len(collections.creations) == 2), replicas[0].log.read_text()
        (event,) = collections.events.values()
        assert event["message"] == ONE_OF_TWO
        assert sum(replica.metric("slackwater_pending_explanations_total") for replica in replicas) == 1
    finally:
        for replica in replicas:
            replica.close()
        collections.close()
