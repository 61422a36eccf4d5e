"""Patches: applied by a library that is not ours, they give the object wanted; and they say no more than that."""

from typing import Any

import jsonpatch
from hypothesis import given
from hypothesis import strategies as st

from webhook.patch import render, same

KEYS = st.text(alphabet="ab/~é0-", max_size=4)
SCALARS = st.none() | st.booleans() | st.integers(-2, 2) | st.text(max_size=3)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=20
)


@given(JSON, JSON)
def test_a_patch_leads_from_before_to_after(before: Any, after: Any) -> None:
    assert same(jsonpatch.apply_patch(before, render(before, after)), after)


@given(JSON)
def test_nothing_different_gives_no_operation(value: Any) -> None:
    assert render(value, value) == []


def test_one_changed_field_gives_one_operation() -> None:
    before = {"metadata": {"labels": {"a/b": "1", "c~d": "2"}}, "spec": {"containers": [{"name": "x"}, {"name": "y"}]}}
    after = {
        "metadata": {"labels": {"a/b": "1", "c~d": "3"}},
        "spec": {"containers": [{"name": "x"}, {"name": "y", "image": "z"}]},
    }
    assert render(before, after) == [
        {"op": "replace", "path": "/metadata/labels/c~0d", "value": "3"},
        {"op": "add", "path": "/spec/containers/1/image", "value": "z"},
    ]


def test_true_is_not_one() -> None:
    assert render({"a": 1}, {"a": True}) == [{"op": "replace", "path": "/a", "value": True}]
