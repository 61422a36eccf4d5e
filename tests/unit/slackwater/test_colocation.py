"""ConfigMap slo-controller-config: defaults, merging, ranges."""

from collections.abc import Mapping
from typing import Any

import pytest
from builders import NodeBuilder, node, slo_config
from hypothesis import given
from hypothesis import strategies as st

from slackwater import names
from slackwater.errors import InputError
from slackwater.node import read_node
from slackwater.policy.colocation import (
    DEFAULT_POLICY,
    AllocatableRule,
    CalculatePolicy,
    EvictionStrategy,
    LendingStrategy,
    NodePolicy,
    parse_colocation,
)

PLAIN = node()
GOLD = node().label("tier", "gold")


def policy_of(data: Mapping[str, Any] | None, built: NodeBuilder = PLAIN) -> NodePolicy:
    return parse_colocation(data)[0].for_node(read_node(built.raw))


def selects(label: str, value: str) -> dict[str, Any]:
    return {"matchLabels": {label: value}}


@pytest.mark.parametrize("data", [None, {}, {"resource-qos-config": "{}"}, {"cpu-burst-config": "not even JSON"}])
def test_without_its_keys_our_own_defaults_hold(data: Mapping[str, Any] | None) -> None:
    """Lending without eviction, or an eviction line below what is lent, is never a default."""
    found = policy_of(data)
    assert found == NodePolicy(LendingStrategy(enabled=True, reclaim_percent=90), EvictionStrategy(True, 95, 93))
    assert found.lending.margin_percent == 10
    assert found.eviction.threshold_percent > found.lending.reclaim_percent


def test_the_default_policy_is_what_an_absent_config_map_gives() -> None:
    assert parse_colocation(None) == (DEFAULT_POLICY, ())


@pytest.mark.parametrize(
    ("colocation", "expected"),
    [
        pytest.param({}, LendingStrategy(False, 65), id="present-but-empty-is-off"),
        pytest.param({"enable": True}, LendingStrategy(True, 65), id="peer-default"),
        pytest.param({"enable": None}, LendingStrategy(False, 65), id="null-is-absent"),
        pytest.param({"enable": True, "memoryReclaimThresholdPercent": 0}, LendingStrategy(True, 0), id="zero"),
        pytest.param(
            {"enable": True, "memoryReclaimThresholdPercent": 80.0}, LendingStrategy(True, 80), id="whole-float"
        ),
        pytest.param(
            {"enable": True, "memoryCalculatePolicy": "maxUsageRequest"},
            LendingStrategy(True, 65, CalculatePolicy.MAX_USAGE_REQUEST),
            id="policy",
        ),
        pytest.param(
            {"enable": True, "batchMemoryThresholdPercent": 30}, LendingStrategy(True, 65, batch_percent=30), id="cap"
        ),
        pytest.param({"degradeTimeMinutes": 3}, LendingStrategy(False, 65, degrade_minutes=3), id="degrade"),
        pytest.param({"allowSecondLender": True}, LendingStrategy(False, 65, allow_second_lender=True), id="ours"),
    ],
)
def test_colocation_config(colocation: dict[str, Any], expected: LendingStrategy) -> None:
    found = policy_of(slo_config(colocation))
    assert found == NodePolicy(expected, EvictionStrategy(True, 95, 93))


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        pytest.param({}, EvictionStrategy(False, 70, 68), id="present-but-empty-is-off"),
        pytest.param({"enable": True}, EvictionStrategy(True, 70, 68), id="peer-default"),
        pytest.param(
            {"enable": True, "memoryEvictThresholdPercent": 85}, EvictionStrategy(True, 85, 83), id="two-below"
        ),
        pytest.param(
            {"enable": True, "memoryEvictThresholdPercent": 85, "memoryEvictLowerPercent": 75},
            EvictionStrategy(True, 85, 75),
            id="both",
        ),
        pytest.param(
            {"enable": True, "memoryEvictThresholdPercent": 1}, EvictionStrategy(True, 1, 0), id="not-below-0"
        ),
        pytest.param({"evictEnabledPriorityThreshold": 5999}, EvictionStrategy(False, 70, 68, 5999), id="priority"),
        pytest.param(
            {
                "memoryAllocatableEvictThresholdPercent": 110,
                "memoryAllocatableEvictLowerPercent": 100,
                "allocatableEvictPriorityThreshold": 5999,
            },
            EvictionStrategy(False, 70, 68, None, AllocatableRule(110, 100, 5999)),
            id="ledger-rule",
        ),
    ],
)
def test_resource_threshold_config(cluster: dict[str, Any], expected: EvictionStrategy) -> None:
    found = policy_of(slo_config(threshold={"clusterStrategy": cluster}))
    assert found == NodePolicy(LendingStrategy(True, 90), expected)


