"""The webhook as the API server meets it: a real process, TLS, AdmissionReviews on a kept connection.

The API server behind it is reduced to list and watch. Certificate rotation and SIGTERM: see the shared server's tests.
"""

import base64
import http.client
import json
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonpatch
import pytest
from component.extender.watched import WatchedCollections
from component.https_process import eventually, free_port, write_certificate

from slackwater import names

NAMESPACE = {"metadata": {"name": "shop", "labels": {"colocation": "enabled"}}}


def profile(name: str = "analytics", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ColocationProfile",
        "metadata": {"name": name},
        "spec": {"namespaceSelector": {"matchLabels": {"colocation": "enabled"}}, **spec},
    }


def pod(**labels: str) -> dict[str, Any]:
    """As the API server sends it: LimitRanger, Priority and ServiceAccount have been at work."""
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "generateName": "report-6b8-",
            "namespace": "shop",
            "creationTimestamp": None,
            "labels": labels,
            "managedFields": [
                {"manager": "kube-controller-manager", "operation": "Update", "fieldsV1": {"f:spec": {}}}
            ],
            "annotations": {"kubernetes.io/limit-ranger": "LimitRanger plugin set: memory limit for container side"},
        },
        "spec": {
            "containers": [
                {"name": "app", "image": "a", "resources": {"requests": {"memory": "900Mi", "cpu": "500m"}}},
                {"name": "side", "image": "b", "resources": {"limits": {"memory": "8Gi"}, "requests": {"cpu": "10m"}}},
            ],
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "priority": 0,
            "preemptionPolicy": "PreemptLowerPriority",
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
        },
        "status": {},
    }


def review(raw: dict[str, Any], operation: str = "CREATE", **extra: Any) -> dict[str, Any]:
    return {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "shop",
            "operation": operation,
            "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller"},
            "object": raw,
            "oldObject": None,
            "dryRun": False,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
            **extra,
        },
    }


class Webhook:
    """One running webhook, and a client that keeps its connection."""

    def __init__(self, folder: Path, collections: WatchedCollections) -> None:
        self.collections = collections
        write_certificate(folder / "tls", "webhook")
        self.port, self.metrics_port = free_port(), free_port()
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-P", "-m", "webhook", f"--port={self.port}", f"--tls-dir={folder / 'tls'}",
                    f"--metrics-port={self.metrics_port}", "--log-format=text",
                    f"--kubeconfig={collections.write_kubeconfig(folder / 'kubeconfig')}",
                ],
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
            )  # fmt: skip
        context = ssl.create_default_context(cafile=str(folder / "tls" / "tls.crt"))
        self.connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=10, context=context)

    def call(self, body: bytes) -> tuple[int, bytes]:
        self.connection.request("POST", "/mutate?timeout=10s", body, {"Content-Type": "application/json"})
        with self.connection.getresponse() as response:
            return response.status, response.read()

    def mutate(self, asked: dict[str, Any]) -> dict[str, Any]:
        status, body = self.call(json.dumps(asked).encode())
        assert status == 200, body
        answer = json.loads(body)["response"]
        assert answer["uid"] == asked["request"]["uid"]
        return dict(answer)

    def observe(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.metrics_port, timeout=5)
        try:
            connection.request("GET", path)
            with connection.getresponse() as response:
                return response.status, response.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()

    def is_ready(self) -> bool:
        return self.observe("/readyz")[0] == 200

    def close(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.wait(10)


@pytest.fixture(scope="module")
def webhook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Webhook]:
    collections = WatchedCollections()
    collections.put(names.NAMESPACES_PATH, NAMESPACE)
    collections.put(names.PROFILES_PATH, profile(selector={"matchLabels": {"team": "analytics"}}, qosClass="BE"))
    running = Webhook(tmp_path_factory.mktemp("webhook"), collections)
    try:
        assert eventually(running.is_ready), running.log.read_text()
        yield running
    finally:
        running.close()
        collections.close()


