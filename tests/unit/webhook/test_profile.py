"""Profiles: reading them, which of them concern a pod, and exactness of percentages."""

from typing import Any

import pytest

from slackwater.errors import InputError
from slackwater.policy.profile import CpuRule, Profile, parse_profile, select
from slackwater.qos import Qos
from slackwater.selectors import LabelSelector


def raw(name: str = "p", kind: str = "ColocationProfile", **spec: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": name}, "spec": spec}


def test_every_field_is_read() -> None:
    profile, warnings = parse_profile(
        raw(
            namespaceSelector={"matchLabels": {"a": "1"}},
            selector={"matchExpressions": [{"key": "b", "operator": "Exists"}]},
            probability="25%",
            labels={"l": "1"},
            annotations={"n": "2"},
            labelKeysMapping={"x": "y"},
            annotationKeysMapping={"v": "w"},
            labelSuffixes={"l": "-s"},
            schedulerName="mine",
            qosClass="BE",
            priorityClassName="koord-batch",
            koordinatorPriority=1111,
            patch={"spec": {"terminationGracePeriodSeconds": 5}},
            priority=3,
            matchPolicy="First",
            cpu="share",
        )
    )
    assert warnings == ()
    assert profile == Profile(
        name="p",
        priority=3,
        match_first=True,
        namespace_selector=LabelSelector.parse({"matchLabels": {"a": "1"}}),
        selector=LabelSelector.parse({"matchExpressions": [{"key": "b", "operator": "Exists"}]}),
        percent=25,
        labels={"l": "1"},
        annotations={"n": "2"},
        label_keys_mapping={"x": "y"},
        annotation_keys_mapping={"v": "w"},
        label_suffixes={"l": "-s"},
        scheduler_name="mine",
        qos=Qos.BE,
        priority_class_name="koord-batch",
        sub_priority=1111,
        patch={"spec": {"terminationGracePeriodSeconds": 5}},
        cpu=CpuRule.SHARE,
    )


def test_an_empty_profile_matches_everything_and_changes_nothing() -> None:
    assert parse_profile({"metadata": {"name": "p"}, "spec": None}) == (Profile("p"), ())


def test_koordinators_profiles_have_koordinators_fields_alone() -> None:
    object_ = raw(kind="ClusterColocationProfile", priority=9, cpu="drop")
    object_["metadata"]["annotations"] = {"config.koordinator.sh/skip-update-resources": ""}
    profile, warnings = parse_profile(object_)
    assert profile == Profile("p", "ClusterColocationProfile", skip_resources=True)
    assert [warning.where for warning in warnings] == [
        "ClusterColocationProfile p.spec.priority",
        "ClusterColocationProfile p.spec.cpu",
    ]


def test_every_mistake_is_named() -> None:
    with pytest.raises(InputError) as caught:
        parse_profile(
            raw(
                selector={"matchLabels": {"a": 1}},
                probability=101,
                labels={"n": 3},
                annotations=[],
                qosClass="best",
                koordinatorPriority="7",
                patch="x",
                matchPolicy="Last",
                schedulerName=5,
            )
        )
    assert sorted(problem.where for problem in caught.value.problems) == [
        "ColocationProfile p.spec.annotations",
        "ColocationProfile p.spec.koordinatorPriority",
        "ColocationProfile p.spec.labels[n]",
        "ColocationProfile p.spec.matchPolicy",
        "ColocationProfile p.spec.patch",
        "ColocationProfile p.spec.probability",
        "ColocationProfile p.spec.qosClass",
        "ColocationProfile p.spec.schedulerName",
        "ColocationProfile p.spec.selector.matchLabels.a",
    ]


def applied(*profiles: Profile, labels: dict[str, str] | None = None, owner: str = "o") -> list[str]:
    return [profile.name for profile in select(profiles, labels or {}, {}, owner).applied]


def test_both_selectors_must_match() -> None:
    profile = Profile(
        "p",
        selector=LabelSelector.parse({"matchLabels": {"a": "1"}}),
        namespace_selector=LabelSelector.parse({"matchLabels": {"b": "2"}}),
    )
    assert select([profile], {"a": "1"}, {"b": "2"}, "o").applied == (profile,)
    assert select([profile], {"a": "1"}, {}, "o").matched == ()
    assert select([profile], {}, {"b": "2"}, "o").matched == ()


def test_the_higher_priority_comes_later_and_ties_go_by_name() -> None:
    assert applied(Profile("z", priority=-1), Profile("c", priority=5), Profile("b"), Profile("a")) == [
        "z",
        "a",
        "b",
        "c",
    ]


def test_match_first_leaves_lower_ranks_out() -> None:
    assert applied(Profile("a"), Profile("b", priority=1, match_first=True), Profile("c", priority=2)) == ["b", "c"]


def test_a_percentage_is_fixed_for_an_owner_and_exact_over_many() -> None:
    profile = Profile("p", percent=10)
    hit = [owner for owner in range(10_000) if applied(profile, owner=f"ns/Deployment/{owner}")]
    assert 900 < len(hit) < 1100
    assert hit == [owner for owner in range(10_000) if applied(profile, owner=f"ns/Deployment/{owner}")]


@pytest.mark.parametrize(("percent", "expected"), [(0, []), (100, ["p"])])
def test_none_and_all(percent: int, expected: list[str]) -> None:
    assert all(applied(Profile("p", percent=percent), owner=str(owner)) == expected for owner in range(200))


def test_a_profile_skipped_by_percentage_still_counts_as_matched() -> None:
    selection = select([Profile("p", percent=0, skip_resources=True)], {}, {}, "o")
    assert (selection.applied, selection.skips_resources) == ((), True)