def test_a_threshold_config_without_a_cluster_strategy_is_off() -> None:
    assert policy_of(slo_config(threshold={})).eviction == EvictionStrategy(False, 70, 68)


def test_the_first_matching_node_config_is_merged_over_the_cluster() -> None:
    data = slo_config(
        {
            "enable": True,
            "memoryReclaimThresholdPercent": 50,
            "memoryCalculatePolicy": "request",
            "nodeConfigs": [
                {"name": "other", "nodeSelector": selects("tier", "tin"), "memoryReclaimThresholdPercent": 1},
                {"name": "gold", "nodeSelector": selects("tier", "gold"), "memoryReclaimThresholdPercent": 80},
                {"name": "late", "nodeSelector": {}, "memoryReclaimThresholdPercent": 2, "enable": False},
            ],
        }
    )
    assert policy_of(data, GOLD).lending == LendingStrategy(True, 80, CalculatePolicy.REQUEST)
    assert policy_of(data, PLAIN).lending == LendingStrategy(False, 2, CalculatePolicy.REQUEST)


def test_an_explicit_zero_or_false_wins_in_a_node_strategy() -> None:
    data = slo_config(
        threshold={
            "clusterStrategy": {
                "enable": True,
                "memoryEvictThresholdPercent": 80,
                "evictEnabledPriorityThreshold": 5999,
            },
            "nodeStrategies": [
                {"nodeSelector": selects("tier", "gold"), "enable": False, "evictEnabledPriorityThreshold": 0},
            ],
        }
    )
    assert policy_of(data, GOLD).eviction == EvictionStrategy(False, 80, 78, 0)
    assert policy_of(data, PLAIN).eviction == EvictionStrategy(True, 80, 78, 5999)


@pytest.mark.parametrize(
    "selector",
    [
        pytest.param(None, id="absent"),
        pytest.param({"matchExpressions": [{"key": "tier", "operator": "Like"}]}, id="unreadable"),
    ],
)
def test_a_selector_that_selects_nothing_is_skipped_with_a_warning(selector: Any) -> None:
    entries = [
        {"nodeSelector": selector, "memoryReclaimThresholdPercent": 1},
        {"nodeSelector": selects("tier", "gold"), "memoryReclaimThresholdPercent": 80},
    ]
    policy, warnings = parse_colocation(slo_config({"enable": True, "nodeConfigs": entries}))
    assert policy.for_node(read_node(GOLD.raw)).lending.reclaim_percent == 80
    assert len(warnings) == 1
    assert "matches no node" in str(warnings[0])


@pytest.mark.parametrize(
    ("built", "expected", "warnings"),
    [
        pytest.param(PLAIN, LendingStrategy(True, 50), 0, id="cluster"),
        pytest.param(
            PLAIN.annotation(
                names.KOORDINATOR_STRATEGY_ANNOTATION, '{"memoryReclaimThresholdPercent": 70, "enable": false}'
            ),
            LendingStrategy(False, 70),
            0,
            id="annotation",
        ),
        pytest.param(
            PLAIN.annotation(names.KOORDINATOR_STRATEGY_ANNOTATION, '{"memoryReclaimThresholdPercent": 70}').label(
                names.KOORDINATOR_RECLAIM_RATIO_LABEL, "0.29"
            ),
            LendingStrategy(True, 29),
            0,
            id="label-after-annotation-without-binary-rounding",
        ),
        pytest.param(
            PLAIN.annotation(names.KOORDINATOR_STRATEGY_ANNOTATION, "{"), LendingStrategy(True, 50), 1, id="not-json"
        ),
        pytest.param(
            PLAIN.annotation(
                names.KOORDINATOR_STRATEGY_ANNOTATION, '{"memoryReclaimThresholdPercent": -1, "enable": false}'
            ),
            LendingStrategy(False, 50),
            1,
            id="only-the-bad-part-is-ignored",
        ),
        pytest.param(
            PLAIN.label(names.KOORDINATOR_RECLAIM_RATIO_LABEL, "-0.5"), LendingStrategy(True, 50), 1, id="negative"
        ),
        pytest.param(
            PLAIN.label(names.KOORDINATOR_RECLAIM_RATIO_LABEL, "1/2"), LendingStrategy(True, 50), 1, id="fraction"
        ),
        pytest.param(PLAIN.label(names.KOORDINATOR_RECLAIM_RATIO_LABEL, "nan"), LendingStrategy(True, 50), 1, id="nan"),
        pytest.param(
            PLAIN.label(names.KOORDINATOR_RECLAIM_RATIO_LABEL, "1e99999"), LendingStrategy(True, 50), 1, id="huge"
        ),
        pytest.param(
            PLAIN.label(names.KOORDINATOR_RECLAIM_RATIO_LABEL, "1.2"), LendingStrategy(True, 120), 1, id="over-1"
        ),
    ],
)
def test_what_the_node_itself_says(built: NodeBuilder, expected: LendingStrategy, warnings: int) -> None:
    found = policy_of(slo_config({"enable": True, "memoryReclaimThresholdPercent": 50}), built)
    assert (found.lending, len(found.warnings)) == (expected, warnings)


