"""The operator's lending and eviction settings: ConfigMap ``slo-controller-config`` read into values.

Two keys hold JSON with Koordinator's field names: ``colocation-config`` (what is lent) and
``resource-threshold-config`` (when pods are evicted). The node agent, the validating webhook and ``slackwater lend`` /
``evict`` call :func:`parse_colocation`, then :meth:`ColocationPolicy.for_node`.

Rules:

* A key that is present follows its peer's rules: ``enable`` absent = off, ``memoryReclaimThresholdPercent`` absent
  = 65, ``memoryEvictThresholdPercent`` absent = 70, ``memoryEvictLowerPercent`` absent = two below the threshold.
* A key that is absent means Slackwater's own defaults: lending on with a margin of 10 %, eviction on at 95 / 93.
* The first ``nodeConfigs`` / ``nodeStrategies`` entry whose ``nodeSelector`` matches is merged over the cluster's
  values (a field that is set wins, also 0 and false); the rest are ignored. An entry without a selector matches
  nothing, an empty selector matches every node, one that cannot be read is skipped with a warning.
* Then the Node's own annotation ``node.koordinator.sh/colocation-strategy`` and label
  ``node.koordinator.sh/memory-reclaim-ratio`` override; where they cannot be read they are ignored with a warning.
* An unknown key is a warning, a value out of range an error with its path, and so is text that is not JSON.
"""

import difflib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any, TypeAlias

from slackwater import names
from slackwater.errors import InputError, Problem
from slackwater.node import NodeView
from slackwater.selectors import LabelSelector

OWN_RECLAIM_PERCENT = 90
"""Without a configuration 10 % of capacity stays unlent: room for a burst while an eviction runs."""
OWN_EVICT_THRESHOLD_PERCENT = 95
OWN_EVICT_LOWER_PERCENT = 93
"""Without a configuration: above what is lent (90 %), below where the kubelet itself evicts."""

PEER_RECLAIM_PERCENT = 65
PEER_EVICT_THRESHOLD_PERCENT = 70
PEER_EVICT_BUFFER_PERCENT = 2
PEER_DEGRADE_MINUTES = 15
_MAX_ALLOCATABLE_PRIORITY = 7999
"""Koordinator refuses more for ``allocatableEvictPriorityThreshold``: prod pods are never evicted for the ledger."""


class CalculatePolicy(StrEnum):
    """What an online pod counts for (``memoryCalculatePolicy``)."""

    USAGE = "usage"
    REQUEST = "request"
    MAX_USAGE_REQUEST = "maxUsageRequest"


@dataclass(frozen=True, slots=True)
class LendingStrategy:
    """What may be lent on one node. Percentages are of the node's capacity."""

    enabled: bool = True
    reclaim_percent: int = OWN_RECLAIM_PERCENT
    """``memoryReclaimThresholdPercent``; the margin is what is left to 100, and 0 above 100."""
    calculate_policy: CalculatePolicy = CalculatePolicy.USAGE
    batch_percent: int | None = None
    """``batchMemoryThresholdPercent``: an upper bound on what is lendable; None = none."""
    degrade_minutes: int = PEER_DEGRADE_MINUTES
    """``degradeTimeMinutes``: a reading older than this lends nothing new."""
    allow_second_lender: bool = False
    """``allowSecondLender`` (ours): lend although somebody else advertises ``kubernetes.io/batch-memory`` there."""

    @property
    def margin_percent(self) -> int:
        return max(0, 100 - self.reclaim_percent)


@dataclass(frozen=True, slots=True)
class AllocatableRule:
    """The ledger rule: blocks lent above ``threshold_percent`` of those lendable come back to ``lower_percent``."""

    threshold_percent: int
    lower_percent: int
    priority_threshold: int
    """Pods with a higher ``spec.priority`` are never chosen by this rule."""


@dataclass(frozen=True, slots=True)
class EvictionStrategy:
    """When pods of one node are evicted. Percentages are of the node's capacity."""

    enabled: bool = True
    threshold_percent: int = OWN_EVICT_THRESHOLD_PERCENT
    lower_percent: int = OWN_EVICT_LOWER_PERCENT
    priority_threshold: int | None = None
    """``evictEnabledPriorityThreshold``: pods with a higher ``spec.priority`` are never chosen; None = no such bound,
    and then only best-effort pods are."""
    allocatable: AllocatableRule | None = None


