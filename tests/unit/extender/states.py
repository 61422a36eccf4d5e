"""Readings and requests that the extender's tests talk about."""

from datetime import datetime, timedelta
from typing import Any

from builders import PodBuilder, pod

from extender.decide import HeldPod, Slack
from slackwater import names
from slackwater.nodeslack import read_nodeslack
from slackwater.pod import PodView, read_pod
from slackwater.timestamps import format_time, parse_time

NOW = parse_time("2026-01-01T00:00:00Z")
BLOCK = names.DEFAULT_BLOCK_SIZE


def nodeslack(
    name: str = "node-1",
    *,
    total: int = 10,
    lent: int = 0,
    age_s: int = 0,
    used: int = 10 * BLOCK,
    block_size: int = BLOCK,
    now: datetime = NOW,
    **status: Any,
) -> dict[str, Any]:
    """A NodeSlack object of a node of 100 blocks that lends; ``status`` replaces or adds fields."""
    capacity = 100 * BLOCK
    return {
        "apiVersion": names.API_VERSION,
        "kind": "NodeSlack",
        "metadata": {"name": name},
        "status": {
            "time": format_time(now - timedelta(seconds=age_s)),
            "mode": "lend",
            "enabled": True,
            "blockSize": block_size,
            "memory": {
                "capacity": capacity, "used": used, "margin": 0, "system": 0, "online": 0,
                "lendable": total * block_size, "line": capacity * 95 // 100,
            },
            "blocks": {"total": total, "lendable": total, "lent": lent, "free": total - lent},
            "eviction": {
                "enabled": True, "thresholdPercent": 95, "lowerPercent": 93, "usedPercent": 10.0, "release": 0
            },
            "avoiding": [],
            "numa": [],
            "conditions": [],
            **status,
        },
    }  # fmt: skip


def slack(name: str = "node-1", **kwargs: Any) -> Slack:
    return read_nodeslack(nodeslack(name, **kwargs))


def pending(blocks: int, name: str = "be", owner: str = "") -> PodBuilder:
    """A best-effort pod that the scheduler asks about."""
    built = pod(name).be().blocks(blocks).unbound()
    return built.owned_by("ReplicaSet", owner) if owner else built


def view(built: PodBuilder) -> PodView:
    return read_pod(built.raw)


def held(node: str, blocks: int, uid: str = "other", size: int = BLOCK) -> HeldPod:
    return HeldPod(uid, node, blocks, blocks * size)


def unschedulable(built: PodBuilder, reason: str = "Unschedulable") -> PodBuilder:
    """As a scheduler leaves a pod for which it found no node."""
    message = f"0/1 nodes are available: 1 Insufficient {names.RESOURCE}."
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return built.set("status.conditions", [{"type": "Initialized", "status": "True"}, condition])
