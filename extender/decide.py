"""May this pod go to these nodes? Pure: readings and pods in, a verdict and a sentence for every node out.

Called by the extender for the scheduler and by ``slackwater filter``.

**Room** of a node, in blocks: what its agent offers, minus what is taken. Taken is the larger of the agent's own count
at its last reading and the blocks of the pods that are bound there now (the agent may not have seen the newest), plus
the blocks of pods that we let through a moment ago and that may still land there.

A scheduler does not say which of the fitting nodes it chose, so a pod let through counts on each of them until it is
seen bound, or for :data:`ASSUME_FOR`. That errs to the safe side for some tens of milliseconds: a pod refused by it is
tried again when the other is bound.

What evicting other pods cannot cure (an old or unreadable reading, a node that does not lend or is evicting, an owner
that stays away) is *unresolvable*, so that the scheduler's preemption leaves such a node alone.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeAlias

from slackwater.nodeslack import MODE_LEND, STALE_AFTER, NodeSlackView
from slackwater.pod import PodView
from slackwater.quantity import format_bytes

ASSUME_FOR = timedelta(seconds=30)
"""A pod that was let through and is not seen bound by then has not been placed: binding takes well under a second,
waiting for a volume may take longer but keeps its blocks in the scheduler's own count."""
GIVE_WAY_AFTER = timedelta(seconds=30)
"""Between the first refusal by avoidance alone and the attempt at which avoidance gives way."""


class Verdict(StrEnum):
    """What became of one node; also the label of a metric."""

    FIT = "fit"
    NO_ROOM = "no-room"
    UNKNOWN = "unknown"
    UNREADABLE = "unreadable"
    STALE = "stale"
    CLOSED = "closed"
    EVICTING = "evicting"
    AVOIDED = "avoided"


_RESOLVABLE = (Verdict.NO_ROOM, Verdict.UNKNOWN)


@dataclass(frozen=True, slots=True)
class UnreadableSlack:
    """A NodeSlack that cannot be used, and why. It closes its node."""

    name: str
    problem: str


Slack: TypeAlias = NodeSlackView | UnreadableSlack


@dataclass(frozen=True, slots=True)
class HeldPod:
    """Blocks that a bound, unfinished pod holds on a node."""

    uid: str
    node: str
    blocks: int
    bytes: int


@dataclass(frozen=True, slots=True)
class AssumedPod:
    """A pod that was let through: it may take its blocks on any of ``nodes``."""

    uid: str
    nodes: frozenset[str]
    blocks: int
    bytes: int
    until: datetime


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that is known about the nodes at one moment."""

    slacks: Mapping[str, Slack] = field(default_factory=dict)
    held: Mapping[str, Sequence[HeldPod]] = field(default_factory=dict)
    """By node name."""
    assumed: Sequence[AssumedPod] = ()


@dataclass(frozen=True, slots=True)
class FilterDecision:
    """Every node of the call stands in exactly one of the first three; ``failed`` and ``unresolvable`` give reasons."""

    fit: tuple[str, ...]
    failed: Mapping[str, str]
    unresolvable: Mapping[str, str]
    verdicts: Mapping[Verdict, int]
    gave_way: bool = False
    """Nodes fit that the pod's owner should avoid, because no other did."""
    only_avoided: bool = False
    """No node fits, and some would if their avoidance gave way."""


def hold(pod: PodView, default_block_size: int) -> HeldPod | None:
    """The blocks that ``pod`` holds on its node; None where it holds none (yet, or any more)."""
    if not pod.is_bound or pod.is_finished or pod.blocks == 0:
        return None
    return HeldPod(pod.uid, pod.node_name, pod.blocks, pod.blocks * pod.block_size(default_block_size))


def assume(pod: PodView, decision: FilterDecision, default_block_size: int, now: datetime) -> AssumedPod | None:
    """What a pod that was just let through may take; None where it takes nothing."""
    if not decision.fit or pod.blocks == 0:
        return None
    size = pod.blocks * pod.block_size(default_block_size)
    return AssumedPod(pod.uid, frozenset(decision.fit), pod.blocks, size, now + ASSUME_FOR)


