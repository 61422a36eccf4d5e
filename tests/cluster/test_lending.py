"""The node's side: blocks on the Node, placement by headroom, limits before the first process, restarts."""

import json
import re
from pathlib import Path
from typing import Any

from rigs.cluster import Cluster
from rigs.installation import BLOCK, NAMESPACE, RESOURCE, Installation
from rigs.workloads import BE, Namespace, blocks_free, create_as, lift_memory_limit, memory, memory_limit_of

CHECKPOINT = Path("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")
AGENT = f"system:serviceaccount:{NAMESPACE}:slackwater-nodeagent"
READ_LIMIT = (
    "cat /sys/fs/cgroup/memory.max 2>/dev/null;"
    " sed -n 's/^hierarchical_memory_limit //p' /sys/fs/cgroup/memory/memory.stat 2>/dev/null"
)
"""Prints the limit that the kernel enforces on this very process, its pod's included."""


def filter_requests(slackwater: Installation) -> float:
    lines = re.findall(r"^slackwater_filter_requests_total\{.*\} (\S+)$", slackwater.metrics("extender"), re.MULTILINE)
    return sum(map(float, lines))


def allocated_ids(pod_uid: str = "") -> set[str]:
    """Device ids that the kubelet's own checkpoint says are allocated (of one pod, or of all)."""
    entries = json.loads(CHECKPOINT.read_text(encoding="utf-8"))["Data"]["PodDeviceEntries"] or []
    return {
        device
        for entry in entries
        if entry["ResourceName"] == RESOURCE and (not pod_uid or entry["PodUID"] == pod_uid)
        for devices in entry["DeviceIDs"].values()
        for device in devices
    }


def test_node_offers_blocks_and_nodeslack_explains_them(slackwater: Installation) -> None:
    status = slackwater.nodeslack()
    memory_terms, blocks = status["memory"], status["blocks"]
    room = min(memory_terms["lendable"], memory_terms["line"] - memory_terms["system"] - memory_terms["online"])
    assert blocks["lendable"] == room // BLOCK > 0
    assert memory_terms["capacity"] == 6 * 1024**3
    assert 0 < slackwater.allocatable_blocks() <= blocks["lendable"]
    owner = slackwater.cluster.kubectl_json("get", "nodeslack", slackwater.cluster.node_name)["metadata"]
    assert owner["ownerReferences"][0]["kind"] == "Node"


def test_pod_is_placed_through_the_extender_and_lent_blocks_are_counted(
    slackwater: Installation, namespace: Namespace
) -> None:
    asked = filter_requests(slackwater)
    namespace.pod("be", labels=BE, resources=memory("700Mi"))
    pod = namespace.running("be")
    assert filter_requests(slackwater) > asked
    assert len(allocated_ids(pod["metadata"]["uid"])) == 2
    slackwater.cluster.wait(
        lambda: slackwater.nodeslack()["blocks"]["lent"] == 2, 30, "NodeSlack to count 2 lent blocks"
    )


def test_limit_is_in_force_before_the_first_process_init_containers_included(
    cluster: Cluster, namespace: Namespace
) -> None:
    init = {
        "name": "init",
        "image": "busybox:1.36",
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", READ_LIMIT],
    }
    namespace.pod(
        "be", labels=BE, resources=memory("700Mi"), command=f"{READ_LIMIT}; exec sleep 3600", initContainers=[init]
    )
    pod = namespace.running("be")
    assert memory_limit_of(cluster, pod["metadata"]["uid"]) == 2 * BLOCK
    assert int(namespace.logs("be", "-c", "main").split()[-1]) == 2 * BLOCK
    assert 0 < int(namespace.logs("be", "-c", "init").split()[-1]) <= 2 * BLOCK


def test_second_pod_beyond_the_headroom_stays_pending_with_the_numbers(
    slackwater: Installation, namespace: Namespace
) -> None:
    free = blocks_free(slackwater)
    namespace.pod("first", labels=BE, resources=memory("600Mi"))
    namespace.running("first")
    namespace.pod("second", labels=BE, resources={"limits": {"memory": f"{free * 512}Mi"}})
    namespace.wait_for("second", _unschedulable, 60, "to be found unschedulable")
    uid = namespace.get("second")["metadata"]["uid"]
    slackwater.cluster.wait(
        lambda: namespace.events("InsufficientColocationMemory", uid), 60, "an Event that explains the refusal"
    )
    message = namespace.events("InsufficientColocationMemory", uid)[0]["message"]
    assert message.startswith(f"{free} blocks ("), message
    assert re.search(r"\d+ blocks? \(.+\) available", message), message
    assert slackwater.cluster.node_name in message
    assert namespace.get("second")["status"]["phase"] == "Pending"


def test_be_pod_never_displaces_an_online_pod_of_priority_zero(cluster: Cluster, namespace: Namespace) -> None:
    node = cluster.kubectl_json("get", "node", cluster.node_name)
    used = sum(
        _millicores(container.get("resources", {}).get("requests", {}).get("cpu", "0"))
        for pod in cluster.kubectl_json("get", "pods", "-A")["items"]
        for container in pod["spec"]["containers"]
    )
    rest = _millicores(node["status"]["allocatable"]["cpu"]) - used
    namespace.pod("online", resources={"requests": {"cpu": f"{rest - 20}m"}})
    online = namespace.running("online")
    namespace.pod("be", labels=BE, resources={"requests": {"cpu": "500m", "memory": "100Mi"}})
    namespace.wait_for("be", lambda pod: _unschedulable(pod), 60, "to be found unschedulable")
    after = namespace.get("online")
    assert after["metadata"]["uid"] == online["metadata"]["uid"]
    assert "deletionTimestamp" not in after["metadata"]
    be = namespace.get("be")
    assert be["spec"]["priority"] > (after["spec"].get("priority") or 0)
    assert "nominatedNodeName" not in be["status"]


