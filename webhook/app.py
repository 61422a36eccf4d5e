"""The webhook's HTTP application: reads a review, has it decided, answers; one log line and one count per request.

``POST /mutate`` for the API server, ``GET /readyz`` for whoever wants to know whether decisions are being made. The
Decider is an argument: gunicorn's worker gives one that knows the cluster, tests one that knows what they told it.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from flask import Flask, Response, request
from prometheus_client import CollectorRegistry, Counter, Histogram
from werkzeug.exceptions import RequestEntityTooLarge

from slackwater.adapters.logs import kv
from slackwater.errors import InputError
from webhook import wire
from webhook.decide import Admit, Decision, Deny, Pass, PassReason, Subject

_LOG = logging.getLogger("slackwater.webhook")
_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
"""From what a small pod takes up to what an API server's patience (timeoutSeconds) may be."""


class Decider(Protocol):
    """Decides, and says what keeps it from deciding."""

    def problems(self) -> Sequence[str]:
        """What is missing, one sentence each; nothing = decisions can be made."""

    def admit(self, subject: Subject) -> Decision:
        """As :func:`webhook.decide.admit`."""


@dataclass(frozen=True, slots=True)
class _Reply:
    """The HTTP answer, and the one line that is said about it."""

    status: int
    body: bytes
    result: str
    reason: str
    title: str = ""
    details: str = ""
    dry_run: bool = False


def create_app(decider: Decider, registry: CollectorRegistry) -> Flask:
    """The WSGI application; its metrics go to ``registry``."""
    app = Flask("webhook", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = wire.BODY_LIMIT
    admissions = Counter(
        "slackwater_admissions",
        "Requests for admission by result and constant reason.",
        ["result", "reason"],
        registry=registry,
    )
    seconds = Histogram(
        "slackwater_admission_duration_seconds",
        "Time from the request's head to its answer.",
        registry=registry,
        buckets=_BUCKETS_S,
    )

    @app.post("/mutate")
    def mutate() -> Response:
        started = time.perf_counter()
        reply = _reply(decider)
        took_s = time.perf_counter() - started
        admissions.labels(reply.result, reply.reason).inc()
        seconds.observe(took_s)
        _LOG.log(
            logging.WARNING if reply.status != 200 else logging.INFO,
            "admission",
            extra=kv(
                result=reply.result,
                reason=reply.reason,
                object=reply.title,
                dry_run=reply.dry_run,
                details=reply.details,
                ms=round(took_s * 1000, 2),
            ),
        )
        kind = "application/json" if reply.status == 200 else "text/plain; charset=utf-8"
        return Response(reply.body, reply.status, content_type=kind)

    @app.get("/readyz")
    def readyz() -> Response:
        problems = decider.problems()
        return Response("\n".join(problems) or "ok", 503 if problems else 200, content_type="text/plain; charset=utf-8")

    return app


def _reply(decider: Decider) -> _Reply:
    problems = decider.problems()
    if problems:
        return _failed(503, "NotReady", "; ".join(problems))
    try:
        review = wire.read(request.get_data(cache=False))
    except RequestEntityTooLarge:
        return _failed(413, "TooLarge", f"the body has more than {wire.BODY_LIMIT} bytes")
    except wire.BadRequest as error:
        return _failed(400, "BadRequest", str(error))
    try:
        return _decided(review, decider)
    except RecursionError:
        return _failed(400, "BadRequest", "the object is nested too deeply", review)
    except Exception as error:  # noqa: BLE001  logged with its traceback
        # The API server then does what the failurePolicy says; the process must live on.
        _LOG.exception("admission failed", extra=kv(object=review.title))
        return _failed(500, "Internal", f"the webhook failed: {type(error).__name__}", review)


def _decided(review: wire.Request, decider: Decider) -> _Reply:
    try:
        decision = _decision(review, decider)
    except InputError as error:
        body = wire.refusal(review, f"{review.title}: {error}")
        return _Reply(200, body, "denied", "Unreadable", review.title, str(error), review.dry_run)
    match decision:
        case Admit(_, reasons, warnings):
            result, reason, details = "admitted", "Changed", "; ".join((*reasons, *warnings))
        case Pass(why, warnings):
            result, reason, details = "passed", why.value, "; ".join(warnings)
        case Deny(refused, message):
            result, reason, details = "denied", refused.value, message
    return _Reply(200, wire.answer(review, decision), result, reason, review.title, details, review.dry_run)


def _decision(review: wire.Request, decider: Decider) -> Decision:
    if review.subresource or review.operation not in ("CREATE", "UPDATE"):
        return Pass(PassReason.NOT_A_CREATE)
    return decider.admit(review.subject)


def _failed(status: int, reason: str, message: str, review: wire.Request | None = None) -> _Reply:
    title, dry_run = (review.title, review.dry_run) if review else ("", False)
    return _Reply(status, message.encode("utf-8", "replace"), "failed", reason, title, message, dry_run)
