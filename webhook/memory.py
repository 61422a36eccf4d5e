"""Memory of a best-effort pod into blocks of lent memory. Pure.

Theory of operation
-------------------
Lent memory is an extended resource counted in whole blocks, held by app containers only: a kubelet that restarts cannot
give an init container its device back and would fail the pod. So:

* An app container's memory is its limit, where there is one, else its request, rounded up to blocks. Its plain limit
  becomes blocks × block, so that the kubelet puts the cgroup limit in force before the first process runs, and its
  plain request an explicit ``"0"``: absent, the API server would copy the limit into it and count the memory twice.
* Everything else that runs in the pod's cgroup must fit into the blocks too: sidecars beside the app containers, init
  containers before them (KEP-753), the runtime's overhead, memory stated for the whole pod (KEP-2837). What the app
  containers' blocks do not cover is added to the first of them.
* A container without blocks keeps its own limit, or gets the pod's blocks × block: the kubelet limits a pod's cgroup
  only where every container has a limit.
* Values that LimitRanger filled in say nothing about what the owner wanted.

A pod that was translated before comes out as it is: an explicit request of ``"0"`` beside an app container that holds
blocks says that this container's memory (and the overhead) has been counted already.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from slackwater import names
from slackwater.errors import InputError, Problem
from slackwater.objects import mapping, string_map, text
from slackwater.policy.profile import CpuRule
from slackwater.quantity import QuantityError, format_bytes, format_quantity, parse_bytes, parse_quantity

_CPU_SHARE = "10m"
"""Enough for a cgroup weight above the floor, too little to keep a pod from any node."""
_FILLED = re.compile(
    r"(?P<resources>.+) (?P<kind>request|limit) for (?P<section>init container|container) (?P<name>.+)"
)
_LIMIT_RANGER_PREFIX = "LimitRanger plugin set: "


@dataclass(frozen=True, slots=True)
class Translation:
    """What became of a pod's memory: blocks in all, and sentences for people."""

    blocks: int
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Stated:
    """A container and the memory that its owner stated, in bytes (None = not stated)."""

    container: dict[str, Any]
    name: str
    is_sidecar: bool
    limit: int | None
    request: int | None
    requests_zero: bool
    """An explicit request of 0."""
    blocks: int
    """Bytes of the blocks that it asks for itself."""

    @property
    def memory(self) -> int:
        return self.limit or max(self.request or 0, self.blocks)


