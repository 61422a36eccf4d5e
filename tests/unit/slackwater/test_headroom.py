"""The sum of what may be lent: arithmetic by hand first, then what must hold for every input."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from builders import NodeBuilder, PodBuilder, ReadingBuilder, node, pod, reading, slo_config
from hypothesis import given
from hypothesis import strategies as st

from slackwater import names
from slackwater.headroom import (
    REASON_DISABLED,
    REASON_NODE_REFUSES,
    REASON_SECOND_LENDER,
    Headroom,
    compute,
)
from slackwater.node import read_node
from slackwater.pod import read_pod
from slackwater.policy.colocation import parse_colocation
from slackwater.reading import read_reading

G = 10**9
GIB = 1024**3
BLOCK = names.DEFAULT_BLOCK_SIZE


def sum_of(
    measured: ReadingBuilder,
    pods: Sequence[PodBuilder] = (),
    *,
    on: NodeBuilder | None = None,
    config: Mapping[str, Any] | None = None,
    block_size: int = BLOCK,
) -> Headroom:
    view = read_node((on or node()).raw)
    policy = parse_colocation(config)[0].for_node(view)
    return compute(view, [read_pod(each.raw) for each in pods], read_reading(measured.raw), policy, block_size)


def test_every_term_by_hand() -> None:
    """100 GiB: 10 margin, 40 used of which pods 36 (online 30, lent 6), so 4 system; 90 − 4 − 30 = 56 GiB lendable."""
    web, batch = pod("web").uses("30Gi"), pod("batch").be().blocks(16).uses("6Gi")
    found = sum_of(reading(used="40Gi").of(web, batch), [web, batch], on=node().capacity("100Gi", "98Gi"))
    assert found == Headroom(
        node="node-1",
        block_size=BLOCK,
        capacity=100 * GIB,
        used=40 * GIB,
        margin=10 * GIB,
        system=4 * GIB,
        online=30 * GIB,
        lendable=56 * GIB,
        cap=None,
        line=95 * GIB - BLOCK,
        blocks=112,
        lent=16,
    )
    assert (found.free, found.enabled, found.lendable_blocks) == (96, True, 112)


def test_the_terms_are_printed_under_their_documented_names() -> None:
    terms = sum_of(reading(used="40Gi")).as_terms()
    documented = ["node", "capacity", "margin", "system", "online", "lendable", "blocks", "lent", "free"]
    assert list(terms)[:9] == documented
    assert (terms["enabled"], terms["line"]) == (True, 95 * GIB - BLOCK)


@pytest.mark.parametrize(
    ("built", "online"),
    [
        pytest.param(pod("p").uses("3G"), 3 * G, id="use"),
        pytest.param(pod("p").requests(memory="9G").uses("3G"), 3 * G, id="use-not-request"),
        pytest.param(pod("p").requests(memory="9G"), 9 * G, id="request-without-a-sample"),
        pytest.param(pod("p").requests(memory="9G").phase("Pending"), 9 * G, id="bound-and-pending"),
        pytest.param(pod("p").requests(memory="9G").unbound(), 0, id="not-bound"),
        pytest.param(pod("p").requests(memory="9G").on("node-2"), 0, id="on-another-node"),
        pytest.param(pod("p").requests(memory="9G").phase("Succeeded"), 0, id="finished"),
        pytest.param(pod("p").requests(memory="9G").phase("Failed").uses("1G"), 1 * G, id="finished-but-measured"),
        pytest.param(pod("p").requests(memory="9G").deleted("2026-01-01T00:00:00Z"), 9 * G, id="terminating"),
        pytest.param(pod("p").be().uses("3G"), 3 * G, id="be-without-blocks"),
        pytest.param(pod("p").be().requests(memory="2G"), 2 * G, id="be-without-blocks-or-sample"),
        pytest.param(pod("p").be().blocks(4).uses("2Gi"), 0, id="be-within-its-blocks"),
        pytest.param(pod("p").be().blocks(4).uses("3Gi"), GIB, id="be-beyond-its-blocks"),
        pytest.param(pod("p").be().blocks(2, block_size=GIB).uses("2Gi"), 0, id="blocks-of-another-size"),
        pytest.param(
            pod("p").label(names.KOORDINATOR_QOS_LABEL, "BE").blocks(4).uses("2Gi"), 0, id="koordinators-label"
        ),
        pytest.param(pod("p").blocks(4).uses("2Gi"), 2 * GIB, id="blocks-do-not-make-a-pod-best-effort"),
        pytest.param(pod("p").set("status.qosClass", "BestEffort").uses("1G"), G, id="nor-does-the-kubernetes-class"),
        pytest.param(pod("p").set("spec.priority", 5000).uses("1G"), G, id="nor-does-a-priority"),
    ],
)
def test_what_a_pod_counts_for(built: PodBuilder, online: int) -> None:
    assert sum_of(reading(capacity="100G", used="50G").of(built), [built]).online == online


@pytest.mark.parametrize(
    ("policy", "online"), [("usage", 13 * G), ("request", 12 * G), ("maxUsageRequest", 18 * G)], ids=str
)
def test_calculate_policies(policy: str, online: int) -> None:
    """One pod over its request (10 of 4), one under it (3 of 8); 5 G are the system's under every policy."""
    pods = [pod("over").requests(memory="4G").uses("10G"), pod("under").requests(memory="8G").uses("3G")]
    found = sum_of(
        reading(capacity="100G", used="18G").of(*pods),
        pods,
        config=slo_config({"enable": True, "memoryCalculatePolicy": policy}),
    )
    assert (found.online, found.system, found.lendable) == (online, 5 * G, 65 * G - 5 * G - online)


