"""The sum: how many blocks of a node's memory may be lent right now, with every term that led there.

The node agent computes it for the device plugin's offer and for NodeSlack, ``slackwater lend`` prints it, and the
evictor's ledger rule compares blocks lent with it. Pure: the age of the reading is its caller's business.

In bytes, per node::

    margin   = ⌊capacity × (100 − memoryReclaimThresholdPercent) / 100⌋          never below 0
    system   = max(node in use − Σ samples, reserved)                 reserved: by kubelet, annotation or reading
    online   = Σ online pods (used | request | max of both, by memoryCalculatePolicy; request without a sample)
             + Σ best-effort pods' use beyond their blocks + samples of pods that are not listed
    lendable = capacity − margin − system − online                               at most batchMemoryThresholdPercent
    line     = ⌊capacity × memoryEvictThresholdPercent / 100⌋ − one block        where eviction is on
    blocks   = ⌊min(lendable, line − system − measured online) / block⌋          never below 0
    lent     = blocks held by pods that have not finished      free = blocks − lent

Margin, line and upper bound are cut to whole bytes, as Koordinator cuts them (it multiplies in binary floating point,
which loses bytes; this is exact). ``measured online`` is ``online``, except under the policy ``request``: there pods
that use more than they requested count with what they use, because the line is about memory and not about promises.

Where a reading has several NUMA nodes, the same sum is done per NUMA node with its own capacity and use, and the
blocks are the sum of the whole blocks of each, never more than the node's. What a best-effort pod uses within its
blocks is taken out where it was measured to lie, else in proportion to use; what was not measured per NUMA node (a
reserve above the system's use, requests) is spread by capacity.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor
from typing import Any

from slackwater import names
from slackwater.node import NodeView
from slackwater.objects import mapping
from slackwater.pod import PodView
from slackwater.policy.colocation import CalculatePolicy, NodePolicy
from slackwater.quantity import QuantityError, format_bytes, parse_bytes
from slackwater.reading import Attribution, MemoryReading, NumaReading, SampledPod, attribute

REASON_DISABLED = "Disabled"
REASON_NODE_REFUSES = "NodeRefuses"
REASON_SECOND_LENDER = "SecondLender"


@dataclass(frozen=True, slots=True)
class Reason:
    """A constant code and a sentence for people."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class NumaHeadroom:
    """The sum of one NUMA node; ``occupied`` is its part of system and online, rounded up to bytes."""

    id: int
    capacity: int
    used: int
    occupied: int
    lendable: int
    blocks: int


