"""Taking memory back: a best-effort pod goes within seconds of the crossing, and the online pod never notices."""

import time
from typing import Any

from rigs.installation import Installation
from rigs.workloads import (
    BE,
    Namespace,
    hold_memory,
    lift_memory_limit,
    memory,
    memory_limit_of,
    memory_used_by,
    node_memory_used,
)

GOAL_S = 5.0
"""From the crossing of the threshold to the eviction's Event. Seconds of the API's own whole-second stamps included."""


def test_be_pod_is_evicted_within_five_seconds_and_the_online_pod_lives(
    slackwater: Installation, namespace: Namespace
) -> None:
    namespace.pod("online", command="sleep 3600")
    namespace.pod("be", labels=BE, resources=memory("900Mi"), command="head -c 700m /dev/zero | tail | sleep 3600")
    online, be = namespace.running("online"), namespace.running("be")
    cluster = slackwater.cluster
    cluster.wait(lambda: slackwater.nodeslack()["blocks"]["lent"] == 2, 30, "the two blocks to be lent")
    cluster.wait(lambda: memory_used_by(cluster, be["metadata"]["uid"]) > 600 * 1024**2, 30, "the BE pod to fill up")

    terms = slackwater.nodeslack()["memory"]
    threshold = terms["capacity"] * 95 // 100
    target = int(terms["capacity"] * 0.965)
    growth = target - node_memory_used(cluster)
    cluster.kubectl("exec", "-n", namespace.name, "online", "--", "sh", "-c", hold_memory(growth))
    cluster.wait(lambda: node_memory_used(cluster) >= threshold, 60, "the node to cross the threshold", interval_s=0.05)
    crossed = time.monotonic()
    cluster.wait(
        lambda: namespace.events("evictPodSuccess", be["metadata"]["uid"]), 30, "the eviction's Event", interval_s=0.2
    )
    took = time.monotonic() - crossed
    event = namespace.events("evictPodSuccess", be["metadata"]["uid"])[0]
    assert event["message"].startswith(
        "evict Pod:be, reason: EvictPodByNodeMemoryUsage, message: killAndEvictBEPods for "
        f"node({cluster.node_name}), need to release memory: "
    )
    assert int(event["message"].rsplit(" ", 1)[1]) > 0
    assert took <= GOAL_S

    gone = namespace.wait_for("be", lambda pod: not pod or pod["metadata"].get("deletionTimestamp"), 30, "to go")
    assert gone < 30
    after = namespace.get("online")
    assert after["metadata"]["uid"] == online["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0
    assert "deletionTimestamp" not in after["metadata"]


def test_pod_that_takes_more_than_its_blocks_is_stopped_by_its_own_limit(
    slackwater: Installation, namespace: Namespace
) -> None:
    namespace.pod("greedy", labels=BE, resources=memory("400Mi"), command="exec tail /dev/zero", restartPolicy="Never")

    def terminated(pod: Any) -> Any:
        statuses = pod.get("status", {}).get("containerStatuses") or [{}]
        return statuses[0].get("state", {}).get("terminated")

    namespace.wait_for("greedy", terminated, 90, "to hit its limit")
    assert terminated(namespace.get("greedy"))["reason"] == "OOMKilled"
    assert namespace.events("evictPodSuccess") == []
    terms = slackwater.nodeslack()["memory"]
    assert terms["used"] < terms["capacity"] * 0.9


def test_repaired_limit_never_kills_a_pod_that_is_below_it(slackwater: Installation, namespace: Namespace) -> None:
    cluster = slackwater.cluster
    namespace.pod("be", labels=BE, resources=memory("900Mi"), command="head -c 300m /dev/zero | tail | sleep 3600")
    uid = namespace.running("be")["metadata"]["uid"]
    assert memory_limit_of(cluster, uid) == 1024**3
    cluster.wait(lambda: memory_used_by(cluster, uid) > 250 * 1024**2, 30, "the pod to hold its memory")
    lift_memory_limit(cluster, uid, 2 * 1024**3)
    cluster.wait(lambda: memory_limit_of(cluster, uid) == 1024**3, 30, "the limit to be repaired")
    assert memory_used_by(cluster, uid) > 250 * 1024**2
    assert namespace.get("be")["status"]["containerStatuses"][0]["restartCount"] == 0
