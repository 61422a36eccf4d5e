"""Which nodes a pod may go to. Rows: what a node's reading says, what is taken there, who asks."""

from datetime import timedelta
from typing import Any

import pytest
from builders import pod
from hypothesis import given
from hypothesis import strategies as st
from unit.extender.states import BLOCK, NOW, held, pending, slack, view

from extender.decide import (
    ASSUME_FOR,
    GIVE_WAY_AFTER,
    AssumedPod,
    FilterDecision,
    Slack,
    Snapshot,
    UnreadableSlack,
    Verdict,
    assume,
    filter_nodes,
    hold,
)


def ask(blocks: int, slack: Slack | None, **kwargs: Any) -> FilterDecision:
    snapshot = Snapshot({} if slack is None else {"node-1": slack}, **kwargs)
    return filter_nodes(view(pending(blocks)), ["node-1"], snapshot, BLOCK, NOW)


def reason_of(decision: FilterDecision) -> str:
    (reason,) = {**decision.failed, **decision.unresolvable}.values()
    return reason


def test_node_with_room_fits() -> None:
    assert ask(3, slack(total=5, lent=2)) == FilterDecision(("node-1",), {}, {}, {Verdict.FIT: 1})


def test_missing_room_may_be_cured_by_preemption_and_names_the_numbers() -> None:
    decision = ask(4, slack(total=5, lent=2))
    assert decision.failed == {"node-1": "colocation memory: 4 blocks (2Gi) needed, 3 blocks (1.5Gi) available"}
    assert decision.unresolvable == {}


@pytest.mark.parametrize(
    ("reading", "verdict", "words"),
    [
        pytest.param(slack(age_s=301), Verdict.STALE, "older than 300 s", id="stale"),
        pytest.param(slack(age_s=-301), Verdict.STALE, "older than 300 s", id="from-the-future"),
        pytest.param(slack(mode="observe"), Verdict.CLOSED, "mode observe", id="observe"),
        pytest.param(slack(enabled=False), Verdict.CLOSED, "does not lend", id="disabled"),
        pytest.param(slack(used=95 * BLOCK), Verdict.EVICTING, "eviction line of 95 percent", id="over-the-line"),
        pytest.param(UnreadableSlack("node-1", "?"), Verdict.UNREADABLE, "cannot be read", id="garbage"),
    ],
)
def test_closed_node_is_unresolvable(reading: Slack, verdict: Verdict, words: str) -> None:
    decision = ask(1, reading)
    assert decision.verdicts == {verdict: 1}
    assert decision.failed == {}
    assert words in reason_of(decision)
    assert "1 block (512Mi) needed, 0 blocks (0) available" in reason_of(decision)
    assert "%" not in reason_of(decision), "the scheduler takes the sentence for a format"


def test_reading_is_good_for_300_seconds() -> None:
    assert ask(1, slack(age_s=300)).fit == ("node-1",)


def test_unknown_node_is_refused_with_its_reason() -> None:
    decision = ask(1, None)
    assert decision.verdicts == {Verdict.UNKNOWN: 1}
    assert "no NodeSlack" in decision.failed["node-1"]


def test_pod_without_blocks_fits_everywhere() -> None:
    decision = filter_nodes(view(pod("online").unbound()), ["a", "b"], Snapshot(), BLOCK, NOW)
    assert decision.fit == ("a", "b")


def test_pods_bound_since_the_reading_count_and_those_in_it_do_not_count_twice() -> None:
    bound = {"node-1": [held("node-1", 2, "a"), held("node-1", 1, "b")]}
    assert ask(2, slack(total=5, lent=1), held=bound).fit == ("node-1",)
    assert ask(3, slack(total=5, lent=1), held=bound).fit == ()
    assert ask(2, slack(total=5, lent=3), held=bound).fit == ("node-1",)


def test_two_pods_in_a_row_do_not_take_the_same_last_block() -> None:
    slacks = {"node-1": slack(total=1)}
    first = view(pending(1, "first"))
    decision = filter_nodes(first, ["node-1"], Snapshot(slacks), BLOCK, NOW)
    taken = assume(first, decision, BLOCK, NOW)
    assert taken is not None
    second = filter_nodes(view(pending(1, "second")), ["node-1"], Snapshot(slacks, {}, [taken]), BLOCK, NOW)
    assert reason_of(second).endswith("0 blocks (0) available: kept for pods just placed: 1 block")
    assert second.failed


def test_pod_that_asks_again_does_not_stand_in_its_own_way() -> None:
    first = view(pending(1, "first"))
    mine = AssumedPod(first.uid, frozenset(["node-1"]), 1, BLOCK, NOW + ASSUME_FOR)
    snapshot = Snapshot({"node-1": slack(total=1)}, {}, [mine])
    assert filter_nodes(first, ["node-1"], snapshot, BLOCK, NOW).fit == ("node-1",)


def test_pod_that_was_let_through_and_never_bound_is_forgotten() -> None:
    other = AssumedPod("other", frozenset(["node-1"]), 1, BLOCK, NOW)
    assert ask(1, slack(total=1), assumed=[other]).fit == ("node-1",)


