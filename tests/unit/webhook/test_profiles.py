"""Applying profiles: Koordinator's order inside one profile, and strategic merge patches as the API server's."""

from typing import Any

import pytest

from slackwater.errors import InputError
from slackwater.policy.profile import Profile
from slackwater.qos import Qos
from webhook.profiles import apply
from webhook.strategic import merge


def pod(**labels: str) -> dict[str, Any]:
    return {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "a"}]}}


def labels_after(profile: Profile, **labels: str) -> dict[str, str]:
    changed = pod(**labels)
    apply([profile], changed)
    result: dict[str, str] = changed["metadata"]["labels"]
    return result


def test_a_mapping_sees_new_labels_and_a_suffix_sees_mapped_ones() -> None:
    profile = Profile("p", labels={"a": "1"}, label_keys_mapping={"a": "b"}, label_suffixes={"b": "-x"})
    assert labels_after(profile, a="0") == {"a": "1", "b": "1-x"}


def test_a_missing_source_makes_an_empty_label_and_a_missing_label_gets_no_suffix() -> None:
    profile = Profile("p", label_keys_mapping={"absent": "made"}, label_suffixes={"other": "-x"})
    assert labels_after(profile) == {"made": ""}


def test_a_chain_of_mappings_does_not_depend_on_their_order() -> None:
    for mapping in ({"a": "b", "b": "c"}, {"b": "c", "a": "b"}):
        assert labels_after(Profile("p", label_keys_mapping=mapping), a="1", b="2") == {"a": "1", "b": "1", "c": "2"}


@pytest.mark.parametrize(
    ("qos", "expected"),
    [
        (Qos.BE, {"slackwater.io/qos": "BE", "koordinator.sh/qosClass": "BE"}),
        (Qos.LSR, {"slackwater.io/qos": "LSR", "koordinator.sh/qosClass": "LSR"}),
        (Qos.LSE, {"koordinator.sh/qosClass": "LSE"}),
    ],
)
def test_the_class_is_written_as_both_labels(qos: Qos, expected: dict[str, str]) -> None:
    assert labels_after(Profile("p", qos=qos), **{"slackwater.io/qos": "LS"}) == expected


def test_sub_priority_is_a_label() -> None:
    assert labels_after(Profile("p", sub_priority=-7)) == {"koordinator.sh/priority": "-7"}


def test_a_later_profile_wins() -> None:
    changed = pod()
    apply([Profile("a", annotations={"k": "1"}), Profile("b", annotations={"k": "2"})], changed)
    assert changed["metadata"]["annotations"] == {"k": "2"}


@pytest.mark.parametrize(
    ("current", "expected"), [(None, "mine"), ("", "mine"), ("default-scheduler", "mine"), ("volcano", "volcano")]
)
def test_a_scheduler_of_the_pods_own_is_kept_with_a_warning(current: str | None, expected: str) -> None:
    changed = pod()
    if current is not None:
        changed["spec"]["schedulerName"] = current
    warnings = apply([Profile("p", scheduler_name="mine")], changed)
    assert changed["spec"]["schedulerName"] == expected
    assert bool(warnings) == (expected == "volcano")


def test_the_patch_has_the_last_word_and_stays_untouched() -> None:
    patch = {"metadata": {"labels": {"a": "patched"}}, "spec": {"containers": [{"name": "new", "resources": {}}]}}
    profile = Profile("p", labels={"a": "1"}, patch=patch)
    changed = pod()
    apply([profile], changed)
    assert changed["metadata"]["labels"] == {"a": "patched"}
    changed["spec"]["containers"][1]["resources"]["limits"] = {"memory": "1"}
    assert patch["spec"]["containers"][0]["resources"] == {}  # type: ignore[index]


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        pytest.param({"a": 1, "b": 2}, {"a": None, "c": 3}, {"b": 2, "c": 3}, id="null-removes"),
        pytest.param({"m": {"x": 1}}, {"m": {"y": 2}}, {"m": {"x": 1, "y": 2}}, id="mappings-merge"),
        pytest.param({"m": {"x": 1}}, {"m": {"$patch": "replace", "y": 2}}, {"m": {"y": 2}}, id="mapping-replaced"),
        pytest.param({"m": {"x": 1}}, {"m": {"$patch": "delete"}}, {"m": {}}, id="mapping-emptied"),
        pytest.param(
            {"containers": [{"name": "a", "image": "1"}, {"name": "b"}]},
            {"containers": [{"name": "b", "image": "2"}, {"name": "c"}]},
            {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}, {"name": "c"}]},
            id="containers-merge-by-name",
        ),
        pytest.param(
            {"volumes": [{"name": "a"}, {"name": "b"}]},
            {"volumes": [{"name": "a", "$patch": "delete"}]},
            {"volumes": [{"name": "b"}]},
            id="element-deleted",
        ),
        pytest.param(
            {"env": [{"name": "a"}]},
            {"env": [{"$patch": "replace"}, {"name": "b"}]},
            {"env": [{"name": "b"}]},
            id="named-list-replaced",
        ),
        pytest.param({"tolerations": [1]}, {"tolerations": [2]}, {"tolerations": [2]}, id="other-lists-are-replaced"),
        pytest.param(
            {"finalizers": ["a"]}, {"finalizers": ["a", "b"]}, {"finalizers": ["a", "b"]}, id="primitives-unite"
        ),
        pytest.param(
            {"finalizers": ["a", "b"]},
            {"$deleteFromPrimitiveList/finalizers": ["a"]},
            {"finalizers": ["b"]},
            id="primitives-deleted",
        ),
        pytest.param(
            {"env": [{"name": "a"}]}, {"$setElementOrder/env": []}, {"env": [{"name": "a"}]}, id="order-ignored"
        ),
    ],
)
def test_strategic_merge(before: dict[str, Any], patch: dict[str, Any], after: dict[str, Any]) -> None:
    assert merge(before, patch) == after


@pytest.mark.parametrize(
    ("patch", "where"),
    [
        ({"spec": {"containers": [{"image": "x"}]}}, r"patch\.spec\.containers\[0\]: has no name"),
        ({"spec": {"containers": ["x"]}}, r"patch\.spec\.containers\[0\]"),
        ({"spec": {"$patch": "remove"}}, r"patch\.spec\.\$patch"),
        ({"metadata": {"$deleteFromPrimitiveList/finalizers": "a"}}, r"patch\.metadata\."),
    ],
)
def test_a_patch_that_does_not_fit(patch: dict[str, Any], where: str) -> None:
    with pytest.raises(InputError, match=where):
        merge({}, patch)
