"""The webhook's HTTP application under Flask's own client: answers, metrics, and requests that go wrong.

Sockets, TLS and the watches are the process's tests.
"""

import json
import logging
from collections.abc import Sequence
from typing import Any

import pytest
from flask.testing import FlaskClient
from prometheus_client import CollectorRegistry

from webhook import wire
from webhook.app import create_app
from webhook.decide import Context, Decision, Subject, admit


class FilesDecider:
    """Decides without a cluster; ``missing`` and ``fault`` are what a test wants to go wrong."""

    def __init__(self) -> None:
        self.missing: list[str] = []
        self.fault: Exception | None = None

    def problems(self) -> Sequence[str]:
        return self.missing

    def admit(self, subject: Subject) -> Decision:
        if self.fault is not None:
            raise self.fault
        return admit(subject, Context())


class Webhook:
    def __init__(self) -> None:
        self.decider = FilesDecider()
        self.registry = CollectorRegistry()
        self.client: FlaskClient = create_app(self.decider, self.registry).test_client()

    def count(self, result: str, reason: str) -> float:
        labels = {"result": result, "reason": reason}
        return self.registry.get_sample_value("slackwater_admissions_total", labels) or 0.0

    def post(self, body: Any) -> tuple[int, bytes]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = self.client.post("/mutate", data=data, content_type="application/json")
        return answer.status_code, answer.data


@pytest.fixture
def webhook() -> Webhook:
    return Webhook()


def review(operation: str = "CREATE", **extra: Any) -> dict[str, Any]:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "p-", "labels": {"slackwater.io/qos": "BE"}},
        "spec": {"containers": [{"name": "app", "resources": {"limits": {"memory": "1Gi"}}}]},
    }
    request = {"uid": "u", "operation": operation, "namespace": "shop", "object": pod, **extra}
    return {"apiVersion": wire.API_VERSION, "kind": wire.KIND, "request": request}


def response(answer: tuple[int, bytes]) -> dict[str, Any]:
    assert answer[0] == 200
    return dict(json.loads(answer[1])["response"])


def test_one_request_is_one_count_one_duration_and_one_line(webhook: Webhook, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "slackwater.webhook")
    assert "patch" in response(webhook.post(review(dryRun=True)))
    assert webhook.count("admitted", "Changed") == 1
    assert webhook.registry.get_sample_value("slackwater_admission_duration_seconds_count") == 1
    (record,) = caplog.records
    fields = record.__dict__["slackwater_fields"]
    assert (fields["object"], fields["dry_run"]) == ("Pod shop/p-...", True)


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(review("UPDATE", oldObject={"kind": "Pod"}), id="update"),
        pytest.param(review("DELETE"), id="delete"),
        pytest.param(review(subResource="status"), id="subresource"),
    ],
)
def test_only_creations_are_changed(webhook: Webhook, request_: dict[str, Any]) -> None:
    assert response(webhook.post(request_)) == {"uid": "u", "allowed": True}
    assert webhook.count("passed", "NotACreate") == 1


def test_a_denial_is_an_answer(webhook: Webhook) -> None:
    body = review()
    body["request"]["object"]["spec"]["priorityClassName"] = "slackwater-prod"
    answer = response(webhook.post(body))
    assert (answer["allowed"], answer["status"]["code"]) == (False, 403)
    assert webhook.count("denied", "PriorityNotAllowed") == 1


def test_an_unreadable_quantity_is_refused_by_field(webhook: Webhook) -> None:
    body = review()
    body["request"]["object"]["spec"]["containers"][0]["resources"]["limits"]["memory"] = "lots"
    answer = response(webhook.post(body))
    assert answer["status"]["code"] == 422
    assert "spec.containers[0].resources.limits[memory]" in answer["status"]["message"]


def deep(levels: int) -> bytes:
    nested = b'{"a":' * levels + b"1" + b"}" * levels
    return json.dumps(review()).encode().replace(b'"containers"', b'"deep":' + nested + b',"containers"')


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        pytest.param(b"", 400, "BadRequest", id="empty"),
        pytest.param(b"hello", 400, "BadRequest", id="not-json"),
        pytest.param(deep(300), 200, "", id="nested-three-hundred-times"),
        pytest.param(deep(900), 400, "BadRequest", id="nested-nine-hundred-times"),
        pytest.param(deep(100_000), 400, "BadRequest", id="nested-a-hundred-thousand-times"),
        pytest.param(b" " * (wire.BODY_LIMIT + 1), 413, "TooLarge", id="too-large"),
    ],
)
def test_bad_bodies_get_one_clear_answer(webhook: Webhook, body: bytes, status: int, reason: str) -> None:
    assert webhook.post(body)[0] == status
    assert webhook.count("failed", reason) == (status != 200)
    assert response(webhook.post(review()))["allowed"] is True


def test_a_pod_of_three_megabytes_and_five_hundred_containers(webhook: Webhook) -> None:
    body = review()
    body["request"]["object"]["spec"]["containers"] = [
        {"name": f"c{index}", "env": [{"name": "X", "value": "x" * 6000}]} for index in range(500)
    ]
    assert "patch" in response(webhook.post(body))


def test_a_fault_of_ours_is_a_500_and_the_next_request_is_served(webhook: Webhook) -> None:
    webhook.decider.fault = RuntimeError("secret")
    status, text = webhook.post(review())
    assert (status, text) == (500, b"the webhook failed: RuntimeError")
    assert webhook.count("failed", "Internal") == 1
    webhook.decider.fault = None
    assert response(webhook.post(review()))["allowed"] is True


def test_nothing_is_decided_before_the_cluster_is_known(webhook: Webhook) -> None:
    webhook.decider.missing = ["waiting for profiles"]
    assert webhook.client.get("/readyz").status_code == 503
    assert webhook.post(review()) == (503, b"waiting for profiles")
    webhook.decider.missing = []
    assert webhook.client.get("/readyz").status_code == 200


def test_other_paths_and_methods(webhook: Webhook) -> None:
    assert webhook.client.get("/mutate").status_code == 405
    assert webhook.client.post("/").status_code == 404
