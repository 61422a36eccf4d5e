"""Keeps what the extender decides on: NodeSlacks and the pods that hold blocks, by list and watch.

Objects are read when they change, not when a pod is placed. Only bound, unfinished best-effort pods are watched: the
webhook gives the label to every pod that gets blocks, and whatever else holds blocks is in the agents' own counts.
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from extender.decide import (
    AssumedPod,
    FilterDecision,
    HeldPod,
    Slack,
    Snapshot,
    UnreadableSlack,
    assume,
    filter_nodes,
    hold,
)
from extender.wire import FilterRequest
from slackwater import names
from slackwater.adapters.kube import KubeClient
from slackwater.adapters.logs import kv
from slackwater.adapters.reflector import Reflector
from slackwater.errors import InputError
from slackwater.nodeslack import read_nodeslack
from slackwater.objects import object_key, text
from slackwater.pod import read_pod

_LOG = logging.getLogger("slackwater.extender")

_BOUND_AND_UNFINISHED = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
_FORGET_REFUSALS_AFTER = timedelta(minutes=15)
"""Of a pod that nobody asked for again. The scheduler retries an unschedulable pod after 5 minutes at the latest."""


class Cluster:
    """The live state, and the pods that were just let through. All methods may be called from any thread."""

    def __init__(self, client: KubeClient, block_size: int) -> None:
        self._block_size = block_size
        self._lock = threading.Lock()
        self._slacks: dict[str, Slack] = {}
        self._held: dict[str, dict[str, HeldPod]] = {}
        self._node_of: dict[str, str] = {}
        self._assumed: dict[str, AssumedPod] = {}
        self._avoided_since: dict[str, tuple[datetime, datetime]] = {}
        self._nodeslacks = Reflector(client, names.NODESLACKS_PATH, on_change=self._nodeslack_changed)
        self._pods = Reflector(
            client,
            "/api/v1/pods",
            label_selector=f"{names.QOS_LABEL}=BE",
            field_selector=_BOUND_AND_UNFINISHED,
            on_change=self._pod_changed,
        )

    def start(self, stop: threading.Event) -> None:
        """Begin to watch, in threads of their own, until ``stop`` is set."""
        self._nodeslacks.start(stop)
        self._pods.start(stop)

    def not_ready(self) -> Sequence[str]:
        """What is still missing before any answer can be given."""
        return [
            f"{what} have not been listed yet"
            for what, reflector in (("nodeslacks", self._nodeslacks), ("pods", self._pods))
            if not reflector.synced.is_set()
        ]

    def filter(self, request: FilterRequest) -> FilterDecision:
        """Decide on one pod, and remember where it may land."""
        now = datetime.now(UTC)
        uid = request.pod.uid
        with self._lock:
            self._assumed = {other: pod for other, pod in self._assumed.items() if pod.until > now}
            since, _ = self._avoided_since.get(uid, (None, now))
            decision = filter_nodes(
                request.pod,
                request.names,
                self._snapshot(),
                self._block_size,
                now,
                avoided_since=since,
            )
            self._assumed.pop(uid, None)
            taken = assume(request.pod, decision, self._block_size, now)
            if taken is not None:
                self._assumed[uid] = taken
            self._remember_avoidance(uid, decision, since, now)
        return decision

    def view(self) -> tuple[Snapshot, Mapping[str, datetime]]:
        """Copies of the state now, and since when pods (by uid) have been refused by avoidance alone.

        For decisions outside of a call: the lock is held for the copying only.
        """
        with self._lock:
            snapshot = replace(self._snapshot(), slacks=dict(self._slacks))
            return snapshot, {uid: since for uid, (since, _) in self._avoided_since.items()}

    def known_nodes(self) -> int:
        """Nodes whose NodeSlack can be read."""
        with self._lock:
            return sum(not isinstance(slack, UnreadableSlack) for slack in self._slacks.values())

    def assumed_pods(self) -> int:
        """Pods that were let through and are not seen bound yet."""
        with self._lock:
            return len(self._assumed)

    # -- the watches ------------------------------------------------------------------------------------

    def _snapshot(self) -> Snapshot:
        return Snapshot(
            self._slacks,
            {node: tuple(pods.values()) for node, pods in self._held.items()},
            tuple(self._assumed.values()),
        )

    def _remember_avoidance(self, uid: str, decision: FilterDecision, since: datetime | None, now: datetime) -> None:
        if decision.only_avoided:
            self._avoided_since[uid] = (since or now, now)
        else:
            self._avoided_since.pop(uid, None)
        for other, (_, last) in list(self._avoided_since.items()):
            if now - last > _FORGET_REFUSALS_AFTER:
                del self._avoided_since[other]

    def _nodeslack_changed(self, kind: str, raw: dict[str, Any]) -> None:
        name = text(raw, "metadata", "name")
        slack: Slack | None = None
        # Without a status its agent has just made it: as unknown as none at all.
        if kind != "DELETED" and raw.get("status"):
            try:
                slack = read_nodeslack(raw)
            except InputError as error:
                slack = UnreadableSlack(name, str(error))
                _LOG.warning("nodeslack cannot be read, its node is closed", extra=kv(node=name, problem=str(error)))
        with self._lock:
            if slack is None:
                self._slacks.pop(name, None)
            else:
                self._slacks[name] = slack

    def _pod_changed(self, kind: str, raw: dict[str, Any]) -> None:
        held: HeldPod | None = None
        uid = text(raw, "metadata", "uid")
        if kind != "DELETED":
            try:
                held = hold(read_pod(raw), self._block_size)
            except InputError as error:
                # The API server does not store such a pod; the agent's own count stands for it.
                _LOG.warning("pod cannot be read", extra=kv(pod=object_key(raw), problem=str(error)))
        with self._lock:
            before = self._node_of.pop(uid, None)
            if before is not None:
                self._held[before].pop(uid, None)
                if not self._held[before]:
                    del self._held[before]
            if held is not None:
                self._held.setdefault(held.node, {})[uid] = held
                self._node_of[uid] = held.node
            self._assumed.pop(uid, None)