def test_blocks_of_another_size_count_by_the_larger_of_ids_and_bytes() -> None:
    half = slack(total=4, block_size=BLOCK // 2)
    assert ask(2, half).fit == ("node-1",)
    assert ask(3, half).fit == ()
    double = slack(total=2, block_size=2 * BLOCK)
    assert ask(2, double).fit == ("node-1",)
    assert ask(3, double).fit == ()


# -- avoidance ------------------------------------------------------------------------------------------------------


def avoiding(owner: str = "uid-report", until: str = "2026-01-01T00:05:00Z") -> dict[str, Any]:
    return {"avoiding": [{"owner": owner, "until": until, "reason": "evicted"}]}


def ask_as_owner(slacks: dict[str, Slack], since_s: float | None = None) -> FilterDecision:
    asking = view(pending(1, owner="report"))
    since = None if since_s is None else NOW - timedelta(seconds=since_s)
    return filter_nodes(asking, list(slacks), Snapshot(slacks), BLOCK, NOW, avoided_since=since)


def test_owner_stays_away_from_where_it_was_evicted_while_another_node_fits() -> None:
    decision = ask_as_owner({"node-1": slack(**avoiding()), "node-2": slack("node-2")}, since_s=1000)
    assert decision.fit == ("node-2",)
    assert "evicted here" in decision.unresolvable["node-1"]
    assert not decision.only_avoided


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(avoiding(owner="uid-somebody-else"), id="another-owner"),
        pytest.param(avoiding(until="2026-01-01T00:00:00Z"), id="time-is-over"),
    ],
)
def test_avoidance_concerns_its_owner_until_its_time(entry: dict[str, Any]) -> None:
    assert ask_as_owner({"node-1": slack(**entry)}).fit == ("node-1",)


@pytest.mark.parametrize(("since_s", "fits"), [(None, False), (29, False), (30, True)])
def test_avoidance_gives_way_at_the_second_attempt_where_no_other_node_fits(since_s: float | None, fits: bool) -> None:
    decision = ask_as_owner({"node-1": slack(**avoiding()), "node-2": slack("node-2", total=0)}, since_s)
    assert (decision.fit == ("node-1",)) is fits
    assert decision.gave_way is fits
    assert decision.only_avoided is not fits
    assert list(decision.failed) == ["node-2"]
    assert timedelta(seconds=30) == GIVE_WAY_AFTER


def test_avoidance_never_gives_way_on_a_node_without_room() -> None:
    assert ask_as_owner({"node-1": slack(total=0, **avoiding())}, since_s=1000).fit == ()


# -- pods that hold blocks ------------------------------------------------------------------------------------------


def test_bound_pod_holds_its_blocks_until_it_has_finished() -> None:
    bound = pod("a").be().blocks(2)
    assert hold(view(bound), BLOCK) == held("node-1", 2, "uid-default-a")
    assert hold(view(bound.phase("Pending")), BLOCK) is not None
    assert hold(view(bound.deleted("2026-01-01T00:00:00Z")), BLOCK) is not None
    assert hold(view(bound.phase("Succeeded")), BLOCK) is None
    assert hold(view(bound.unbound()), BLOCK) is None
    assert hold(view(pod("online")), BLOCK) is None


# -- invariants -----------------------------------------------------------------------------------------------------

nodes = st.lists(
    st.builds(
        lambda total, lent, bound: (total, lent, bound),
        st.integers(0, 20),
        st.integers(0, 25),
        st.lists(st.integers(1, 5), max_size=4),
    ),
    min_size=1,
    max_size=4,
)


@given(nodes=nodes, asked=st.lists(st.integers(1, 8), min_size=1, max_size=12), picks=st.lists(st.integers(0, 50)))
def test_scheduler_that_takes_any_fitting_node_never_exceeds_an_offer(
    nodes: list[tuple[int, int, list[int]]], asked: list[int], picks: list[int]
) -> None:
    """Whichever fitting node is chosen, though nothing is seen bound meanwhile."""
    slacks = {f"n{index}": slack(f"n{index}", total=total, lent=lent) for index, (total, lent, _) in enumerate(nodes)}
    bound = {
        f"n{index}": [held(f"n{index}", blocks, f"{index}-{number}") for number, blocks in enumerate(pods)]
        for index, (_, _, pods) in enumerate(nodes)
    }
    taken = {f"n{index}": max(lent, sum(pods)) for index, (_, lent, pods) in enumerate(nodes)}
    assumed: list[AssumedPod] = []
    for number, blocks in enumerate(asked):
        asking = view(pending(blocks, f"p{number}"))
        decision = filter_nodes(asking, list(slacks), Snapshot(slacks, bound, assumed), BLOCK, NOW)
        assert sorted([*decision.fit, *decision.failed, *decision.unresolvable]) == sorted(slacks)
        if decision.fit:
            choice = decision.fit[(picks[number] if number < len(picks) else 0) % len(decision.fit)]
            taken[choice] += blocks
            assert taken[choice] <= nodes[int(choice[1:])][0]
            entry = assume(asking, decision, BLOCK, NOW)
            assert entry is not None
            assumed.append(entry)