def test_above_100_percent_there_is_no_margin_and_a_warning() -> None:
    found = policy_of(slo_config({"enable": True, "memoryReclaimThresholdPercent": 130}))
    assert found.lending.margin_percent == 0
    assert "margin is 0" in found.warnings[0]


def test_the_ledger_rule_needs_all_its_fields() -> None:
    found = policy_of(slo_config(threshold={"clusterStrategy": {"memoryAllocatableEvictThresholdPercent": 110}}))
    assert found.eviction.allocatable is None
    assert "allocatableEvictPriorityThreshold" in found.warnings[0]


@pytest.mark.parametrize(
    ("data", "where"),
    [
        pytest.param(slo_config("{"), "colocation-config", id="not-json"),
        pytest.param(slo_config(""), "colocation-config", id="empty"),
        pytest.param(slo_config("[]"), "colocation-config", id="a-list"),
        pytest.param(slo_config('{"memoryReclaimThresholdPercent": NaN}'), "colocation-config", id="nan"),
        pytest.param({"colocation-config": {"enable": True}}, "colocation-config", id="not-text"),
        pytest.param(slo_config("[" * 100_000), "colocation-config", id="deep"),
        pytest.param(slo_config({"enable": "true"}), "colocation-config.enable", id="quoted-boolean"),
        pytest.param(
            slo_config({"memoryReclaimThresholdPercent": -1}),
            "colocation-config.memoryReclaimThresholdPercent",
            id="below-0",
        ),
        pytest.param(
            slo_config({"memoryReclaimThresholdPercent": 65.5}),
            "colocation-config.memoryReclaimThresholdPercent",
            id="not-whole",
        ),
        pytest.param(
            slo_config({"memoryReclaimThresholdPercent": True}),
            "colocation-config.memoryReclaimThresholdPercent",
            id="boolean",
        ),
        pytest.param(
            slo_config({"memoryCalculatePolicy": "guess"}), "colocation-config.memoryCalculatePolicy", id="policy"
        ),
        pytest.param(
            slo_config({"memoryCalculatePolicy": []}), "colocation-config.memoryCalculatePolicy", id="policy-list"
        ),
        pytest.param(slo_config({"degradeTimeMinutes": 0}), "colocation-config.degradeTimeMinutes", id="degrade"),
        pytest.param(slo_config({"resourceDiffThreshold": 1.5}), "colocation-config.resourceDiffThreshold", id="share"),
        pytest.param(slo_config({"nodeConfigs": {}}), "colocation-config.nodeConfigs", id="not-a-list"),
        pytest.param(slo_config({"nodeConfigs": ["x"]}), "colocation-config.nodeConfigs[0]", id="not-an-object"),
        pytest.param(
            slo_config({"nodeConfigs": [{"nodeSelector": {}, "batchMemoryThresholdPercent": -1}]}),
            "colocation-config.nodeConfigs[0].batchMemoryThresholdPercent",
            id="in-a-node-config",
        ),
        pytest.param(
            slo_config(threshold={"clusterStrategy": {"memoryEvictThresholdPercent": 101}}),
            "resource-threshold-config.clusterStrategy.memoryEvictThresholdPercent",
            id="above-100",
        ),
        pytest.param(
            slo_config(threshold={"clusterStrategy": {"memoryEvictLowerPercent": 70}}),
            "resource-threshold-config.clusterStrategy.memoryEvictLowerPercent",
            id="lower-not-below-the-default",
        ),
        pytest.param(
            slo_config(
                threshold={
                    "clusterStrategy": {"memoryEvictThresholdPercent": 80, "memoryEvictLowerPercent": 70},
                    "nodeStrategies": [{"nodeSelector": {}, "memoryEvictThresholdPercent": 60}],
                }
            ),
            "resource-threshold-config.nodeStrategies[0].memoryEvictLowerPercent",
            id="lower-not-below-after-merging",
        ),
        pytest.param(
            slo_config(threshold={"clusterStrategy": {"allocatableEvictPriorityThreshold": 9000}}),
            "resource-threshold-config.clusterStrategy.allocatableEvictPriorityThreshold",
            id="prod-pods-are-safe",
        ),
        pytest.param(
            slo_config(threshold={"clusterStrategy": {"evictEnabledPriorityThreshold": 2**31}}),
            "resource-threshold-config.clusterStrategy.evictEnabledPriorityThreshold",
            id="beyond-32-bits",
        ),
        pytest.param(
            slo_config(
                threshold={
                    "clusterStrategy": {
                        "memoryAllocatableEvictThresholdPercent": 100,
                        "memoryAllocatableEvictLowerPercent": 100,
                    }
                }
            ),
            "resource-threshold-config.clusterStrategy.memoryAllocatableEvictLowerPercent",
            id="ledger-lower",
        ),
        pytest.param(
            slo_config(threshold={"clusterStrategy": 5}), "resource-threshold-config.clusterStrategy", id="number"
        ),
    ],
)
def test_what_cannot_be_used_names_its_field_and_a_remedy(data: Mapping[str, Any], where: str) -> None:
    with pytest.raises(InputError) as refusal:
        parse_colocation(data)
    assert [problem.where for problem in refusal.value.problems] == [where]
    assert all(problem.remedy for problem in refusal.value.problems)


