"""What the agent does: evictions, limits, Events, NodeSlack. Nothing here decides.

Everything blocks and is called from worker threads. Events are written by a thread of their own, so that no eviction
waits for one.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from nodeagent.decide.publish import merge_patch
from nodeagent.metrics import Metrics
from slackwater import names
from slackwater.adapters.kube import (
    ApiError,
    Conflict,
    KubeClient,
    NotFound,
    TooManyRequests,
    emit_event,
)
from slackwater.adapters.logs import kv
from slackwater.objects import RawObject, mapping, sequence, text

_LOG = logging.getLogger("slackwater.nodeagent")
COMPONENT = "slackwater-nodeagent"
_SAME_EVERY_S = 60.0
_PENDING_EVENTS = 256
"""More than that waiting: the API server is away, and old Events help nobody."""


class Outcome(StrEnum):
    """Of one request to evict."""

    EVICTED = "evicted"
    REFUSED = "refused"
    GONE = "gone"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Eviction:
    """What came of asking; ``retry_after_s`` is the server's wish after a refusal."""

    outcome: Outcome
    detail: str = ""
    retry_after_s: float | None = None


def evict(client: KubeClient, namespace: str, name: str, uid: str) -> Eviction:
    """Ask the API server once to evict this very pod, with the pod's own grace period."""
    try:
        client.evict(namespace, name, uid)
    except TooManyRequests as error:
        return Eviction(Outcome.REFUSED, error.message, error.retry_after_s)
    except (NotFound, Conflict) as error:
        return Eviction(Outcome.GONE, error.message)
    except ApiError as error:
        return Eviction(Outcome.FAILED, str(error))
    return Eviction(Outcome.EVICTED)


class Speaker:
    """Writes Events in the background, dropping them rather than wait; and keeps repetitions down. Thread safe."""

    def __init__(self, client: KubeClient, host: str, metrics: Metrics) -> None:
        self._client = client
        self._host = host
        self._metrics = metrics
        self._lock = threading.Lock()
        self._said_at_s: dict[tuple[str, str], float] = {}
        self._queue: queue.Queue[dict[str, Any]] = queue.Queue(_PENDING_EVENTS)
        threading.Thread(target=self._run, name="events", daemon=True).start()

    def once(self, about: str, what: str, say: Callable[[], None]) -> None:
        """``say`` it, unless the same was said about the same within the last minute."""
        at_s = time.monotonic()
        with self._lock:
            self._said_at_s = {key: at for key, at in self._said_at_s.items() if at_s - at < _SAME_EVERY_S}
            if (about, what) in self._said_at_s:
                return
            self._said_at_s[about, what] = at_s
        say()

    def event(self, regarding: Mapping[str, Any], reason: str, message: str, *, kind: str = "Normal") -> None:
        """Queue one core/v1 Event about ``regarding``."""
        event = {
            "regarding": regarding,
            "reason": reason,
            "message": message,
            "kind": kind,
            "component": COMPONENT,
            "host": self._host,
            "now": datetime.now(UTC),
        }
        try:
            self._queue.put_nowait(event)
        except queue.Full:
            self._metrics.events_dropped.inc()

    def _run(self) -> None:
        while True:
            event = self._queue.get()
            try:
                emit_event(self._client, **event)
            except Exception as error:  # noqa: BLE001  an Event is a courtesy; losing one must not end the thread
                self._metrics.events_dropped.inc()
                _LOG.warning("an Event was not written", extra=kv(reason=event["reason"], error=str(error)))


class NodeSlackWriter:
    """Our NodeSlack on the API server. Used by one thread at a time."""

    def __init__(self, client: KubeClient, node_name: str) -> None:
        self._client = client
        self._path = f"{names.NODESLACKS_PATH}/{node_name}"
        self._node_name = node_name
        self._owner_uid = ""
        self._written: RawObject | None = None

    def read(self) -> dict[str, Any] | None:
        """What stands there, from an earlier life of this agent; None where there is nothing.

        Raises:
            ApiError: it cannot be read now.
        """
        try:
            found = self._client.get(self._path)
        except NotFound:
            return None
        self._written = mapping(found, "status")
        owners = sequence(found, "metadata", "ownerReferences")
        self._owner_uid = next((text(owner, "uid") for owner in owners if text(owner, "kind") == "Node"), "")
        return found

    def write(self, status: RawObject, node_uid: str) -> None:
        """Make ``status`` stand there, creating the object where it is missing, owned by the Node.

        Raises:
            ApiError: it could not be written (NotFound: the CRD is not installed).
        """
        if self._written is None and self.read() is None:
            self._create(node_uid)
        if self._owner_uid != node_uid:
            self._client.patch(self._path, {"metadata": {"ownerReferences": self._owners(node_uid)}})
            self._owner_uid = node_uid
        try:
            self._client.patch(f"{self._path}/status", {"status": merge_patch(self._written or {}, status)})
        except ApiError:
            self._written = None  # deleted by somebody, or who knows: look again before the next write
            raise
        self._written = status

    def _create(self, node_uid: str) -> None:
        body = {
            "apiVersion": names.API_VERSION,
            "kind": "NodeSlack",
            "metadata": {"name": self._node_name, "ownerReferences": self._owners(node_uid)},
        }
        with suppress(Conflict):  # somebody was faster; it is there
            self._client.create(names.NODESLACKS_PATH, body)
        self._owner_uid = node_uid
        self._written = {}

    def _owners(self, node_uid: str) -> list[dict[str, str]]:
        return [{"apiVersion": "v1", "kind": "Node", "name": self._node_name, "uid": node_uid}]
