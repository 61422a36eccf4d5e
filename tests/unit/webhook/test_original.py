"""The record of what the owner sent: it undoes every change of ours, and survives whatever stands in its place."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater import names
from webhook import original
from webhook.patch import same

# null stands for absent in a record, as it does for the API server; values have none.
SCALARS = st.booleans() | st.integers(-2, 2) | st.text(max_size=3)
NAMED = st.dictionaries(st.sampled_from("xyz"), st.dictionaries(st.sampled_from("ab"), SCALARS), max_size=3).map(
    lambda elements: [{**element, "name": name} for name, element in elements.items()]
)
VALUES = st.recursive(
    SCALARS | NAMED,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=10,
)
SPECS = st.fixed_dictionaries({"containers": NAMED, "labels": st.dictionaries(st.sampled_from("ab"), SCALARS)})


@given(SPECS, SPECS, st.lists(VALUES))
def test_the_record_undoes_the_change(before: dict[str, Any], after: dict[str, Any], rest: list[Any]) -> None:
    sent: dict[str, Any] = {"spec": {**before, "rest": rest}, "metadata": {"annotations": {"own": "x"}}}
    made: dict[str, Any] = {"spec": {**after, "rest": rest}, "metadata": {"annotations": {"own": "y"}}}
    made["metadata"]["annotations"][names.ORIGINAL_ANNOTATION] = original.annotation(sent, made)
    undone = original.restored(made)
    assert undone is not None
    assert same(undone, sent)


def test_containers_are_recorded_by_name() -> None:
    sent = {"containers": [{"name": "a", "image": "x"}, {"name": "b", "limit": 1}]}
    made = {"containers": [{"name": "a", "image": "x"}, {"name": "b", "limit": 2, "request": 0}]}
    assert original.annotation(sent, made) == '{"containers":{"b":{"limit":1,"request":null}}}'


@pytest.mark.parametrize("record", ["", "{", "[]", "null", "7", "[" * 100_000])
def test_a_record_that_is_none_is_not_read(record: str) -> None:
    assert original.restored({"metadata": {"annotations": {names.ORIGINAL_ANNOTATION: record}}}) is None


def test_no_record() -> None:
    assert original.restored({"metadata": {}}) is None
