"""What a candidate does about a lease."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.election import LEASE_DURATION_S, RENEW_DEADLINE_S, RETRY_S, Move, Observation, next_move


def lease(holder: Any = "other", duration: Any = 15) -> dict[str, Any]:
    return {
        "metadata": {"resourceVersion": "7"},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": duration, "renewTime": "1999-01-01T00:00:00Z"},
    }


@pytest.mark.parametrize(
    ("raw", "watched_s", "move"),
    [
        pytest.param(lease("me"), 0, Move.RENEW, id="mine"),
        pytest.param(lease("me"), 999, Move.RENEW, id="mine, though late"),
        pytest.param(lease(), 0, Move.WAIT, id="another's, just renewed"),
        pytest.param(lease(), 15, Move.WAIT, id="another's, to the last moment"),
        pytest.param(lease(), 15.001, Move.TAKE, id="another's, not renewed for its whole duration"),
        pytest.param(lease(duration=60), 59, Move.WAIT, id="the duration that its holder wrote counts"),
        pytest.param(lease(duration=None), 14, Move.WAIT, id="without a duration ours counts"),
        pytest.param(lease(""), 0, Move.TAKE, id="given back"),
        pytest.param(lease(None), 0, Move.TAKE, id="nobody's"),
        pytest.param({"metadata": {"resourceVersion": "7"}}, 0, Move.TAKE, id="empty"),
    ],
)
def test_next_move(raw: dict[str, Any], watched_s: float, move: Move) -> None:
    assert next_move(raw, "me", Observation("7", 100.0), 100.0 + watched_s) is move


@given(watched_s=st.floats(0, LEASE_DURATION_S), renew_time=st.datetimes().map(str))
def test_times_of_other_machines_never_take_a_lease_away(watched_s: float, renew_time: str) -> None:
    raw = lease()
    raw["spec"]["renewTime"] = renew_time
    assert next_move(raw, "me", Observation("7", 0.0), watched_s) is Move.WAIT


def test_a_leader_has_stopped_before_anybody_may_take_over() -> None:
    assert RETRY_S < RENEW_DEADLINE_S < LEASE_DURATION_S
