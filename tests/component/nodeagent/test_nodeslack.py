"""NodeSlack as the agent writes it: whose it is, what it says, and how often."""

import signal
import time
from datetime import UTC, datetime

from builders import pod
from component.nodeagent.api_server import NODES, NODESLACKS, PODS
from component.nodeagent.conftest import NodeRig, colocated, eventually
from component.nodeagent.host_files import GIB, MIB

from slackwater.nodeslack import read_nodeslack
from slackwater.timestamps import format_time


def _written(rig: NodeRig) -> None:
    eventually(lambda: bool(rig.api.nodeslack()), "a NodeSlack")


def test_it_belongs_to_the_node_and_holds_every_term(rig: NodeRig) -> None:
    rig.add_pod(pod("online").requests(memory="2Gi"), used=GIB // 2, qos="Burstable")
    rig.add_pod(colocated("be1", 2), used=MIB)
    rig.offering_agent()
    eventually(lambda: rig.api.nodeslack().get("blocks", {}).get("lent") == 2, "two blocks lent")
    raw = rig.api.get(NODESLACKS, "node-1")
    assert raw is not None
    owner = {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "uid-of-node-1"}
    assert raw["metadata"]["ownerReferences"] == [owner]
    view = read_nodeslack(raw)
    assert (view.capacity, view.used, view.online, view.total, view.lent, view.free) == (
        8 * GIB,
        GIB,
        GIB // 2,
        12,
        2,
        10,
    )
    eventually(
        lambda: (
            {c["type"]: c["status"] for c in rig.api.nodeslack()["conditions"]}
            == {"Lending": "True", "Measuring": "True", "Configured": "True", "Registered": "True"}
        ),
        "all conditions",
    )


def test_a_change_is_written_at_once_and_nothing_when_nothing_changed(rig: NodeRig) -> None:
    rig.offering_agent()
    eventually(lambda: any(c["type"] == "Registered" and c["status"] == "True" for c in _conditions(rig)), "registered")
    readings = rig.metric('slackwater_loop_seconds_count{loop="measure"}')
    writes = len(rig.api.status_writes)
    eventually(lambda: rig.metric('slackwater_loop_seconds_count{loop="measure"}') > readings + 3, "some more readings")
    assert len(rig.api.status_writes) == writes
    began_s = time.monotonic()
    rig.api.put(PODS, colocated("be1", 2).raw)
    eventually(lambda: rig.api.nodeslack()["blocks"]["lent"] == 2, "two blocks lent")
    assert time.monotonic() - began_s < 3


def _conditions(rig: NodeRig) -> list[dict[str, str]]:
    conditions: list[dict[str, str]] = rig.api.nodeslack().get("conditions", [])
    return conditions


def test_a_sign_of_life_comes_without_any_change(rig: NodeRig) -> None:
    rig.offering_agent("--publish-interval", "1s")
    _written(rig)
    first = rig.api.nodeslack()["time"]
    eventually(lambda: rig.api.nodeslack()["time"] > first, "a newer time", timeout_s=5)


def test_a_node_that_must_not_lend_says_why(rig: NodeRig) -> None:
    node = rig.api.get(NODES, "node-1")
    assert node is not None
    node["metadata"]["labels"] = {"node-role.kubernetes.io/control-plane": ""}
    rig.api.put(NODES, node)
    rig.start_agent()
    _written(rig)
    status = rig.api.nodeslack()
    assert (status["enabled"], status["blocks"]["total"]) == (False, 0)
    lending = next(entry for entry in status["conditions"] if entry["type"] == "Lending")
    assert (lending["status"], lending["reason"]) == ("False", "NodeRefuses")
    assert "control-plane" in lending["message"]
    rig.kubelet.wait_for(lambda kubelet: kubelet.capacity == 16, "the ids, all withdrawn")
    assert rig.kubelet.allocatable == 0


def test_conditions_keep_their_time_over_a_restart(rig: NodeRig) -> None:
    agent = rig.offering_agent()
    _written(rig)
    before = next(entry for entry in _conditions(rig) if entry["type"] == "Lending")["lastTransitionTime"]
    rig.stop_agent(agent, signal.SIGKILL)
    writes = len(rig.api.status_writes)
    eventually(lambda: format_time(datetime.now(UTC)) > before, "the next second")
    rig.start_agent("--publish-interval", "1s")
    eventually(lambda: len(rig.api.status_writes) > writes + 1, "writes of the new agent")
    assert next(entry for entry in _conditions(rig) if entry["type"] == "Lending")["lastTransitionTime"] == before


def test_a_deleted_nodeslack_is_made_anew(rig: NodeRig) -> None:
    rig.offering_agent("--publish-interval", "1s")
    _written(rig)
    rig.api.delete(NODESLACKS, "node-1")
    eventually(lambda: bool(rig.api.nodeslack()), "another one")


def test_it_waits_for_an_api_server_that_is_away_and_goes_on_lending(rig: NodeRig) -> None:
    rig.offering_agent()
    _written(rig)
    rig.api.break_off()
    rig.files.machine(8 * GIB, 4 * GIB)
    rig.kubelet.wait_for(lambda kubelet: kubelet.allocatable == 6, "the offer follows the memory")
    eventually(lambda: rig.metric('slackwater_nodeslack_writes_total{result="failure"}') > 0, "a failed write")
    rig.api.away = False
    eventually(lambda: rig.api.nodeslack()["blocks"]["total"] == 6, "the news, late", timeout_s=20)