def test_under_requests_the_line_still_knows_what_is_used() -> None:
    """Otherwise a burst of online pods would have blocks offered that the next eviction takes back."""
    burst = pod("burst").requests(memory="1G").uses("90G")
    found = sum_of(
        reading(capacity="100G", used="90G").of(burst),
        [burst],
        config=slo_config(
            {"enable": True, "memoryReclaimThresholdPercent": 100, "memoryCalculatePolicy": "request"},
        ),
    )
    assert (found.online, found.lendable) == (G, 99 * G)
    assert found.blocks == (95 * G - BLOCK - 90 * G) // BLOCK


@pytest.mark.parametrize(
    ("on", "measured", "system"),
    [
        pytest.param(node(), reading(capacity="100G", used="20G"), 20 * G, id="measured"),
        pytest.param(node().capacity("100G", "75G"), reading(capacity="100G", used="20G"), 25 * G, id="kubelet"),
        pytest.param(
            node().annotation(names.KOORDINATOR_RESERVATION_ANNOTATION, '{"resources": {"memory": "30G"}}'),
            reading(capacity="100G", used="20G"),
            30 * G,
            id="annotation",
        ),
        pytest.param(
            node(), reading(capacity="100G", used="20G").set("node.systemReserved", "40G"), 40 * G, id="reading"
        ),
        pytest.param(
            node().annotation(names.KOORDINATOR_RESERVATION_ANNOTATION, '{"resources": {"cpu": "3"}}'),
            reading(capacity="100G", used="20G"),
            20 * G,
            id="annotation-without-memory",
        ),
        pytest.param(
            node(),
            reading(capacity="100G", used="20G").set("pods", [{"name": "x", "used": "50G"}]),
            0,
            id="pods-measured-above-the-node-do-not-make-room",
        ),
    ],
)
def test_system(on: NodeBuilder, measured: ReadingBuilder, system: int) -> None:
    assert sum_of(measured, on=on).system == system


@pytest.mark.parametrize("text", ["{", '{"resources": {"memory": "lots"}}'])
def test_an_unreadable_reservation_is_a_warning(text: str) -> None:
    found = sum_of(reading(), on=node().annotation(names.KOORDINATOR_RESERVATION_ANNOTATION, text))
    assert any(names.KOORDINATOR_RESERVATION_ANNOTATION in warning for warning in found.warnings)


