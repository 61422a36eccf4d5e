"""Raw objects are read without an exception, whatever is in them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.objects import integer, mapping, object_key, sequence, string_map, text

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(anything)
def test_no_object_breaks_an_accessor(raw: Any) -> None:
    assert dict(mapping(raw, "a", "b")) == dict(mapping(raw, "a", "b"))
    assert list(sequence(raw, "a")) == list(sequence(raw, "a"))
    assert isinstance(text(raw, "a"), str)
    assert integer(raw, "a") is None or isinstance(integer(raw, "a"), int)
    assert all(isinstance(value, str) for value in string_map(raw, "a").values())


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param({"a": {"b": {"c": 1}}}, {"c": 1}, id="there"),
        pytest.param({"a": {"b": None}}, {}, id="null"),
        pytest.param({"a": []}, {}, id="list"),
        pytest.param(None, {}, id="nothing"),
    ],
)
def test_a_mapping_or_an_empty_one(raw: Any, expected: dict[str, Any]) -> None:
    assert mapping(raw, "a", "b") == expected


def test_a_string_is_no_list_and_a_boolean_no_integer() -> None:
    assert sequence({"a": "xyz"}, "a") == ()
    assert integer({"a": True}, "a") is None


def test_keys_with_and_without_a_namespace() -> None:
    assert object_key({"metadata": {"namespace": "n", "name": "x"}}) == "n/x"
    assert object_key({"metadata": {"name": "x"}}) == "x"
