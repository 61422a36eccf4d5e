"""Parts of the cluster fail while pods run: nobody is harmed, nothing is lost, and it goes on afterwards."""

import pytest
from rigs.cluster import CommandFailed
from rigs.installation import BLOCK, NAMESPACE, Installation
from rigs.waiting import wait_until
from rigs.workloads import BE, Namespace, lift_memory_limit, memory, memory_limit_of


def test_without_a_webhook_best_effort_pods_are_refused_and_others_are_not(
    slackwater: Installation, namespace: Namespace
) -> None:
    cluster = slackwater.cluster
    cluster.kubectl("scale", "deployment", "-n", NAMESPACE, "slackwater-webhook", "--replicas=0")
    try:
        cluster.wait(
            lambda: not slackwater.pods("app.kubernetes.io/component=webhook", NAMESPACE), 60, "the webhook to be gone"
        )
        namespace.pod("ordinary")
        with pytest.raises(CommandFailed, match="best-effort"):
            namespace.pod("be", labels=BE, resources=memory("100Mi"))
    finally:
        cluster.kubectl("scale", "deployment", "-n", NAMESPACE, "slackwater-webhook", "--replicas=1")
        cluster.kubectl("rollout", "status", "-n", NAMESPACE, "deployment/slackwater-webhook", "--timeout=90s")

    def admitted() -> bool:
        # kube-proxy learns of the new endpoint a moment after the Deployment is available.
        return bool(namespace.pod("be", labels=BE, resources=memory("100Mi")))

    cluster.wait(admitted, 30, "best-effort pods to be admitted again")


def test_limits_are_guarded_while_the_api_server_is_away(slackwater: Installation, namespace: Namespace) -> None:
    cluster = slackwater.cluster
    namespace.pod("be", labels=BE, resources=memory("500Mi"))
    before = namespace.running("be")
    uid = before["metadata"]["uid"]
    cluster.wait(lambda: slackwater.nodeslack()["blocks"]["lent"] == 1, 30, "the block to be lent")
    api_server = cluster.process("kube-apiserver")
    api_server.kill9()
    try:
        lift_memory_limit(cluster, uid, 4 * BLOCK)
        wait_until("the repair of the limit", lambda: memory_limit_of(cluster, uid) == BLOCK, 20)
    finally:
        api_server.start()
    cluster.wait(lambda: cluster.kubectl("get", "--raw", "/readyz") == "ok", 60, "the API server to be back")
    after = namespace.get("be")
    assert after["metadata"]["uid"] == uid
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0
    namespace.pod("next", labels=BE, resources=memory("500Mi"))
    namespace.running("next")
    cluster.wait(lambda: slackwater.nodeslack()["blocks"]["lent"] == 2, 60, "NodeSlack to count the next pod's block")


def test_controller_killed_is_replaced_and_certificates_stay(slackwater: Installation) -> None:
    cluster = slackwater.cluster
    before = cluster.kubectl_json("get", "secret", "-n", NAMESPACE, "slackwater-tls")["data"]
    pod = slackwater.pods("app.kubernetes.io/component=controller", NAMESPACE)[0]["metadata"]["name"]
    cluster.kubectl("delete", "pod", "-n", NAMESPACE, pod, "--grace-period=0", "--force")
    cluster.kubectl("rollout", "status", "-n", NAMESPACE, "deployment/slackwater-controller", "--timeout=90s")
    cluster.wait(lambda: "slackwater_controller_leader 1.0" in slackwater.metrics("controller"), 60, "a new leader")
    assert cluster.kubectl_json("get", "secret", "-n", NAMESPACE, "slackwater-tls")["data"] == before
    assert slackwater.webhook_is_active()
