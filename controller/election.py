"""Leader election on a ``coordination.k8s.io/v1`` Lease: at most one controller acts.

The rules are client-go's: a candidate takes a lease that nobody has renewed for its whole duration, *as the candidate
itself has watched it by its own monotonic clock* — timestamps in the object come from other machines and are never
compared. A leader that cannot renew for ``RENEW_DEADLINE_S`` stops acting before others may take over.
"""

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Any

from slackwater.adapters.kube import ApiError, Conflict, KubeClient, NotFound
from slackwater.adapters.logs import kv
from slackwater.objects import integer, mapping, text
from slackwater.timestamps import format_time

_LOG = logging.getLogger("slackwater.controller.election")

LEASE_DURATION_S = 15
RENEW_DEADLINE_S = 10
RETRY_S = 2


class Move(Enum):
    """What a candidate does about the lease it has just read."""

    TAKE = auto()
    RENEW = auto()
    WAIT = auto()


@dataclass(frozen=True, slots=True)
class Observation:
    """A version of the lease, and when (monotonic seconds) this candidate first saw it."""

    version: str
    at_s: float


def next_move(lease: Mapping[str, Any], identity: str, observation: Observation, now_s: float) -> Move:
    """What to do about ``lease``; ``now_s`` is monotonic."""
    holder = text(lease, "spec", "holderIdentity")
    if holder == identity:
        return Move.RENEW
    duration = integer(lease, "spec", "leaseDurationSeconds") or LEASE_DURATION_S
    return Move.TAKE if not holder or now_s - observation.at_s > duration else Move.WAIT


class Election:
    """Runs for leader in a thread of its own; ask :meth:`is_leading` right before every action."""

    def __init__(self, client: KubeClient, namespace: str, name: str, identity: str) -> None:
        self._client = client
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._renewed_at_s: float | None = None
        self._observation = Observation("", 0.0)

    def start(self, stop: threading.Event) -> threading.Thread:
        """Take part until ``stop`` is set; then give the lease back, so that the next one need not wait."""
        thread = threading.Thread(target=self._run, args=(stop,), name="leader election", daemon=True)
        thread.start()
        return thread

    def is_leading(self) -> bool:
        """True while nobody else can have taken over."""
        renewed = self._renewed_at_s
        return renewed is not None and time.monotonic() - renewed < RENEW_DEADLINE_S

    def _run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            was_leading = self.is_leading()
            # Counted from before the call: the lease may have been written at any moment during it.
            started_s = time.monotonic()
            try:
                if self._try(started_s):
                    self._renewed_at_s = started_s
                else:
                    self._renewed_at_s = None
            except Conflict:
                pass  # somebody else was faster; look again
            except ApiError as error:
                _LOG.warning("lease cannot be renewed", extra=kv(lease=self._name, error=str(error)))
            except Exception:  # noqa: BLE001  without this thread nobody would lead; logged with its traceback
                _LOG.exception("a turn of the election failed", extra=kv(lease=self._name))
            if self.is_leading() != was_leading:
                word = "leading" if self.is_leading() else "not leading"
                _LOG.info("leadership changed", extra=kv(now=word, identity=self._identity))
            stop.wait(RETRY_S)
        self._release()

    def _try(self, now_s: float) -> bool:
        """One attempt, begun at ``now_s``; whether this candidate holds the lease now."""
        try:
            lease = self._client.get(f"{self._collection}/{self._name}")
        except NotFound:
            self._client.create(self._collection, self._lease({}))
            return True
        version = text(lease, "metadata", "resourceVersion")
        if version != self._observation.version:
            # Counted from after the call: its holder may have renewed it at any moment during it.
            self._observation = Observation(version, time.monotonic())
        if next_move(lease, self._identity, self._observation, now_s) is Move.WAIT:
            return False
        written = self._client.replace(f"{self._collection}/{self._name}", self._lease(lease))
        self._observation = Observation(text(written, "metadata", "resourceVersion"), now_s)
        return True

    def _lease(self, old: Mapping[str, Any]) -> dict[str, Any]:
        now = format_time(datetime.now(UTC), micros=True)
        spec = mapping(old, "spec")
        mine = spec.get("holderIdentity") == self._identity
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": old.get("metadata") or {"name": self._name, "namespace": self._namespace},
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": LEASE_DURATION_S,
                "acquireTime": spec.get("acquireTime") if mine else now,
                "renewTime": now,
                "leaseTransitions": (integer(old, "spec", "leaseTransitions") or 0) + (0 if mine or not old else 1),
            },
        }

    def _release(self) -> None:
        if not self.is_leading():
            return
        self._renewed_at_s = None
        try:
            lease = self._client.get(f"{self._collection}/{self._name}")
            if text(lease, "spec", "holderIdentity") == self._identity:
                spec = {key: value for key, value in mapping(lease, "spec").items() if key != "holderIdentity"}
                self._client.replace(f"{self._collection}/{self._name}", {**lease, "spec": spec})
        except ApiError as error:
            _LOG.info("lease is left to expire", extra=kv(lease=self._name, error=str(error)))
