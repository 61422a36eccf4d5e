"""When a round may run, and what it remembers."""

from datetime import UTC, datetime, timedelta

import pytest

from nodeagent.decide import evict
from nodeagent.decide.evict import Rounds
from slackwater.cgroup.parse import MachineMemory
from slackwater.nodeslack import Avoidance
from slackwater.pod import PodView
from slackwater.policy.colocation import EvictionStrategy

NOW = datetime(2026, 1, 1, tzinfo=UTC)
A, B = PodView("a", "ns", "a", grace_seconds=5), PodView("b", "ns", "b")


@pytest.mark.parametrize(
    ("used", "enabled", "over"), [(949, True, False), (950, True, True), (951, True, True), (999, False, False)]
)
def test_the_threshold_is_compared_exactly(used: int, enabled: bool, over: bool) -> None:
    strategy = EvictionStrategy(enabled=enabled, threshold_percent=95)
    assert evict.is_over(MachineMemory(1000, used), strategy) is over


def test_a_round_waits_until_the_last_one_has_shown_its_effect() -> None:
    rounds = evict.after_accepted(Rounds.none(), A, NOW, 100.0)
    assert evict.is_cooling(rounds, 103.9, 4.0)
    assert not evict.is_cooling(rounds, 104.0, 4.0)
    assert not evict.is_cooling(Rounds.none(), 0.0, 4.0)


def test_an_accepted_eviction_counts_as_terminating_before_the_watch_shows_it() -> None:
    rounds = evict.after_accepted(Rounds.none(), A, NOW, 0.0)
    assert [pod.deleted_at for pod in evict.with_evicted([A, B], rounds)] == [NOW + timedelta(seconds=5), None]


def test_a_pod_without_a_grace_period_has_the_default_of_30_s() -> None:
    rounds = evict.after_accepted(Rounds.none(), B, NOW, 0.0)
    assert evict.with_evicted([B], rounds)[0].deleted_at == NOW + timedelta(seconds=30)


def test_a_refused_pod_is_left_out_until_its_time() -> None:
    rounds = evict.after_refused(Rounds.none(), "a", 10.0)
    assert evict.without_refused([A, B], rounds, 9.9) == (B,)
    assert evict.without_refused([A, B], rounds, 10.0) == (A, B)


def test_a_refusal_starts_no_cooling() -> None:
    assert evict.after_refused(Rounds.none(), "a", 10.0).acted_at_s is None


def test_what_is_remembered_ends_with_its_pods() -> None:
    rounds = evict.after_refused(evict.after_accepted(Rounds.none(), A, NOW, 1.0), "b", 5.0)
    assert evict.pruned(rounds, [A, B], 2.0) == rounds
    assert evict.pruned(rounds, [B], 6.0) == Rounds({}, {}, 1.0)


def test_an_owner_is_avoided_once_and_until_the_latest_time() -> None:
    later = NOW + timedelta(minutes=5)
    avoiding = evict.avoid((), "rs", later, "x")
    assert evict.avoid(avoiding, "rs", NOW, "y") == (Avoidance("rs", later, "y"),)


def test_an_avoidance_ends() -> None:
    entries = [Avoidance("b", NOW + timedelta(2), ""), Avoidance("a", NOW + timedelta(1), ""), Avoidance("c", NOW, "")]
    assert [entry.owner for entry in evict.still_avoiding(entries, NOW)] == ["a", "b"]
