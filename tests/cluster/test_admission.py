"""What the API server stores after the webhook has seen a pod."""

import json
from typing import Any

import pytest
from rigs.cluster import Cluster
from rigs.installation import NAMESPACE, RESOURCE
from rigs.rootfs import RigError
from rigs.workloads import BE, Namespace, memory, pod_manifest


def test_be_pod_is_stored_with_class_priority_blocks_and_limits(namespace: Namespace) -> None:
    pod = namespace.pod(
        "be",
        labels=BE,
        resources={"requests": {"memory": "700Mi", "cpu": "10m"}},
        initContainers=[
            {"name": "init", "image": "busybox:1.36", "imagePullPolicy": "IfNotPresent", "command": ["true"]}
        ],
    )
    spec, metadata = pod["spec"], pod["metadata"]
    assert metadata["labels"]["slackwater.io/qos"] == "BE"
    assert metadata["labels"]["koordinator.sh/qosClass"] == "BE"
    assert metadata["annotations"]["slackwater.io/block-size"] == str(512 * 1024**2)
    assert (spec["priorityClassName"], spec["priority"], spec["preemptionPolicy"]) == (
        "slackwater-batch", 5000, "Never",
    )  # fmt: skip
    assert spec["schedulerName"] == "slackwater-scheduler"
    resources = spec["containers"][0]["resources"]
    assert resources["limits"][RESOURCE] == resources["requests"][RESOURCE] == "2"
    assert (resources["requests"]["memory"], resources["limits"]["memory"]) == ("0", "1Gi")
    assert resources["requests"]["cpu"] == "10m"
    init = spec["initContainers"][0]["resources"]
    assert RESOURCE not in init.get("limits", {})
    assert "memory" in init["limits"]


def test_profile_makes_the_pods_of_a_plain_deployment_best_effort(cluster: Cluster, namespace: Namespace) -> None:
    profile = {
        "apiVersion": "slackwater.io/v1alpha1",
        "kind": "ColocationProfile",
        "metadata": {"name": namespace.name},
        "spec": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace.name}},
            "selector": {"matchLabels": {"team": "analytics"}},
            "qosClass": "BE",
            "priorityClassName": "slackwater-free",
        },
    }
    cluster.apply(profile)
    try:

        def stored() -> dict[str, Any] | None:
            # The webhook learns of a profile by watch: a pod created in the same instant may be ahead of it.
            cluster.kubectl("delete", "pod", "-n", namespace.name, "plain", "--ignore-not-found", "--grace-period=0")
            pod = namespace.pod("plain", labels={"team": "analytics"}, resources=memory("100Mi"))
            return pod if "slackwater.io/qos" in pod["metadata"]["labels"] else None

        cluster.wait(stored, 30, "the profile to take effect")
        pod = namespace.get("plain")
        assert pod["spec"]["priority"] == 3000
        assert pod["spec"]["containers"][0]["resources"]["limits"][RESOURCE] == "1"
        assert "slackwater.io/qos" not in namespace.pod("other").get("metadata", {}).get("labels", {})
    finally:
        cluster.kubectl("delete", "colocationprofile", namespace.name)


def test_be_pod_with_a_prod_priority_is_denied(cluster: Cluster, namespace: Namespace) -> None:
    manifest = pod_manifest("be", namespace.name, labels=BE, priorityClassName="slackwater-prod")
    with pytest.raises(RigError, match="slackwater-prod"):
        cluster.apply(manifest)


def test_ordinary_pod_comes_back_unchanged(namespace: Namespace) -> None:
    pod = namespace.pod("online", resources={"requests": {"memory": "64Mi"}})
    assert "annotations" not in pod["metadata"] or not any(
        key.startswith("slackwater.io/") for key in pod["metadata"]["annotations"]
    )
    assert pod["spec"]["schedulerName"] == "default-scheduler"
    assert pod["spec"]["containers"][0]["resources"] == {"requests": {"memory": "64Mi"}}


def test_server_side_dry_run_leaves_nothing_behind(cluster: Cluster, namespace: Namespace) -> None:
    manifest = pod_manifest("dry", namespace.name, labels=BE, resources=memory("100Mi"))
    answer = cluster.kubectl("apply", "-f", "-", "--dry-run=server", "-o", "yaml", input=json.dumps(manifest))
    assert RESOURCE in answer
    assert namespace.get("dry") == {}


def test_own_namespace_and_kube_system_are_never_sent(cluster: Cluster) -> None:
    configuration = cluster.kubectl_json("get", "mutatingwebhookconfiguration", "slackwater")
    for webhook in configuration["webhooks"]:
        excluded = {
            value
            for expression in webhook["namespaceSelector"]["matchExpressions"]
            if expression["key"] == "kubernetes.io/metadata.name" and expression["operator"] == "NotIn"
            for value in expression["values"]
        }
        assert {"kube-system", NAMESPACE} <= excluded
    policies = {webhook["name"]: webhook["failurePolicy"] for webhook in configuration["webhooks"]}
    assert sorted(policies.values()) == ["Fail", "Ignore"], policies
