"""Who has to go: the need, who may be chosen, the order, the cover."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import combinations
from typing import Any

import pytest
from builders import NodeBuilder, PodBuilder, ReadingBuilder, node, pod, reading, slo_config
from hypothesis import given
from hypothesis import strategies as st

from slackwater import names
from slackwater.headroom import compute
from slackwater.node import read_node
from slackwater.pod import read_pod
from slackwater.policy.colocation import parse_colocation
from slackwater.reading import read_reading
from slackwater.victims import RULE_LEDGER, RULE_NODE_USE, EvictionPlan, choose, event_message, smallest_cover

G = 10**9
BLOCK = names.DEFAULT_BLOCK_SIZE
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def plan_of(
    measured: ReadingBuilder,
    pods: Sequence[PodBuilder] = (),
    *,
    on: NodeBuilder | None = None,
    config: Mapping[str, Any] | None = None,
    now: datetime = NOW,
    burst: int | None = 3,
) -> EvictionPlan:
    view = read_node((on or node()).raw)
    policy = parse_colocation(config)[0].for_node(view)
    views = [read_pod(each.raw) for each in pods]
    return choose(view, views, read_reading(measured.of(*pods).raw), policy, BLOCK, now, burst=burst)


def over_by(bytes_needed: int) -> ReadingBuilder:
    """A node of 100 G at 95 % and more, that many bytes above 93 %."""
    return reading(capacity="100G", used=str(93 * G + bytes_needed))


def be(name: str, used: str, priority: int = 5000) -> PodBuilder:
    return pod(name).be().priority(priority).uses(used)


def names_of(plan: EvictionPlan) -> list[str]:
    return [victim.name for victim in plan.victims]


def reasons_of(plan: EvictionPlan) -> dict[str, str]:
    return {spared.name: spared.reason for spared in plan.spared}


# -- how much -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capacity", "used", "cluster", "release"),
    [
        pytest.param("120G", "115G", None, 3_400_000_000, id="our-default-95-93"),
        pytest.param("100G", "94999999999", None, 0, id="one-byte-below"),
        pytest.param("100G", "95G", None, 2 * G, id="reached-is-over"),
        pytest.param("100G", "75G", {"enable": True}, 7 * G, id="peer-default-70-68"),
        pytest.param("100G", "75500M", {"enable": True}, 7_500_000_000, id="exact-where-koordinator-truncates"),
        pytest.param("100G", "75G", {"memoryEvictThresholdPercent": 70}, 0, id="switched-off"),
        pytest.param(
            "100G",
            "85G",
            {"enable": True, "memoryEvictThresholdPercent": 80, "memoryEvictLowerPercent": 60},
            25 * G,
            id="lower",
        ),
        pytest.param("101", "100", {"enable": True, "memoryEvictLowerPercent": 50}, 50, id="rounded-up-to-bytes"),
        pytest.param("100G", "120G", None, 27 * G, id="above-capacity"),
    ],
)
def test_bytes_to_release(capacity: str, used: str, cluster: dict[str, Any] | None, release: int) -> None:
    config = None if cluster is None else slo_config(threshold={"clusterStrategy": cluster})
    assert plan_of(reading(capacity=capacity, used=used), config=config).release == release


def test_available_decides_what_is_used() -> None:
    """97 G with 40 G of cache that can be dropped evicts nobody."""
    measured = reading(capacity="100G", used="97G").set("node.available", "43G")
    assert plan_of(measured, [be("a", "5G")]).victims == ()


# -- who may be chosen --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("built", "reason"),
    [
        pytest.param(be("p", "9G").guaranteed(), "guaranteed", id="kubernetes-guaranteed"),
        pytest.param(be("p", "9G", 2_000_000_000), "system", id="critical"),
        pytest.param(be("p", "9G").annotation(names.CONFIG_SOURCE_ANNOTATION, "file"), "static", id="static"),
        pytest.param(be("p", "9G").annotation(names.CONFIG_MIRROR_ANNOTATION, "x"), "static", id="mirror"),
        pytest.param(be("p", "9G").owned_by("DaemonSet"), "daemonset", id="daemonset"),
        pytest.param(be("p", "9G").phase("Succeeded"), "finished", id="succeeded"),
        pytest.param(be("p", "9G").phase("Failed"), "finished", id="failed"),
        pytest.param(be("p", "9G").deleted("2025-12-31T00:00:00Z"), "terminating", id="terminating-for-long"),
        pytest.param(pod("p").be().priority(5000), "no-sample", id="no-sample"),
        pytest.param(be("p", "0"), "uses-nothing", id="uses-nothing"),
        pytest.param(
            be("p", "9G").annotation(names.KOORDINATOR_EVICTION_POLICY_ANNOTATION, "[]"), "eviction-policy", id="never"
        ),
        pytest.param(
            be("p", "9G").annotation(names.KOORDINATOR_EVICTION_POLICY_ANNOTATION, "{"),
            "eviction-policy",
            id="unreadable-is-never",
        ),
        pytest.param(
            be("p", "9G").annotation(names.KOORDINATOR_EVICTION_POLICY_ANNOTATION, '"BEMemoryEvict"'),
            "eviction-policy",
            id="no-list-is-never",
        ),
        pytest.param(
            be("p", "9G").annotation(names.KOORDINATOR_EVICTION_POLICY_ANNOTATION, '["BECPUEvict", 5]'),
            "eviction-policy",
            id="other-rules-only",
        ),
    ],
)
def test_never_chosen(built: PodBuilder, reason: str) -> None:
    plan = plan_of(over_by(5 * G), [built])
    assert (plan.victims, reasons_of(plan)) == ((), {"p": reason})
    assert reason in plan.message


@pytest.mark.parametrize(
    "built",
    [
        pytest.param(be("p", "9G"), id="without-blocks"),
        pytest.param(be("p", "9G").blocks(20), id="with-blocks"),
        pytest.param(pod("p").label(names.KOORDINATOR_QOS_LABEL, "BE").uses("9G"), id="koordinators-label"),
        pytest.param(be("p", "9G").phase("Pending"), id="pending-but-measured"),
        pytest.param(be("p", "9G").owned_by("ReplicaSet"), id="owned"),
        *(
            pytest.param(
                be("p", "9G").annotation(names.KOORDINATOR_EVICTION_POLICY_ANNOTATION, f'["x", "{rule}"]'), id=rule
            )
            for rule in ("BEMemoryEvict", "MemoryEvict", "node-memory-usage")
        ),
    ],
)
def test_the_class_makes_a_victim(built: PodBuilder) -> None:
    assert names_of(plan_of(over_by(5 * G), [built])) == ["p"]


@pytest.mark.parametrize(
    "built",
    [
        pytest.param(pod("p").uses("9G"), id="online"),
        pytest.param(pod("p").priority(5000).uses("9G"), id="a-priority-is-no-class"),
        pytest.param(pod("p").label(names.KOORDINATOR_EVICTION_ENABLED_LABEL, "true").uses("9G"), id="label-alone"),
        pytest.param(be("p", "9G").on("node-2"), id="on-another-node"),
    ],
)
def test_neither_chosen_nor_listed(built: PodBuilder) -> None:
    plan = plan_of(over_by(5 * G), [built])
    assert (plan.victims, plan.spared) == ((), ())
    assert plan.release == 5 * G
    assert "no best-effort pod" in plan.message


def test_the_priority_threshold_is_a_cap_and_lets_volunteers_go_last() -> None:
    config = slo_config(
        threshold={
            "clusterStrategy": {
                "enable": True,
                "memoryEvictThresholdPercent": 95,
                "memoryEvictLowerPercent": 93,
                "evictEnabledPriorityThreshold": 5999,
            }
        }
    )
    volunteer = pod("volunteer").priority(10).label(names.KOORDINATOR_EVICTION_ENABLED_LABEL, "true").uses("9G")
    pods = [
        be("low", "1G"),
        be("high", "9G", 7000),
        volunteer,
        pod("unlabelled").priority(0).uses("9G"),
        pod("too-high").priority(6000).label(names.KOORDINATOR_EVICTION_ENABLED_LABEL, "true").uses("9G"),
        pod("system")
        .label(names.QOS_LABEL, "SYSTEM")
        .label(names.KOORDINATOR_EVICTION_ENABLED_LABEL, "true")
        .uses("9G"),
    ]
    plan = plan_of(over_by(5 * G), pods, config=config)
    assert names_of(plan) == ["low", "volunteer"]
    assert reasons_of(plan) == {"high": "priority"}


# -- in which order -----------------------------------------------------------------------------------


def with_evict_priority(built: PodBuilder, value: str, key: str = names.EVICT_PRIORITY_ANNOTATION) -> PodBuilder:
    return built.annotation(key, value)


@pytest.mark.parametrize(
    ("need", "pods", "victims"),
    [
        pytest.param("18G", [be("a", "20G"), be("b", "18G"), be("c", "5G")], ["b"], id="fewest-bytes-too-many"),
        pytest.param("20G", [be("a", "20G"), be("b", "10G"), be("c", "10G")], ["a"], id="then-fewest-pods"),
        pytest.param("10G", [be("a", "5G"), be("b", "5G"), be("c", "6G"), be("d", "4G")], ["c", "d"], id="then-larger"),
        pytest.param("5G", [be("b", "5G"), be("a", "5G")], ["a"], id="then-by-name"),
        pytest.param("9G", [be("a", "4G"), be("b", "5G"), be("c", "10G")], ["b", "a"], id="kill-order-is-larger-first"),
        pytest.param(
            "5G", [be("high", "5G", 5001), be("low", "20G", 5000)], ["low"], id="lower-priority-before-less-excess"
        ),
        pytest.param(
            "6G", [be("low", "5G", 3000), be("x", "9G"), be("y", "1500M")], ["low", "y"], id="whole-bands-then-a-cover"
        ),
        pytest.param(
            "5G",
            [with_evict_priority(be("a", "5G"), "5"), with_evict_priority(be("b", "20G"), "-5")],
            ["b"],
            id="lower-evict-priority-first",
        ),
        pytest.param(
            "5G",
            [with_evict_priority(be("a", "20G", 4000), "9"), with_evict_priority(be("b", "5G", 5000), "-9")],
            ["a"],
            id="priority-outweighs-evict-priority",
        ),
        pytest.param(
            "5G",
            [
                with_evict_priority(be("a", "5G"), "1", names.KOORDINATOR_EVICTION_PRIORITY_ANNOTATION),
                be("b", "20G"),
            ],
            ["b"],
            id="koordinators-annotation-is-read",
        ),
        pytest.param(
            "5G",
            [
                with_evict_priority(
                    with_evict_priority(be("a", "5G"), "-9", names.KOORDINATOR_EVICTION_PRIORITY_ANNOTATION), "9"
                ),
                be("b", "20G"),
            ],
            ["b"],
            id="the-native-annotation-wins",
        ),
        pytest.param(
            "5G",
            [
                be("a", "5G").label(names.KOORDINATOR_SUB_PRIORITY_LABEL, "9"),
                be("z", "5G").label(names.KOORDINATOR_SUB_PRIORITY_LABEL, "1"),
            ],
            ["z"],
            id="sub-priority-between-equal-covers",
        ),
        pytest.param(
            "4G",
            [
                be("a", "4G").label(names.KOORDINATOR_SUB_PRIORITY_LABEL, "9"),
                be("z", "20G").label(names.KOORDINATOR_SUB_PRIORITY_LABEL, "1"),
            ],
            ["a"],
            id="sub-priority-does-not-make-a-band",
        ),
        pytest.param(
            "5G",
            [
                pod("a").be().set("spec.priorityClassName", "koord-batch").uses("5G"),
                pod("z").be().set("spec.priorityClassName", "slackwater-free").uses("20G"),
            ],
            ["z"],
            id="a-manifest-has-only-the-class-name",
        ),
    ],
)
def test_the_order(need: str, pods: list[PodBuilder], victims: list[str]) -> None:
    measured = over_by(int(need.removesuffix("G")) * G)
    assert names_of(plan_of(measured, pods)) == victims
    assert names_of(plan_of(measured, pods[::-1])) == victims


@pytest.mark.parametrize("value", ["", "high", "1.5", "99999999999", "9999999999", " 1", "+-5", "٣"])
def test_an_unreadable_evict_priority_counts_as_0_with_a_warning(value: str) -> None:
    plan = plan_of(
        over_by(5 * G), [with_evict_priority(be("a", "5G"), value), with_evict_priority(be("b", "5G"), "-1")]
    )
    assert names_of(plan) == ["b"]
    assert any("default/a" in warning for warning in plan.warnings)


def test_the_burst_cuts_in_kill_order() -> None:
    plan = plan_of(over_by(10 * G), [be(f"p{size}", f"{size}G") for size in (1, 2, 3, 4)])
    assert names_of(plan) == ["p4", "p3", "p2"]
    assert reasons_of(plan) == {"p1": "burst"}


def test_without_a_burst_everything_needed_goes() -> None:
    plan = plan_of(over_by(10 * G), [be(f"p{size}", f"{size}G") for size in (1, 2, 3, 4)], burst=None)
    assert names_of(plan) == ["p4", "p3", "p2", "p1"]


# -- credits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("since", "victims"),
    [
        pytest.param(timedelta(seconds=-20), [], id="in-its-grace-period"),
        pytest.param(timedelta(seconds=30), [], id="30-s-after"),
        pytest.param(timedelta(seconds=30, microseconds=1), ["other"], id="stuck"),
    ],
)
@pytest.mark.parametrize("leaving", [be("leaving", "6G"), pod("leaving").uses("6G")], ids=["be", "online"])
def test_pods_on_their_way_out_are_credited(leaving: PodBuilder, since: timedelta, victims: list[str]) -> None:
    pods = [leaving.deleted("2026-01-01T00:00:00Z"), be("other", "9G")]
    plan = plan_of(over_by(5 * G), pods, now=NOW + since)
    assert (names_of(plan), plan.release) == (victims, 5 * G)
    assert ("terminating" in plan.message) is not bool(victims)


def test_only_what_is_left_after_the_credit_is_covered() -> None:
    pods = [be("leaving", "3G").deleted("2026-01-01T00:00:00Z"), be("a", "2G"), be("b", "5G")]
    plan = plan_of(over_by(5 * G), pods)
    assert (names_of(plan), plan.release) == (["a"], 5 * G)


def test_a_pod_terminating_elsewhere_is_not_credited() -> None:
    pods = [be("leaving", "6G").on("node-2").deleted("2026-01-01T00:00:00Z"), be("other", "9G")]
    assert names_of(plan_of(over_by(5 * G), pods)) == ["other"]


# -- the ledger rule ----------------------------------------------------------------------------------


def ledger_config(threshold: int = 110, lower: int = 100, **more: Any) -> dict[str, str]:
    return slo_config(
        {"enable": True, "memoryReclaimThresholdPercent": 100},
        {
            "clusterStrategy": {
                "enable": True,
                "memoryEvictThresholdPercent": 95,
                "memoryEvictLowerPercent": 93,
                "memoryAllocatableEvictThresholdPercent": threshold,
                "memoryAllocatableEvictLowerPercent": lower,
                "allocatableEvictPriorityThreshold": 5999,
                **more,
            }
        },
    )


def lendable(blocks: int) -> ReadingBuilder:
    """A node of 100 blocks, of which that many may be lent (margin 0, the rest is the system's)."""
    return reading(capacity=str(100 * BLOCK), used=str((100 - blocks) * BLOCK))


@pytest.mark.parametrize(
    ("blocks", "release"),
    [
        pytest.param(10, 0, id="within"),
        pytest.param(11, 0, id="1.1-times-is-not-above-110-percent"),
        pytest.param(12, 2 * BLOCK, id="above"),
        pytest.param(30, 20 * BLOCK, id="far-above"),
    ],
)
def test_blocks_lent_over_blocks_lendable(blocks: int, release: int) -> None:
    pods = [pod("a").be().priority(5000).blocks(blocks).uses("0")]
    ledger = [need.release for need in plan_of(lendable(10), pods, config=ledger_config()).needs]
    assert ledger == ([release] if release else [])


def test_nothing_lendable_asks_for_every_block() -> None:
    config = ledger_config(evictEnabledPriorityThreshold=5999)
    plan = plan_of(lendable(0), [pod("a").be().priority(5000).blocks(4)], config=config)
    assert max(need.release for need in plan.needs if need.rule == RULE_LEDGER) == 4 * BLOCK


def test_the_ledger_rule_covers_with_blocks_and_prints_use() -> None:
    pods = [
        pod("few").be().priority(5000).blocks(2).uses("900M"),
        pod("many").be().priority(5000).blocks(9).uses("1M"),
        pod("none").be().priority(5000).uses("1M"),
        pod("high").be().priority(7000).blocks(1).uses("1M"),
    ]
    plan = plan_of(lendable(20).set("node.used", str(90 * BLOCK)), pods, config=ledger_config(105))
    assert [(victim.name, victim.bytes, victim.reason) for victim in plan.victims] == [
        ("few", 900_000_000, RULE_LEDGER)
    ]
    assert reasons_of(plan) == {"many": "not-needed", "none": "holds-no-blocks", "high": "priority"}


def test_both_rules_are_covered_and_the_larger_need_is_printed() -> None:
    """6 blocks have to be freed; and 8 are lent where the use of the rest leaves 2."""
    pods = [
        pod("fat").be().priority(5000).uses(str(20 * BLOCK)),
        pod("holder").be().priority(5000).blocks(8).uses(str(BLOCK)),
    ]
    plan = plan_of(reading(capacity=str(100 * BLOCK), used=str(99 * BLOCK)), pods, config=ledger_config())
    assert [(victim.name, victim.reason) for victim in plan.victims] == [
        ("fat", RULE_NODE_USE),
        ("holder", RULE_LEDGER),
    ]
    assert {need.rule for need in plan.needs} == {RULE_NODE_USE, RULE_LEDGER}
    assert plan.release == 6 * BLOCK


# -- what is told -------------------------------------------------------------------------------------


def test_the_sentence_of_the_event() -> None:
    assert event_message("be1", "node-1", 3_400_000_000) == (
        "evict Pod:be1, reason: EvictPodByNodeMemoryUsage, message: killAndEvictBEPods for node(node-1), need to"
        " release memory: 3400000000"
    )


def test_the_message_names_the_first_victim_and_the_whole_need() -> None:
    plan = plan_of(reading(capacity="120G", used="115G"), [be("be1", "5G")])
    assert plan.message == event_message("be1", "node-1", 3_400_000_000)


def test_below_the_threshold_everybody_is_spared() -> None:
    plan = plan_of(reading(capacity="100G", used="50G"), [be("a", "5G"), be("b", "5G").phase("Succeeded")])
    assert (plan.release, plan.victims) == (0, ())
    assert reasons_of(plan) == {"a": "not-needed", "b": "finished"}
    assert "nothing to release" in plan.message


def test_switched_off_everybody_is_spared() -> None:
    plan = plan_of(over_by(5 * G), [be("a", "5G")], config=slo_config(threshold={}))
    assert (plan.enabled, plan.release, plan.victims) == (False, 0, ())
    assert reasons_of(plan) == {"a": "eviction-off"}


# -- the cover ----------------------------------------------------------------------------------------


def brute_force(weights: Sequence[int], need: int) -> list[int]:
    places = range(len(weights))
    covers = [
        chosen
        for count in range(len(weights) + 1)
        for chosen in combinations(places, count)
        if sum(weights[place] for place in chosen) >= need
    ]
    best = min(covers, key=lambda chosen: (sum(weights[place] for place in chosen), len(chosen), chosen))
    return list(best)


@given(
    st.lists(st.integers(min_value=1, max_value=12) | st.integers(min_value=1, max_value=10**12), max_size=8), st.data()
)
def test_the_cover_is_the_smallest(weights: list[int], data: st.DataObject) -> None:
    need = data.draw(st.integers(min_value=0, max_value=sum(weights)))
    assert smallest_cover(weights, need) == brute_force(weights, need)


@given(st.lists(st.integers(min_value=1, max_value=10**6), max_size=20), st.integers(min_value=1))
def test_what_cannot_be_covered_takes_everything(weights: list[int], more: int) -> None:
    assert smallest_cover(weights, sum(weights) + more) == list(range(len(weights)))


@given(st.lists(st.integers(min_value=1, max_value=2**33), min_size=30, max_size=60), st.data())
def test_a_large_band_is_covered_within_the_documented_bound(weights: list[int], data: st.DataObject) -> None:
    need = data.draw(st.integers(min_value=1, max_value=sum(weights)))
    chosen = smallest_cover(weights, need)
    excess = sum(weights[place] for place in chosen) - need
    assert excess >= 0
    # A single pod, or everything but one, is among the covers that the exact answer cannot be worse than.
    singles = [weight - need for weight in weights if weight >= need]
    all_but_one = [sum(weights) - weight - need for weight in weights if sum(weights) - weight >= need]
    assert excess <= min([*singles, *all_but_one, sum(weights) - need]) + len(weights) * need // 512 + 1


# -- what holds for every input -----------------------------------------------------------------------


@st.composite
def pods_in_any_state(draw: st.DrawFn) -> list[PodBuilder]:
    found = []
    for index in range(draw(st.integers(min_value=0, max_value=8))):
        built = pod(f"p{index}").priority(draw(st.sampled_from([0, 3000, 5000, 5001, 2_000_000_000])))
        if draw(st.integers(0, 4)):
            built = built.be()
        if not draw(st.integers(0, 4)):
            built = built.guaranteed()
        elif draw(st.booleans()):
            built = built.blocks(draw(st.integers(0, 9)))
        if not draw(st.integers(0, 4)):
            built = built.deleted("2026-01-01T00:00:00Z")
        if not draw(st.integers(0, 4)):
            built = built.owned_by("DaemonSet")
        if draw(st.booleans()):
            built = with_evict_priority(built, str(draw(st.integers(-2, 2))))
        if draw(st.integers(0, 5)):
            built = built.uses(draw(st.integers(0, 40)) * 250_000_001)
        found.append(built.phase(draw(st.sampled_from(["Running", "Running", "Running", "Pending", "Succeeded"]))))
    return found


measurements = st.integers(min_value=0, max_value=110 * G).map(lambda used: reading(capacity="100G", used=str(used)))


@given(pods_in_any_state(), measurements, st.sampled_from([None, ledger_config()]))
def test_victims_cover_the_need_or_are_everybody(
    pods: list[PodBuilder], measured: ReadingBuilder, config: Mapping[str, Any] | None
) -> None:
    plan = plan_of(measured, pods, config=config, burst=None)
    freed = sum(victim.bytes for victim in plan.victims)
    for need in plan.needs:
        if need.rule == RULE_NODE_USE and freed < need.open:
            assert "not-needed" not in reasons_of(plan).values()
    if not any(need.open for need in plan.needs):
        assert plan.victims == ()


@given(pods_in_any_state(), measurements)
def test_no_protected_pod_is_ever_chosen(pods: list[PodBuilder], measured: ReadingBuilder) -> None:
    plan = plan_of(measured, pods, burst=None)
    views = {view.name: view for view in (read_pod(each.raw) for each in pods)}
    for victim in plan.victims:
        view = views[victim.name]
        assert view.is_be
        assert not any((view.is_finished, view.is_terminating, view.is_daemonset, view.is_critical))
        assert view.kubernetes_qos != "Guaranteed"
    best_effort = {view.name for view in views.values() if view.is_be}
    assert {victim.name for victim in plan.victims} | set(reasons_of(plan)) == best_effort
    assert not {victim.name for victim in plan.victims} & set(reasons_of(plan))


@given(pods_in_any_state(), measurements, st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(pods: list[PodBuilder], measured: ReadingBuilder, random: Any) -> None:
    assert plan_of(measured, pods) == plan_of(measured, random.sample(pods, len(pods)))


@given(pods_in_any_state(), st.integers(min_value=0, max_value=100 * BLOCK), st.data())
def test_nothing_is_admitted_that_the_next_reading_evicts(
    pods: list[PodBuilder], used: int, data: st.DataObject
) -> None:
    """One watermark: whatever part of the free blocks is filled, use stays below the eviction threshold."""
    online = [built for built in pods if not read_pod(built.raw).is_be]
    own = sum(int(built.used or 0) for built in online)
    capacity = 200 * BLOCK
    before = reading(capacity=str(capacity), used=str(min(capacity, own + used))).of(*online)
    view = read_node(node().raw)
    policy = parse_colocation(data.draw(st.sampled_from([None, ledger_config()])))[0].for_node(view)
    headroom = compute(view, [read_pod(each.raw) for each in online], read_reading(before.raw), policy, BLOCK)
    filled = data.draw(st.integers(0, max(0, headroom.free) * BLOCK))
    newcomer = pod("new").be().priority(5000).blocks(max(0, headroom.free)).uses(filled)
    after = before.of(newcomer).set("node.used", str(min(capacity, own + used) + filled))
    plan = choose(
        view, [read_pod(each.raw) for each in (*online, newcomer)], read_reading(after.raw), policy, BLOCK, NOW
    )
    if headroom.free > 0:
        assert plan.victims == ()
