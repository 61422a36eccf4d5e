"""What is news, and the patch that writes it."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.decide.publish import is_news, merge_patch

STATUS: dict[str, Any] = {
    "time": "2026-01-01T00:00:00Z",
    "mode": "lend",
    "enabled": True,
    "blockSize": 512,
    "memory": {"capacity": 100, "used": 50, "line": 90},
    "blocks": {"total": 4, "lendable": 4, "lent": 1, "free": 3},
    "eviction": {"enabled": True, "thresholdPercent": 95, "lowerPercent": 93, "usedPercent": 50.0, "release": 0},
    "avoiding": [],
    "numa": [{"id": 0, "blocks": 4, "used": 5}],
    "conditions": [{"type": "Lending", "status": "True", "reason": "Lending", "message": "4 blocks"}],
}


def _with(path: str, value: Any) -> dict[str, Any]:
    status: Any = copy.deepcopy(STATUS)
    place = status
    *parents, last = path.split(".")
    for key in parents:
        place = place[int(key) if key.isdigit() else key]
    place[last] = value
    return dict(status)


def test_the_first_status_is_news() -> None:
    assert is_news(None, STATUS)
    assert is_news({}, STATUS)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("time", "2026-01-01T00:00:10Z"),
        ("memory.used", 51),
        ("eviction.usedPercent", 51.0),
        ("numa.0.used", 6),
        ("conditions.0.message", "4 blocks, 1 lent"),
    ],
)
def test_drifting_bytes_are_not_news(path: str, value: Any) -> None:
    assert not is_news(STATUS, _with(path, value))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("blocks.total", 5),
        ("blocks.lent", 2),
        ("mode", "observe"),
        ("enabled", False),
        ("eviction.release", 1),
        ("avoiding", [{"owner": "rs", "until": "2026-01-01T00:05:00Z"}]),
        ("numa.0.blocks", 3),
        ("conditions.0.status", "False"),
        ("conditions.0.reason", "NodeRefuses"),
        ("wouldEvict", ["default/be"]),
    ],
)
def test_what_somebody_decides_by_is_news(path: str, value: Any) -> None:
    assert is_news(STATUS, _with(path, value))


def test_what_is_no_longer_there_is_null() -> None:
    before = {"a": 1, "memory": {"used": 1, "line": 9}, "wouldEvict": ["x"]}
    assert merge_patch(before, {"a": 1, "memory": {"used": 2}}) == {
        "a": 1,
        "memory": {"line": None, "used": 2},
        "wouldEvict": None,
    }


_JSON = st.recursive(
    st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=8,
)
_OBJECTS = st.dictionaries(st.sampled_from("abcd"), _JSON, max_size=4)


def _apply(target: Any, patch: Any) -> Any:
    """RFC 7386, section 2, as it stands there."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _apply(result.get(name), value)
    return result


@given(_OBJECTS, _OBJECTS)
def test_the_patch_makes_the_old_into_the_new(before: dict[str, Any], now: dict[str, Any]) -> None:
    assert _apply(before, merge_patch(before, now)) == now
