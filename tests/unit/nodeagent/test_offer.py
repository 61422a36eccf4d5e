"""The offer follows the sum: down at once, up slowly, and noise is not a change."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from nodeagent.decide.offer import Offer, next_offer

GROW_S = 60.0
REFRESH_S = 10.0


def _follow(*sums: int, start: Offer | None = None, grow_s: float = GROW_S) -> list[int]:
    offer, offered = start or Offer(), []
    for turn, total in enumerate(sums):
        offer = next_offer(offer, {0: total}, lending=True, fresh=True, at_s=turn * REFRESH_S, grow_interval_s=grow_s)
        offered.append(offer.blocks)
    return offered


def test_the_first_sum_is_offered_at_once() -> None:
    assert _follow(7) == [7]


def test_a_smaller_sum_is_followed_at_once() -> None:
    assert _follow(7, 3) == [7, 3]


def test_a_larger_sum_is_followed_once_it_has_lasted() -> None:
    assert _follow(3, 8, 8, 8, 8, 8, 8, 8, 8) == [3, 3, 3, 3, 3, 3, 3, 8, 8]


def test_growth_goes_only_as_far_as_the_smallest_sum_of_the_interval() -> None:
    assert _follow(3, 9, 9, 5, 9, 9, 9, 9)[-1] == 5


def test_noise_of_one_block_ends_at_its_lower_edge_and_stays_there() -> None:
    offered = _follow(*[8, 7, 8, 9] * 20)
    assert offered[0] == 8
    assert set(offered[1:]) == {7}


def test_without_an_interval_the_sum_is_followed_both_ways() -> None:
    assert _follow(3, 8, 2, 4, grow_s=0) == [3, 8, 2, 4]


def test_a_stale_reading_changes_nothing() -> None:
    offer = next_offer(Offer(), {0: 5}, lending=True, fresh=True, at_s=0, grow_interval_s=0)
    for total in (9, 1):
        offer = next_offer(offer, {0: total}, lending=True, fresh=False, at_s=1000, grow_interval_s=0)
        assert offer.blocks == 5


def test_a_node_that_must_not_lend_offers_nothing_and_comes_back_with_what_it_had() -> None:
    offer = next_offer(Offer(), {0: 5}, lending=True, fresh=True, at_s=0, grow_interval_s=GROW_S)
    cordoned = next_offer(offer, {0: 0}, lending=False, fresh=True, at_s=10, grow_interval_s=GROW_S)
    assert cordoned.blocks == 0
    back = next_offer(cordoned, {0: 4}, lending=True, fresh=True, at_s=20, grow_interval_s=GROW_S)
    assert back.blocks == 4


def test_numa_nodes_grow_and_shrink_each_by_itself() -> None:
    first = next_offer(Offer(), {0: 5, 1: 5}, lending=True, fresh=True, at_s=0, grow_interval_s=GROW_S)
    second = next_offer(first, {0: 9, 1: 2}, lending=True, fresh=True, at_s=10, grow_interval_s=GROW_S)
    assert second.blocks_by_numa() == {0: 5, 1: 2}


_SERIES = st.lists(st.tuples(st.floats(0.1, 30), st.integers(0, 50), st.booleans()), min_size=1, max_size=80)


@given(_SERIES)
def test_the_offer_is_never_above_the_newest_sum_and_grows_at_most_once_an_interval(
    series: list[tuple[float, int, bool]],
) -> None:
    offer, at_s, newest = Offer(), 0.0, 0
    grown_at_s: list[float] = []
    for step, total, fresh in series:
        at_s += step
        if fresh:
            newest = total
        before = offer
        offer = next_offer(offer, {0: newest}, lending=True, fresh=fresh, at_s=at_s, grow_interval_s=GROW_S)
        if offer.numa:
            assert 0 <= offer.blocks <= newest
        if before.numa and offer.blocks > before.blocks:
            assert fresh
            grown_at_s.append(at_s)
    assert all(later - earlier >= GROW_S for earlier, later in pairwise(grown_at_s))


@given(_SERIES, st.integers(0, 50))
def test_a_sum_that_stays_is_offered_in_full_within_two_intervals(
    series: list[tuple[float, int, bool]], last: int
) -> None:
    offer, at_s = Offer(), 0.0
    for step, total, fresh in series:
        at_s += step
        offer = next_offer(offer, {0: total}, lending=True, fresh=fresh, at_s=at_s, grow_interval_s=GROW_S)
    for _ in range(14):
        at_s += REFRESH_S
        offer = next_offer(offer, {0: last}, lending=True, fresh=True, at_s=at_s, grow_interval_s=GROW_S)
    assert offer.blocks == last


@given(_SERIES)
def test_what_is_remembered_stays_bounded(series: list[tuple[float, int, bool]]) -> None:
    offer, at_s = Offer(), 0.0
    for step, total, _ in series:
        at_s += step + REFRESH_S
        offer = next_offer(offer, {0: total}, lending=True, fresh=True, at_s=at_s, grow_interval_s=GROW_S)
    assert len(offer.numa[0].sums) <= GROW_S / REFRESH_S + 2
