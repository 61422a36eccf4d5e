"""Label selectors match as the API server's do."""

from typing import Any

import pytest

from slackwater.errors import InputError
from slackwater.selectors import EVERYTHING, LabelSelector


@pytest.mark.parametrize(
    ("selector", "labels", "matches"),
    [
        pytest.param(None, {}, True, id="absent-matches-all"),
        pytest.param({}, {"a": "1"}, True, id="empty-matches-all"),
        pytest.param({"matchLabels": {"a": "1"}}, {"a": "1", "b": "2"}, True, id="label"),
        pytest.param({"matchLabels": {"a": "1", "b": "1"}}, {"a": "1"}, False, id="labels-are-anded"),
        pytest.param(
            {"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}, {"a": "2"}, True, id="in"
        ),
        pytest.param(
            {"matchExpressions": [{"key": "a", "operator": "In", "values": ["1"]}]}, {}, False, id="in-absent"
        ),
        pytest.param(
            {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, {}, True, id="notin-absent"
        ),
        pytest.param(
            {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, {"a": "1"}, False, id="notin"
        ),
        pytest.param({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {"a": ""}, True, id="exists"),
        pytest.param(
            {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, {"a": ""}, False, id="not-exists"
        ),
        pytest.param(
            {"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "Exists"}]},
            {"a": "1"},
            False,
            id="both-parts-are-anded",
        ),
    ],
)
def test_matching(selector: Any, labels: dict[str, str], matches: bool) -> None:
    assert LabelSelector.parse(selector).matches(labels) is matches


@pytest.mark.parametrize(
    ("selector", "where"),
    [
        pytest.param("a=b", "s", id="text"),
        pytest.param({"matchLabel": {}}, "s.matchLabel", id="unknown-field"),
        pytest.param({"matchLabels": {"a": True}}, "s.matchLabels.a", id="unquoted-boolean"),
        pytest.param({"matchExpressions": {"a": 1}}, "s.matchExpressions", id="not-a-list"),
        pytest.param({"matchExpressions": [{"operator": "Exists"}]}, "s.matchExpressions[0].key", id="no-key"),
        pytest.param(
            {"matchExpressions": [{"key": "a", "operator": "Gt"}]}, "s.matchExpressions[0].operator", id="operator"
        ),
        pytest.param(
            {"matchExpressions": [{"key": "a", "operator": "In"}]}, "s.matchExpressions[0].values", id="no-values"
        ),
        pytest.param(
            {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]},
            "s.matchExpressions[0].values",
            id="values-without-use",
        ),
    ],
)
def test_a_selector_that_cannot_be_read_names_the_field(selector: Any, where: str) -> None:
    with pytest.raises(InputError) as refusal:
        LabelSelector.parse(selector, "s")
    assert [problem.where for problem in refusal.value.problems] == [where]


def test_every_problem_is_reported_at_once() -> None:
    raw = {"matchLabels": {"a": 1}, "matchExpressions": [{"key": "", "operator": "?"}], "x": 1}
    with pytest.raises(InputError) as refusal:
        LabelSelector.parse(raw, "s")
    assert len(refusal.value.problems) == 4


def test_everything_matches_anything() -> None:
    assert EVERYTHING.matches({})
    assert EVERYTHING.matches({"a": "1"})
