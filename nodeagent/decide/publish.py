"""When NodeSlack is written, and what the write says.

5,000 agents must not be a load for one API server: a status is written at once when somebody would decide otherwise by
it (a block, a state), else only as a sign of life.
"""

from collections.abc import Mapping
from typing import Any

from slackwater.objects import RawObject, mapping, sequence, text


def is_news(before: RawObject | None, now: RawObject) -> bool:
    """Whether ``now`` says something that ``before`` did not: blocks, mode, a condition, an eviction, an avoidance."""
    return before is None or _decisive(before) != _decisive(now)


def _decisive(status: RawObject) -> list[Any]:
    """What readers decide by; bytes drift all the time and are only for people."""
    eviction = mapping(status, "eviction")
    return [
        status.get("mode"),
        status.get("enabled"),
        status.get("blockSize"),
        dict(mapping(status, "blocks")),
        [eviction.get(key) for key in ("enabled", "thresholdPercent", "lowerPercent")],
        bool(eviction.get("release")),
        list(sequence(status, "wouldEvict")),
        [(text(entry, "owner"), text(entry, "until")) for entry in sequence(status, "avoiding")],
        [(mapping(entry).get("id"), mapping(entry).get("blocks")) for entry in sequence(status, "numa")],
        [
            (text(entry, "type"), text(entry, "status"), text(entry, "reason"))
            for entry in sequence(status, "conditions")
        ],
    ]


def merge_patch(before: RawObject, now: RawObject) -> dict[str, Any]:
    """An RFC 7386 patch that makes ``before`` into ``now``: what is no longer there is null. Lists go whole."""
    patch: dict[str, Any] = {key: None for key in before if key not in now}
    for key, value in now.items():
        old = before.get(key)
        patch[key] = merge_patch(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return patch