def test_every_problem_of_both_keys_is_reported_at_once() -> None:
    with pytest.raises(InputError) as refusal:
        parse_colocation(
            slo_config(
                {"enable": 1, "degradeTimeMinutes": 0},
                {"clusterStrategy": {"enable": "x", "memoryEvictLowerPercent": -1}},
            )
        )
    assert len(refusal.value.problems) == 4


@pytest.mark.parametrize(
    ("data", "where", "hint"),
    [
        (slo_config({"enabled": True}), "colocation-config.enabled", "did you mean enable?"),
        ({"colocation-confg": "{}"}, "colocation-confg", "did you mean colocation-config?"),
        (slo_config({"nodeConfigs": [{"nodeSelector": {}, "x": 1}]}), "colocation-config.nodeConfigs[0].x", "remove"),
        (
            slo_config(threshold={"clusterStrategie": {}}),
            "resource-threshold-config.clusterStrategie",
            "clusterStrategy",
        ),
    ],
)
def test_an_unknown_field_is_a_warning(data: Mapping[str, Any], where: str, hint: str) -> None:
    _, warnings = parse_colocation(data)
    assert [warning.where for warning in warnings] == [where]
    assert hint in str(warnings[0])


def test_the_example_of_koordinators_chart_is_silent() -> None:
    """Fields about processors and the mid band are known, though they mean nothing here."""
    _, warnings = parse_colocation(
        slo_config(
            {
                "enable": True,
                "metricAggregateDurationSeconds": 300,
                "metricReportIntervalSeconds": 60,
                "metricAggregatePolicy": {"durations": ["5m", "10m", "15m"]},
                "cpuReclaimThresholdPercent": 60,
                "memoryReclaimThresholdPercent": 65,
                "memoryCalculatePolicy": "usage",
                "degradeTimeMinutes": 15,
                "updateTimeThresholdSeconds": 300,
                "resourceDiffThreshold": 0.1,
                "nodeConfigs": [],
            },
            {
                "clusterStrategy": {
                    "enable": True,
                    "cpuSuppressThresholdPercent": 65,
                    "cpuSuppressPolicy": "cpuset",
                    "memoryEvictThresholdPercent": 70,
                },
                "nodeStrategies": [],
            },
        )
    )
    assert warnings == ()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
fields = st.sampled_from(
    [
        "enable",
        "memoryReclaimThresholdPercent",
        "memoryCalculatePolicy",
        "nodeConfigs",
        "batchMemoryThresholdPercent",
        "clusterStrategy",
        "nodeStrategies",
        "memoryEvictThresholdPercent",
        "memoryEvictLowerPercent",
    ]
)


@given(st.dictionaries(fields, json_values), st.dictionaries(fields, json_values))
def test_any_json_gives_a_policy_or_one_clear_refusal(colocation: dict[str, Any], threshold: dict[str, Any]) -> None:
    try:
        policy, _ = parse_colocation(slo_config(colocation, threshold))
    except InputError:
        return
    found = policy.for_node(read_node(GOLD.raw))
    assert 0 <= found.lending.margin_percent <= 100
    assert 0 <= found.eviction.lower_percent <= found.eviction.threshold_percent <= 100
