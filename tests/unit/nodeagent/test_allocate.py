"""Which blocks a container gets: as few NUMA nodes as possible, and never an error."""

import re

from hypothesis import given
from hypothesis import strategies as st

from nodeagent.decide.allocate import environment, prefer

NUMA = {f"cm-n{numa}-{number:05}": numa for numa in range(3) for number in range(6)}


def _ids(numa: int, *numbers: int) -> list[str]:
    return [f"cm-n{numa}-{number:05}" for number in numbers]


def test_one_numa_node_serves_all_where_it_can() -> None:
    available = _ids(0, 0, 1) + _ids(1, 0, 1, 2, 3, 4) + _ids(2, 3, 4, 5)
    assert prefer(available, (), 3, NUMA) == tuple(_ids(2, 3, 4, 5))


def test_the_tightest_fit_keeps_large_holes_whole() -> None:
    assert prefer(_ids(0, 0, 1, 2, 3) + _ids(1, 4, 5), (), 2, NUMA) == tuple(_ids(1, 4, 5))


def test_blocks_that_must_be_included_bring_their_neighbours() -> None:
    available = _ids(0, 0, 1, 2) + _ids(1, 0, 1)
    assert prefer(available, _ids(1, 0), 2, NUMA) == tuple(_ids(1, 0, 1))


def test_what_no_numa_node_can_hold_starts_on_the_largest() -> None:
    chosen = prefer(_ids(0, 0, 1) + _ids(1, 0, 1, 2) + _ids(2, 0), (), 4, NUMA)
    assert chosen == (*_ids(1, 0, 1, 2), *_ids(2, 0))


@given(
    st.lists(st.sampled_from([*NUMA, "stranger"])),
    st.lists(st.sampled_from([*NUMA, "stranger"])),
    st.integers(-3, 30),
)
def test_any_request_gets_an_answer_without_repeats(available: list[str], included: list[str], size: int) -> None:
    chosen = prefer(available, included, size, NUMA)
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= {*available, *included}
    assert len(chosen) == min(max(0, size), len({*available, *included}))
    assert set(chosen) >= set(list(dict.fromkeys(included))[: max(0, size)])


def test_a_container_learns_its_size_in_c_identifiers_of_bounded_length() -> None:
    told = environment(4096, 512 * 1024 * 1024)
    assert told == {"SLACKWATER_BLOCKS": "4096", "SLACKWATER_BYTES": "2199023255552"}
    assert all(re.fullmatch("[A-Z_]+", name) for name in told)
    assert sum(len(name) + len(value) for name, value in told.items()) < 4096
