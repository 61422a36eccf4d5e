"""The controller as a process: webhook rules come into force, leaders hand over, ends are clean, kills are harmless."""

import base64
import http.client
import os
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from component.apiserver import ApiServer
from component.https_process import eventually, free_port
from unit.controller.workloads import namespace, workload

SYSTEM = "slackwater-system"
NOTEBOOKS = "/apis/tensorstack.dev/v1beta1/notebooks"
ONE = "/apis/tensorstack.dev/v1beta1/namespaces/lab/notebooks/one"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/slackwater-controller"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
CONFIGURATION = f"{CONFIGURATIONS}/slackwater"
TLS_SECRET = f"/api/v1/namespaces/{SYSTEM}/secrets/slackwater-tls"
SERVICE = {"name": "slackwater-webhook", "namespace": SYSTEM, "path": "/mutate", "port": 443}
RULES = [
    {
        "name": "best-effort.slackwater.io",
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"service": SERVICE},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
    }
]  # fmt: skip


class Controller:
    """One controller process."""

    def __init__(self, kubeconfig: str) -> None:
        self.port = free_port()
        environment = {**os.environ, "SLACKWATER_METRICS_PORT": str(self.port), "SLACKWATER_LOG_FORMAT": "text"}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "controller", "--kubeconfig", kubeconfig], env=environment
        )

    def get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()

    def is_ready(self) -> bool:
        return self.get("/readyz")[0] == 200

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(15)


class Cluster:
    """What the chart has installed, and the processes of one test."""

    def __init__(self, server: ApiServer, folder: Path) -> None:
        self.server = server
        self.kubeconfig = server.kubeconfig(folder / "kubeconfig")
        self.webhook_port = free_port()
        self.controllers: list[Controller] = []
        server.put("/api/v1/namespaces", namespace("lab"))
        server.put(CONFIGURATIONS, {"metadata": {"name": "slackwater"}})
        self.put_system("/api/v1/configmaps", "slackwater-webhook-rules", data={"webhooks.yaml": yaml.safe_dump(RULES)})
        port = {"ports": [{"name": "https", "port": self.webhook_port}]}
        self.put_system("/api/v1/services", "slackwater-webhook", spec={"clusterIP": "127.0.0.1", **port})
        self.put_system("/api/v1/services", "slackwater-extender", spec={"clusterIP": "127.0.0.9", **port})

    def put_system(self, collection: str, name: str, **content: Any) -> None:
        self.server.put(collection, {"metadata": {"name": name, "namespace": SYSTEM}, **content})

    def start(self) -> Controller:
        controller = Controller(self.kubeconfig)
        self.controllers.append(controller)
        return controller

    def idle_notebook(self) -> None:
        raw = workload(idle_since=datetime.now(UTC) - timedelta(hours=2))
        del raw["metadata"]["resourceVersion"]
        self.server.put(NOTEBOOKS, raw)
        policy = {"policy.yaml": "policy: {notebook: {scanInterval: 1, idleTimeout: 3600}}"}
        self.put_system("/api/v1/configmaps", "resource-keeper-policy-config", data=policy)

    def is_suspended(self) -> bool:
        raw = self.server.get(ONE)
        return raw is not None and raw["spec"]["suspend"] is True

    def webhooks(self) -> list[dict[str, Any]]:
        raw = self.server.get(CONFIGURATION)
        assert raw is not None
        found: list[dict[str, Any]] = raw.get("webhooks", [])
        return found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ApiServer() as server:
        cluster = Cluster(server, tmp_path)
        yield cluster
        for controller in cluster.controllers:
            controller.process.kill()
            controller.process.wait()


