"""AdmissionReview v1 on the wire: bytes to :class:`Request`, a decision to bytes. Pure; called by ``app``.

Source of the format: k8s.io/api/admission/v1 and apiserver's admission webhook request.go: the answer must carry the
version, the kind and the request's uid, and ``patch`` and ``patchType`` both or neither; anything else counts as a
failed call and falls to the failurePolicy.
"""

import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from slackwater.errors import SlackwaterError
from slackwater.objects import RawObject, mapping, text
from webhook.decide import Admit, Decision, Deny, Pass, Subject
from webhook.patch import render

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"
BODY_LIMIT = 8 * 1024 * 1024
"""Bytes. The API server takes objects of up to 3 MiB, and a review of an update carries two."""
_WARNING_LIMIT = 256
"""Characters. The API server may cut longer warnings."""
_FORBIDDEN = 403
_UNPROCESSABLE = 422
_SHOWN = 64


class BadRequest(SlackwaterError):
    """The body is no AdmissionReview that we can answer; the sender's fault (HTTP 400)."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request for admission."""

    uid: str
    operation: str
    namespace: str
    subresource: str
    dry_run: bool
    object: RawObject
    old: RawObject | None

    @property
    def subject(self) -> Subject:
        """What there is to decide about."""
        old = self.old if self.old is not None or self.operation == "CREATE" else {}
        return Subject(self.object, self.namespace, old)

    @property
    def title(self) -> str:
        """Kind, namespace and name, for the log."""
        metadata = mapping(self.object, "metadata")
        name = text(metadata, "name") or f"{text(metadata, 'generateName')}..."
        # Anything may stand in a name before the API server has validated it.
        return f"{text(self.object, 'kind')} {self.namespace}/{name}".encode("ascii", "backslashreplace").decode()


def read(body: bytes) -> Request:
    """The request in an AdmissionReview.

    Raises:
        BadRequest: not JSON, nested too deeply, another kind or version, or without what an answer needs.
    """
    if len(body) > BODY_LIMIT:
        raise BadRequest(f"the body has {len(body)} bytes; {BODY_LIMIT} are the limit")
    try:
        review = json.loads(body, parse_constant=_no_constant)
    except RecursionError as error:
        raise BadRequest("the body is nested too deeply") from error
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {str(error)[:256]}") from error
    version, kind = mapping({"it": review}, "it").get("apiVersion"), mapping({"it": review}, "it").get("kind")
    if version != API_VERSION or kind != KIND:
        shown = f"{str(version)[:_SHOWN]!r} {str(kind)[:_SHOWN]!r}"
        raise BadRequest(f"the body is {shown}, not {API_VERSION} {KIND}; set admissionReviewVersions: [v1]")
    request = mapping(review, "request")
    uid, operation = text(request, "uid"), text(request, "operation")
    if not uid or not operation:
        raise BadRequest("the review has no request with a uid and an operation")
    current, old = request.get("object"), request.get("oldObject")
    for name, value in (("object", current), ("oldObject", old)):
        if value is not None and not isinstance(value, Mapping):
            raise BadRequest(f"request.{name} is not an object")
    return Request(
        uid=uid,
        operation=operation,
        namespace=text(request, "namespace"),
        subresource=text(request, "subResource"),
        dry_run=request.get("dryRun") is True,
        object=current or {},
        old=old,
    )


def answer(request: Request, decision: Decision) -> bytes:
    """The AdmissionReview that tells ``decision``; without a patch where nothing changes."""
    response: dict[str, Any] = {"uid": request.uid, "allowed": not isinstance(decision, Deny)}
    match decision:
        case Deny(reason, message):
            response["status"] = _status(_FORBIDDEN, "Forbidden", message)
            response["auditAnnotations"] = {"reason": reason.value}
        case Admit(after, _, warnings):
            operations = render(request.object, after)
            if operations:
                response["patchType"] = "JSONPatch"
                response["patch"] = b64encode(json.dumps(operations, separators=(",", ":")).encode()).decode()
            _add_warnings(response, warnings)
        case Pass(reason, warnings):
            _add_warnings(response, warnings)
    return _review(response)


def refusal(request: Request, message: str) -> bytes:
    """The AdmissionReview for an object that cannot be read."""
    return _review({"uid": request.uid, "allowed": False, "status": _status(_UNPROCESSABLE, "Invalid", message)})


def _add_warnings(response: dict[str, Any], warnings: tuple[str, ...]) -> None:
    if warnings:
        response["warnings"] = [
            warning if len(warning) <= _WARNING_LIMIT else f"{warning[: _WARNING_LIMIT - 1]}…" for warning in warnings
        ]


def _status(code: int, reason: str, message: str) -> dict[str, Any]:
    return {"code": code, "status": "Failure", "reason": reason, "message": message}


def _review(response: dict[str, Any]) -> bytes:
    return json.dumps({"apiVersion": API_VERSION, "kind": KIND, "response": response}, separators=(",", ":")).encode()


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
