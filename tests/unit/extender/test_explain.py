"""What a pod without a node is told, and when. Rows: what the nodes' readings say, what was told before."""

import re
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from builders import PodBuilder
from hypothesis import given
from hypothesis import strategies as st
from unit.extender.states import BLOCK, NOW, held, pending, slack, unschedulable, view

from extender.decide import AssumedPod, Slack, Snapshot, UnreadableSlack, filter_nodes
from extender.explain import NOTHING_TOLD, PODS_A_TURN, Told, due, event_name, explain, read_waiting, render_event
from slackwater.errors import InputError
from slackwater.pod import PodView

SECOND = timedelta(seconds=1)


def tell(pod: PodView, *slacks: Slack, since: datetime | None = None, **kwargs: Any) -> str | None:
    snapshot = Snapshot({slack.name: slack for slack in slacks}, **kwargs)
    return explain(pod, filter_nodes(pod, snapshot.slacks, snapshot, BLOCK, NOW, avoided_since=since), BLOCK)


def sentence(pod: PodView, *slacks: Slack, **kwargs: Any) -> str:
    told = tell(pod, *slacks, **kwargs)
    assert told is not None
    return told


# -- the sentence ---------------------------------------------------------------------------------------------------

AVOIDING = [{"owner": "uid-report", "until": "2026-01-01T00:05:00Z", "reason": "evicted"}]


def test_sentence_names_what_is_needed_what_there_is_and_the_best_nodes() -> None:
    told = sentence(
        view(pending(2)),
        slack("node-c", enabled=False),
        slack("node-b", used=95 * BLOCK),
        slack("node-a", total=3, lent=2),
    )
    assert told == (
        "2 blocks (1Gi) needed; 1 block (512Mi) available in total; "
        "best of 3 nodes: node-a 1 block (512Mi) available, node-b over the eviction line, node-c not lending"
    )


@pytest.mark.parametrize(
    ("reading", "words"),
    [
        pytest.param(slack(total=0), "node-1 0 blocks (0) available", id="full"),
        pytest.param(slack(total=4, lent=1), "node-1 3 blocks (1.5Gi) available", id="too-little"),
        pytest.param(slack(total=3, block_size=2 * BLOCK), "node-1 3 blocks (3Gi) available", id="larger-blocks"),
        pytest.param(slack(age_s=301), "node-1 without a recent reading", id="stale"),
        pytest.param(slack(mode="observe"), "node-1 not lending", id="observe"),
        pytest.param(slack(used=95 * BLOCK), "node-1 over the eviction line", id="over-the-line"),
        pytest.param(UnreadableSlack("node-1", "100%s"), "node-1 with an unreadable NodeSlack", id="garbage"),
        pytest.param(
            slack(avoiding=AVOIDING, total=9),
            "node-1 9 blocks (4.5Gi) available but avoided "
            "(a pod of the same owner was evicted there a short while ago)",
            id="avoided",
        ),
    ],
)
def test_words_of_one_node(reading: Slack, words: str) -> None:
    told = sentence(view(pending(8, owner="report")), reading)
    assert told.startswith("8 blocks (4Gi) needed; ")
    assert told.endswith(f"best of 1 node: {words}")


def test_three_nodes_are_named_and_the_others_counted() -> None:
    told = sentence(view(pending(20)), *(slack(f"node-{number}", total=number) for number in range(1, 8)))
    assert "; 28 blocks (14Gi) available in total; best of 7 nodes: node-7 7 blocks" in told
    assert re.findall(r"node-\d", told) == ["node-7", "node-6", "node-5"]
    assert told.endswith(" and 4 more")


def test_without_any_node_the_sentence_says_that_none_has_reported() -> None:
    assert sentence(view(pending(1))) == (
        "1 block (512Mi) needed; no node has reported colocation memory (there is no NodeSlack)"
    )


