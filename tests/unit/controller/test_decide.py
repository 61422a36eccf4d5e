"""Which idle objects are suspended, which are kept, and with what words.

Not here: reading the policy text (``test_idle_policy``) and acting on the API server (the component tests).
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.controller.workloads import NOTEBOOK, NOW, workload

from controller.decide import (
    JUMP_HOLD_S,
    Action,
    Clock,
    Reason,
    decide,
    reaches,
    resume_patch,
    suspension_patch,
)
from slackwater.policy.idle import TypePolicy
from slackwater.selectors import LabelSelector
from slackwater.timestamps import format_time

POLICY = TypePolicy(300, 3600)
TIMEOUT = timedelta(seconds=3600)
LONG_AGO = NOW - timedelta(days=3)


@pytest.mark.parametrize(
    ("raw", "action", "reason", "due_at"),
    [
        pytest.param(
            workload(idle_since=NOW - TIMEOUT - timedelta(seconds=1)), Action.SUSPEND, Reason.IDLE,
            NOW - timedelta(seconds=1), id="longer than the timeout",
        ),
        pytest.param(
            workload(idle_since=NOW - TIMEOUT), Action.KEEP, Reason.NOT_DUE, NOW, id="exactly the timeout is not longer"
        ),
        pytest.param(
            workload(idle_since=LONG_AGO, suspend=None), Action.SUSPEND, Reason.IDLE, LONG_AGO + TIMEOUT,
            id="no spec.suspend means running",
        ),
        pytest.param(workload(idle_since=LONG_AGO, suspend=True), Action.KEEP, Reason.SUSPENDED, None, id="suspended"),
        pytest.param(workload(idle_since=LONG_AGO, idle="False"), Action.KEEP, Reason.ACTIVE, None, id="active"),
        pytest.param(workload(idle_since=LONG_AGO, idle="Unknown"), Action.KEEP, Reason.UNKNOWN, None, id="unknown"),
        pytest.param(workload(), Action.KEEP, Reason.UNKNOWN, None, id="no condition"),
        pytest.param(workload(idle_since="yesterday"), Action.KEEP, Reason.UNKNOWN, None, id="garbled time"),
        pytest.param(
            workload(idle_since=NOW + timedelta(days=1)), Action.KEEP, Reason.FUTURE,
            NOW + timedelta(days=1) + TIMEOUT, id="a future time is not believed",
        ),
        pytest.param(
            workload(idle_since=LONG_AGO, annotations={"slackwater.io/exclude": "true"}),
            Action.KEEP, Reason.EXCLUDED, None, id="excluded",
        ),
        pytest.param(
            workload(idle_since=LONG_AGO, annotations={"slackwater.io/exclude": "false"}),
            Action.SUSPEND, Reason.IDLE, LONG_AGO + TIMEOUT, id="not excluded",
        ),
        pytest.param(
            workload(idle_since=LONG_AGO, annotations={"slackwater.io/resumed-at": format_time(NOW - TIMEOUT / 2)}),
            Action.KEEP, Reason.NOT_DUE, NOW + TIMEOUT / 2, id="the clock counts from the resume",
        ),
        pytest.param(
            workload(
                idle_since=NOW - TIMEOUT / 4, annotations={"slackwater.io/resumed-at": format_time(NOW - TIMEOUT / 2)}
            ),
            Action.KEEP, Reason.NOT_DUE, NOW + TIMEOUT * 3 / 4, id="or from the condition if that is later",
        ),
        pytest.param(
            workload(idle_since=LONG_AGO, annotations={"slackwater.io/suspended-at": format_time(LONG_AGO)}),
            Action.KEEP, Reason.RESUMED, NOW + TIMEOUT, id="we suspended it, and it runs: resumed",
        ),
        pytest.param(
            workload(
                idle_since=LONG_AGO,
                annotations={
                    "slackwater.io/suspended-at": format_time(LONG_AGO),
                    "slackwater.io/resumed-at": format_time(LONG_AGO + TIMEOUT),
                },
            ),
            Action.SUSPEND, Reason.IDLE, LONG_AGO + 2 * TIMEOUT, id="a recorded resume has run out too",
        ),
    ],
)  # fmt: skip
def test_decides(raw: dict[str, Any], action: Action, reason: Reason, due_at: datetime | None) -> None:
    row = decide(NOTEBOOK, POLICY, raw, NOW)
    assert (row.action, row.reason, row.due_at) == (action, reason, due_at)


def test_object_being_deleted_is_kept() -> None:
    raw = workload(idle_since=LONG_AGO)
    raw["metadata"]["deletionTimestamp"] = format_time(NOW)
    assert decide(NOTEBOOK, POLICY, raw, NOW).reason is Reason.TERMINATING


def test_object_that_was_seen_suspended_is_resumed_whoever_had_suspended_it() -> None:
    row = decide(NOTEBOOK, POLICY, workload(idle_since=LONG_AGO), NOW, seen_suspended=True)
    assert (row.action, row.reason, row.records_resume) == (Action.KEEP, Reason.RESUMED, True)


def test_sentence_carries_the_numbers() -> None:
    row = decide(NOTEBOOK, POLICY, workload(idle_since=NOW - timedelta(seconds=4000)), NOW)
    assert row.message == "idle for 4000 s since 2026-06-01T10:53:20Z, longer than idleTimeout 3600 s"
    assert row.as_output() == {
        "kind": "Notebook",
        "namespace": "lab",
        "name": "one",
        "action": "suspend",
        "reason": "IdleTimeoutExceeded",
        "dueAt": "2026-06-01T11:53:20Z",
        "message": row.message,
    }


@pytest.mark.parametrize(
    ("selector", "labels", "reached"),
    [
        (None, None, True),
        ({}, {}, True),
        ({"matchLabels": {"tier": "gold"}}, {"tier": "gold", "more": "x"}, True),
        ({"matchLabels": {"tier": "gold"}}, {"tier": "tin"}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["gold"]}]}, {}, True),
        ({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["gold"]}]}, None, False),
    ],
)
def test_policy_reaches_namespaces_by_label_and_never_by_guess(
    selector: dict[str, Any] | None, labels: dict[str, str] | None, reached: bool
) -> None:
    assert reaches(TypePolicy(selector=LabelSelector.parse(selector)), labels) is reached


def test_suspension_is_one_patch_with_the_version_it_was_decided_on() -> None:
    raw = workload(idle_since=LONG_AGO)
    patch = suspension_patch(raw, decide(NOTEBOOK, POLICY, raw, NOW), POLICY, NOW)
    assert patch["spec"] == {"suspend": True}
    assert patch["metadata"]["resourceVersion"] == "7"
    assert patch["metadata"]["annotations"]["slackwater.io/suspended-at"] == "2026-06-01T12:00:00.000000Z"
    assert "idleTimeout 3600 s" in patch["metadata"]["annotations"]["slackwater.io/suspended-by"]


def merged(old: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def test_resume_is_recorded_once_and_clears_what_the_suspension_left() -> None:
    raw = workload(idle_since=LONG_AGO)
    suspended = merged(raw, suspension_patch(raw, decide(NOTEBOOK, POLICY, raw, NOW), POLICY, NOW))
    by_hand = merged(suspended, {"spec": {"suspend": False}})
    later = NOW + timedelta(minutes=5)
    assert decide(NOTEBOOK, POLICY, by_hand, later).records_resume
    recorded = merged(by_hand, resume_patch(by_hand, later))
    assert recorded["metadata"]["annotations"] == {"slackwater.io/resumed-at": "2026-06-01T12:05:00.000000Z"}
    again = decide(NOTEBOOK, POLICY, recorded, later)
    assert (again.reason, again.due_at, again.records_resume) == (Reason.NOT_DUE, later + TIMEOUT, False)


moments = st.datetimes(datetime(2026, 1, 1), datetime(2026, 2, 1), timezones=st.just(UTC))  # noqa: DTZ001


@given(
    timeout_s=st.integers(1, 10 * 86400),
    idle_since=st.none() | moments,
    idle=st.sampled_from(["True", "False", "Unknown"]),
    suspended_at=st.none() | moments,
    resumed_at=st.none() | moments,
    seen_suspended=st.booleans(),
    now=moments,
)
def test_nothing_is_suspended_within_its_timeout_of_activity_or_resume(
    timeout_s: int,
    idle_since: datetime | None,
    idle: str,
    suspended_at: datetime | None,
    resumed_at: datetime | None,
    seen_suspended: bool,
    now: datetime,
) -> None:
    stamps = {"slackwater.io/suspended-at": suspended_at, "slackwater.io/resumed-at": resumed_at}
    annotations = {key: format_time(value, micros=True) for key, value in stamps.items() if value is not None}
    raw = workload(idle_since=idle_since, idle=idle, annotations=annotations)
    row = decide(NOTEBOOK, TypePolicy(300, timeout_s), raw, now, seen_suspended=seen_suspended)
    if row.action is Action.SUSPEND:
        assert idle == "True"
        assert idle_since is not None
        assert not seen_suspended
        assert now - idle_since.replace(microsecond=0) > timedelta(seconds=timeout_s)
        assert resumed_at is None or now - resumed_at > timedelta(seconds=timeout_s)
        assert suspended_at is None or (resumed_at is not None and resumed_at >= suspended_at)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(metadata=json_values, spec=json_values, status=json_values, condition=json_values)
def test_malformed_objects_are_kept(metadata: Any, spec: Any, status: Any, condition: Any) -> None:
    for raw in (
        {"metadata": metadata, "spec": spec, "status": status},
        {"metadata": {"name": "x", "annotations": metadata}, "spec": spec, "status": {"conditions": condition}},
        {"metadata": {"name": "x"}, "status": {"conditions": [condition, {"type": "Idle", "status": status}]}},
    ):
        assert decide(NOTEBOOK, POLICY, raw, NOW).action is Action.KEEP


# -- the clock ----------------------------------------------------------------------------------------------------


def test_clock_follows_the_wall_clock_and_its_small_corrections() -> None:
    clock = Clock(NOW, 100.0).advance(NOW + timedelta(seconds=2.5), 102.0)
    assert clock == Clock(NOW + timedelta(seconds=2.5), 102.0)


def test_clock_goes_on_without_a_leap_until_it_is_undone() -> None:
    leapt = Clock(NOW, 100.0).advance(NOW + timedelta(days=2), 102.0)
    assert leapt.now == NOW + timedelta(seconds=2)
    still = leapt.advance(NOW + timedelta(days=2, seconds=2), 104.0)
    assert still.now == NOW + timedelta(seconds=4)
    assert still.ahead_since_s == 102.0
    undone = still.advance(NOW + timedelta(seconds=6), 106.0)
    assert undone == Clock(NOW + timedelta(seconds=6), 106.0)


def test_clock_believes_a_leap_that_lasts() -> None:
    clock = Clock(NOW, 0.0).advance(NOW + timedelta(days=2), 2.0)
    lasting = NOW + timedelta(days=2, seconds=JUMP_HOLD_S)
    assert clock.advance(lasting, 2.0 + JUMP_HOLD_S) == Clock(lasting, 2.0 + JUMP_HOLD_S)


def test_clock_set_back_is_believed_at_once() -> None:
    assert Clock(NOW, 0.0).advance(NOW - timedelta(days=2), 2.0) == Clock(NOW - timedelta(days=2), 2.0)
