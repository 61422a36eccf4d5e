"""NodeSlack: what is written is read back, and garbage never looks like room."""

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from builders import node, pod, reading, slo_config
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import InputError
from slackwater.headroom import Headroom, compute
from slackwater.node import read_node
from slackwater.nodeslack import Avoidance, Condition, read_nodeslack, render_status
from slackwater.pod import read_pod
from slackwater.policy.colocation import parse_colocation
from slackwater.reading import read_reading
from slackwater.victims import EvictionPlan, choose

GIB = 1024**3
BLOCK = GIB // 2
NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
READ_AT = datetime(2026, 1, 1, tzinfo=UTC)


def decisions(used: str = "40Gi", config: dict[str, str] | None = None) -> tuple[Headroom, EvictionPlan]:
    batch = pod("batch").be().priority(5000).blocks(16).uses("8Gi")
    measured = read_reading(reading(used=used).numa(("50Gi", "20Gi"), ("50Gi", "20Gi")).of(batch).raw)
    view, pods = read_node(node().raw), [read_pod(batch.raw)]
    policy = parse_colocation(config)[0].for_node(view)
    return compute(view, pods, measured, policy, BLOCK), choose(view, pods, measured, policy, BLOCK, NOW)


def status_of(mode: str = "lend", used: str = "40Gi", **more: Any) -> dict[str, Any]:
    headroom, plan = decisions(used, more.pop("config", None))
    return render_status(headroom, plan, mode=mode, time=READ_AT, now=NOW, **more)


def slack_of(status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "node-1"}, "status": status}


def test_the_status_holds_every_term() -> None:
    avoidance = Avoidance("uid-1", NOW, "evicted")
    assert status_of(avoiding=[avoidance]) == {
        "time": "2026-01-01T00:00:00Z",
        "mode": "lend",
        "enabled": True,
        "blockSize": BLOCK,
        "memory": {
            "capacity": 100 * GIB,
            "used": 40 * GIB,
            "margin": 10 * GIB,
            "system": 32 * GIB,
            "online": 0,
            "lendable": 58 * GIB,
            "line": 95 * GIB - BLOCK,
        },
        "blocks": {"total": 116, "lendable": 116, "lent": 16, "free": 100},
        "eviction": {
            "enabled": True,
            "thresholdPercent": 95,
            "lowerPercent": 93,
            "usedPercent": 40.0,
            "release": 0,
        },
        "avoiding": [{"owner": "uid-1", "until": "2026-01-01T00:01:00Z", "reason": "evicted"}],
        "numa": [
            {"id": 0, "capacity": 50 * GIB, "used": 20 * GIB, "blocks": 58},
            {"id": 1, "capacity": 50 * GIB, "used": 20 * GIB, "blocks": 58},
        ],
        "conditions": [
            {
                "type": "Lending",
                "status": "True",
                "reason": "Lending",
                "message": "116 blocks may be lent, 16 are",
                "lastTransitionTime": "2026-01-01T00:01:00Z",
            }
        ],
    }


def test_an_offer_that_still_grows_is_what_is_published() -> None:
    assert status_of(offered=50)["blocks"] == {"total": 50, "lendable": 116, "lent": 16, "free": 34}
    assert status_of(offered=500)["blocks"]["total"] == 116


def test_observing_says_what_would_be_evicted() -> None:
    status = status_of("observe", used="99Gi")
    assert status["wouldEvict"] == ["default/batch"]
    assert status["conditions"][0]["reason"] == "Observing"
    assert "wouldEvict" not in status_of("lend", used="99Gi")


def test_off_is_a_condition_with_its_reason() -> None:
    condition = status_of(config=slo_config({}))["conditions"][0]
    assert (condition["status"], condition["reason"]) == ("False", "Disabled")


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    earlier = status_of()
    earlier["conditions"][0]["lastTransitionTime"] = "2025-01-01T00:00:00Z"
    same = status_of(previous=earlier, conditions=[Condition("Reclaim", "False", "Missing", "needs cgroup v2")])
    assert [condition["lastTransitionTime"] for condition in same["conditions"]] == [
        "2025-01-01T00:00:00Z",
        "2026-01-01T00:01:00Z",
    ]
    changed = status_of(previous=earlier, config=slo_config({}))
    assert changed["conditions"][0]["lastTransitionTime"] == "2026-01-01T00:01:00Z"