def test_bound_pods_and_pods_just_placed_are_not_available() -> None:
    placed = AssumedPod("other", frozenset(["node-1"]), 1, BLOCK, NOW + SECOND)
    told = sentence(view(pending(4)), slack(total=5), held={"node-1": [held("node-1", 2)]}, assumed=[placed])
    assert told.endswith("node-1 2 blocks (1Gi) available")


def test_nothing_is_told_where_a_node_passes_the_filter() -> None:
    full, roomy = slack("full", total=0), slack("roomy", total=2)
    assert tell(view(pending(2)), full, roomy) is None
    asking = view(pending(1, owner="report"))
    away = slack(avoiding=AVOIDING)
    assert tell(asking, away, since=NOW - timedelta(seconds=29)) is not None
    assert tell(asking, away, since=NOW - timedelta(seconds=30)) is None


def test_long_node_names_do_not_cut_the_amounts() -> None:
    slacks = [slack(f"{letter * 250}", total=1) for letter in "abcd"]
    told = sentence(view(pending(2)), *slacks)
    assert len(told) <= 1024
    assert told.startswith("2 blocks (1Gi) needed; 4 blocks (2Gi) available in total; best of 4 nodes: aaa")


# -- which pods -----------------------------------------------------------------------------------------------------

WAITING = unschedulable(pending(2))


@pytest.mark.parametrize(
    ("built", "waits"),
    [
        pytest.param(WAITING, True, id="unschedulable"),
        pytest.param(WAITING.set("spec.schedulerName", "some-other"), True, id="any-scheduler"),
        pytest.param(pending(2), False, id="no-attempt-yet"),
        pytest.param(unschedulable(pending(2), "SchedulingGated"), False, id="gated"),
        pytest.param(unschedulable(pending(2), "SchedulerError"), False, id="attempt-failed"),
        pytest.param(unschedulable(pending(0)), False, id="asks-for-no-blocks"),
        pytest.param(WAITING.on("node-1"), False, id="bound"),
        pytest.param(WAITING.phase("Failed"), False, id="finished"),
        pytest.param(WAITING.deleted("2026-01-01T00:00:00Z"), False, id="being-deleted"),
        pytest.param(WAITING.set("status.conditions", [None, 7, {"type": []}]), False, id="garbage"),
    ],
)
def test_pods_that_wait_for_blocks(built: PodBuilder, waits: bool) -> None:
    assert read_waiting(built.raw) == (view(built) if waits else None)


def test_unreadable_pod_is_refused() -> None:
    with pytest.raises(InputError):
        read_waiting(WAITING.limits(memory="lots").raw)


# -- when -----------------------------------------------------------------------------------------------------------


