"""The extender's HTTP side: read, decide, answer, one log line and one count per call.

A request that cannot be used is answered with status 200 and ``Error``: the scheduler drops the body of every other
status, and the sentence would never reach the pod's events. Either way this attempt fails and is repeated.
"""

import logging
import time
from collections.abc import Callable, Sequence

from flask import Flask, Response, json, request
from werkzeug.exceptions import RequestEntityTooLarge

from extender.decide import FilterDecision
from extender.metrics import Metrics
from extender.wire import BODY_LIMIT, FilterRequest, parse_filter_request, render_error, render_filter_result
from slackwater.adapters.logs import kv
from slackwater.errors import InputError

_LOG = logging.getLogger("slackwater.extender")
_EXAMPLES = 3
"""Refused nodes that one log line names."""


def create_app(
    decide: Callable[[FilterRequest], FilterDecision], not_ready: Callable[[], Sequence[str]], metrics: Metrics
) -> Flask:
    """The application: ``POST /filter`` and ``GET /readyz``.

    ``decide`` answers one request, ``not_ready`` says what is missing before it can.
    """
    app = Flask("slackwater.extender")
    app.config["MAX_CONTENT_LENGTH"] = BODY_LIMIT

    @app.post("/filter")
    def filter_() -> Response:
        started = time.perf_counter()
        missing = not_ready()
        if missing:
            return _refuse(metrics, f"slackwater extender is not ready: {'; '.join(missing)}")
        try:
            asked = parse_filter_request(request.get_data(cache=False))
        except InputError as error:
            return _refuse(metrics, f"slackwater extender cannot use this request: {error}")
        except RequestEntityTooLarge:
            return _refuse(metrics, f"slackwater extender takes at most {BODY_LIMIT} bytes; set nodeCacheCapable: true")
        decision = decide(asked)
        answer = _json(render_filter_result(asked, decision))
        seconds = time.perf_counter() - started
        metrics.answered(decision, seconds)
        _log(asked, decision, seconds)
        return answer

    @app.get("/readyz")
    def readyz() -> Response:
        missing = not_ready()
        return Response("\n".join(missing) or "ok", status=503 if missing else 200, mimetype="text/plain")

    return app


def _json(value: object) -> Response:
    # A body in one piece has a Content-Length: without one the scheduler cannot use its connection again.
    return Response(json.dumps(value, separators=(",", ":")), mimetype="application/json")


def _refuse(metrics: Metrics, message: str) -> Response:
    metrics.refused()
    _LOG.warning("filter call refused", extra=kv(error=message[:1000], bytes=request.content_length))
    return _json(render_error(message[:1000]))


def _log(asked: FilterRequest, decision: FilterDecision, seconds: float) -> None:
    refused = {**decision.failed, **decision.unresolvable}
    _LOG.info(
        "filter",
        extra=kv(
            pod=asked.pod.key,
            uid=asked.pod.uid,
            blocks=asked.pod.blocks,
            nodes=len(asked.names),
            fit=len(decision.fit),
            gave_way=decision.gave_way,
            refused=dict(list(refused.items())[:_EXAMPLES]),
            milliseconds=round(seconds * 1000, 2),
        ),
    )
