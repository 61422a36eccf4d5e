"""May this pod go to these nodes? Pure: readings and pods in, a verdict and a sentence for every node out.

Called by the extender for the scheduler and for its explanations of pending pods, and by ``slackwater filter``.

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
from typing import NamedTuple, TypeAlias

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


class Judgement(NamedTuple):
    """One node for one pod. A tuple: a call makes thousands of them."""

    node: str
    verdict: Verdict
    room: int = 0
    """Blocks of ``block_size`` that are available; 0 on a closed node, whatever it has."""
    block_size: int = 0
    why: str = ""


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
    judged: tuple[Judgement, ...] = field(default=(), compare=False, repr=False)
    """Every node with its room, as it was before any avoidance gave way; empty for a pod that asks for no blocks."""


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
    judged: list[Judgement] = []
    for name in candidates:
        slack = snapshot.slacks.get(name)
        held = (other for other in snapshot.held.get(name, ()) if other.uid != pod.uid)
        judged.append(_judge(name, need, slack, _sum(held), assumed.get(name, _NOTHING), owner, now))

    fit = tuple(node.node for node in judged if node.verdict is Verdict.FIT)
    avoided = tuple(node.node for node in judged if node.verdict is Verdict.AVOIDED)
    gives_way = bool(not fit and avoided and avoided_since is not None and now - avoided_since >= GIVE_WAY_AFTER)
    refused = [node for node in judged if node.verdict is not Verdict.FIT]
    if gives_way:
        fit = avoided
        refused = [node for node in refused if node.verdict is not Verdict.AVOIDED]
    verdicts = Counter(node.verdict for node in refused)
    if fit:
        verdicts[Verdict.FIT] = len(fit)
    return FilterDecision(
        fit=fit,
        failed={node.node: _sentence(need, node) for node in refused if node.verdict in _RESOLVABLE},
        unresolvable={node.node: _sentence(need, node) for node in refused if node.verdict not in _RESOLVABLE},
        verdicts=verdicts,
        gave_way=gives_way,
        only_avoided=bool(avoided) and not fit,
        judged=tuple(judged),
    )


def amount(blocks: int, size: int) -> str:
    """``blocks`` that are ``size`` bytes together, as sentences show them: ``2 blocks (1Gi)``."""
    return f"{_blocks(blocks)} ({format_bytes(size)})"


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
    name: str, need: _Amount, slack: Slack | None, held: _Amount, assumed: _Amount, owner: str, now: datetime
) -> Judgement:
    if slack is None:
        return Judgement(name, Verdict.UNKNOWN, why="no NodeSlack of this node; its agent has not reported")
    if isinstance(slack, UnreadableSlack):
        return Judgement(name, Verdict.UNREADABLE, why="NodeSlack cannot be read")
    if slack.is_stale(now):
        limit = int(STALE_AFTER.total_seconds())
        return Judgement(name, Verdict.STALE, why=f"the reading is older than {limit} s")
    if slack.mode != MODE_LEND:
        return Judgement(name, Verdict.CLOSED, why=f"the node's agent is in mode {slack.mode}")
    if not slack.enabled:
        return Judgement(name, Verdict.CLOSED, why="the node does not lend")
    if slack.is_evicting:
        why = f"use is over the eviction line of {slack.threshold_percent} percent"
        return Judgement(name, Verdict.EVICTING, why=why)
    taken = max(slack.lent, held.on(slack.block_size)) + assumed.on(slack.block_size)
    room = max(0, slack.total - taken)
    if need.on(slack.block_size) > room:
        waiting = f"kept for pods just placed: {_blocks(assumed.blocks)}" if assumed.blocks else ""
        return Judgement(name, Verdict.NO_ROOM, room, slack.block_size, waiting)
    if owner and any(avoidance.owner == owner and avoidance.until > now for avoidance in slack.avoiding):
        why = "a pod of the same owner was evicted here a short while ago"
        return Judgement(name, Verdict.AVOIDED, room, slack.block_size, why)
    return Judgement(name, Verdict.FIT, room, slack.block_size)


def _sentence(need: _Amount, node: Judgement) -> str:
    """The reason as the pod's events show it.

    The scheduler puts equal sentences together and counts their nodes: no needless difference from node to node. It
    also takes them for a format: no percent sign (its events would show ``%!``).
    """
    text = (
        f"colocation memory: {amount(need.blocks, need.bytes)} needed, "
        f"{amount(node.room, node.room * node.block_size)} available"
    )
    return f"{text}: {node.why}" if node.why else text


def _blocks(count: int) -> str:
    return "1 block" if count == 1 else f"{count} blocks"