def patched(raw: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    operations = json.loads(base64.b64decode(answer["patch"]))
    return dict(jsonpatch.apply_patch(raw, operations))


def test_a_selected_pod_is_admitted_and_a_second_look_finds_nothing_to_do(webhook: Webhook) -> None:
    raw = pod(team="analytics")
    answer = webhook.mutate(review(raw))
    assert (answer["allowed"], answer["patchType"]) == (True, "JSONPatch")
    after = patched(raw, answer)
    assert [each["resources"] for each in after["spec"]["containers"]] == [
        {
            "requests": {"memory": "0", "cpu": "500m", names.RESOURCE: "2"},
            "limits": {"memory": "1Gi", names.RESOURCE: "2"},
        },
        {"requests": {"memory": "0", "cpu": "10m"}, "limits": {"memory": "1Gi"}},
    ]
    assert (after["spec"]["priorityClassName"], after["spec"]["priority"]) == ("slackwater-batch", 5000)
    assert after["spec"]["preemptionPolicy"] == "Never"
    assert after["spec"]["schedulerName"] == "slackwater-scheduler"
    assert after["metadata"]["managedFields"] == raw["metadata"]["managedFields"]
    assert "patch" not in webhook.mutate(review(after))


def test_a_dry_run_gets_the_same_answer(webhook: Webhook) -> None:
    raw = pod(team="analytics")
    assert webhook.mutate(review(raw, dryRun=True)) == webhook.mutate(review(raw))


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(review(pod(team="web")), id="nobody-selects-it"),
        pytest.param(review(pod(team="analytics"), "UPDATE", oldObject=pod(team="web")), id="update"),
    ],
)
def test_no_patch_where_nothing_is_to_be_done(webhook: Webhook, asked: dict[str, Any]) -> None:
    answer = webhook.mutate(asked)
    assert answer["allowed"]
    assert "patch" not in answer


def test_changes_in_the_cluster_are_seen(webhook: Webhook) -> None:
    raw = pod(team="late")
    assert "patch" not in webhook.mutate(review(raw))
    late = {"selector": {"matchLabels": {"team": "late"}}, "qosClass": "BE", "priorityClassName": "late"}
    webhook.collections.put(names.PRIORITY_CLASSES_PATH, {"metadata": {"name": "late"}, "value": 5400})
    webhook.collections.put(names.PROFILES_PATH, profile("late", **late))
    assert eventually(lambda: "patch" in webhook.mutate(review(raw)))
    assert patched(raw, webhook.mutate(review(raw)))["spec"]["priority"] == 5400
    webhook.collections.delete(names.PROFILES_PATH, "late")
    assert eventually(lambda: "patch" not in webhook.mutate(review(raw)))


def test_a_profile_of_koordinator_is_honoured(webhook: Webhook) -> None:
    raw = pod(koord="yes")
    theirs = {
        "kind": "ClusterColocationProfile",
        "metadata": {"name": "theirs"},
        "spec": {"selector": {"matchLabels": {"koord": "yes"}}, "qosClass": "BE", "koordinatorPriority": 7},
    }
    webhook.collections.put(names.KOORDINATOR_PROFILES_PATH, theirs)
    assert eventually(lambda: "patch" in webhook.mutate(review(raw)))
    assert patched(raw, webhook.mutate(review(raw)))["metadata"]["labels"]["koordinator.sh/priority"] == "7"


def test_an_unusable_profile_matches_nothing_and_is_told(webhook: Webhook) -> None:
    webhook.collections.put(names.PROFILES_PATH, profile("broken", qosClass="BE", selector={"matchLabels": 7}))

    def is_told() -> bool:
        webhook.mutate(review(pod(team="web")))
        return 'slackwater_profiles{usable="no"} 1.0' in webhook.observe("/metrics")[1]

    assert eventually(is_told)
    assert "ColocationProfile broken.spec.selector.matchLabels" in webhook.log.read_text()
    assert "patch" not in webhook.mutate(review(pod(team="web")))


def test_garbage_never_ends_the_process(webhook: Webhook) -> None:
    for body in (b"", b"\x00" * 100, b"[" * 1_000_000, b'{"kind": "AdmissionReview"}', b" " * 9_000_000):
        try:
            assert webhook.call(body)[0] in (400, 413)
        except OSError:  # the connection is closed before the largest was all sent
            webhook.connection.close()
    assert webhook.mutate(review(pod(team="analytics")))["allowed"]
    assert webhook.process.poll() is None


def test_metrics(webhook: Webhook) -> None:
    webhook.mutate(review(pod(team="analytics")))
    text = webhook.observe("/metrics")[1]
    assert 'slackwater_admissions_total{reason="Changed",result="admitted"}' in text
    assert "slackwater_admission_duration_seconds_bucket" in text
