"""What an operator does: edits settings, switches to observe, cordons, uninstalls."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from rigs.cluster import Cluster
from rigs.installation import CHART, NAMESPACE, RESOURCE, Installation, install
from rigs.progress import Console
from rigs.workloads import BE, Namespace, lift_memory_limit, memory, memory_limit_of


def condition(slackwater: Installation, kind: str) -> dict[str, Any]:
    return next((one for one in slackwater.nodeslack().get("conditions", []) if one["type"] == kind), {})


def set_config(cluster: Cluster, data: dict[str, Any]) -> None:
    """Replace the data of slo-controller-config."""
    patch = json.dumps([{"op": "add", "path": "/data", "value": {key: json.dumps(one) for key, one in data.items()}}])
    cluster.kubectl("patch", "configmap", "-n", NAMESPACE, "slo-controller-config", "--type=json", "-p", patch)


@pytest.fixture
def config(slackwater: Installation) -> Iterator[Cluster]:
    """Puts the shipped settings back afterwards."""
    yield slackwater.cluster
    set_config(slackwater.cluster, {})
    slackwater.cluster.wait(lambda: slackwater.allocatable_blocks() > 0, 60, "lending to be on again")


def test_configuration_edit_switches_lending_off_and_says_so(slackwater: Installation, config: Cluster) -> None:
    set_config(config, {"colocation-config": {"enable": False}})
    config.wait(lambda: slackwater.nodeslack()["enabled"] is False, 30, "NodeSlack to say that lending is off")
    assert condition(slackwater, "Lending")["reason"] == "Disabled"
    config.wait(lambda: slackwater.allocatable_blocks() == 0, 30, "no block to be allocatable")
    assert slackwater.nodeslack()["memory"]["lendable"] > 0


def test_unusable_configuration_keeps_the_last_good_one(slackwater: Installation, config: Cluster) -> None:
    blocks = slackwater.nodeslack()["blocks"]["lendable"]
    set_config(config, {"colocation-config": {"enable": True, "memoryReclaimThresholdPercent": "lots"}})
    config.wait(lambda: condition(slackwater, "Configured").get("status") == "False", 30, "the mistake to be reported")
    assert "memoryReclaimThresholdPercent" in condition(slackwater, "Configured")["message"]
    assert slackwater.nodeslack()["enabled"] is True
    assert abs(slackwater.nodeslack()["blocks"]["lendable"] - blocks) <= 1


def test_cordoned_node_lends_nothing_new_and_lends_again_when_it_is_back(
    slackwater: Installation, cluster: Cluster
) -> None:
    cluster.kubectl("cordon", cluster.node_name)
    try:
        cluster.wait(lambda: slackwater.nodeslack()["enabled"] is False, 30, "the cordoned node to stop lending")
        assert "cordoned" in condition(slackwater, "Lending")["message"]
    finally:
        cluster.kubectl("uncordon", cluster.node_name)
    cluster.wait(lambda: slackwater.nodeslack()["enabled"] is True, 30, "the node to lend again")
    cluster.wait(lambda: slackwater.allocatable_blocks() > 0, 60, "blocks to be allocatable again")


def test_observe_publishes_and_touches_nothing(
    slackwater: Installation, cluster: Cluster, namespace: Namespace
) -> None:
    namespace.pod("be", labels=BE, resources=memory("500Mi"))
    uid = namespace.running("be")["metadata"]["uid"]
    limit = memory_limit_of(cluster, uid)
    _set_mode(cluster, "observe")
    try:
        cluster.wait(lambda: slackwater.nodeslack()["mode"] == "observe", 60, "NodeSlack to say observe")
        assert slackwater.nodeslack()["blocks"]["lendable"] > 0
        cluster.wait(lambda: slackwater.allocatable_blocks() == 0, 60, f"{RESOURCE} to be gone from the node")
        lift_memory_limit(cluster, uid, 2 * limit)
        with pytest.raises(Exception, match="not within"):
            cluster.wait(lambda: memory_limit_of(cluster, uid) == limit, 5, "a repair that must not happen")
        assert namespace.get("be")["status"]["phase"] == "Running"
    finally:
        _set_mode(cluster, "lend")
        cluster.wait(lambda: slackwater.allocatable_blocks() > 0, 90, "blocks to be allocatable again")


def test_uninstall_blocks_nobody_and_keeps_the_operators_settings(
    slackwater: Installation, cluster: Cluster, namespace: Namespace
) -> None:
    cluster.helm("uninstall", "slackwater", "--namespace", NAMESPACE, "--wait")
    try:
        assert cluster.kubectl("get", "mutatingwebhookconfiguration", "-o", "name").strip() == ""
        namespace.pod("ordinary")
        namespace.running("ordinary")
        namespace.pod("be", labels=BE)  # no webhook is there to refuse it
        for name in ("slo-controller-config", "resource-keeper-policy-config"):
            assert cluster.kubectl("get", "configmap", "-n", NAMESPACE, name, "-o", "name")
        assert cluster.kubectl("get", "crd", "colocationprofiles.slackwater.io", "-o", "name")
    finally:
        install(cluster, Console(), slackwater.values)


def _set_mode(cluster: Cluster, mode: str) -> None:
    cluster.helm(
        "upgrade", "slackwater", str(CHART), "--namespace", NAMESPACE, "--reuse-values", "--set", f"mode={mode}"
    )
    cluster.kubectl("rollout", "status", "-n", NAMESPACE, "daemonset/slackwater-nodeagent", "--timeout=120s")