@dataclass(frozen=True, slots=True)
class NodePolicy:
    """What holds for one node, and what was doubtful about it."""

    lending: LendingStrategy = field(default_factory=LendingStrategy)
    eviction: EvictionStrategy = field(default_factory=EvictionStrategy)
    warnings: tuple[str, ...] = ()


_DECIMAL = re.compile(r"\+?([0-9]{1,9}(\.[0-9]{0,30})?|\.[0-9]{1,30})", re.ASCII)
"""A ratio as people write it; no exponents, which could make a number of any length."""
_Values: TypeAlias = Mapping[str, Any]
"""Fields that were set, already checked, by their JSON names."""


@dataclass(frozen=True, slots=True)
class _NodeEntry:
    """One element of ``nodeConfigs`` or ``nodeStrategies``; ``selector`` None matches nothing."""

    selector: LabelSelector | None
    values: _Values


@dataclass(frozen=True, slots=True)
class ColocationPolicy:
    """The whole configuration; ask it for one node's values."""

    lending: LendingStrategy = field(default_factory=LendingStrategy)
    eviction: EvictionStrategy = field(default_factory=EvictionStrategy)
    lending_values: _Values = field(default_factory=dict)
    eviction_values: _Values | None = None
    """Cluster fields that were set; None where ``resource-threshold-config`` is absent."""
    node_configs: tuple[_NodeEntry, ...] = ()
    node_strategies: tuple[_NodeEntry, ...] = ()

    def for_node(self, node: NodeView) -> NodePolicy:
        """The values that hold for ``node``, by its labels and annotations."""
        warnings: list[str] = []
        values = {**self.lending_values, **_first_match(self.node_configs, node)}
        values |= _annotation_values(node, warnings)
        percent = _reclaim_label_percent(node, warnings)
        if percent is not None:
            values["memoryReclaimThresholdPercent"] = percent
        lending = _lending(self.lending, values)
        if lending.reclaim_percent > 100:
            warnings.append(
                f"memoryReclaimThresholdPercent is {lending.reclaim_percent}, so that the margin is 0; use 100 or less"
            )
        eviction = self.eviction
        if self.eviction_values is not None:
            eviction, doubts = _eviction({**self.eviction_values, **_first_match(self.node_strategies, node)})
            warnings.extend(doubts)
        return NodePolicy(lending, eviction, tuple(warnings))


DEFAULT_POLICY = ColocationPolicy()
"""What holds where there is no ConfigMap."""


def parse_colocation(data: Mapping[str, Any] | None) -> tuple[ColocationPolicy, tuple[Problem, ...]]:
    """Read the ConfigMap's ``data`` (None: there is no ConfigMap); gives the policy and the warnings.

    Paths of problems start with the key: ``colocation-config.nodeConfigs[0].enable``.

    Raises:
        InputError: text that is not JSON, a value of the wrong type or out of range; every one is named.
    """
    data = data or {}
    reader = _Reader()
    reader.unknown(data, "", (names.SLO_COLOCATION_KEY, names.SLO_THRESHOLD_KEY, *_PEER_KEYS))
    policy = DEFAULT_POLICY
    if names.SLO_COLOCATION_KEY in data:
        key = names.SLO_COLOCATION_KEY
        document = reader.document(data[key], key)
        values = reader.fields(document, key, _LENDING_FIELDS, known=(*_LENDING_IGNORED, "nodeConfigs"))
        policy = replace(
            policy,
            lending=LendingStrategy(enabled=False, reclaim_percent=PEER_RECLAIM_PERCENT),
            lending_values=values,
            node_configs=reader.entries(document, key, "nodeConfigs", _LENDING_FIELDS, _LENDING_IGNORED),
        )
    if names.SLO_THRESHOLD_KEY in data:
        key = names.SLO_THRESHOLD_KEY
        document = reader.document(data[key], key)
        reader.unknown(document, key, ("clusterStrategy", "nodeStrategies"))
        where = f"{key}.clusterStrategy"
        cluster = reader.mapping(document.get("clusterStrategy"), where)
        values = reader.fields(cluster, where, _EVICTION_FIELDS, known=_EVICTION_IGNORED)
        strategies = reader.entries(document, key, "nodeStrategies", _EVICTION_FIELDS, _EVICTION_IGNORED)
        reader.problems.extend(_eviction_conflicts(values, where))
        for index, entry in enumerate(strategies):
            merged = {**values, **entry.values}
            reader.problems.extend(_eviction_conflicts(merged, f"{key}.nodeStrategies[{index}]"))
        policy = replace(policy, eviction_values=values, node_strategies=strategies)
    if reader.problems:
        raise InputError(dict.fromkeys(reader.problems))
    return policy, tuple(reader.warnings)