def test_the_sample_of_an_unlisted_pod_counts_as_online() -> None:
    found = sum_of(reading(capacity="100G", used="20G").of(pod("ghost").uses("7G")))
    assert (found.online, found.system) == (7 * G, 13 * G)
    assert any("default/ghost" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    ("built", "lent"),
    [
        pytest.param(pod("p").be().blocks(4), 4, id="running"),
        pytest.param(pod("p").be().blocks(4).phase("Pending"), 4, id="bound-and-pending"),
        pytest.param(pod("p").be().blocks(4).deleted("2020-01-01T00:00:00Z"), 4, id="terminating"),
        pytest.param(pod("p").be().blocks(4).phase("Succeeded"), 0, id="finished"),
        pytest.param(pod("p").be().blocks(4).unbound(), 0, id="not-bound"),
        pytest.param(pod("p").be().blocks(4).on("node-2"), 0, id="elsewhere"),
        pytest.param(pod("p").blocks(4), 4, id="the-device-plugin-gave-them-whatever-the-class"),
        pytest.param(pod("p").be().blocks(3, block_size=3 * BLOCK // 2), 5, id="another-size-rounds-up"),
    ],
)
def test_blocks_held(built: PodBuilder, lent: int) -> None:
    assert sum_of(reading(), [built]).lent == lent


@pytest.mark.parametrize(
    ("colocation", "margin", "lendable"),
    [
        pytest.param({"memoryReclaimThresholdPercent": 65}, 35 * G, 55 * G, id="65"),
        pytest.param({"memoryReclaimThresholdPercent": 100}, 0, 90 * G, id="100"),
        pytest.param({"memoryReclaimThresholdPercent": 130}, 0, 90 * G, id="above-100"),
        pytest.param({"memoryReclaimThresholdPercent": 0}, 100 * G, -10 * G, id="0"),
        pytest.param(
            {"memoryReclaimThresholdPercent": 90, "batchMemoryThresholdPercent": 20}, 10 * G, 20 * G, id="cap"
        ),
        pytest.param({"memoryReclaimThresholdPercent": 90, "batchMemoryThresholdPercent": 0}, 10 * G, 0, id="cap-0"),
        pytest.param(
            {"memoryReclaimThresholdPercent": 65, "batchMemoryThresholdPercent": 90}, 35 * G, 55 * G, id="loose-cap"
        ),
    ],
)
def test_margin_and_cap(colocation: dict[str, Any], margin: int, lendable: int) -> None:
    found = sum_of(reading(capacity="100G", used="10G"), config=slo_config({"enable": True, **colocation}))
    assert (found.margin, found.lendable) == (margin, lendable)
    assert found.blocks == max(0, min(lendable, 95 * G - BLOCK - 10 * G) // BLOCK)
    assert found.as_terms().get("cap") == (
        colocation["batchMemoryThresholdPercent"] * G if found.cap is not None else None
    )


def test_the_margin_is_cut_to_whole_bytes() -> None:
    assert sum_of(reading(capacity="16Gi")).margin == 16 * GIB // 10


def test_the_eviction_line_bounds_what_is_lent() -> None:
    config = slo_config(threshold={"clusterStrategy": {"enable": True, "memoryEvictThresholdPercent": 70}})
    found = sum_of(reading(capacity="100Gi", used="10Gi"), config=config)
    assert (found.line, found.lendable) == (70 * GIB - BLOCK, 80 * GIB)
    assert found.blocks == 119


def test_without_eviction_there_is_no_line() -> None:
    found = sum_of(reading(used="10Gi"), config=slo_config(threshold={"clusterStrategy": {"enable": False}}))
    assert (found.line, found.blocks) == (None, 160)


@pytest.mark.parametrize(
    ("on", "config", "codes"),
    [
        pytest.param(node(), slo_config({}), [REASON_DISABLED], id="switched-off"),
        pytest.param(node().cordoned(), None, [REASON_NODE_REFUSES], id="cordoned"),
        pytest.param(
            node().advertises(names.KOORDINATOR_BATCH_MEMORY, "5Gi"), None, [REASON_SECOND_LENDER], id="second-lender"
        ),
        pytest.param(
            node().advertises(names.KOORDINATOR_BATCH_MEMORY, "0"), None, [], id="second-lender-lends-nothing"
        ),
        pytest.param(
            node().advertises(names.KOORDINATOR_BATCH_MEMORY, "5Gi"),
            slo_config({"enable": True, "allowSecondLender": True}),
            [],
            id="second-lender-allowed",
        ),
        pytest.param(
            node().cordoned().advertises(names.KOORDINATOR_BATCH_MEMORY, "5Gi"),
            slo_config({}),
            [REASON_DISABLED, REASON_NODE_REFUSES, REASON_SECOND_LENDER],
            id="every-reason-is-told",
        ),
    ],
)
def test_off_is_shown_and_the_sum_still_computed(
    on: NodeBuilder, config: Mapping[str, Any] | None, codes: list[str]
) -> None:
    held = pod("held").be().blocks(4).uses("1Gi")
    found = sum_of(reading(used="10Gi").of(held), [held], on=on, config=config)
    assert [reason.code for reason in found.reasons] == codes
    assert (found.enabled, found.lendable > 0, found.lent) == (not codes, True, 4)
    if codes:
        assert (found.blocks, found.free) == (0, -4)
        assert found.as_terms()["enabled"] is False


def test_beside_a_second_lender_what_it_has_allocated_is_not_lent_again() -> None:
    theirs = pod("theirs").be().requests(**{names.KOORDINATOR_BATCH_MEMORY: "8G"}).uses("3G")
    done = pod("done").be().requests(**{names.KOORDINATOR_BATCH_MEMORY: "8G"}).phase("Succeeded")
    found = sum_of(
        reading(capacity="100G", used="3G").of(theirs),
        [theirs, done],
        on=node().advertises(names.KOORDINATOR_BATCH_MEMORY, "20G"),
        config=slo_config({"enable": True, "allowSecondLender": True}),
    )
    assert found.online == 8 * G


def test_contradicting_labels_are_a_warning() -> None:
    doubtful = pod("p").be().label(names.KOORDINATOR_QOS_LABEL, "LS")
    assert any("pod default/p" in warning for warning in sum_of(reading(), [doubtful]).warnings)


@pytest.mark.parametrize("size", [0, -1])
def test_a_block_has_a_size(size: int) -> None:
    with pytest.raises(ValueError, match="block size"):
        sum_of(reading(), block_size=size)


# -- NUMA ---------------------------------------------------------------------------------------------


def test_blocks_are_whole_per_numa_node() -> None:
    """Two halves with 0.9 × 10.25 GiB = 18.45 blocks each: 18 + 18, not the 36.9 of the whole."""
    found = sum_of(reading(capacity="20.5Gi").numa(("10.25Gi", "0"), ("10.25Gi", "0")), config=_without_eviction())
    assert ([part.blocks for part in found.numa], found.blocks) == ([18, 18], 36)


def test_one_numa_node_is_no_division() -> None:
    assert sum_of(reading(capacity="20.5Gi").numa(("20.5Gi", "0"))).numa == ()


def test_use_counts_where_it_was_measured() -> None:
    web = pod("web").uses("30Gi")
    found = sum_of(
        reading(capacity="100Gi", used="34Gi").numa(("50Gi", "30Gi"), ("50Gi", "4Gi")).of(web),
        [web],
        config=_without_eviction(),
    )
    assert [part.blocks for part in found.numa] == [2 * (45 - 30), 2 * (45 - 4)]
    assert found.blocks == 112


def test_an_overfull_numa_node_does_not_make_the_others_lend_too_much() -> None:
    web = pod("web").uses("60Gi")
    found = sum_of(
        reading(capacity="100Gi", used="60Gi").numa(("50Gi", "58Gi"), ("50Gi", "2Gi")).of(web),
        [web],
        config=_without_eviction(),
    )
    assert found.lendable == 30 * GIB
    assert ([part.blocks for part in found.numa], found.blocks) == ([0, 60], 60)


def test_a_pod_within_its_blocks_changes_nothing_on_its_numa_node() -> None:
    """Where the pod's memory was measured per NUMA node, the offer of each stays what it was."""
    empty, full = pod("b").be().blocks(20), pod("b").be().blocks(20).uses("9.7Gi")
    before = reading(capacity="100Gi", used="20Gi").numa(("50Gi", "13Gi"), ("50Gi", "7Gi"))
    sample = {"name": "b", "used": "9.7Gi", "numa": [{"id": 0, "used": "2.5Gi"}, {"id": 1, "used": "7.2Gi"}]}
    after = reading(capacity="100Gi", used="29.7Gi").numa(("50Gi", "15.5Gi"), ("50Gi", "14.2Gi")).set("pods", [sample])
    first, second = sum_of(before, [empty]), sum_of(after, [full])
    assert [part.blocks for part in first.numa] == [part.blocks for part in second.numa]


def _without_eviction() -> dict[str, str]:
    return slo_config(threshold={"clusterStrategy": {"enable": False}})


# -- what holds for every input -----------------------------------------------------------------------

amounts = st.integers(min_value=0, max_value=200).map(lambda number: number * 97_000_003)


@st.composite
def pods_in_any_state(draw: st.DrawFn) -> list[PodBuilder]:
    found = []
    for index in range(draw(st.integers(min_value=0, max_value=6))):
        built = pod(f"p{index}")
        if draw(st.booleans()):
            built = built.be()
        if draw(st.booleans()):
            built = built.blocks(draw(st.integers(min_value=0, max_value=40)))
        elif draw(st.booleans()):
            built = built.requests(memory=str(draw(amounts)))
        built = built.phase(draw(st.sampled_from(["Running", "Pending", "Succeeded", "Failed"])))
        built = built.on(draw(st.sampled_from(["node-1", "node-2"])))
        if draw(st.booleans()):
            built = built.deleted("2026-01-01T00:00:00Z")
        if draw(st.booleans()):
            built = built.uses(draw(amounts))
        found.append(built)
    return found


@st.composite
def configurations(draw: st.DrawFn) -> dict[str, str]:
    percent = st.integers(min_value=0, max_value=120)
    colocation = {
        "enable": draw(st.booleans()),
        "memoryReclaimThresholdPercent": draw(percent),
        "memoryCalculatePolicy": draw(st.sampled_from(["usage", "request", "maxUsageRequest"])),
        "batchMemoryThresholdPercent": draw(st.none() | percent),
    }
    cluster = {"enable": draw(st.booleans()), "memoryEvictThresholdPercent": draw(st.integers(1, 100))}
    return slo_config(draw(st.none() | st.just(colocation)), draw(st.none() | st.just({"clusterStrategy": cluster})))


@st.composite
def readings(draw: st.DrawFn, pods: Sequence[PodBuilder]) -> ReadingBuilder:
    capacity = draw(st.integers(min_value=1, max_value=400)) * 300_000_007
    used = draw(st.integers(min_value=0, max_value=capacity))
    built = reading(capacity=str(capacity), used=str(used)).of(*pods)
    parts = draw(st.integers(min_value=0, max_value=3))
    if parts > 1:
        shares = [(str(capacity // parts), str(draw(st.integers(0, capacity // parts)))) for _ in range(parts)]
        built = built.numa(*shares)
    return built


@given(st.data())
def test_never_more_blocks_than_every_term_allows(data: st.DataObject) -> None:
    pods = data.draw(pods_in_any_state())
    found = sum_of(data.draw(readings(pods)), pods, config=data.draw(configurations()))
    assert found.blocks >= 0
    assert found.blocks == 0 or found.blocks * BLOCK <= found.lendable
    assert found.lendable <= found.capacity - found.margin - found.system - found.online
    if found.line is not None and found.blocks:
        assert found.system + found.online + found.blocks * BLOCK <= found.line
    assert found.lent + found.free == found.blocks
    assert min(found.margin, found.system, found.online, found.lent) >= 0
    if found.numa:
        assert sum(part.blocks for part in found.numa) == found.blocks


@given(st.data(), st.integers(min_value=0, max_value=16))
def test_a_pod_that_fills_its_own_blocks_changes_nothing(data: st.DataObject, blocks: int) -> None:
    others = data.draw(pods_in_any_state())
    config = data.draw(configurations())
    lent = pod("filler").be().blocks(blocks)
    fills = data.draw(st.integers(min_value=0, max_value=blocks * BLOCK))
    capacity, used = 64 * GIB, data.draw(st.integers(min_value=0, max_value=32 * GIB))
    before = reading(capacity=str(capacity), used=str(used)).of(*others, lent.uses(0))
    after = reading(capacity=str(capacity), used=str(used + fills)).of(*others, lent.uses(fills))
    first, second = (sum_of(measured, [*others, lent], config=config) for measured in (before, after))
    assert (first.blocks, first.lent, first.free) == (second.blocks, second.lent, second.free)


@given(st.data(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(data: st.DataObject, random: Any) -> None:
    pods = data.draw(pods_in_any_state())
    measured = data.draw(readings(pods))
    shuffled = random.sample(pods, len(pods))
    samples = measured.raw["pods"]
    other = measured.set("pods", random.sample(samples, len(samples)))
    assert sum_of(measured, pods).as_terms() == sum_of(other, shuffled).as_terms()


@given(st.data(), amounts)
def test_more_online_use_never_offers_more(data: st.DataObject, extra: int) -> None:
    pods = data.draw(pods_in_any_state())
    config = data.draw(configurations())
    used = 20 * GIB
    small = reading(used=str(used)).of(*pods, pod("web").uses(1))
    large = reading(used=str(used + extra)).of(*pods, pod("web").uses(1 + extra))
    first, second = (sum_of(measured, [*pods, pod("web")], config=config) for measured in (small, large))
    assert second.blocks <= first.blocks
