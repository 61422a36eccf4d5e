"""NodeSlack: what one node lends, as its agent writes it and the extender and the command line read it.

:func:`render_status` makes ``status`` from the decisions; :func:`read_nodeslack` reads it back. Reading is strict about
every number that could look like room: what is missing, negative, text or not finite is an error, never a free block.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from slackwater.errors import InputError, Problem
from slackwater.headroom import Headroom
from slackwater.objects import RawObject, mapping, sequence, text
from slackwater.timestamps import format_time, parse_time
from slackwater.victims import EvictionPlan

MODE_LEND = "lend"
MODE_OBSERVE = "observe"
STALE_AFTER = timedelta(seconds=300)
"""Agents write at least every 120 s (with jitter); two writes missed make the numbers a memory, not a fact."""
CONDITION_LENDING = "Lending"


@dataclass(frozen=True, slots=True)
class Avoidance:
    """An owner whose pods stay away from this node until a time, because one was evicted here."""

    owner: str
    until: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition to publish; ``status`` is ``True``, ``False`` or ``Unknown``."""

    type: str
    status: str
    reason: str
    message: str


def lending_condition(headroom: Headroom, mode: str) -> Condition:
    """Condition ``Lending``: whether this node lends, and if not, why and what to do about it."""
    if headroom.reasons:
        message = "; ".join(reason.message for reason in headroom.reasons)
        return Condition(CONDITION_LENDING, "False", headroom.reasons[0].code, message)
    if mode == MODE_OBSERVE:
        return Condition(
            CONDITION_LENDING, "False", "Observing", f"mode observe: {headroom.blocks} blocks would be lent"
        )
    return Condition(CONDITION_LENDING, "True", "Lending", f"{headroom.blocks} blocks may be lent, {headroom.lent} are")


def render_status(
    headroom: Headroom,
    plan: EvictionPlan,
    *,
    mode: str,
    time: datetime,
    now: datetime,
    offered: int | None = None,
    avoiding: Sequence[Avoidance] = (),
    conditions: Sequence[Condition] = (),
    previous: RawObject | None = None,
) -> dict[str, Any]:
    """The ``status`` of a NodeSlack.

    Args:
        mode: ``lend`` or ``observe``; in observe mode the plan's victims are listed as ``wouldEvict``.
        time: when the memory was read.
        offered: blocks on offer where that is less than the sum allows (an offer grows slowly); None = the sum's.
        conditions: further conditions beside ``Lending``, which is always there.
        previous: the status published before; a condition whose status is the same keeps its transition time.
    """
    total = headroom.blocks if offered is None else min(offered, headroom.blocks)
    memory: dict[str, int] = {
        "capacity": headroom.capacity,
        "used": headroom.used,
        "margin": headroom.margin,
        "system": headroom.system,
        "online": headroom.online,
        "lendable": headroom.lendable,
    }
    if headroom.line is not None:
        memory["line"] = headroom.line
    status: dict[str, Any] = {
        "time": format_time(time),
        "mode": mode,
        "enabled": headroom.enabled,
        "blockSize": headroom.block_size,
        "memory": memory,
        "blocks": {
            "total": total,
            "lendable": headroom.lendable_blocks,
            "lent": headroom.lent,
            "free": total - headroom.lent,
        },
        "eviction": {
            "enabled": plan.enabled,
            "thresholdPercent": plan.threshold_percent,
            "lowerPercent": plan.lower_percent,
            "usedPercent": round(plan.used_percent, 2),
            "release": plan.release,
        },
        "avoiding": [
            {"owner": avoidance.owner, "until": format_time(avoidance.until), "reason": avoidance.reason}
            for avoidance in avoiding
        ],
        "numa": [
            {"id": numa.id, "capacity": numa.capacity, "used": numa.used, "blocks": numa.blocks}
            for numa in headroom.numa
        ],
        "conditions": _render_conditions((lending_condition(headroom, mode), *conditions), previous or {}, now),
    }
    if mode == MODE_OBSERVE:
        status["wouldEvict"] = [f"{victim.namespace}/{victim.name}" for victim in plan.victims]
    return status


def _render_conditions(conditions: Sequence[Condition], previous: RawObject, now: datetime) -> list[dict[str, str]]:
    before = {text(condition, "type"): condition for condition in sequence(previous, "conditions")}
    rendered = []
    for condition in conditions:
        since = format_time(now)
        old = before.get(condition.type)
        if text(old, "status") == condition.status and text(old, "lastTransitionTime"):
            since = text(old, "lastTransitionTime")
        rendered.append(
            {
                "type": condition.type,
                "status": condition.status,
                "reason": condition.reason,
                "message": condition.message,
                "lastTransitionTime": since,
            }
        )
    return rendered


