"""Idle suspension on a real API server: the policy's format, edits at once, resuming by hand."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rigs.cluster import Cluster
from rigs.installation import NAMESPACE, REPOSITORY
from rigs.workloads import Namespace

CRDS = REPOSITORY / "tests" / "rigs" / "manifests" / "tensorstack-crds.yaml"


@pytest.fixture(scope="module")
def kinds(slackwater: Any) -> Iterator[Cluster]:
    """The t9k kinds, installed after the controller has started, as on a cluster that gets them later."""
    cluster: Cluster = slackwater.cluster
    cluster.kubectl("apply", "-f", str(CRDS))
    cluster.kubectl("wait", "--for=condition=Established", "-f", str(CRDS), "--timeout=30s")
    yield cluster
    set_policy(cluster, "policy: {}\n")


def set_policy(cluster: Cluster, text: str) -> None:
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "resource-keeper-policy-config", "namespace": NAMESPACE},
            "data": {"policy.yaml": text},
        }
    )


def idle_object(namespace: Namespace, kind: str, name: str, idle_for: timedelta) -> None:
    namespace.cluster.apply(
        {
            "apiVersion": "tensorstack.dev/v1beta1",
            "kind": kind,
            "metadata": {"name": name, "namespace": namespace.name},
            "spec": {"suspend": False},
        }
    )
    since = (datetime.now(UTC) - idle_for).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = f'{{"status":{{"conditions":[{{"type":"Idle","status":"True","lastTransitionTime":"{since}"}}]}}}}'
    namespace.cluster.kubectl(
        "patch", kind.lower(), "-n", namespace.name, name, "--subresource=status", "--type=merge", "-p", status
    )


def is_suspended(namespace: Namespace, kind: str, name: str) -> bool:
    return namespace.get(name, kind)["spec"].get("suspend") is True


def policy(namespace: Namespace, **timeouts: int) -> str:
    lines = ["policy:"]
    for kind, timeout in timeouts.items():
        lines += [
            f"  {kind}:", "    scanInterval: 2", f"    idleTimeout: {timeout}", "    namespaceSelector:",
            f"      matchLabels: {{kubernetes.io/metadata.name: {namespace.name}}}",
        ]  # fmt: skip
    return "\n".join(lines) + "\n"


def test_idle_notebook_is_suspended_and_others_are_left_alone(kinds: Cluster, namespace: Namespace) -> None:
    idle_object(namespace, "Notebook", "old", timedelta(hours=2))
    idle_object(namespace, "Notebook", "fresh", timedelta(minutes=5))
    idle_object(namespace, "TensorBoard", "unlisted", timedelta(days=2))
    set_policy(kinds, policy(namespace, notebook=3600))
    kinds.wait(lambda: is_suspended(namespace, "notebook", "old"), 30, "the idle notebook's suspension")
    kinds.wait(lambda: namespace.events("Suspended"), 10, "an Event about it")
    assert not is_suspended(namespace, "notebook", "fresh")
    assert not is_suspended(namespace, "tensorboard", "unlisted")


def test_policy_edit_takes_effect_at_once(kinds: Cluster, namespace: Namespace) -> None:
    idle_object(namespace, "TensorBoard", "board", timedelta(hours=2))
    set_policy(kinds, policy(namespace, notebook=3600))
    set_policy(kinds, policy(namespace, notebook=3600, tensorboard=3600))
    kinds.wait(lambda: is_suspended(namespace, "tensorboard", "board"), 10, "the edit's effect")


def test_person_who_resumes_gets_the_full_time_again(kinds: Cluster, namespace: Namespace) -> None:
    idle_object(namespace, "Notebook", "mine", timedelta(hours=2))
    set_policy(kinds, policy(namespace, notebook=10))
    kinds.wait(lambda: is_suspended(namespace, "notebook", "mine"), 30, "the first suspension")
    kinds.kubectl("patch", "notebook", "-n", namespace.name, "mine", "--type=merge", "-p", '{"spec":{"suspend":false}}')
    kinds.wait(
        lambda: "slackwater.io/resumed-at" in namespace.get("mine", "notebook")["metadata"].get("annotations", {}),
        10, "the resume to be noticed",
    )  # fmt: skip
    resumed = namespace.get("mine", "notebook")
    assert resumed["spec"]["suspend"] is False
    # The stale Idle=True condition is still there: only after the whole timeout may it be suspended again.
    kinds.wait(lambda: is_suspended(namespace, "notebook", "mine"), 40, "the second suspension")
    annotations = namespace.get("mine", "notebook")["metadata"]["annotations"]
    first = datetime.fromisoformat(annotations["slackwater.io/resumed-at"])
    second = datetime.fromisoformat(annotations["slackwater.io/suspended-at"])
    assert second - first > timedelta(seconds=10)


def test_garbage_policy_keeps_the_last_good_one(kinds: Cluster, namespace: Namespace) -> None:
    set_policy(kinds, policy(namespace, notebook=3600))
    set_policy(kinds, "policy: [this is\n not: a policy")
    idle_object(namespace, "Notebook", "old", timedelta(hours=2))
    kinds.wait(lambda: is_suspended(namespace, "notebook", "old"), 30, "the last good policy to go on")
