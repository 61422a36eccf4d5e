"""The ledger of blocks, step by step. All interleavings are modelled beside the agent's ``settle`` decision."""

from slackwater.ledger import MAX_BLOCKS, Holder, Ledger, State, block_ids, check_invariants
from slackwater.names import GIB, MIB

BLOCK = 512 * MIB
ALICE = Holder("default", "alice", "app", "uid-alice")


def test_ids_name_their_numa_node_and_round_capacity_up() -> None:
    assert block_ids({0: GIB + 1, 1: BLOCK}, BLOCK) == {
        "cm-n0-00000": 0,
        "cm-n0-00001": 0,
        "cm-n0-00002": 0,
        "cm-n1-00000": 1,
    }


def test_ids_are_bounded_and_shared_out_by_capacity() -> None:
    ids = block_ids({0: 3072 * GIB, 1: 1024 * GIB}, BLOCK)
    assert len(ids) == MAX_BLOCKS
    assert list(ids.values()).count(0) == 3 * list(ids.values()).count(1)


def _ledger(blocks: int = 4) -> Ledger:
    return Ledger.of(block_ids({0: blocks * BLOCK}, BLOCK))


def _states(ledger: Ledger) -> str:
    return "".join(block.state[0] for block in ledger.blocks.values())


def test_an_offer_counts_held_blocks_and_takes_the_lowest_free_ids() -> None:
    ledger = _ledger().assign(["cm-n0-00002"], 1.0).offer({0: 2})
    assert _states(ledger) == "owhw"


def test_a_shrink_takes_free_ids_only_and_flips_as_few_as_it_can() -> None:
    ledger = _ledger().offer({0: 4}).assign(["cm-n0-00000", "cm-n0-00001"], 1.0)
    assert _states(ledger.offer({0: 3})) == "hhow"
    assert _states(ledger.offer({0: 0})) == "hhww"
    assert _states(ledger.offer({0: 3}).offer({0: 4})) == "hhoo"


def test_ids_already_offered_stay_offered_when_a_lower_one_comes_free() -> None:
    ledger = _ledger().assign(["cm-n0-00000"], 1.0).settle({"cm-n0-00000": ALICE}, ()).offer({0: 2})
    freed = ledger.settle({}, {"cm-n0-00000"})
    assert _states(freed) == "ooww"
    assert freed.offer({0: 2}) is freed


def test_numa_nodes_are_offered_each_by_itself() -> None:
    ledger = Ledger.of(block_ids({0: GIB, 1: GIB}, BLOCK)).offer({0: 1, 1: 2})
    assert _states(ledger) == "owoo"


def test_an_id_from_another_block_size_is_kept_listed_and_unhealthy() -> None:
    ledger = _ledger(1).settle({"cm-n0-00009": ALICE}, ())
    retired = ledger.blocks["cm-n0-00009"]
    assert (retired.state, retired.healthy, retired.holder) == (State.RETIRED, False, ALICE)
    released = ledger.settle({}, {"cm-n0-00009"}).offer({0: 9})
    assert (released.blocks["cm-n0-00009"].state, released.blocks["cm-n0-00009"].holder) == (State.RETIRED, None)
    assert not check_invariants(released, ledger.blocks)


def test_unknown_and_empty_releases_are_no_operations() -> None:
    ledger = _ledger().offer({0: 2})
    assert ledger.settle({}, {"nobody-knows", "cm-n0-00000", "cm-n0-00003"}) is ledger


def test_a_missing_id_and_a_block_without_holder_break_an_invariant() -> None:
    ledger = _ledger(1)
    assert check_invariants(ledger, ["cm-n0-00007"]) == ("cm-n0-00007 has left the list",)