def filter_nodes(
    pod: PodView,
    names: Iterable[str],
    snapshot: Snapshot,
    default_block_size: int,
    now: datetime,
    *,
    avoided_since: datetime | None = None,
) -> FilterDecision:
    """Sort the nodes ``names`` into those that have room for ``pod`` and those that do not, with reasons.

    Args:
        default_block_size: bytes of a block where the pod carries none of its own.
        avoided_since: when this pod was first refused by avoidance alone; 30 s later avoidance gives way.
    """
    candidates = tuple(names)
    if pod.blocks == 0:
        return FilterDecision(candidates, {}, {}, {Verdict.FIT: len(candidates)})
    need = _Amount(pod.blocks, pod.blocks * pod.block_size(default_block_size))
    assumed = _assumed_on(snapshot, candidates, pod.uid, now)
    owner = pod.owner.uid if pod.owner is not None else ""
    judged: list[tuple[str, Verdict, str]] = []
    for name in candidates:
        slack = snapshot.slacks.get(name)
        held = (other for other in snapshot.held.get(name, ()) if other.uid != pod.uid)
        judged.append((name, *_judge(need, slack, _sum(held), assumed.get(name, _NOTHING), owner, now)))

    fit = tuple(name for name, verdict, _ in judged if verdict is Verdict.FIT)
    avoided = tuple(name for name, verdict, _ in judged if verdict is Verdict.AVOIDED)
    gives_way = bool(not fit and avoided and avoided_since is not None and now - avoided_since >= GIVE_WAY_AFTER)
    if gives_way:
        fit = avoided
        judged = [entry for entry in judged if entry[1] is not Verdict.AVOIDED]
    refused = [entry for entry in judged if entry[1] is not Verdict.FIT]
    verdicts = Counter(verdict for _, verdict, _ in refused)
    if fit:
        verdicts[Verdict.FIT] = len(fit)
    return FilterDecision(
        fit=fit,
        failed={name: reason for name, verdict, reason in refused if verdict in _RESOLVABLE},
        unresolvable={name: reason for name, verdict, reason in refused if verdict not in _RESOLVABLE},
        verdicts=verdicts,
        gave_way=gives_way,
        only_avoided=bool(avoided) and not fit,
    )


@dataclass(frozen=True, slots=True)
class _Amount:
    """Memory as the kubelet counts it (ids) and in bytes: block sizes of a pod and a node may differ for a while."""

    blocks: int = 0
    bytes: int = 0

    def on(self, block_size: int) -> int:
        """In whole blocks of ``block_size``: enough for both counts."""
        return max(self.blocks, -(-self.bytes // block_size))


_NOTHING = _Amount()


def _sum(pods: Iterable[HeldPod]) -> _Amount:
    blocks = size = 0
    for pod in pods:
        blocks += pod.blocks
        size += pod.bytes
    return _Amount(blocks, size)


def _assumed_on(snapshot: Snapshot, names: Iterable[str], uid: str, now: datetime) -> dict[str, _Amount]:
    """By node, what other pods that were let through may still take there."""
    asked = frozenset(names)
    found: dict[str, _Amount] = {}
    for other in snapshot.assumed:
        if other.uid == uid or other.until <= now:
            continue
        for name in other.nodes & asked:
            before = found.get(name, _NOTHING)
            found[name] = _Amount(before.blocks + other.blocks, before.bytes + other.bytes)
    return found


def _judge(
    need: _Amount, slack: Slack | None, held: _Amount, assumed: _Amount, owner: str, now: datetime
) -> tuple[Verdict, str]:
    if slack is None:
        return Verdict.UNKNOWN, _sentence(need, 0, 0, "no NodeSlack of this node; its agent has not reported")
    if isinstance(slack, UnreadableSlack):
        return Verdict.UNREADABLE, _sentence(need, 0, 0, "NodeSlack cannot be read")
    if slack.is_stale(now):
        limit = int(STALE_AFTER.total_seconds())
        return Verdict.STALE, _sentence(need, 0, 0, f"the reading is older than {limit} s")
    if slack.mode != MODE_LEND:
        return Verdict.CLOSED, _sentence(need, 0, 0, f"the node's agent is in mode {slack.mode}")
    if not slack.enabled:
        return Verdict.CLOSED, _sentence(need, 0, 0, "the node does not lend")
    taken = max(slack.lent, held.on(slack.block_size)) + assumed.on(slack.block_size)
    room = max(0, slack.total - taken)
    if slack.is_evicting:
        return Verdict.EVICTING, _sentence(
            need, 0, 0, f"use is over the eviction line of {slack.threshold_percent} percent"
        )
    if need.on(slack.block_size) > room:
        waiting = f"kept for pods just placed: {_blocks(assumed.blocks)}" if assumed.blocks else ""
        return Verdict.NO_ROOM, _sentence(need, room, slack.block_size, waiting)
    if owner and any(avoidance.owner == owner and avoidance.until > now for avoidance in slack.avoiding):
        why = "a pod of the same owner was evicted here a short while ago"
        return Verdict.AVOIDED, _sentence(need, room, slack.block_size, why)
    return Verdict.FIT, ""


def _sentence(need: _Amount, room: int, block_size: int, why: str) -> str:
    """The reason as the pod's events show it.

    The scheduler puts equal sentences together and counts their nodes: no needless difference from node to node. It
    also takes them for a format: no percent sign (its events would show ``%!``).
    """
    text = (
        f"colocation memory: {_blocks(need.blocks)} ({format_bytes(need.bytes)}) needed, "
        f"{_blocks(room)} ({format_bytes(room * block_size)}) available"
    )
    return f"{text}: {why}" if why else text


def _blocks(count: int) -> str:
    return "1 block" if count == 1 else f"{count} blocks"