# -- from fields to strategies ------------------------------------------------------------------------


def _lending(base: LendingStrategy, values: _Values) -> LendingStrategy:
    return LendingStrategy(
        enabled=values.get("enable", base.enabled),
        reclaim_percent=values.get("memoryReclaimThresholdPercent", base.reclaim_percent),
        calculate_policy=CalculatePolicy(values.get("memoryCalculatePolicy", base.calculate_policy)),
        batch_percent=values.get("batchMemoryThresholdPercent", base.batch_percent),
        degrade_minutes=values.get("degradeTimeMinutes", base.degrade_minutes),
        allow_second_lender=values.get("allowSecondLender", base.allow_second_lender),
    )


def _thresholds(values: _Values) -> tuple[int, int]:
    threshold = values.get("memoryEvictThresholdPercent", PEER_EVICT_THRESHOLD_PERCENT)
    return threshold, values.get("memoryEvictLowerPercent", max(0, threshold - PEER_EVICT_BUFFER_PERCENT))


def _eviction(values: _Values) -> tuple[EvictionStrategy, list[str]]:
    threshold, lower = _thresholds(values)
    rule, warnings = _allocatable_rule(values)
    strategy = EvictionStrategy(
        enabled=values.get("enable", False),
        threshold_percent=threshold,
        lower_percent=lower,
        priority_threshold=values.get("evictEnabledPriorityThreshold"),
        allocatable=rule,
    )
    return strategy, warnings


def _allocatable_rule(values: _Values) -> tuple[AllocatableRule | None, list[str]]:
    """Koordinator needs all three fields and otherwise leaves the rule out; so do we, but we say so."""
    required = (
        "memoryAllocatableEvictThresholdPercent",
        "memoryAllocatableEvictLowerPercent",
        "allocatableEvictPriorityThreshold",
    )
    missing = [name for name in required if name not in values]
    if not missing:
        return AllocatableRule(*(values[name] for name in required)), []
    if len(missing) == len(required):
        return None, []
    return None, [
        f"resource-threshold-config: the memoryAllocatableEvict rule is off without {' and '.join(missing)};"
        " set all three fields or none"
    ]


def _eviction_conflicts(values: _Values, where: str) -> list[Problem]:
    """Settings that contradict each other after merging."""
    problems = []
    threshold, lower = _thresholds(values)
    if "memoryEvictLowerPercent" in values and lower >= threshold:
        problems.append(
            Problem(
                f"{where}.memoryEvictLowerPercent",
                f"is {lower}, not below memoryEvictThresholdPercent {threshold}",
                "set it lower than the threshold, or leave it out for two below",
            )
        )
    upper_name, lower_name = "memoryAllocatableEvictThresholdPercent", "memoryAllocatableEvictLowerPercent"
    if upper_name in values and lower_name in values and values[lower_name] >= values[upper_name]:
        problems.append(
            Problem(
                f"{where}.{lower_name}",
                f"is {values[lower_name]}, not below {upper_name} {values[upper_name]}",
                "set it lower than the threshold",
            )
        )
    return problems


def _first_match(entries: Sequence[_NodeEntry], node: NodeView) -> _Values:
    for entry in entries:
        if entry.selector is not None and entry.selector.matches(node.labels):
            return entry.values
    return {}


