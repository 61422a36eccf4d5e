"""Webhook rules: in force only once an endpoint of ours answers, and repaired when somebody edits them."""

import base64
import http.server
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from component.controller.conftest import Cluster
from component.https_process import eventually, write_certificate

from controller.upkeep import Objects, Upkeep
from slackwater.adapters.kube import ApiError
from slackwater.errors import InputError

NAMESPACE = "slackwater-system"
CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/slackwater"
RULES = """
- name: best-effort.slackwater.io
  failurePolicy: Fail
  sideEffects: None
  admissionReviewVersions: [v1]
  clientConfig: {service: {name: slackwater-webhook, namespace: slackwater-system, path: /mutate, port: 443}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods], scope: Namespaced}]
"""
NAMES = ("slackwater-ca", "slackwater-tls", "slackwater", "slackwater-webhook-rules")


@dataclass
class Endpoint:
    """A TLS server where the webhook's Service leads; ``status`` is what /readyz answers."""

    directory: Path
    status: int = 200
    asked: list[str] = field(default_factory=list)
    """Host and path of each call."""

    def __post_init__(self) -> None:
        endpoint = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                endpoint.asked.append(f"{self.headers['Host']}{self.path}")
                self.send_response(endpoint.status)
                self.end_headers()
                self.wfile.write(b"warming up")

            def log_message(self, format: str, *args: object) -> None:
                pass

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.directory / "tls.crt", self.directory / "tls.key")

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def get_request(self) -> tuple[Any, Any]:
                plain, address = super().get_request()
                return context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False), address

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that refuses the certificate is what one test is about."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@dataclass
class Installation:
    """What the chart has installed, and the upkeep of a leader."""

    cluster: Cluster
    upkeep: Upkeep
    endpoints: list[Endpoint] = field(default_factory=list)

    @property
    def webhooks(self) -> list[dict[str, Any]]:
        raw = self.cluster.server.get(CONFIGURATION) or {}
        return list(raw.get("webhooks") or [])

    def turn(self) -> bool:
        return self.upkeep.turn(datetime.now(UTC))

    def serve(self, port: int) -> None:
        """Let the Service lead to this port of this machine."""
        self.put("services", "slackwater-webhook", spec={"clusterIP": "127.0.0.1", "ports": [{"port": port}]})

    def start_endpoint(self, status: int = 200) -> Endpoint:
        """A webhook with the certificate that upkeep has issued."""
        secret = self.cluster.server.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/slackwater-tls")
        assert secret is not None
        directory = self.cluster.directory / "mounted"
        directory.mkdir(exist_ok=True)
        for name, value in secret["data"].items():
            (directory / name).write_bytes(base64.b64decode(value))
        return self._started(Endpoint(directory, status))

    def start_impostor(self) -> Endpoint:
        """Somebody else's server at our address."""
        write_certificate(self.cluster.directory / "impostor", "impostor")
        return self._started(Endpoint(self.cluster.directory / "impostor"))

    def put(self, resource: str, name: str, **content: Any) -> None:
        metadata = {"name": name, "namespace": NAMESPACE}
        self.cluster.server.put(f"/api/v1/{resource}", {"metadata": metadata, **content})

    def _started(self, endpoint: Endpoint) -> Endpoint:
        self.endpoints.append(endpoint)
        self.serve(endpoint.port)
        return endpoint


@pytest.fixture
def installation(cluster: Cluster) -> Iterator[Installation]:
    cluster.server.put(
        CONFIGURATION.rpartition("/")[0],
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "slackwater", "labels": {"app.kubernetes.io/name": "slackwater"}},
        },
    )
    made = Installation(cluster, Upkeep(cluster.client(), Objects(NAMESPACE, *NAMES), lambda: True))
    made.put("configmaps", "slackwater-webhook-rules", data={"webhooks.yaml": RULES})
    yield made
    for endpoint in made.endpoints:
        endpoint.close()


def test_rules_wait_for_an_endpoint_that_answers(installation: Installation) -> None:
    with pytest.raises(ApiError):
        installation.turn()  # not even the Service is there
    installation.serve(1)
    assert installation.turn() is False
    assert installation.webhooks == []
    endpoint = installation.start_endpoint(status=503)
    assert installation.turn() is False
    assert installation.webhooks == []
    endpoint.status = 200
    assert installation.turn() is True
    (webhook,) = installation.webhooks
    assert (webhook["name"], webhook["failurePolicy"]) == ("best-effort.slackwater.io", "Fail")
    secret = installation.cluster.server.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/slackwater-tls")
    assert secret is not None
    assert webhook["clientConfig"]["caBundle"] == secret["data"]["ca.crt"]
    assert set(endpoint.asked) == {"slackwater-webhook.slackwater-system.svc/readyz"}
    raw = installation.cluster.server.get(CONFIGURATION)
    assert raw is not None
    assert raw["metadata"]["labels"] == {"app.kubernetes.io/name": "slackwater"}