def translate(pod: dict[str, Any], block_size: int, cpu: CpuRule) -> Translation:
    """Write blocks into the containers of ``pod`` (a pod or a pod template, changed in place).

    Args:
        block_size: bytes of one block.

    Raises:
        InputError: a quantity that is none, by field path.
    """
    problems: list[Problem] = []
    filled = _filled_by_limit_ranger(pod)
    sent_size = _block_size_sent(pod) or block_size
    apps = _read_containers(pod, "containers", filled, sent_size, problems)
    inits = _read_containers(pod, "initContainers", filled, sent_size, problems)
    pod_level = _read_stated(mapping(pod, "spec"), "spec", "", frozenset(), sent_size, problems)
    overhead = _bytes(mapping(pod, "spec", "overhead").get("memory"), "spec.overhead.memory", problems) or 0
    if problems:
        raise InputError(problems)
    if not apps:
        return Translation(0, (), ("the pod has no containers to hold blocks",))

    # 1. what each app container holds by its own statement
    counted = any(app.blocks and app.requests_zero for app in apps)
    held_as_sent = sum(app.blocks for app in apps)
    memory = [0 if counted and _is_guest(app, held_as_sent) else app.memory for app in apps]
    blocks = [-(-amount // block_size) for amount in memory]
    stated = sum(blocks) > 0

    # 2. what the whole pod needs, and the first container holds for the rest
    extra = [0 if counted and other.requests_zero else other.memory for other in inits]
    whole = 0 if counted and pod_level.requests_zero else pod_level.memory
    needed = max(sum(memory) + _beside(inits, extra), _peak_before(inits, extra), whole) + (0 if counted else overhead)
    covered = max(sum(blocks), 0 if stated else 1)
    added = max(-(-needed // block_size), covered) - sum(blocks)
    blocks[0] += added
    held = sum(blocks) * block_size

    # 3. write it down
    reasons = [
        f"container {app.name} gets {_blocks(count, block_size)} for {format_bytes(amount)} of memory"
        for app, amount, count in zip(apps, memory, blocks, strict=True)
        if count
    ]
    warnings = []
    if not stated and not whole:
        warnings.append(f"no container states any memory; {apps[0].name} gets {_blocks(blocks[0], block_size)}")
    elif added:
        reasons.append(
            f"{_blocks(added, block_size)} of {apps[0].name} cover what the pod's other memory needs: "
            f"{format_bytes(needed)} with init containers, sidecars, overhead and resources of the whole pod"
        )
    for app, count in zip(apps, blocks, strict=True):
        _write(app, count, block_size, held)
    for init in inits:
        _write(init, 0, block_size, held)
    resources = mapping(pod, "spec", "resources")
    if any("memory" in mapping(resources, kind) for kind in ("requests", "limits")):
        _write(pod_level, 0, block_size, held, is_pod=True)
    if cpu is not CpuRule.KEEP:
        for other in (*apps, *inits, pod_level):
            _write_cpu(other.container, cpu)
    return Translation(sum(blocks), tuple(reasons), tuple(warnings))


def _is_guest(app: _Stated, held: int) -> bool:
    """An app container that an earlier pass left without blocks, under the limit of the pod's."""
    return app.requests_zero and not app.blocks and (app.limit or 0) <= held


def _beside(inits: list[_Stated], memory: list[int]) -> int:
    """Memory of the sidecars."""
    return sum(amount for init, amount in zip(inits, memory, strict=True) if init.is_sidecar)


def _peak_before(inits: list[_Stated], memory: list[int]) -> int:
    """The most that runs before the app containers: an init container with the sidecars started before it."""
    peak = sidecars = 0
    for init, amount in zip(inits, memory, strict=True):
        peak = max(peak, sidecars + amount)
        if init.is_sidecar:
            sidecars += amount
    return peak


def _blocks(count: int, block_size: int) -> str:
    return f"{count} block{'s' * (count != 1)} of {format_bytes(block_size)}"


# -- reading ----------------------------------------------------------------------------------------------


def _read_containers(
    pod: dict[str, Any], section: str, filled: frozenset[tuple[str, str, str]], size: int, problems: list[Problem]
) -> list[_Stated]:
    containers = mapping(pod, "spec").get(section)
    if not isinstance(containers, list):
        return []
    return [
        _read_stated(container, f"spec.{section}[{index}]", section, filled, size, problems)
        for index, container in enumerate(containers)
        if isinstance(container, dict)
    ]


def _read_stated(
    container: Any,
    where: str,
    section: str,
    filled: frozenset[tuple[str, str, str]],
    size: int,
    problems: list[Problem],
) -> _Stated:
    name = text(container, "name")

    def amount(kind: str, resource: str) -> int | None:
        value = mapping(container, "resources", kind).get(resource)
        return _bytes(value, f"{where}.resources.{kind}[{resource}]", problems)

    request, limit = amount("requests", "memory"), amount("limits", "memory")
    blocks = max(amount("requests", names.RESOURCE) or 0, amount("limits", names.RESOURCE) or 0)
    return _Stated(
        container=container,
        name=name,
        is_sidecar=text(container, "restartPolicy") == "Always",
        limit=None if (section, name, "limit") in filled else limit,
        request=None if (section, name, "request") in filled else request,
        requests_zero=request == 0,
        blocks=blocks * size,
    )


def _bytes(value: Any, where: str, problems: list[Problem]) -> int | None:
    if value is None:
        return None
    try:
        amount = parse_bytes(value)
    except QuantityError as error:
        problems.append(Problem(where, str(error)))
        return None
    if amount < 0:
        problems.append(Problem(where, f"is {value}", "write 0 or more"))
    return amount


def _block_size_sent(pod: Mapping[str, Any]) -> int:
    """Bytes of a block when the pod's own blocks were written, or 0."""
    value = string_map(pod, "metadata", "annotations").get(names.BLOCK_SIZE_ANNOTATION, "")
    return int(value) if value.isascii() and value.isdecimal() and len(value) < 16 else 0


def _filled_by_limit_ranger(pod: Mapping[str, Any]) -> frozenset[tuple[str, str, str]]:
    """(section, container, ``request`` or ``limit``) of the memory values that LimitRanger says it filled in."""
    said = string_map(pod, "metadata", "annotations").get(names.LIMIT_RANGER_ANNOTATION, "")
    found = set()
    for part in said.removeprefix(_LIMIT_RANGER_PREFIX).split("; "):
        match = _FILLED.fullmatch(part)
        if match and "memory" in match["resources"].split(", "):
            section = "initContainers" if match["section"] == "init container" else "containers"
            found.add((section, match["name"], match["kind"]))
    return frozenset(found)


# -- writing ----------------------------------------------------------------------------------------------


def _write(stated: _Stated, blocks: int, block_size: int, held: int, *, is_pod: bool = False) -> None:
    requests, limits = _resources(stated.container)
    if blocks:
        requests[names.RESOURCE] = limits[names.RESOURCE] = _count(blocks)
        limits["memory"] = format_quantity(blocks * block_size)
    else:
        requests.pop(names.RESOURCE, None)
        limits.pop(names.RESOURCE, None)
        if is_pod or not stated.limit or stated.limit > held:
            limits["memory"] = format_quantity(held)
    requests["memory"] = "0"


def _write_cpu(container: dict[str, Any], rule: CpuRule) -> None:
    given = mapping(container, "resources")
    if not any("cpu" in mapping(given, kind) for kind in ("requests", "limits")):
        return
    requests, limits = _resources(container)
    if rule is CpuRule.DROP:
        requests.pop("cpu", None)
        limits.pop("cpu", None)
    else:
        limit = limits.get("cpu")
        requests["cpu"] = limit if limit is not None and _less_than_share(limit) else _CPU_SHARE


def _less_than_share(limit: Any) -> bool:
    try:
        return Fraction(0) < parse_quantity(limit) < parse_quantity(_CPU_SHARE)
    except QuantityError:
        return False


def _resources(container: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The requests and limits of a container, made where they are absent."""
    resources = _made(container, "resources")
    return _made(resources, "requests"), _made(resources, "limits")


def _made(parent: dict[str, Any], key: str) -> dict[str, Any]:
    value = parent.get(key)
    if not isinstance(value, dict):
        value = parent[key] = {}
    return value


def _count(number: int) -> str:
    """A count as the API server prints it (``1k`` for 1000), so that a second pass finds what the first one wrote."""
    suffixes = ("", "k", "M", "G")
    power = 0
    while number % 1000 == 0 and power < len(suffixes) - 1:
        number //= 1000
        power += 1
    return f"{number}{suffixes[power]}"