def test_what_is_written_is_read_back() -> None:
    view = read_nodeslack(slack_of(status_of(avoiding=[Avoidance("uid-1", NOW, "evicted")])))
    assert (view.name, view.mode, view.enabled, view.block_size) == ("node-1", "lend", True, BLOCK)
    assert (view.total, view.lent, view.free, view.room, view.lendable_blocks) == (116, 16, 100, 100, 116)
    assert (view.capacity, view.used, view.line) == (100 * GIB, 40 * GIB, 95 * GIB - BLOCK)
    assert view.avoiding == (Avoidance("uid-1", NOW, "evicted"),)
    assert not view.is_evicting


@pytest.mark.parametrize(
    ("status", "room"),
    [
        pytest.param(status_of(), 100, id="lend"),
        pytest.param(status_of("observe"), 0, id="observe"),
        pytest.param(status_of(config=slo_config({})), 0, id="off"),
        pytest.param(status_of(used="99Gi"), 0, id="full"),
        pytest.param(status_of(config=slo_config(threshold={})), 100, id="without-a-line"),
    ],
)
def test_room(status: dict[str, Any], room: int) -> None:
    assert read_nodeslack(slack_of(status)).room == room


@pytest.mark.parametrize(("used", "evicting"), [("94.99Gi", False), ("95Gi", True)])
def test_evicting(used: str, evicting: bool) -> None:
    assert read_nodeslack(slack_of(status_of(used=used))).is_evicting is evicting


@pytest.mark.parametrize(
    ("age", "stale"),
    [(0, False), (300, False), (301, True), (-300, False), (-301, True)],
)
def test_staleness_in_both_directions(age: int, stale: bool) -> None:
    assert read_nodeslack(slack_of(status_of())).is_stale(READ_AT + timedelta(seconds=age)) is stale


NO_AMOUNTS: tuple[Any, ...] = (None, -1, "5", 1.5, float("nan"), True, [], {})
GARBAGE: list[tuple[str, Any]] = [
    *(
        (path, value)
        for path in (
            "blockSize",
            "memory.capacity",
            "memory.used",
            "memory.system",
            "memory.online",
            "memory.margin",
            "blocks.total",
            "blocks.lendable",
            "blocks.lent",
            "eviction.thresholdPercent",
            "eviction.release",
        )
        for value in NO_AMOUNTS
    ),
    *(("memory.lendable", value) for value in (None, "5", float("inf"))),
    *(("blocks.free", value) for value in (None, "100", 101, float("nan"))),
    *(("memory.line", value) for value in ("5", float("nan"))),
    *(("mode", value) for value in (None, "", "LEND", 1)),
    *(("enabled", value) for value in (None, "true", 1)),
    *(("eviction.enabled", value) for value in (None, "true", 1)),
    *(("time", value) for value in (None, "", 0, "yesterday")),
    *(("eviction.usedPercent", value) for value in ("x", -1.0, float("nan"), float("inf"))),
    ("blockSize", 0),
    ("memory.capacity", 0),
    ("blocks.total", 10**9),
    ("blocks", None),
    ("memory", []),
    ("eviction", None),
    ("avoiding", [{"owner": "x"}]),
    ("avoiding", ["x"]),
]


@pytest.mark.parametrize(("path", "value"), GARBAGE)
def test_garbage_is_refused_with_its_path(path: str, value: Any) -> None:
    status = copy.deepcopy(status_of())
    place: Any = status
    *parents, last = path.split(".")
    for key in parents:
        place = place[key]
    place[last] = value
    with pytest.raises(InputError) as refusal:
        read_nodeslack(slack_of(status), "NodeSlack node-1")
    assert any(f"status.{parents[0] if parents else last}" in problem.where for problem in refusal.value.problems)


@pytest.mark.parametrize(
    "raw", [{}, {"metadata": {"name": "n"}}, {"metadata": {"name": "n"}, "status": []}, slack_of({})]
)
def test_without_a_status_there_is_nothing_to_read(raw: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        read_nodeslack(raw)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(sorted(status_of())), anything)
def test_any_replaced_part_is_refused_or_harmless(key: str, value: Any) -> None:
    status = status_of()
    status[key] = value
    try:
        view = read_nodeslack(slack_of(status))
    except InputError:
        return
    assert view.room in (0, 100)