def test_an_endpoint_with_a_foreign_certificate_is_not_ours(installation: Installation) -> None:
    impostor = installation.start_impostor()
    assert installation.turn() is False
    assert installation.webhooks == []
    assert impostor.asked == []


def test_rules_in_force_are_not_written_again(installation: Installation) -> None:
    installation.serve(1)
    installation.turn()
    installation.start_endpoint()
    for _ in range(3):
        assert installation.turn() is True
    assert len(installation.cluster.server.calls("PUT", CONFIGURATION)) == 1


def test_an_edit_is_repaired_at_once_and_a_new_wish_put_in_force(installation: Installation) -> None:
    cluster = installation.cluster
    installation.serve(1)
    installation.turn()
    installation.start_endpoint()
    cluster.threads.append(installation.upkeep.start(cluster.stop))
    assert eventually(lambda: len(installation.webhooks) == 1)
    good = installation.webhooks
    cluster.server.edit(CONFIGURATION, {"webhooks": [{**good[0], "failurePolicy": "Ignore"}]})
    assert eventually(lambda: installation.webhooks == good, 5)
    cluster.server.edit(CONFIGURATION, {"webhooks": None})
    assert eventually(lambda: installation.webhooks == good, 5)
    wish = RULES.replace("failurePolicy: Fail", "failurePolicy: Ignore")
    installation.put("configmaps", "slackwater-webhook-rules", data={"webhooks.yaml": wish})
    assert eventually(lambda: [rule["failurePolicy"] for rule in installation.webhooks] == ["Ignore"], 5)


def test_a_webhook_that_is_down_keeps_its_rules(installation: Installation) -> None:
    """Without them best-effort pods would slip through as ordinary ones."""
    installation.serve(1)
    installation.turn()
    installation.start_endpoint()
    installation.turn()
    installation.serve(1)
    assert installation.turn() is True
    assert len(installation.webhooks) == 1


def test_two_leaders_at_once_do_not_overwrite_each_other(installation: Installation) -> None:
    installation.serve(1)
    installation.turn()
    installation.start_endpoint()
    installation.cluster.server.before_next("PUT", CONFIGURATION, lambda: installation.turn())
    with pytest.raises(ApiError, match="Conflict"):
        installation.turn()
    assert installation.turn() is True
    assert len(installation.webhooks) == 1


def test_rules_that_cannot_be_read_are_an_error_that_names_the_config_map(installation: Installation) -> None:
    installation.put("configmaps", "slackwater-webhook-rules", data={"webhooks.yaml": "name: x"})
    with pytest.raises(InputError, match=r"ConfigMap slackwater-system/slackwater-webhook-rules: webhooks\.yaml"):
        installation.turn()
    assert installation.webhooks == []


def test_the_extenders_cluster_address_is_served(installation: Installation) -> None:
    installation.serve(1)
    installation.put("services", "slackwater-extender", spec={"clusterIP": "127.0.0.1"})
    installation.turn()
    first = installation.cluster.server.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/slackwater-tls")
    installation.put("services", "slackwater-extender", spec={"clusterIP": "10.96.7.8"})
    installation.turn()
    second = installation.cluster.server.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/slackwater-tls")
    assert first is not None
    assert second is not None
    assert first["data"]["tls.crt"] != second["data"]["tls.crt"]
    assert first["data"]["ca.crt"] == second["data"]["ca.crt"]


def test_rules_follow_a_new_ca(installation: Installation) -> None:
    installation.serve(1)
    installation.turn()
    installation.start_endpoint()
    installation.turn()
    (before,) = installation.webhooks
    installation.cluster.server.remove(f"/api/v1/namespaces/{NAMESPACE}/secrets/slackwater-ca")
    # The endpoint still serves the old certificate: it stays trusted, and the rules get both CAs.
    assert installation.upkeep.turn(datetime.now(UTC) + timedelta(seconds=1)) is True
    (after,) = installation.webhooks
    old, both = (base64.b64decode(one["clientConfig"]["caBundle"]) for one in (before, after))
    assert old in both
    assert both.count(b"BEGIN CERTIFICATE") == 2
