"""Evictions: when, who, how it is asked for, and what is said about it. The agent is a real process.

The order of victims is decided in ``slackwater.victims`` and tested there.
"""

import json
import signal
import time

import pytest
from builders import config_map
from component.nodeagent.api_server import CONFIG_MAPS, PODS
from component.nodeagent.conftest import NodeRig, colocated, eventually
from component.nodeagent.host_files import GIB, MIB

OVER = 7990 * MIB
"""Above 95 % of 8 GiB."""
RELEASE = OVER - 8 * GIB * 93 // 100


def _press(rig: NodeRig) -> float:
    rig.files.machine(8 * GIB, OVER)
    return time.monotonic()


def test_the_victim_is_evicted_by_uid_within_two_seconds_and_its_event_says_why(rig: NodeRig) -> None:
    rig.add_pod(colocated("be1", 2), used=900 * MIB)
    rig.offering_agent("--refresh-interval", "10s")
    began_s = _press(rig)
    eventually(lambda: bool(rig.api.evictions), "an eviction", timeout_s=2)
    name, uid, asked_at_s = rig.api.evictions[0]
    assert (name, uid) == ("be1", "uid-default-be1")
    assert asked_at_s - began_s < 2
    eventually(lambda: bool(rig.api.events_about("evictPodSuccess")), "the Event")
    assert rig.api.events_about("evictPodSuccess") == [
        "evict Pod:be1, reason: EvictPodByNodeMemoryUsage, message: killAndEvictBEPods for node(node-1), "
        f"need to release memory: {RELEASE}"
    ]
    event = next(event for event in rig.api.events if event["reason"] == "evictPodSuccess")
    assert (event["type"], event["source"]) == ("Warning", {"component": "slackwater-nodeagent", "host": "node-1"})
    assert event["involvedObject"]["uid"] == uid


def test_a_terminating_victim_is_credited_so_that_no_other_goes(rig: NodeRig) -> None:
    rig.add_pod(colocated("be1", 2), used=900 * MIB)
    rig.add_pod(colocated("be2", 2), used=901 * MIB)
    rig.offering_agent("--eviction-cooling", "0s")
    _press(rig)
    eventually(lambda: bool(rig.api.evictions), "an eviction")
    asked = rig.metric('slackwater_loop_seconds_count{loop="guard"}')
    eventually(lambda: rig.metric('slackwater_loop_seconds_count{loop="guard"}') > asked + 3, "three more looks")
    assert [name for name, _, _ in rig.api.evictions] == ["be1"]


def test_a_refused_victim_makes_way_for_the_next(rig: NodeRig) -> None:
    rig.add_pod(colocated("be1", 2), used=900 * MIB)
    rig.add_pod(colocated("be2", 2), used=901 * MIB)
    rig.api.protected.add("be1")
    rig.offering_agent()
    _press(rig)
    eventually(lambda: len(rig.api.evictions) == 2, "two requests", timeout_s=2)
    assert [name for name, _, _ in rig.api.evictions] == ["be1", "be2"]
    eventually(lambda: bool(rig.api.events_about("evictPodFail")), "the Event about the refusal")
    assert rig.api.events_about("evictPodFail")[0].endswith("would violate the pod's disruption budget.")
    eventually(lambda: rig.metric('slackwater_evictions_total{result="evicted"}') == 1, "one eviction")
    assert rig.metric('slackwater_evictions_total{result="refused"}') == 1


def test_a_successor_of_the_same_name_is_not_evicted(rig: NodeRig) -> None:
    rig.add_pod(colocated("be1", 2), used=900 * MIB)
    agent = rig.offering_agent()
    agent.send_signal(signal.SIGSTOP)
    rig.api.put(PODS, colocated("be1", 2).uid("successor").raw)
    _press(rig)
    agent.send_signal(signal.SIGCONT)
    eventually(lambda: rig.metric("slackwater_eviction_release_bytes") > 0, "the pressure is seen")
    assert all(uid != "successor" for _, uid, _ in rig.api.evictions)


def test_online_pods_and_cache_are_left_alone(rig: NodeRig) -> None:
    rig.add_pod(colocated("online", 0).label("slackwater.io/qos", "LS"), used=6 * GIB)
    rig.offering_agent()
    rig.files.machine(8 * GIB, GIB, cache=int(6.9 * GIB))
    eventually(lambda: rig.metric('slackwater_loop_seconds_count{loop="measure"}') > 4, "some readings")
    _press(rig)
    eventually(lambda: "there is no best-effort pod on it to evict" in rig.log, "the reason")
    assert rig.api.evictions == []


