"""Which memory limits of a colocated pod are not what its blocks say.

The kubelet puts them in force before the first process runs (the webhook writes them as plain limits); what is found
here is drift: somebody else's write, a unit that systemd reset, a pod that came past the webhook.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from slackwater.pod import PodView
from slackwater.quantity import format_bytes

POD: Final = ""
"""Stands for the pod's own cgroup where a container's name would."""
_PAGE: Final = 64 * 1024
"""The largest page size: the kernel rounds limits to its own, so nearer than this is equal."""
SETTLE_S: Final = 1.0
"""A cgroup exists a moment before the kubelet or the runtime has written its limit: look again before repairing."""


@dataclass(frozen=True, slots=True)
class Observed:
    """The limit in force on one cgroup of a pod (None = no limit) and how long we have known the cgroup."""

    container: str
    limit: int | None
    known_for_s: float


@dataclass(frozen=True, slots=True)
class Repair:
    """One limit to write, in bytes."""

    container: str
    expected: int
    actual: int | None

    @property
    def is_lowering(self) -> bool:
        return self.actual is None or self.expected < self.actual


def expected_limits(pod: PodView, block_size: int) -> dict[str, int]:
    """Bytes by container name, and for the pod itself under :data:`POD`; empty for a pod that is not colocated.

    A container that holds blocks is limited to them, or to its own plain limit where that is lower; one that holds none
    to its plain limit, if any. The pod is limited to the blocks of all its containers.
    """
    if not pod.is_be or pod.blocks == 0 or pod.is_finished:
        return {}
    size = pod.block_size(block_size)
    limits = {POD: pod.blocks * size}
    for container in (*pod.containers, *pod.init_containers):
        bounds = [container.blocks * size] if container.blocks else []
        if container.memory_limit:
            bounds.append(container.memory_limit)
        if bounds:
            limits[container.name] = min(bounds)
    return limits


def repairs(expected: Mapping[str, int], observed: Sequence[Observed]) -> tuple[Repair, ...]:
    """The limits that differ: containers first where they are lowered, so that no child ever exceeds its pod."""
    found = [
        Repair(cgroup.container, expected[cgroup.container], cgroup.limit)
        for cgroup in observed
        if cgroup.container in expected
        and cgroup.known_for_s >= SETTLE_S
        and _differs(cgroup.limit, expected[cgroup.container])
    ]
    return tuple(sorted(found, key=lambda repair: (not repair.is_lowering, repair.container == POD, repair.container)))


def repair_message(pod: PodView, repair: Repair) -> str:
    """The sentence of the Event ``MemoryLimitRepaired``."""
    what = f"container {repair.container}" if repair.container else "the pod"
    was = "unlimited" if repair.actual is None else f"{repair.actual} bytes ({format_bytes(repair.actual)})"
    return (
        f"the memory limit of {what} was {was}; set to {repair.expected} bytes ({format_bytes(repair.expected)}), "
        f"which its blocks say ({pod.blocks} in the pod)"
    )


def _differs(limit: int | None, expected: int) -> bool:
    return limit is None or abs(limit - expected) >= _PAGE