def _annotation_values(node: NodeView, warnings: list[str]) -> _Values:
    text = node.annotations.get(names.KOORDINATOR_STRATEGY_ANNOTATION)
    if text is None:
        return {}
    reader = _Reader()
    where = f"annotation {names.KOORDINATOR_STRATEGY_ANNOTATION}"
    values = reader.fields(reader.document(text, where), where, _LENDING_FIELDS, known=_LENDING_IGNORED)
    warnings.extend(f"{problem} (this part is ignored)" for problem in reader.problems)
    warnings.extend(str(problem) for problem in reader.warnings)
    return values


def _reclaim_label_percent(node: NodeView, warnings: list[str]) -> int | None:
    """The ratio as a whole percentage, cut as Koordinator cuts it, but without its binary rounding (0.29 is 29)."""
    text = node.labels.get(names.KOORDINATOR_RECLAIM_RATIO_LABEL)
    if text is None:
        return None
    ratio = Fraction(text) if _DECIMAL.fullmatch(text) else None
    if ratio is None:
        warnings.append(
            f"label {names.KOORDINATOR_RECLAIM_RATIO_LABEL} is {text!r} and is ignored; write a ratio such as 0.65"
        )
        return None
    return int(ratio * 100)


# -- from JSON to fields ------------------------------------------------------------------------------

_Check: TypeAlias = Callable[[Any], Any]
"""Gives the value, or raises ValueError with (what is wrong, what to do)."""


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"is {json.dumps(value)}, not true or false", "write true or false without quotes")  # noqa: TRY004
    return value


def _whole(low: int, high: int | None = None) -> _Check:
    def check(value: Any) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"is {json.dumps(value)}, not a whole number", f"write {_range_text(low, high)}")  # noqa: TRY004
        if value < low or (high is not None and value > high):
            raise ValueError(f"is {value}, out of range", f"write {_range_text(low, high)}")
        return value

    return check


def _range_text(low: int, high: int | None) -> str:
    return f"a whole number of {low} or more" if high is None else f"a whole number from {low} to {high}"


def _share(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 1:
        raise ValueError(f"is {json.dumps(value)}, out of range", "write a number above 0, at most 1")
    return float(value)


def _policy(value: Any) -> CalculatePolicy:
    if value not in tuple(CalculatePolicy):
        raise ValueError(f"is {json.dumps(value)}", f"use one of {', '.join(CalculatePolicy)}")
    return CalculatePolicy(value)


_PEER_KEYS = (
    "resource-qos-config",
    "cpu-burst-config",
    "system-config",
    "host-application-config",
    "cpu-normalization-config",
    "resource-amplification-config",
)
"""Koordinator's other keys of the ConfigMap: known, and without a meaning here."""
_INT32 = (-(2**31), 2**31 - 1)
_LENDING_FIELDS: dict[str, _Check] = {
    "enable": _boolean,
    "memoryReclaimThresholdPercent": _whole(0),
    "memoryCalculatePolicy": _policy,
    "batchMemoryThresholdPercent": _whole(0),
    "degradeTimeMinutes": _whole(1),
    "updateTimeThresholdSeconds": _whole(1),
    "resourceDiffThreshold": _share,
    "metricAggregateDurationSeconds": _whole(1),
    "metricReportIntervalSeconds": _whole(1),
    "allowSecondLender": _boolean,
}
_LENDING_IGNORED = (
    "metricAggregatePolicy", "metricMemoryCollectPolicy", "cpuReclaimThresholdPercent", "cpuCalculatePolicy",
    "midReclaimMode", "midCPUThresholdPercent", "midMemoryThresholdPercent", "midUnallocatedPercent",
    "midStaticCPUReservedPercent", "midStaticMemoryReservedPercent", "batchCPUThresholdPercent", "extensions",
)  # fmt: skip
"""Koordinator's fields about processors, the mid band and its own collectors: known, and without a meaning here."""
_EVICTION_FIELDS: dict[str, _Check] = {
    "enable": _boolean,
    "memoryEvictThresholdPercent": _whole(0, 100),
    "memoryEvictLowerPercent": _whole(0, 100),
    "evictEnabledPriorityThreshold": _whole(*_INT32),
    "memoryAllocatableEvictThresholdPercent": _whole(0),
    "memoryAllocatableEvictLowerPercent": _whole(0),
    "allocatableEvictPriorityThreshold": _whole(_INT32[0], _MAX_ALLOCATABLE_PRIORITY),
}
_EVICTION_IGNORED = (
    "cpuSuppressThresholdPercent", "cpuSuppressMinPercent", "cpuSuppressPolicy", "cpuEvictBESatisfactionUpperPercent",
    "cpuEvictBESatisfactionLowerPercent", "cpuEvictBEUsageThresholdPercent", "cpuEvictTimeWindowSeconds",
    "cpuEvictPolicy", "cpuEvictThresholdPercent", "cpuEvictLowerPercent", "cpuAllocatableEvictThresholdPercent",
    "cpuAllocatableEvictLowerPercent",
)  # fmt: skip


class _Reader:
    """Collects every problem and warning while fields are read."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []

    def document(self, text: Any, where: str) -> Mapping[str, Any]:
        if not isinstance(text, str):
            self.problems.append(Problem(where, f"is {type(text).__name__}, not text", "write the JSON as a string"))
            return {}
        try:
            return self.mapping(json.loads(text, parse_constant=_refuse_constant), where)
        except (ValueError, RecursionError) as error:
            self.problems.append(Problem(where, f"is not JSON: {error}", "write one JSON object"))
            return {}

    def mapping(self, value: Any, where: str) -> Mapping[str, Any]:
        if value is None:
            return {}
        if isinstance(value, Mapping):
            return value
        self.problems.append(Problem(where, f"is {json.dumps(value)[:64]}, not an object", "write {...}"))
        return {}

    def unknown(self, raw: Mapping[str, Any], where: str, known: Sequence[str]) -> None:
        for key in raw:
            if key not in known:
                close = difflib.get_close_matches(key, known, n=1)
                remedy = f"did you mean {close[0]}?" if close else "remove it, or check its spelling"
                what = "is not a known field and has no effect"
                self.warnings.append(Problem(f"{where}.{key}" if where else str(key), what, remedy))

    def fields(
        self, raw: Mapping[str, Any], where: str, checks: Mapping[str, _Check], known: Sequence[str] = ()
    ) -> _Values:
        """The fields of ``raw`` that are set and usable; null counts as not set."""
        self.unknown(raw, where, (*checks, *known))
        values = {}
        for name, check in checks.items():
            if raw.get(name) is None:
                continue
            try:
                values[name] = check(raw[name])
            except ValueError as error:
                what, remedy = error.args
                self.problems.append(Problem(f"{where}.{name}", what, remedy))
        return values

    def entries(
        self, raw: Mapping[str, Any], where: str, name: str, checks: Mapping[str, _Check], known: Sequence[str]
    ) -> tuple[_NodeEntry, ...]:
        elements = raw.get(name)
        if elements is None:
            return ()
        if not isinstance(elements, list):
            self.problems.append(Problem(f"{where}.{name}", "is not a list", "write [...]"))
            return ()
        return tuple(
            self._entry(self.mapping(element, f"{where}.{name}[{index}]"), f"{where}.{name}[{index}]", checks, known)
            for index, element in enumerate(elements)
        )

    def _entry(
        self, raw: Mapping[str, Any], where: str, checks: Mapping[str, _Check], known: Sequence[str]
    ) -> _NodeEntry:
        values = self.fields(raw, where, checks, known=(*known, "name", "nodeSelector"))
        if raw.get("nodeSelector") is None:
            self.warnings.append(
                Problem(f"{where}.nodeSelector", "is missing, so that this entry matches no node", "write matchLabels")
            )
            return _NodeEntry(None, values)
        try:
            return _NodeEntry(LabelSelector.parse(raw["nodeSelector"], f"{where}.nodeSelector"), values)
        except InputError as error:
            self.warnings.extend(
                replace(problem, what=f"{problem.what}, so that this entry matches no node")
                for problem in error.problems
            )
            return _NodeEntry(None, values)


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not a JSON number")