def test_pauses_grow_from_a_minute_to_a_quarter_of_an_hour() -> None:
    told, pauses = NOTHING_TOLD, []
    assert told.rests_until <= NOW
    for number in range(8):
        told = told.tried(f"sentence {number}", NOW, written=True)
        pauses.append((told.rests_until - NOW) // SECOND)
    assert pauses == [60, 120, 240, 480, 900, 900, 900, 900]


def test_look_without_news_does_not_put_off_the_next_sentence() -> None:
    told = NOTHING_TOLD.tried("one", NOW, written=True).looked(NOW + 61 * SECOND)
    assert told.sentence == "one"
    assert told.rests_until == NOW + 60 * SECOND


def test_sentence_that_could_not_be_written_is_still_news() -> None:
    told = NOTHING_TOLD.tried("one", NOW, written=True).tried("two", NOW + 60 * SECOND, written=False)
    assert told.sentence == "one"
    assert told.rests_until == NOW + 180 * SECOND


def test_resting_pods_are_left_out_and_the_longest_unseen_come_first() -> None:
    older = view(pending(1, "older").set("metadata.creationTimestamp", "2025-01-01T00:00:00Z"))
    newer = view(pending(1, "newer").set("metadata.creationTimestamp", "2025-06-01T00:00:00Z"))
    seen, resting = view(pending(1, "seen")), view(pending(1, "resting"))
    told = {
        seen.uid: NOTHING_TOLD.looked(NOW - SECOND),
        resting.uid: NOTHING_TOLD.tried("x", NOW - 59 * SECOND, written=True),
    }
    assert due([seen, newer, resting, older], told, NOW) == [older, newer, seen]
    assert due([seen, newer, resting, older], told, NOW + SECOND)[-2:] == [resting, seen]


def test_every_waiting_pod_has_its_turn() -> None:
    pods = [view(pending(1, f"pod-{number}")) for number in range(2 * PODS_A_TURN + 20)]
    told: dict[str, Told] = {}
    for turn in range(3):
        looked = due(pods, told, NOW + turn * SECOND)
        assert len(looked) == PODS_A_TURN
        told.update({pod.uid: NOTHING_TOLD.looked(NOW + turn * SECOND) for pod in looked})
    assert len(told) == len(pods)


# -- the Event ------------------------------------------------------------------------------------------------------


def test_event_is_a_warning_about_the_pod() -> None:
    pod = view(WAITING)
    event = render_event(pod, "2 blocks (1Gi) needed", NOW)
    assert event["metadata"] == {"name": event_name(pod, "2 blocks (1Gi) needed"), "namespace": "default"}
    assert event["involvedObject"] == {
        "apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "be", "uid": "uid-default-be"
    }  # fmt: skip
    assert (event["type"], event["reason"]) == ("Warning", "InsufficientColocationMemory")
    assert event["source"] == {"component": "slackwater-extender"}
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2026-01-01T00:00:00Z"


def test_name_stands_for_pod_and_sentence() -> None:
    pod = view(WAITING)
    again = replace(pod, uid="uid-of-a-pod-with-the-same-name")
    assert event_name(pod, "one") == event_name(view(WAITING), "one")
    assert len({event_name(pod, "one"), event_name(pod, "two"), event_name(again, "one")}) == 3


@given(st.from_regex(r"[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?){0,3}", fullmatch=True))
def test_name_is_a_dns_subdomain(name: str) -> None:
    found = event_name(view(pending(1, name[:253].rstrip("-."))), "one")
    assert len(found) <= 253
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", found)


# -- invariants -----------------------------------------------------------------------------------------------------

readings = st.one_of(
    st.builds(dict, total=st.integers(0, 20), lent=st.integers(0, 25), block_size=st.sampled_from([BLOCK, 2 * BLOCK])),
    st.sampled_from([{"age_s": 400}, {"enabled": False}, {"mode": "observe"}, {"used": 99 * BLOCK}]),
)


@given(nodes=st.lists(readings, max_size=8), blocks=st.integers(1, 30))
def test_sentence_and_filter_agree(nodes: list[dict[str, Any]], blocks: int) -> None:
    """Told exactly where no node fits; the same whatever the order; every node named or counted."""
    slacks = [slack(f"node-{index}", **reading) for index, reading in enumerate(nodes)]
    pod = view(pending(blocks))
    snapshot = Snapshot({slack.name: slack for slack in slacks})
    decision = filter_nodes(pod, snapshot.slacks, snapshot, BLOCK, NOW)
    told = explain(pod, decision, BLOCK)
    assert (told is None) == bool(decision.fit)
    assert told == tell(pod, *reversed(slacks))
    if told is not None and nodes:
        assert "%" not in told
        named = re.findall(r"node-\d", told)
        more = re.search(r" and (\d+) more$", told)
        assert len(named) == min(3, len(nodes))
        assert len(named) + (int(more[1]) if more else 0) == len(nodes)
        total = re.search(r"; (\d+) blocks? \(\S+\) available in total; ", told)
        assert total is not None
        assert int(total[1]) == sum(judgement.room for judgement in decision.judged)
        assert all(judgement.room < blocks for judgement in decision.judged)
