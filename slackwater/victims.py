"""Which pods have to go, and which are spared: the choice behind every eviction, dry run and ``slackwater evict``.

Two rules can ask for memory:

* the node-use rule: when use reaches ``memoryEvictThresholdPercent`` of capacity, everything above
  ``memoryEvictLowerPercent`` has to be released. Compared exactly, not as a truncated percentage;
* the ledger rule (``memoryAllocatableEvict…``): when blocks lent exceed a percentage of the blocks lendable, the blocks
  above the lower percentage have to come back. Nothing lendable: all of them.

The rule with the larger need comes first; what its victims leave open of the other is chosen after that. What pods on
their way out use (any terminating pod of the node, until 30 s after its deletionTimestamp) is credited to the need.

Order: a *band* is the pods of equal ``spec.priority`` and equal evict-priority, lower ones first. Whole bands are taken
until the need can be covered by a part of the next one; there the cover is chosen that exceeds the need by the fewest
bytes, then has the fewest pods, then the lower ``koordinator.sh/priority`` labels, the larger pods, the first names.

Pods that are not best-effort come after every best-effort pod, and only where ``evictEnabledPriorityThreshold`` is set
and the pod is labelled ``koordinator.sh/eviction-enabled: "true"``.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import groupby
from typing import TypeAlias

from slackwater import names
from slackwater.headroom import Headroom, compute, held_bytes
from slackwater.node import NodeView
from slackwater.pod import PodView
from slackwater.policy.colocation import AllocatableRule, EvictionStrategy, NodePolicy
from slackwater.qos import Qos
from slackwater.quantity import format_bytes
from slackwater.reading import MemoryReading, SampledPod, attribute

DEFAULT_BURST = 3
"""Victims at most in one round (Katalyst's default): the next reading shows what the first ones brought."""
EXIT_ALLOWANCE = timedelta(seconds=30)
"""How long after its grace period a terminating pod is still believed to be giving its memory back."""

RULE_NODE_USE = "EvictPodByNodeMemoryUsage"
"""The node-use rule's reason; Koordinator's word, so that alerts on its Events keep working."""
RULE_LEDGER = "EvictPodByMemoryAllocatable"

SPARED_NOT_NEEDED = "not-needed"
SPARED_OFF = "eviction-off"
SPARED_BURST = "burst"
SPARED_FINISHED = "finished"
SPARED_TERMINATING = "terminating"
SPARED_GUARANTEED = "guaranteed"
SPARED_SYSTEM = "system"
SPARED_STATIC = "static"
SPARED_DAEMONSET = "daemonset"
SPARED_POLICY = "eviction-policy"
SPARED_PRIORITY = "priority"
SPARED_NO_SAMPLE = "no-sample"
SPARED_USES_NOTHING = "uses-nothing"
SPARED_HOLDS_NOTHING = "holds-no-blocks"

_NODE_USE_POLICIES = frozenset({"BEMemoryEvict", "MemoryEvict", "node-memory-usage"})
_LEDGER_POLICIES = frozenset({"MemoryAllocatableEvict"})
_INT32 = range(-(2**31), 2**31)

_EXACT_SUMS = 4096
"""Different sums kept per half of a band: the cover is exact up to 24 pods of different use, and for more pods whose
uses repeat. A band that has more is solved on a grid of the need / 512."""
_GRID = 512


@dataclass(frozen=True, slots=True)
class Victim:
    """A pod to evict; ``bytes`` is its measured use, ``reason`` the rule that chose it."""

    namespace: str
    name: str
    uid: str
    bytes: int
    reason: str


@dataclass(frozen=True, slots=True)
class Spared:
    """A best-effort pod that stays, and a constant reason."""

    namespace: str
    name: str
    uid: str
    bytes: int
    reason: str


@dataclass(frozen=True, slots=True)
class Need:
    """What one rule asks for, in bytes: ``release`` in all, ``credited`` to pods on their way out."""

    rule: str
    release: int
    credited: int

    @property
    def open(self) -> int:
        return max(0, self.release - self.credited)


@dataclass(frozen=True, slots=True)
class EvictionPlan:
    """The decision for one node. ``victims`` stand in kill order."""

    node: str
    enabled: bool
    threshold_percent: int
    lower_percent: int
    capacity: int
    used: int
    needs: tuple[Need, ...]
    victims: tuple[Victim, ...]
    spared: tuple[Spared, ...]
    message: str
    warnings: tuple[str, ...] = ()

    @property
    def release(self) -> int:
        """Bytes needed before anything is credited; with several rules the largest need."""
        return max((need.release for need in self.needs), default=0)

    @property
    def used_percent(self) -> float:
        """For people and metrics; decisions compare exactly."""
        return self.used * 100 / self.capacity if self.capacity else 0.0


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A pod that a rule may choose; ``weight`` is what its end brings that rule, in bytes."""

    sampled: SampledPod
    weight: int
    band: tuple[bool, int, int]
    kill_order: tuple[int, int, str, str, str]


def event_message(victim: str, node: str, release: int, rule: str = RULE_NODE_USE) -> str:
    """The sentence of the ``evictPodSuccess`` Event, in the form that Koordinator's manual documents."""
    return (
        f"evict Pod:{victim}, reason: {rule}, message: killAndEvictBEPods for node({node}),"
        f" need to release memory: {release}"
    )


def choose(
    node: NodeView,
    pods: Sequence[PodView],
    reading: MemoryReading,
    policy: NodePolicy,
    block_size: int,
    now: datetime,
    *,
    burst: int | None = DEFAULT_BURST,
    headroom: Headroom | None = None,
) -> EvictionPlan:
    """Choose victims on ``node``. ``pods`` may hold other nodes' pods; they are not touched.

    ``burst`` None means no cut. ``headroom`` is the sum of the same inputs where the caller has it already.
    Whether the reading is too old to act on is the caller's business.
    """
    eviction = policy.eviction
    attribution = attribute(reading, pods)
    warnings = [*policy.warnings, *reading.warnings, *attribution.warnings]
    on_node = attribution.pods
    needs: list[Need] = []
    if eviction.enabled:
        leaving = [sampled for sampled in on_node if _is_leaving(sampled.pod, now)]
        use_need = _node_use_need(reading, eviction)
        if use_need:
            needs.append(Need(RULE_NODE_USE, use_need, sum(sampled.used or 0 for sampled in leaving)))
        if eviction.allocatable is not None:
            sums = headroom or compute(node, pods, reading, policy, block_size)
            ledger_need = _ledger_need(sums, eviction.allocatable)
            if ledger_need:
                credit = sum(held_bytes(sampled.pod, block_size) for sampled in leaving)
                needs.append(Need(RULE_LEDGER, ledger_need, credit))
    needs.sort(key=lambda need: -need.release)

    chosen: dict[str, tuple[SampledPod, str]] = {}
    refusals: dict[str, str] = {}
    for need in needs:
        candidates, refused = _candidates(on_node, need.rule, eviction, block_size, warnings)
        refusals = {**refused, **refusals}
        brought = sum(candidate.weight for candidate in candidates if candidate.sampled.pod.key in chosen)
        fresh = [candidate for candidate in candidates if candidate.sampled.pod.key not in chosen]
        for candidate in _cover_by_bands(fresh, need.open - brought):
            chosen[candidate.sampled.pod.key] = (candidate.sampled, need.rule)
    if not needs:
        refusals = _candidates(on_node, RULE_NODE_USE, eviction, block_size, warnings)[1]
    killed = list(chosen.items())[:burst]
    cut = {key for key, _ in list(chosen.items())[len(killed) :]}
    victims = tuple(
        Victim(sampled.pod.namespace, sampled.pod.name, sampled.pod.uid, sampled.used or 0, rule)
        for _, (sampled, rule) in killed
    )
    gone = {key for key, _ in killed}
    otherwise = SPARED_NOT_NEEDED if eviction.enabled else SPARED_OFF
    spared = tuple(
        Spared(
            sampled.pod.namespace,
            sampled.pod.name,
            sampled.pod.uid,
            sampled.used or 0,
            SPARED_BURST if sampled.pod.key in cut else refusals.get(sampled.pod.key, otherwise),
        )
        for sampled in on_node
        if sampled.pod.is_be and sampled.pod.key not in gone
    )
    return EvictionPlan(
        node=reading.node,
        enabled=eviction.enabled,
        threshold_percent=eviction.threshold_percent,
        lower_percent=eviction.lower_percent,
        capacity=reading.capacity,
        used=reading.in_use,
        needs=tuple(needs),
        victims=victims,
        spared=spared,
        message=_message(reading, eviction, needs, victims, spared),
        warnings=tuple(dict.fromkeys(warnings)),
    )


# -- how much -----------------------------------------------------------------------------------------


def _node_use_need(reading: MemoryReading, eviction: EvictionStrategy) -> int:
    if reading.in_use * 100 < eviction.threshold_percent * reading.capacity:
        return 0
    return reading.in_use - eviction.lower_percent * reading.capacity // 100


def _ledger_need(sums: Headroom, rule: AllocatableRule) -> int:
    """Bytes of blocks above the lower percentage, rounded up to bytes."""
    lent, lendable = sums.lent, sums.lendable_blocks
    if lendable == 0:
        return lent * sums.block_size
    if lent * 100 <= rule.threshold_percent * lendable:
        return 0
    return -(-(lent * 100 - rule.lower_percent * lendable) * sums.block_size // 100)


def _is_leaving(pod: PodView, now: datetime) -> bool:
    return pod.deleted_at is not None and now <= pod.deleted_at + EXIT_ALLOWANCE


# -- who may be chosen --------------------------------------------------------------------------------


def _candidates(
    on_node: Iterable[SampledPod], rule: str, eviction: EvictionStrategy, block_size: int, warnings: list[str]
) -> tuple[list[_Candidate], dict[str, str]]:
    """The pods that ``rule`` may choose, and the reasons of the best-effort pods it may not."""
    candidates: list[_Candidate] = []
    refused: dict[str, str] = {}
    for sampled in on_node:
        pod = sampled.pod
        if not pod.is_be and not _is_volunteer(pod, eviction):
            continue
        reason = _protection(sampled, rule, eviction, block_size)
        if reason is not None:
            refused[pod.key] = reason
            continue
        evict_priority = _evict_priority(pod, warnings)
        sub_priority = _integer(pod.labels.get(names.KOORDINATOR_SUB_PRIORITY_LABEL)) or 0
        candidates.append(
            _Candidate(
                sampled,
                _weight(sampled, rule, block_size),
                (not pod.is_be, spec_priority(pod), evict_priority),
                (sub_priority, -(sampled.used or 0), pod.name, pod.namespace, pod.uid),
            )
        )
    return candidates, refused


def _is_volunteer(pod: PodView, eviction: EvictionStrategy) -> bool:
    """A pod that is not best-effort, but may be evicted all the same."""
    return (
        eviction.priority_threshold is not None
        and spec_priority(pod) <= eviction.priority_threshold
        and pod.labels.get(names.KOORDINATOR_EVICTION_ENABLED_LABEL) == "true"
        and pod.qos is not Qos.SYSTEM
    )


def _protection(sampled: SampledPod, rule: str, eviction: EvictionStrategy, block_size: int) -> str | None:
    """Why this pod must not be chosen, or None."""
    pod = sampled.pod
    if pod.is_finished:
        return SPARED_FINISHED
    if pod.is_terminating:
        return SPARED_TERMINATING
    if pod.is_static:
        return SPARED_STATIC
    if pod.is_daemonset:
        return SPARED_DAEMONSET
    if pod.is_critical:
        return SPARED_SYSTEM
    if pod.kubernetes_qos == "Guaranteed":
        return SPARED_GUARANTEED
    if not _policy_allows(pod, _NODE_USE_POLICIES if rule == RULE_NODE_USE else _LEDGER_POLICIES):
        return SPARED_POLICY
    bound = eviction.priority_threshold
    if rule == RULE_LEDGER and eviction.allocatable is not None:
        bound = eviction.allocatable.priority_threshold
    if bound is not None and spec_priority(pod) > bound:
        return SPARED_PRIORITY
    if rule == RULE_LEDGER:
        return None if held_bytes(pod, block_size) else SPARED_HOLDS_NOTHING
    if sampled.used is None:
        return SPARED_NO_SAMPLE
    return None if sampled.used else SPARED_USES_NOTHING


def _policy_allows(pod: PodView, rule_names: frozenset[str]) -> bool:
    """``koordinator.sh/eviction-policy``: absent allows every rule; an empty or unreadable list allows none."""
    text = pod.annotations.get(names.KOORDINATOR_EVICTION_POLICY_ANNOTATION)
    if text is None:
        return True
    try:
        allowed = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(allowed, list) and any(isinstance(name, str) and name in rule_names for name in allowed)


def spec_priority(pod: PodView) -> int:
    """``spec.priority``; on a manifest that no API server has seen, that of a class we know, else 0."""
    if pod.priority is not None:
        return pod.priority
    name = pod.priority_class_name
    return names.PRIORITY_CLASSES.get(
        name.replace("koord-", "slackwater-", 1) if name.startswith("koord-") else name, 0
    )


def _evict_priority(pod: PodView, warnings: list[str]) -> int:
    """The native annotation wins over Koordinator's; unset or unreadable is 0."""
    for key in (names.EVICT_PRIORITY_ANNOTATION, names.KOORDINATOR_EVICTION_PRIORITY_ANNOTATION):
        text = pod.annotations.get(key)
        if text is None:
            continue
        number = _integer(text)
        if number is None:
            warnings.append(f"pod {pod.key}: annotation {key} is {text!r} and counts as 0; write a whole number")
        return number or 0
    return 0


def _integer(text: str | None) -> int | None:
    """A 32-bit integer in decimal, as Koordinator reads it."""
    if text is None or not text.isascii() or not text.lstrip("+-").isdigit() or len(text) > 11:
        return None
    try:
        number = int(text)
    except ValueError:
        return None
    return number if number in _INT32 else None


def _weight(sampled: SampledPod, rule: str, block_size: int) -> int:
    return (sampled.used or 0) if rule == RULE_NODE_USE else held_bytes(sampled.pod, block_size)


# -- the cover ----------------------------------------------------------------------------------------


def _cover_by_bands(candidates: Iterable[_Candidate], need: int) -> list[_Candidate]:
    """Whole bands, lowest first, then the smallest cover out of the next; everything where nothing covers."""
    taken: list[_Candidate] = []
    ordered = sorted(candidates, key=lambda candidate: (candidate.band, candidate.kill_order))
    for _, members in groupby(ordered, key=lambda candidate: candidate.band):
        if need <= 0:
            break
        band = list(members)
        places = smallest_cover([candidate.weight for candidate in band], need)
        taken.extend(band[place] for place in places)
        need -= sum(band[place].weight for place in places)
    return taken


_State: TypeAlias = tuple[int, int]
"""(number of pods, minus the pods as a bit mask whose highest bit is the first pod): smaller is better."""


def smallest_cover(weights: Sequence[int], need: int) -> list[int]:
    """Places in ``weights`` (none below 1) of the subset that covers ``need`` with the fewest bytes too many.

    Ties: fewest places, then the earliest places. Everything where all together do not cover. Exact while each half of
    the weights has at most 4096 different sums below the need; beyond that sums are merged on a grid of need / 512, the
    larger of two neighbours being kept, so that the result always covers and exceeds the smallest excess by at most
    len(weights) × need / 512.
    """
    if need <= 0:
        return []
    if sum(weights) <= need:
        return list(range(len(weights)))
    middle = len(weights) // 2
    bits = [1 << (len(weights) - 1 - place) for place in range(len(weights))]
    left = _sums(weights[:middle], bits[:middle], need)
    right = _sums(weights[middle:], bits[middle:], need)
    mask = -_best_pair(left, right, need)[1]
    return [place for place, bit in enumerate(bits) if mask & bit]


def _sums(weights: Sequence[int], bits: Sequence[int], need: int) -> list[tuple[int, _State]]:
    """Sums of subsets, ascending, each with its best subset; of those at or above ``need`` only the least."""
    sums: dict[int, _State] = {0: (0, 0)}
    over: tuple[int, _State] | None = None
    most = _EXACT_SUMS
    for weight, bit in zip(weights, bits, strict=True):
        grown: dict[int, _State] = {}
        for total, (count, mask) in sums.items():
            bigger, state = total + weight, (count + 1, mask - bit)
            if bigger >= need:
                over = (bigger, state) if over is None else min(over, (bigger, state))
            elif bigger not in sums or state < sums[bigger]:
                grown[bigger] = state
        sums.update(grown)
        if len(sums) > most:
            sums, most = _on_grid(sums, need), 2 * _GRID
    ascending = sorted(sums.items())
    return ascending if over is None else [*ascending, over]


def _on_grid(sums: Mapping[int, _State], need: int) -> dict[int, _State]:
    """The largest sum of each cell; no merged sum grows by more than a cell, and none shrinks."""
    largest = {total * _GRID // need: total for total in sorted(sums)}
    return {total: sums[total] for total in {0, *largest.values()}}


def _best_pair(left: Sequence[tuple[int, _State]], right: Sequence[tuple[int, _State]], need: int) -> tuple[int, int]:
    """The best state of one sum of each half that together reach ``need`` with the least bytes."""
    best: tuple[int, _State] | None = None
    place = len(right)
    for total, (count, mask) in left:
        while place > 0 and total + right[place - 1][0] >= need:
            place -= 1
        if place == len(right):
            continue
        other, (other_count, other_mask) = right[place]
        pair = (total + other, (count + other_count, mask + other_mask))
        best = pair if best is None else min(best, pair)
    assert best is not None, "the whole covers, so some pair does"  # noqa: S101  an invariant, not input checking
    return best[1]


# -- the sentence -------------------------------------------------------------------------------------


def _message(
    reading: MemoryReading,
    eviction: EvictionStrategy,
    needs: Sequence[Need],
    victims: Sequence[Victim],
    spared: Sequence[Spared],
) -> str:
    if victims:
        release = max(need.release for need in needs)
        return event_message(victims[0].name, reading.node, release, victims[0].reason)
    percent = Fraction(reading.in_use * 100, reading.capacity) if reading.capacity else Fraction(0)
    use = f"node {reading.node} uses {reading.in_use} of {reading.capacity} bytes ({float(percent):.2f} %)"
    if not eviction.enabled:
        return f"{use}; eviction is switched off in resource-threshold-config"
    if not needs:
        return f"{use}, below memoryEvictThresholdPercent {eviction.threshold_percent}: nothing to release"
    need = needs[0]
    asked = f"{use} and needs to release memory: {need.release}"
    if all(need.open == 0 for need in needs):
        return f"{asked}; pods that are terminating bring {format_bytes(need.credited)}, so that no other has to go"
    if not spared:
        return f"{asked}; there is no best-effort pod on it to evict"
    counts = {reason: sum(pod.reason == reason for pod in spared) for reason in sorted({pod.reason for pod in spared})}
    kept = ", ".join(f"{count} {reason}" for reason, count in counts.items())
    return f"{asked}; none of its best-effort pods may be evicted ({kept})"