@dataclass(frozen=True, slots=True)
class Headroom:
    """Every term of the sum, in bytes; blocks in units of ``block_size``."""

    node: str
    block_size: int
    capacity: int
    used: int
    margin: int
    system: int
    online: int
    lendable: int
    """May be negative: the node is already over what may be lent."""
    cap: int | None
    """The bound of ``batchMemoryThresholdPercent``; already applied to ``lendable``."""
    line: int | None
    """Up to here system, online and lent memory may go, so that nothing is admitted and then evicted.

    None where eviction is off."""
    blocks: int
    lent: int
    reasons: tuple[Reason, ...] = ()
    """Why nothing is lent here whatever the sum says; empty = lending is on."""
    numa: tuple[NumaHeadroom, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def enabled(self) -> bool:
        return not self.reasons

    @property
    def free(self) -> int:
        """Blocks that are neither lent nor needed; negative where more is lent than may be."""
        return self.blocks - self.lent

    @property
    def lendable_blocks(self) -> int:
        """Whole blocks in ``lendable``: what the ledger rule of eviction compares with, not the offer."""
        return max(0, self.lendable // self.block_size)

    def as_terms(self) -> dict[str, Any]:
        """The terms as ``slackwater lend`` prints them."""
        terms: dict[str, Any] = {
            "node": self.node,
            "capacity": self.capacity,
            "margin": self.margin,
            "system": self.system,
            "online": self.online,
            "lendable": self.lendable,
            "blocks": self.blocks,
            "lent": self.lent,
            "free": self.free,
            "enabled": self.enabled,
            "line": self.line,
            "used": self.used,
            "blockSize": self.block_size,
        }
        if self.cap is not None:
            terms["cap"] = self.cap
        if self.numa:
            terms["numa"] = [
                {
                    "id": numa.id,
                    "capacity": numa.capacity,
                    "used": numa.used,
                    "occupied": numa.occupied,
                    "lendable": numa.lendable,
                    "blocks": numa.blocks,
                }
                for numa in self.numa
            ]
        if self.reasons:
            terms["reasons"] = [{"reason": reason.code, "message": reason.message} for reason in self.reasons]
        return terms


def compute(
    node: NodeView, pods: Sequence[PodView], reading: MemoryReading, policy: NodePolicy, block_size: int
) -> Headroom:
    """The sum of ``node``. ``pods`` may hold other nodes' pods; they do not count. ``block_size`` is in bytes, above 0.

    Lending that is off gives 0 blocks and the reasons; the other terms are computed all the same.
    """
    if block_size <= 0:
        raise ValueError(f"block size {block_size} is not above 0")
    attribution = attribute(reading, pods)
    warnings = [*policy.warnings, *reading.warnings, *attribution.warnings]
    lending = policy.lending
    margin = reading.capacity * lending.margin_percent // 100
    measured_system = reading.in_use - sum(sample.used for sample in reading.pods)
    system = max(0, measured_system, _reserved(node, reading, warnings))
    online = _online(attribution, policy, block_size, lending.calculate_policy)
    measured = max(online, _online(attribution, policy, block_size, CalculatePolicy.USAGE))
    lendable = reading.capacity - margin - system - online
    cap = None
    if lending.batch_percent is not None:
        cap = reading.capacity * lending.batch_percent // 100
        lendable = min(lendable, cap)
    line = None
    room = lendable
    if policy.eviction.enabled:
        line = reading.capacity * policy.eviction.threshold_percent // 100 - block_size
        room = min(lendable, line - system - measured)
    blocks = max(0, room // block_size)
    numa: tuple[NumaHeadroom, ...] = ()
    if len(reading.numa) > 1:
        numa = _numa_headrooms(attribution, reading, policy, block_size, system + online, system + measured, blocks)
        blocks = sum(part.blocks for part in numa)
    reasons = _refusals(node, policy)
    if reasons:
        blocks = 0
        numa = tuple(replace(part, blocks=0) for part in numa)
    return Headroom(
        node=reading.node,
        block_size=block_size,
        capacity=reading.capacity,
        used=reading.in_use,
        margin=margin,
        system=system,
        online=online,
        lendable=lendable,
        cap=cap,
        line=line,
        blocks=blocks,
        lent=lent_blocks(attribution, block_size),
        reasons=reasons,
        numa=numa,
        warnings=tuple(dict.fromkeys(warnings)),
    )


def lent_blocks(attribution: Attribution, block_size: int) -> int:
    """Blocks held on the node: bound pods hold theirs until they have finished, Pending and terminating ones too.

    Blocks of another size (a pod from before the installation's size was changed) count by their bytes, rounded up.
    """
    return -(-sum(held_bytes(sampled.pod, block_size) for sampled in attribution.pods) // block_size)


def held_bytes(pod: PodView, block_size: int) -> int:
    """Bytes of the blocks that a pod holds; a finished pod holds nothing."""
    return 0 if pod.is_finished else pod.blocks * pod.block_size(block_size)


def _online(attribution: Attribution, policy: NodePolicy, block_size: int, rule: CalculatePolicy) -> int:
    total = sum(sample.used for sample in attribution.unlisted)
    for sampled in attribution.pods:
        amount = _counted(sampled, block_size, rule)
        if policy.lending.allow_second_lender and not sampled.pod.is_finished:
            amount = max(amount, sampled.pod.batch_memory)
        total += amount
    return total


def _counted(sampled: SampledPod, block_size: int, rule: CalculatePolicy) -> int:
    """What a pod takes away from what may be lent, in bytes."""
    pod, used = sampled.pod, sampled.used
    if pod.is_finished:
        return used or 0  # its promise has ended, but what was measured is not free yet
    measured = pod.memory_request if used is None else used
    if pod.is_be:
        return max(0, measured - held_bytes(pod, block_size))
    match rule:
        case CalculatePolicy.USAGE:
            return measured
        case CalculatePolicy.REQUEST:
            return pod.memory_request
        case CalculatePolicy.MAX_USAGE_REQUEST:
            return max(measured, pod.memory_request)


def _reserved(node: NodeView, reading: MemoryReading, warnings: list[str]) -> int:
    """What is set aside for the system: by the kubelet (capacity − allocatable), the annotation or the reading."""
    candidates = [reading.system_reserved or 0]
    if "memory" in node.capacity and "memory" in node.allocatable:
        candidates.append(node.capacity["memory"] - node.allocatable["memory"])
    annotation = node.annotations.get(names.KOORDINATOR_RESERVATION_ANNOTATION)
    if annotation is not None:
        try:
            amount = mapping(json.loads(annotation), "resources").get("memory")
            candidates.append(0 if amount is None else parse_bytes(amount))
        except (QuantityError, ValueError, RecursionError) as error:
            warnings.append(
                f"annotation {names.KOORDINATOR_RESERVATION_ANNOTATION} of node {node.name} is ignored: {error};"
                ' write {"resources": {"memory": "20G"}}'
            )
    return max(candidates)


def _refusals(node: NodeView, policy: NodePolicy) -> tuple[Reason, ...]:
    reasons = []
    if not policy.lending.enabled:
        reasons.append(
            Reason(REASON_DISABLED, 'lending is switched off; set "enable": true in colocation-config to switch it on')
        )
    refusal = node.lending_refusal
    if refusal is not None:
        reasons.append(Reason(REASON_NODE_REFUSES, f"this node does not lend: {refusal}"))
    foreign = max(
        node.capacity.get(names.KOORDINATOR_BATCH_MEMORY, 0), node.allocatable.get(names.KOORDINATOR_BATCH_MEMORY, 0)
    )
    if foreign > 0 and not policy.lending.allow_second_lender:
        reasons.append(
            Reason(
                REASON_SECOND_LENDER,
                f"somebody else lends {format_bytes(foreign)} of this node as {names.KOORDINATOR_BATCH_MEMORY}; switch"
                ' that off, or set "allowSecondLender": true in colocation-config to lend beside it',
            )
        )
    return tuple(reasons)


# -- NUMA ---------------------------------------------------------------------------------------------


def _numa_headrooms(
    attribution: Attribution,
    reading: MemoryReading,
    policy: NodePolicy,
    block_size: int,
    occupied: int,
    measured: int,
    most_blocks: int,
) -> tuple[NumaHeadroom, ...]:
    """The sum per NUMA node; ``occupied`` and ``measured`` are system and online of the whole node."""
    base = _use_outside_blocks(attribution, reading.numa, block_size)
    by_sum = _spread(base, reading.numa, occupied)
    by_measure = _spread(base, reading.numa, measured)
    parts = []
    for numa, part, measured_part in zip(reading.numa, by_sum, by_measure, strict=True):
        lendable = numa.capacity * Fraction(100 - policy.lending.margin_percent, 100) - part
        if policy.lending.batch_percent is not None:
            lendable = min(lendable, numa.capacity * Fraction(policy.lending.batch_percent, 100))
        room = lendable
        if policy.eviction.enabled:
            line = numa.capacity * Fraction(policy.eviction.threshold_percent, 100) - block_size
            room = min(lendable, line - measured_part)
        blocks = max(0, floor(room / block_size))
        parts.append(NumaHeadroom(numa.id, numa.capacity, numa.used, -floor(-part), floor(lendable), blocks))
    # An overfull NUMA node counts 0, not less; so the parts can add up to more than the whole node may lend.
    for _ in range(sum(part.blocks for part in parts) - most_blocks):
        index = max(range(len(parts)), key=lambda place: (parts[place].blocks, -place))
        parts[index] = replace(parts[index], blocks=parts[index].blocks - 1)
    return tuple(parts)


def _use_outside_blocks(attribution: Attribution, numa: Sequence[NumaReading], block_size: int) -> list[Fraction]:
    """Use per NUMA node without what best-effort pods use within their blocks."""
    within = {node.id: Fraction(0) for node in numa}
    somewhere = Fraction(0)
    for sampled in attribution.pods:
        if sampled.sample is None or not sampled.pod.is_be:
            continue
        lent_use = min(sampled.sample.used, held_bytes(sampled.pod, block_size))
        places = [(place, used) for place, used in sampled.sample.numa if place in within]
        placed = sum(used for _, used in places)
        if not placed:
            somewhere += lent_use
        for place, used in places if placed else ():
            within[place] += Fraction(lent_use * used, placed)
    total_use = sum(node.used for node in numa)
    return [
        max(Fraction(0), node.used - within[node.id] - (somewhere * node.used / total_use if total_use else 0))
        for node in numa
    ]


def _spread(base: Sequence[Fraction], numa: Sequence[NumaReading], total: int) -> list[Fraction]:
    """Parts that add up to ``total``: the measured ones, scaled down, or filled up by capacity."""
    measured = sum(base, Fraction(0))
    if measured > total:
        return [part * total / measured for part in base]
    capacity = sum(node.capacity for node in numa)
    missing = total - measured
    return [
        part + (missing * node.capacity / capacity if capacity else missing / len(numa))
        for part, node in zip(base, numa, strict=True)
    ]
