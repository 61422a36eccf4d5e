"""Who holds a block, witness by witness. Interleavings are in ``test_settle_model``."""

from nodeagent.decide.settle import CONFIRM_WITHIN_S, Evidence, Settlement, settle
from nodeagent.wire import CheckpointEntry, ContainerDevices
from slackwater.ledger import Holder, Ledger
from slackwater.names import RESOURCE
from slackwater.pod import PodView

BLOCK = "cm-n0-00000"
ENTRY = ContainerDevices("default", "be", "app", RESOURCE, (BLOCK,))
POD = PodView("uid-1", "default", "be")
HOLDER = Holder("default", "be", "app", "uid-1")
EMPTY = Ledger.of({BLOCK: 0})
HELD = EMPTY.settle({BLOCK: HOLDER}, ())


def test_without_any_witness_nothing_changes() -> None:
    assert settle(HELD.held(), Evidence(None, 0.0, None, [POD])) is None


def test_the_list_names_the_pod_and_the_api_server_its_uid() -> None:
    assert settle({}, Evidence([ENTRY], 0.0, [], [POD])) == Settlement({BLOCK: HOLDER}, frozenset())


def test_two_same_named_pods_in_two_namespaces_are_separate() -> None:
    other = ContainerDevices("other", "be", "app", RESOURCE, ("cm-n0-00001",))
    settled = settle({}, Evidence([ENTRY, other], 0.0, [], [POD, PodView("uid-2", "other", "be")]))
    assert settled is not None
    assert {name: holder.pod_uid for name, holder in settled.holders.items()} == {
        BLOCK: "uid-1",
        "cm-n0-00001": "uid-2",
    }


def test_the_checkpoint_tells_namesakes_apart() -> None:
    successor = PodView("uid-2", "default", "be")
    settled = settle({}, Evidence([ENTRY], 0.0, [CheckpointEntry("uid-2", "app", (BLOCK,))], [POD, successor]))
    assert settled is not None
    assert settled.holders[BLOCK].pod_uid == "uid-2"


def test_without_a_kubelet_the_checkpoint_of_a_living_pod_counts() -> None:
    checkpoint = [CheckpointEntry("uid-1", "app", (BLOCK,)), CheckpointEntry("ended", "app", ("cm-n0-00001",))]
    settled = settle({}, Evidence(None, 0.0, checkpoint, [POD]))
    assert settled == Settlement({BLOCK: HOLDER}, frozenset())


def test_an_empty_list_of_a_starting_kubelet_frees_nothing() -> None:
    settled = settle(HELD.held(), Evidence([], 0.0, [], [POD]))
    assert settled == Settlement({}, frozenset())


def test_a_block_is_free_when_its_pod_has_ended() -> None:
    for pods in ([], [PodView("uid-1", "default", "be", phase="Failed")]):
        settled = settle(HELD.held(), Evidence([], 0.0, [], pods))
        assert settled == Settlement({}, frozenset({BLOCK}))


def test_with_the_api_server_away_list_and_checkpoint_must_agree_that_it_is_free() -> None:
    lingering = [CheckpointEntry("uid-1", "app", (BLOCK,))]
    assert settle(HELD.held(), Evidence([], 0.0, lingering, None)) == Settlement({}, frozenset())
    assert settle(HELD.held(), Evidence([], 0.0, None, None)) == Settlement({}, frozenset())
    assert settle(HELD.held(), Evidence([], 0.0, [], None)) == Settlement({}, frozenset({BLOCK}))


def test_an_allocate_that_nobody_confirms_is_freed_after_a_while() -> None:
    assigned = EMPTY.assign([BLOCK], 100.0)
    early = settle(assigned.held(), Evidence([], 100.0 + CONFIRM_WITHIN_S, [], [POD]))
    late = settle(assigned.held(), Evidence([], 101.0 + CONFIRM_WITHIN_S, [], [POD]))
    assert (early, late) == (Settlement({}, frozenset()), Settlement({}, frozenset({BLOCK})))


def test_a_list_from_before_an_allocate_does_not_name_its_holder() -> None:
    assigned = EMPTY.assign([BLOCK], 100.0)
    assert settle(assigned.held(), Evidence([ENTRY], 99.0, [], [POD])) == Settlement({}, frozenset())


def test_a_block_listed_twice_keeps_its_first_holder_and_raises_a_doubt() -> None:
    other = ContainerDevices("other", "be", "app", RESOURCE, (BLOCK,))
    settled = settle({}, Evidence([ENTRY, other], 0.0, [], [POD]))
    assert settled is not None
    assert settled.holders[BLOCK] == HOLDER
    assert settled.doubts == (f"block {BLOCK}: the kubelet's list gives it to both default/be and other/be",)