class Webhook:
    """Serves ``/readyz`` over TLS with the certificate that the controller has made."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        secret = cluster.server.get(TLS_SECRET)
        assert secret is not None
        for name in ("tls.crt", "tls.key"):
            (folder / name).write_bytes(base64.b64decode(secret["data"][name]))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        self.hosts: list[str] = []
        hosts = self.hosts

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hosts.append(self.headers["Host"])
                self.send_response(200 if self.path == "/readyz" else 404)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", cluster.webhook_port), Handler)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def test_webhook_rules_come_into_force_once_an_endpoint_answers_and_are_repaired(
    cluster: Cluster, tmp_path: Path
) -> None:
    controller = cluster.start()
    assert eventually(lambda: cluster.server.get(TLS_SECRET) is not None)
    assert eventually(controller.is_ready)
    threading.Event().wait(1.5)
    assert cluster.webhooks() == []
    webhook = Webhook(cluster, tmp_path)
    try:
        assert eventually(lambda: bool(cluster.webhooks()), 5)
        secret = cluster.server.get(TLS_SECRET)
        assert secret is not None
        (rule,) = cluster.webhooks()
        assert rule["clientConfig"]["caBundle"] == secret["data"]["ca.crt"]
        assert rule["clientConfig"]["service"] == SERVICE
        assert rule["failurePolicy"] == "Fail"
        assert set(webhook.hosts) == {f"slackwater-webhook.{SYSTEM}.svc"}

        cluster.server.edit(CONFIGURATION, {"webhooks": [{**rule, "clientConfig": {"caBundle": "bG9zdA=="}}]})
        assert eventually(lambda: cluster.webhooks() == [rule], 5)
        cluster.server.edit(CONFIGURATION, {"webhooks": [{**rule, "objectSelector": {"matchLabels": {"a": "b"}}}]})
        assert eventually(lambda: cluster.webhooks() == [rule], 5)
        assert eventually(lambda: "slackwater_webhook_rule_writes_total 3.0" in controller.get("/metrics")[1])
    finally:
        webhook.close()


def test_rules_stay_in_force_while_the_webhook_is_away(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start()
    assert eventually(lambda: cluster.server.get(TLS_SECRET) is not None)
    webhook = Webhook(cluster, tmp_path)
    assert eventually(lambda: bool(cluster.webhooks()), 5)
    webhook.close()
    threading.Event().wait(1.5)
    assert cluster.webhooks()


def test_leader_that_is_asked_to_end_gives_the_lease_back_and_the_next_one_acts(cluster: Cluster) -> None:
    first = cluster.start()
    assert eventually(lambda: cluster.server.get(LEASE) is not None)
    second = cluster.start()
    assert eventually(first.is_ready)
    assert eventually(second.is_ready)
    assert first.end() == 0
    lease = cluster.server.get(LEASE)
    assert lease is not None
    cluster.idle_notebook()
    assert eventually(cluster.is_suspended, 8)
    assert eventually(lambda: "slackwater_controller_leader 1.0" in second.get("/metrics")[1])
    assert second.end(signal.SIGINT) == 0


def test_leader_killed_between_suspension_and_event_harms_nothing(cluster: Cluster) -> None:
    first = cluster.start()
    cluster.server.before_next("POST", "/namespaces/lab/events", first.process.kill)
    cluster.idle_notebook()
    assert eventually(cluster.is_suspended)
    assert first.process.wait(10) == -signal.SIGKILL
    before = cluster.server.get(ONE)
    cluster.server.remove(LEASE)  # as if its time were over
    second = cluster.start()
    assert eventually(lambda: 'reason="AlreadySuspended"} 1.0' in second.get("/metrics")[1])
    assert cluster.server.get(ONE) == before
    cluster.server.edit(ONE, {"spec": {"suspend": False}})
    assert eventually(lambda: _resumed_at(cluster) != "", 4)
    assert not cluster.is_suspended()


def _resumed_at(cluster: Cluster) -> str:
    raw = cluster.server.get(ONE) or {}
    return str(raw["metadata"]["annotations"].get("slackwater.io/resumed-at", ""))


def test_process_without_a_cluster_says_so(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "controller", "--kubeconfig", str(tmp_path / "none")],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert ended.returncode == 1
    assert "no cluster to talk to" in ended.stderr