def test_the_owner_of_a_victim_is_avoided_also_after_a_restart(rig: NodeRig) -> None:
    rig.add_pod(colocated("be1", 2), used=900 * MIB)
    agent = rig.offering_agent()
    _press(rig)
    eventually(lambda: bool(rig.api.nodeslack().get("avoiding")), "the avoidance")
    before = rig.api.nodeslack()["avoiding"]
    assert [(entry["owner"], entry["reason"]) for entry in before] == [("uid-rs-be1", "EvictPodByNodeMemoryUsage")]
    rig.api.delete(PODS, "default/be1")
    rig.files.machine(8 * GIB, GIB)
    rig.stop_agent(agent, signal.SIGKILL)
    writes = len(rig.api.status_writes)
    rig.start_agent()
    eventually(lambda: len(rig.api.status_writes) > writes, "a status of the new agent")
    eventually(lambda: rig.api.nodeslack()["avoiding"] == before, "the same avoidance")


def test_unreadable_memory_evicts_nobody(rig: NodeRig) -> None:
    rig.add_pod(colocated("be1", 2), used=900 * MIB)
    rig.offering_agent()
    (rig.files.root / "proc/meminfo").write_text(f"MemTotal: {8 * GIB // 1024} kB\nMemFree: 0 kB\n")
    eventually(lambda: "MemAvailable is missing" in rig.unready(), "the reason in /readyz")
    assert rig.api.evictions == []


def test_the_threshold_follows_the_config_map_at_once(rig: NodeRig) -> None:
    rig.add_pod(colocated("be1", 2), used=900 * MIB)
    rig.files.machine(8 * GIB, 6 * GIB)
    rig.start_agent()
    eventually(lambda: rig.unready() == "", "readiness")
    threshold = {"clusterStrategy": {"enable": True, "memoryEvictThresholdPercent": 70}}
    rig.api.put(CONFIG_MAPS, config_map("slo-controller-config", {"resource-threshold-config": json.dumps(threshold)}))
    eventually(lambda: bool(rig.api.evictions), "an eviction", timeout_s=3)


@pytest.mark.parametrize("threshold", ["{not json", '{"clusterStrategy": {"memoryEvictThresholdPercent": 700}}'])
def test_a_bad_config_map_keeps_the_last_good_policy_and_is_reported_once(rig: NodeRig, threshold: str) -> None:
    rig.offering_agent()
    rig.api.put(CONFIG_MAPS, config_map("slo-controller-config", {"resource-threshold-config": threshold}))
    eventually(lambda: bool(rig.api.events_about("ColocationConfigRejected")), "the Event")
    eventually(lambda: rig.metric("slackwater_policy_valid") == 0, "the metric")

    def conditions() -> dict[str, str]:
        # The Event may be out before the first status is.
        return {entry["type"]: entry["status"] for entry in rig.api.nodeslack().get("conditions", [])}

    eventually(lambda: conditions().get("Configured") == "False", "the condition")
    assert conditions()["Lending"] == "True"
    assert rig.kubelet.allocatable == 12
    (message,) = rig.api.events_about("ColocationConfigRejected")
    assert "resource-threshold-config" in message
    rig.api.put(CONFIG_MAPS, config_map("slo-controller-config", {}))
    eventually(lambda: rig.metric("slackwater_policy_valid") == 1, "the good one")


def test_a_bad_config_map_at_the_start_lends_nothing(rig: NodeRig) -> None:
    rig.api.put(CONFIG_MAPS, config_map("slo-controller-config", {"colocation-config": "{"}))
    rig.start_agent()
    eventually(lambda: rig.api.nodeslack().get("enabled") is False, "a NodeSlack that lends nothing")
    assert rig.kubelet.allocatable == 0


def test_observe_says_who_would_go_and_touches_nothing(rig: NodeRig) -> None:
    directory = rig.add_pod(colocated("be1", 2), used=900 * MIB)
    rig.start_agent("--mode", "observe")
    _press(rig)
    eventually(lambda: rig.api.nodeslack().get("wouldEvict") == ["default/be1"], "the would-be victim")
    status = rig.api.nodeslack()
    assert (status["mode"], status["eviction"]["release"]) == ("observe", RELEASE)
    assert (rig.api.evictions, rig.api.events, rig.kubelet.plugins) == ([], [], [])
    assert not (rig.kubelet.plugin_dir / "slackwater.sock").exists()
    assert rig.files.read_limit(directory) == "max"
    rig.files.machine(8 * GIB, GIB)
    eventually(lambda: rig.api.nodeslack()["wouldEvict"] == [], "nobody would go")
    assert rig.unready() == ""


def test_an_api_server_that_is_away_delays_the_eviction_only_until_it_is_back(rig: NodeRig) -> None:
    rig.add_pod(colocated("be1", 2), used=900 * MIB)
    rig.offering_agent()
    rig.api.break_off()
    _press(rig)
    eventually(lambda: rig.metric('slackwater_evictions_total{result="failed"}') > 0, "a failed request")
    assert rig.unready() == ""
    rig.api.away = False
    eventually(lambda: [name for name, _, _ in rig.api.evictions] == ["be1"], "the eviction", timeout_s=5)
