"""AdmissionReview bytes in and out, and every body that is none."""

import base64
import json
from typing import Any

import pytest

from webhook import wire
from webhook.decide import Admit, Deny, DenyReason, Pass, PassReason


def review(**request: Any) -> dict[str, Any]:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}}
    filled = {"uid": "u-1", "operation": "CREATE", "namespace": "shop", "object": pod, "oldObject": None, **request}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": filled}


def read(**request: Any) -> wire.Request:
    return wire.read(json.dumps(review(**request)).encode())


def response(body: bytes) -> dict[str, Any]:
    answer = json.loads(body)
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    result: dict[str, Any] = answer["response"]
    return result


def test_a_request() -> None:
    request = read(dryRun=True, subResource=None)
    assert (request.uid, request.operation, request.namespace) == ("u-1", "CREATE", "shop")
    assert request.dry_run
    assert request.title == "Pod shop/p"
    assert request.subject.old is None


def test_an_update_without_the_old_object_is_still_an_update() -> None:
    assert read(operation="UPDATE").subject.old == {}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(b"", "not JSON", id="empty"),
        pytest.param(b"\xff\xfe\x00", "not JSON", id="not-text"),
        pytest.param(b'{"a": NaN}', "not JSON", id="nan"),
        pytest.param(b"[" * 200_000, "nested too deeply", id="deep"),
        pytest.param(b"1" * 10_000, "not JSON", id="huge-number"),
        pytest.param(b"[]", "not admission.k8s.io/v1 AdmissionReview", id="a-list"),
        pytest.param(
            b'{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"}', "v1beta1", id="old-version"
        ),
        pytest.param(
            b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}', "no request", id="no-request"
        ),
        pytest.param(json.dumps(review(uid="")).encode(), "uid", id="no-uid"),
        pytest.param(json.dumps(review(object=[1])).encode(), "request.object", id="object-is-a-list"),
        pytest.param(b" " * (wire.BODY_LIMIT + 1), "limit", id="too-large"),
    ],
)
def test_a_body_that_is_no_review(body: bytes, message: str) -> None:
    with pytest.raises(wire.BadRequest, match=message):
        wire.read(body)


def test_an_admitted_object_is_answered_with_a_patch() -> None:
    request = read()
    after = {**request.object, "metadata": {"name": "p", "labels": {"a": "1"}}}
    answer = response(wire.answer(request, Admit(after, ("because",), ("mind",))))
    assert json.loads(base64.b64decode(answer.pop("patch"))) == [
        {"op": "add", "path": "/metadata/labels", "value": {"a": "1"}}
    ]
    assert answer == {"uid": "u-1", "allowed": True, "patchType": "JSONPatch", "warnings": ["mind"]}


def test_no_patch_where_nothing_changes() -> None:
    assert response(wire.answer(read(), Pass(PassReason.NOT_SELECTED))) == {"uid": "u-1", "allowed": True}


def test_a_denial_tells_why() -> None:
    assert response(wire.answer(read(), Deny(DenyReason.PRIORITY_NOT_ALLOWED, "no"))) == {
        "uid": "u-1",
        "allowed": False,
        "status": {"code": 403, "status": "Failure", "reason": "Forbidden", "message": "no"},
        "auditAnnotations": {"reason": "PriorityNotAllowed"},
    }


def test_long_warnings_are_cut() -> None:
    answer = response(wire.answer(read(), Pass(PassReason.NOT_SELECTED, ("x" * 300,))))
    assert [len(warning) for warning in answer["warnings"]] == [256]


def test_a_name_of_strange_characters_is_printable() -> None:
    odd = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "\ud800\u202e"}}
    assert read(object=odd).title == "Pod shop/\\ud800\\u202e"