def test_container_restarts_under_its_limit_while_the_agent_is_down(
    slackwater: Installation, cluster: Cluster, namespace: Namespace
) -> None:
    namespace.pod("be", labels=BE, resources=memory("700Mi"), command=f"{READ_LIMIT}; sleep 2; exit 1")
    namespace.running("be")
    with slackwater.agent_down():
        namespace.wait_for(
            "be",
            lambda pod: pod["status"]["containerStatuses"][0]["restartCount"] >= 2
            and pod["status"]["phase"] == "Running",
            120, "to restart twice",
        )  # fmt: skip
        assert int(namespace.logs("be", "--previous").split()[-1]) == 2 * BLOCK
        assert memory_limit_of(cluster, namespace.get("be")["metadata"]["uid"]) == 2 * BLOCK


def test_agent_killed_and_kubelet_restarted_change_no_id_and_hand_out_nothing_twice(
    slackwater: Installation, cluster: Cluster, namespace: Namespace
) -> None:
    for name in ("one", "two"):
        namespace.pod(name, labels=BE, resources=memory("500Mi"))
        namespace.running(name)
    uids = [namespace.get(name)["metadata"]["uid"] for name in ("one", "two")]
    before = [allocated_ids(uid) for uid in uids]
    capacity = _capacity(cluster)
    slackwater.kill_agent()
    cluster.restart_kubelet()
    cluster.wait(lambda: _capacity(cluster) == capacity, 90, f"the capacity to be {capacity} blocks again")
    cluster.wait(lambda: slackwater.allocatable_blocks() > 0, 60, "blocks to be allocatable again")
    assert [allocated_ids(uid) for uid in uids] == before
    namespace.pod("three", labels=BE, resources=memory("500Mi"))
    namespace.running("three", timeout_s=120)
    assert [allocated_ids(uid) for uid in uids] == before
    third = allocated_ids(namespace.get("three")["metadata"]["uid"])
    assert len(third) == 1
    assert not third & (before[0] | before[1])
    for name, uid in zip(("one", "two"), uids, strict=True):
        pod = namespace.get(name)
        assert (pod["metadata"]["uid"], pod["status"]["phase"]) == (uid, "Running")
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 0


def test_limit_that_somebody_lifts_is_put_back_and_counted(
    slackwater: Installation, cluster: Cluster, namespace: Namespace
) -> None:
    namespace.pod("be", labels=BE, resources=memory("500Mi"))
    uid = namespace.running("be")["metadata"]["uid"]
    lift_memory_limit(cluster, uid, 4 * BLOCK)
    cluster.wait(lambda: memory_limit_of(cluster, uid) == BLOCK, 30, "the pod's limit to be repaired")
    assert re.search(r"^slackwater_limit_repairs_total(\{.*\})? [1-9]", slackwater.metrics("nodeagent"), re.MULTILINE)


def test_agents_may_write_only_the_nodeslack_of_their_own_node(cluster: Cluster) -> None:
    other = {"apiVersion": "slackwater.io/v1alpha1", "kind": "NodeSlack", "metadata": {"name": "another-node"}}
    for extra in ({"authentication.kubernetes.io/node-name": cluster.node_name}, {}):
        answer = create_as(cluster, other, user=AGENT, extra=extra)
        assert "ValidatingAdmissionPolicy 'slackwater-nodeagent'" in answer, answer


def test_agents_may_write_only_their_own_node_even_if_somebody_grants_more(cluster: Cluster) -> None:
    name = "test-node-writer"
    cluster.kubectl("create", "clusterrole", name, "--verb=get,patch", "--resource=nodes")
    cluster.kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}", f"--user={AGENT}")
    cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "another-node"}})
    token = (f"--as={AGENT}", f"--as-user-extra=authentication.kubernetes.io/node-name={cluster.node_name}")
    try:
        cluster.wait(
            lambda: "labeled" in cluster.kubectl("label", "node", cluster.node_name, "test=own", *token, check=False),
            20, "the own node to be writable",
        )  # fmt: skip
        answer = cluster.kubectl("label", "node", "another-node", "test=other", *token, check=False)
        assert "ValidatingAdmissionPolicy 'slackwater-nodeagent'" in answer, answer
    finally:
        cluster.kubectl("label", "node", cluster.node_name, "test-")
        cluster.kubectl("delete", "node/another-node", f"clusterrole/{name}", f"clusterrolebinding/{name}")


def _capacity(cluster: Cluster) -> int:
    return int(cluster.kubectl_json("get", "node", cluster.node_name)["status"]["capacity"].get(RESOURCE, "0"))


def _millicores(text: str) -> int:
    return int(text[:-1]) if text.endswith("m") else int(float(text) * 1000)


def _unschedulable(pod: Any) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(c["type"] == "PodScheduled" and c.get("reason") == "Unschedulable" for c in conditions)