# -- reading it back ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodeSlackView:
    """A NodeSlack as read; bytes, and blocks of ``block_size``."""

    name: str
    time: datetime
    mode: str
    enabled: bool
    block_size: int
    capacity: int
    used: int
    margin: int
    system: int
    online: int
    lendable: int
    line: int | None
    total: int
    lendable_blocks: int
    lent: int
    eviction_enabled: bool
    threshold_percent: int
    lower_percent: int
    release: int
    avoiding: tuple[Avoidance, ...] = ()

    @property
    def free(self) -> int:
        """Blocks on offer and not lent; negative where more is lent than may be."""
        return self.total - self.lent

    @property
    def room(self) -> int:
        """Blocks that another pod may get: none where the node does not lend or only observes."""
        return max(0, self.free) if self.enabled and self.mode == MODE_LEND else 0

    @property
    def is_evicting(self) -> bool:
        """Use has reached the eviction threshold, compared exactly."""
        return self.eviction_enabled and self.used * 100 >= self.threshold_percent * self.capacity

    def is_stale(self, now: datetime) -> bool:
        """Too old to admit anything; a time that far in the future is as little a fact."""
        return abs(now - self.time) > STALE_AFTER


def read_nodeslack(raw: RawObject, where: str = "") -> NodeSlackView:
    """Read a NodeSlack object with its status.

    Raises:
        InputError: naming every field that is missing, of the wrong type, negative or contradicting the others.
    """
    problems: list[Problem] = []
    status = mapping(raw, "status")

    def whole(*path: str, signed: bool = False) -> int:
        value = mapping(status, *path[:-1]).get(path[-1])
        if isinstance(value, bool) or not isinstance(value, int) or (value < 0 and not signed):
            expected = "a whole number" if signed else "a whole number of 0 or more"
            problems.append(_problem(path, value, expected))
            return 0
        return value

    def flag(*path: str) -> bool:
        value = mapping(status, *path[:-1]).get(path[-1])
        if not isinstance(value, bool):
            problems.append(_problem(path, value, "true or false"))
        return value is True

    def moment(source: RawObject, path: str, key: str) -> datetime:
        try:
            return parse_time(source.get(key))
        except ValueError as error:
            problems.append(Problem(path, str(error)))
            return parse_time("1970-01-01T00:00:00Z")

    name = text(raw, "metadata", "name")
    if not name:
        problems.append(Problem("metadata.name", "is missing", "give the NodeSlack its node's name"))
    mode = status.get("mode")
    if mode not in (MODE_LEND, MODE_OBSERVE):
        problems.append(_problem(("mode",), mode, f"{MODE_LEND} or {MODE_OBSERVE}"))
    view = NodeSlackView(
        name=name,
        time=moment(status, "status.time", "time"),
        mode=str(mode),
        enabled=flag("enabled"),
        block_size=whole("blockSize"),
        capacity=whole("memory", "capacity"),
        used=whole("memory", "used"),
        margin=whole("memory", "margin"),
        system=whole("memory", "system"),
        online=whole("memory", "online"),
        lendable=whole("memory", "lendable", signed=True),
        line=None if mapping(status, "memory").get("line") is None else whole("memory", "line", signed=True),
        total=whole("blocks", "total"),
        lendable_blocks=whole("blocks", "lendable"),
        lent=whole("blocks", "lent"),
        eviction_enabled=flag("eviction", "enabled"),
        threshold_percent=whole("eviction", "thresholdPercent"),
        lower_percent=whole("eviction", "lowerPercent"),
        release=whole("eviction", "release"),
        avoiding=tuple(
            Avoidance(
                text(item, "owner"),
                moment(item if isinstance(item, Mapping) else {}, f"status.avoiding[{index}].until", "until"),
                text(item, "reason"),
            )
            for index, item in enumerate(sequence(status, "avoiding"))
        ),
    )
    free = whole("blocks", "free", signed=True)
    if not problems:
        problems.extend(_contradictions(view, free, mapping(status, "eviction").get("usedPercent")))
    if problems:
        raise InputError(problem.under(where) for problem in problems)
    return view


def _contradictions(view: NodeSlackView, free: int, used_percent: object) -> list[Problem]:
    problems = []
    if view.block_size == 0:
        problems.append(Problem("status.blockSize", "is 0", "it is the bytes of one block, such as 536870912"))
    if view.capacity == 0:
        problems.append(Problem("status.memory.capacity", "is 0", "it is the node's memory in bytes"))
    if free != view.free:
        problems.append(Problem("status.blocks.free", f"is {free}, but total − lent is {view.free}"))
    if view.block_size and view.total * view.block_size > view.capacity:
        problems.append(Problem("status.blocks.total", f"is {view.total}: more bytes than the node has"))
    if used_percent is not None and (
        isinstance(used_percent, bool)
        or not isinstance(used_percent, int | float)
        or not math.isfinite(used_percent)
        or used_percent < 0
    ):
        problems.append(Problem("status.eviction.usedPercent", f"is {used_percent!r}", "it is a number of 0 or more"))
    return problems


def _problem(path: Sequence[str], value: object, expected: str) -> Problem:
    return Problem(".".join(("status", *path)), "is missing" if value is None else f"is {value!r}", f"it is {expected}")
