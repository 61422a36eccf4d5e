"""Why does this pod wait? Pure: pods, readings and what was told before in, sentences and Event objects out.

The scheduler asks the extender only about nodes that pass its own filters. Where the kubelet's allocatable blocks are
already too few it refuses the node itself, and the pod's condition says "Insufficient slackwater.io/colocation-memory"
without a number. ``pending`` runs these functions for such pods and writes the Events.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from heapq import nsmallest
from typing import Any

from extender.decide import FilterDecision, Judgement, Verdict, amount
from slackwater.objects import RawObject, sequence, text
from slackwater.pod import PodView, read_pod
from slackwater.timestamps import format_time

REASON = "InsufficientColocationMemory"
COMPONENT = "slackwater-extender"
PODS_A_TURN = 50
"""Bounds the work and the writes of one turn."""
NAMED_NODES = 3
_FIRST_PAUSE = timedelta(minutes=1)
_LONGEST_PAUSE = timedelta(minutes=15)
_MESSAGE_LIMIT = 1024
"""Characters of an Event's message (the API's own limit for events.k8s.io)."""
_NAME_LIMIT = 253
_EPOCH = datetime.fromtimestamp(0, UTC)

_CLOSED_WORDS = {
    Verdict.EVICTING: "over the eviction line",
    Verdict.CLOSED: "not lending",
    Verdict.STALE: "without a recent reading",
    Verdict.UNKNOWN: "without a NodeSlack",
    Verdict.UNREADABLE: "with an unreadable NodeSlack",
}
_ORDER = (Verdict.AVOIDED, Verdict.NO_ROOM, *_CLOSED_WORDS)
"""Among nodes with equally much available, the nearest to taking the pod first."""


@dataclass(frozen=True, slots=True)
class Told:
    """What one process has told one pod."""

    sentence: str = ""
    attempts: int = 0
    """Events written or tried."""
    tried_at: datetime = _EPOCH
    looked_at: datetime = _EPOCH

    @property
    def rests_until(self) -> datetime:
        """Nothing is told before: a minute after the first Event, then twice as long each time, at most 15 minutes.

        Amounts change all the time in a large cluster; a queue of waiting pods must not fill the API server with them.
        """
        if not self.attempts:
            return self.tried_at
        return self.tried_at + min(_FIRST_PAUSE * (1 << min(self.attempts - 1, 10)), _LONGEST_PAUSE)

    def looked(self, now: datetime) -> "Told":
        """After a look that had nothing (new) to tell."""
        return replace(self, looked_at=now)

    def tried(self, sentence: str, now: datetime, *, written: bool) -> "Told":
        """After an Event was written, or could not be: then the same sentence is still news after the pause."""
        return Told(sentence if written else self.sentence, self.attempts + 1, now, now)


NOTHING_TOLD = Told()


def read_waiting(raw: RawObject) -> PodView | None:
    """The pod, if it waits for a node, the scheduler found none, and it asks for blocks; else None.

    A pod behind a scheduling gate or whose attempt failed by an error has another reason in its condition.

    Raises:
        InputError: a field that cannot be used.
    """
    unschedulable = any(
        (text(condition, "type"), text(condition, "status"), text(condition, "reason"))
        == ("PodScheduled", "False", "Unschedulable")
        for condition in sequence(raw, "status", "conditions")
    )
    if not unschedulable:
        return None
    pod = read_pod(raw)
    waits = pod.phase == "Pending" and not pod.is_bound and not pod.is_terminating
    return pod if waits and pod.blocks else None


def due(pods: Iterable[PodView], told: Mapping[str, Told], now: datetime) -> list[PodView]:
    """The pods to look at in this turn, at most :data:`PODS_A_TURN`: those not looked at for longest, oldest first."""
    awake = [pod for pod in pods if told.get(pod.uid, NOTHING_TOLD).rests_until <= now]
    return nsmallest(
        PODS_A_TURN,
        awake,
        key=lambda pod: (told.get(pod.uid, NOTHING_TOLD).looked_at, pod.created or _EPOCH, pod.key),
    )


def explain(pod: PodView, decision: FilterDecision, default_block_size: int) -> str | None:
    """What ``pod`` needs and what there is, by the filter's ``decision`` over all known nodes.

    None where a node passes: then colocation memory is not what the pod waits for.
    """
    if decision.fit or pod.blocks == 0:
        return None
    needed = f"{amount(pod.blocks, pod.blocks * pod.block_size(default_block_size))} needed"
    nodes = decision.judged
    if not nodes:
        return f"{needed}; no node has reported colocation memory (there is no NodeSlack)"
    best = nsmallest(NAMED_NODES, nodes, key=lambda node: (-_bytes(node), _ORDER.index(node.verdict), node.node))
    more = f" and {len(nodes) - len(best)} more" if len(nodes) > len(best) else ""
    total = amount(sum(node.room for node in nodes), sum(_bytes(node) for node in nodes))
    named = ", ".join(_words(node) for node in best)
    count = "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes"
    # The total comes before the names: those may be long, and the message is cut.
    return f"{needed}; {total} available in total; best of {count}: {named}{more}"[:_MESSAGE_LIMIT]


def _bytes(node: Judgement) -> int:
    return node.room * node.block_size


def _words(node: Judgement) -> str:
    closed = _CLOSED_WORDS.get(node.verdict)
    if closed is not None:
        return f"{node.node} {closed}"
    available = f"{node.node} {amount(node.room, _bytes(node))} available"
    if node.verdict is Verdict.AVOIDED:
        return f"{available} but avoided (a pod of the same owner was evicted there a short while ago)"
    return available


def event_name(pod: PodView, sentence: str) -> str:
    """The same in every replica for the same pod and sentence, so that only the first can create the Event."""
    digest = hashlib.sha256(f"{pod.uid}\n{sentence}".encode()).hexdigest()[:16]
    # A name is at most 253 characters, and no part of it may end with a dash.
    return f"{pod.name[: _NAME_LIMIT - len(digest) - 1].rstrip('-.')}.{digest}"


def render_event(pod: PodView, sentence: str, now: datetime) -> dict[str, Any]:
    """The core/v1 Event that tells ``pod`` this sentence."""
    stamp = format_time(now)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": event_name(pod, sentence), "namespace": pod.namespace},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
        },
        "reason": REASON,
        "message": sentence,
        "type": "Warning",
        "source": {"component": COMPONENT},
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }
