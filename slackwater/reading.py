"""What was measured on one node: a ``MemoryReading``, and which pod each of its samples belongs to.

The node agent makes readings from cgroups and ``/proc/meminfo``; the command line reads them from files. The sums of
:mod:`slackwater.headroom` and the choice of :mod:`slackwater.victims` are computed from them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from slackwater import names
from slackwater.errors import InputError, Problem
from slackwater.objects import RawObject, mapping, text
from slackwater.pod import PodView
from slackwater.quantity import QuantityError, parse_bytes
from slackwater.timestamps import parse_time

KIND = "MemoryReading"
_EXAMPLE = "write an amount such as 120G or 512Mi"


@dataclass(frozen=True, slots=True)
class NumaReading:
    """One NUMA node, in bytes; ``used`` without page cache that can be dropped."""

    id: int
    capacity: int
    used: int


@dataclass(frozen=True, slots=True)
class PodSample:
    """What one pod uses, in bytes without droppable cache; found by ``uid`` where it is given, else by name."""

    uid: str | None
    namespace: str
    name: str
    used: int
    numa: tuple[tuple[int, int], ...] = ()
    """(NUMA node id, bytes of this pod there), where that was measured."""

    @property
    def label(self) -> str:
        """How to name this sample in a sentence."""
        return f"{self.namespace}/{self.name}" if self.name else f"uid {self.uid}"


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """One node's memory at ``time``, in bytes."""

    node: str
    time: datetime
    capacity: int
    used: int
    available: int | None = None
    """The kernel's ``MemAvailable`` (free memory and cache that can be dropped). Where it is given it decides."""
    system_reserved: int | None = None
    """What is set aside for the system, if the reader knows better than the Node object."""
    numa: tuple[NumaReading, ...] = ()
    pods: tuple[PodSample, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def in_use(self) -> int:
        """Memory that cannot be had by dropping cache: capacity − available, or ``used`` where that is not known."""
        return self.used if self.available is None else max(0, self.capacity - self.available)


@dataclass(frozen=True, slots=True)
class SampledPod:
    """A pod of the node and its sample; None where it has none (not started, or not measured yet)."""

    pod: PodView
    sample: PodSample | None

    @property
    def used(self) -> int | None:
        return None if self.sample is None else self.sample.used


@dataclass(frozen=True, slots=True)
class Attribution:
    """The node's pods with their samples, ordered by namespace and name, and the samples that no pod owns."""

    pods: tuple[SampledPod, ...]
    unlisted: tuple[PodSample, ...]
    warnings: tuple[str, ...]


def attribute(reading: MemoryReading, pods: Sequence[PodView]) -> Attribution:
    """Give each sample to its pod.

    A pod is of this node if it is bound to it, or if it is bound nowhere but was measured here. A sample whose uid is
    another than the listed pod's is of an earlier pod of that name, and unlisted. Warnings name unlisted samples and
    pods whose class is doubtful.
    """
    by_uid = {pod.uid: pod for pod in pods if pod.uid}
    by_name = {(pod.namespace, pod.name): pod for pod in pods}
    owned: dict[tuple[str, str], PodSample] = {}
    unlisted: list[PodSample] = []
    warnings: list[str] = []
    for sample in reading.pods:
        pod = by_uid.get(sample.uid) if sample.uid else None
        if pod is None and sample.name:
            namesake = by_name.get((sample.namespace, sample.name))
            if namesake is not None and (not sample.uid or not namesake.uid):
                pod = namesake
        doubt = ""
        if pod is None:
            doubt = "no such pod is listed"
        elif pod.node_name not in ("", reading.node):
            doubt = f"that pod is bound to node {pod.node_name}"
        elif (pod.namespace, pod.name) in owned:
            doubt = "that pod has another sample already"
        if pod is None or doubt:
            unlisted.append(sample)
            warnings.append(
                f"reading of node {reading.node}: the sample of {sample.label} counts as online, because {doubt}"
            )
        else:
            owned[pod.namespace, pod.name] = sample
    present = sorted(
        (pod for pod in pods if pod.node_name == reading.node or (not pod.node_name and _name(pod) in owned)), key=_name
    )
    warnings.extend(f"pod {pod.key}: {warning}" for pod in present for warning in pod.qos_warnings)
    return Attribution(
        tuple(SampledPod(pod, owned.get(_name(pod))) for pod in present), tuple(unlisted), tuple(warnings)
    )


def _name(pod: PodView) -> tuple[str, str]:
    return (pod.namespace, pod.name)


# -- reading a document -------------------------------------------------------------------------------


def read_reading(raw: RawObject, where: str = "") -> MemoryReading:
    """Read a ``MemoryReading`` document: amounts are Kubernetes quantities, ``time`` is RFC 3339.

    Raises:
        InputError: naming every field that is missing or cannot be used.
    """
    fields = _Fields()
    fields.unknown(raw, "", ("apiVersion", "kind", "metadata", "time", "node", "pods"))
    if raw.get("apiVersion") != names.API_VERSION:
        fields.problem("apiVersion", f"is {raw.get('apiVersion')!r}", f"write {names.API_VERSION}")
    name = text(raw, "metadata", "name")
    if not name:
        fields.problem("metadata.name", "is missing", "name the node that was measured")
    node = mapping(raw, "node")
    if not node:
        fields.problem("node", "is missing", "write node: {capacity: 120G, used: 80G}")
    fields.unknown(node, "node.", ("capacity", "used", "available", "systemReserved", "numa"))
    capacity = fields.amount(node, "node.", "capacity", required=bool(node))
    available = fields.amount(node, "node.", "available")
    used = fields.amount(node, "node.", "used", required=bool(node) and available is None)
    if capacity == 0:
        fields.problem("node.capacity", "is 0", _EXAMPLE)
    if capacity is not None and available is not None and available > capacity:
        fields.problem("node.available", f"is {available}, more than the capacity {capacity}", "check the units")
    if capacity and used is not None and used > capacity:
        fields.warnings.append(f"node.used is {used}, more than the capacity {capacity}; check the units")
    reading = MemoryReading(
        node=name,
        time=fields.time(raw, "time"),
        capacity=capacity or 0,
        used=used if used is not None else max(0, (capacity or 0) - (available or 0)),
        available=available,
        system_reserved=fields.amount(node, "node.", "systemReserved"),
        numa=tuple(_read_numa(item, path, fields) for item, path in fields.items(node, "node.", "numa")),
        pods=tuple(_read_sample(item, path, fields) for item, path in fields.items(raw, "", "pods")),
        warnings=tuple(fields.warnings),
    )
    _refuse_repeats("node.numa", [str(numa.id) for numa in reading.numa], fields)
    _refuse_repeats("pods", [sample.uid or sample.label for sample in reading.pods], fields)
    if fields.problems:
        raise InputError(problem.under(where) for problem in fields.problems)
    return reading


def _read_numa(raw: RawObject, path: str, fields: "_Fields") -> NumaReading:
    fields.unknown(raw, f"{path}.", ("id", "capacity", "used"))
    return NumaReading(
        id=fields.identifier(raw, path),
        capacity=fields.amount(raw, f"{path}.", "capacity", required=True) or 0,
        used=fields.amount(raw, f"{path}.", "used", required=True) or 0,
    )


def _read_sample(raw: RawObject, path: str, fields: "_Fields") -> PodSample:
    fields.unknown(raw, f"{path}.", ("uid", "namespace", "name", "used", "numa"))
    if not text(raw, "uid") and not text(raw, "name"):
        fields.problem(path, "has neither uid nor name", "name the pod: namespace and name, or uid")
    places = []
    for item, place in fields.items(raw, f"{path}.", "numa"):
        used = fields.amount(item, f"{place}.", "used", required=True) or 0
        places.append((fields.identifier(item, place), used))
    return PodSample(
        uid=text(raw, "uid") or None,
        namespace=text(raw, "namespace") or "default",
        name=text(raw, "name"),
        used=fields.amount(raw, f"{path}.", "used", required=True) or 0,
        numa=tuple(places),
    )


def _refuse_repeats(path: str, keys: Sequence[str], fields: "_Fields") -> None:
    for key in sorted({key for key in keys if keys.count(key) > 1}):
        fields.problem(path, f"has {key} twice", "keep one entry")


class _Fields:
    """Reads fields and collects every problem."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.warnings: list[str] = []

    def problem(self, where: str, what: str, remedy: str) -> None:
        self.problems.append(Problem(where, what, remedy))

    def unknown(self, raw: RawObject, prefix: str, known: Sequence[str]) -> None:
        self.warnings.extend(
            f"{prefix}{key} is not a field of a {KIND} and has no effect" for key in raw if key not in known
        )

    def amount(self, raw: RawObject, prefix: str, key: str, *, required: bool = False) -> int | None:
        value: Any = raw.get(key)
        if value is None:
            if required:
                self.problem(f"{prefix}{key}", "is missing", _EXAMPLE)
            return None
        try:
            amount = parse_bytes(value)
        except QuantityError as error:
            self.problem(f"{prefix}{key}", str(error), "")
            return None
        if amount < 0:
            self.problem(f"{prefix}{key}", f"is {value}, below 0", _EXAMPLE)
            return None
        return amount

    def identifier(self, raw: RawObject, path: str) -> int:
        value = raw.get("id")
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            self.problem(f"{path}.id", f"is {value!r}", "write the number of the NUMA node, such as 0")
            return -1
        return value

    def time(self, raw: RawObject, key: str) -> datetime:
        try:
            return parse_time(raw.get(key))
        except ValueError as error:
            self.problem(key, str(error) if key in raw else "is missing", "write it like 2026-01-01T00:00:00Z")
            return parse_time("1970-01-01T00:00:00Z")

    def items(self, raw: RawObject, prefix: str, key: str) -> list[tuple[RawObject, str]]:
        value = raw.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            self.problem(f"{prefix}{key}", f"is {value!r}", "write a list")
            return []
        found: list[tuple[RawObject, str]] = []
        for index, item in enumerate(value):
            if isinstance(item, Mapping):
                found.append((item, f"{prefix}{key}[{index}]"))
            else:
                self.problem(f"{prefix}{key}[{index}]", f"is {item!r}", "write {key: value, ...}")
        return found
