"""The idle policy text: the Resource Keeper's format, what is refused where, and what goes on after a mistake."""

from typing import Any

import pytest

from slackwater.adapters.documents import load_single_document
from slackwater.errors import InputError
from slackwater.policy.idle import OFF, IdlePolicy, PolicyReading, TypePolicy, read_policy
from slackwater.selectors import LabelSelector, Requirement

OPTED_IN = LabelSelector((Requirement("tensorstack.dev/resource-keeper", "In", frozenset(["true"])),))

PUBLISHED = """
policy:
  notebook:
    scanInterval: 300
    idleTimeout: 86400
    namespaceSelector:
      matchLabels:
        tensorstack.dev/resource-keeper: true
  tensorboard:
    scanInterval: 300
    idleTimeout: 86400
    namespaceSelector:
      matchLabels:
        tensorstack.dev/resource-keeper: true
  explorer:
    scanInterval: 300
    idleTimeout: 86400
    namespaceSelector:
      matchLabels:
        tensorstack.dev/resource-keeper: true
"""


def read(text: str) -> PolicyReading:
    return read_policy(load_single_document(text, "policy.yaml"))


def notebook(fields: Any) -> PolicyReading:
    return read_policy({"policy": {"notebook": fields}})


def test_the_published_example_is_read_as_its_users_mean_it() -> None:
    wanted = TypePolicy(300, 86400, OPTED_IN)
    assert read(PUBLISHED) == PolicyReading(
        {"notebook": wanted, "tensorboard": wanted, "explorer": wanted}, broken={}, warnings=()
    )


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="absent"),
        pytest.param({"namespaceSelector": None}, id="null"),
        pytest.param({"namespaceSelector": {}}, id="empty"),
        pytest.param({"namespaceSelector": {"matchLabels": None}}, id="null labels"),
        pytest.param({"namespaceSelector": {"matchLabels": {}, "matchExpressions": []}}, id="empty parts"),
    ],
)
def test_without_a_selector_all_namespaces_are_meant(fields: dict[str, Any]) -> None:
    policy = notebook(fields).types["notebook"]
    assert policy.all_namespaces
    assert policy.selector.matches({})


@pytest.mark.parametrize(
    ("written", "label"),
    [
        ("true", "true"), ("false", "false"), ("yes", "true"), ("1", "1"), ("1.10", "1.1"), ('"1.10"', "1.10"),
        ("1.234567", "1.234567"), ("2026-01-01", "2026-01-01"), ("-3", "-3"),
    ],
)  # fmt: skip
def test_unquoted_label_values_become_the_text_that_kubernetes_tools_make_of_them(written: str, label: str) -> None:
    text = f"""
policy:
  notebook:
    namespaceSelector:
      matchLabels: {{key: {written}}}
      matchExpressions: [{{key: other, operator: NotIn, values: [{written}]}}]
"""
    selector = read(text).types["notebook"].selector
    assert selector.requirements == (
        Requirement("key", "In", frozenset([label])),
        Requirement("other", "NotIn", frozenset([label])),
    )


def test_numbers_may_be_left_out_and_have_the_published_defaults() -> None:
    assert notebook({}).types == {"notebook": TypePolicy(300, 86400)}
    assert notebook({"scanInterval": None, "idleTimeout": None}).types == {"notebook": TypePolicy(300, 86400)}


@pytest.mark.parametrize("text", ["policy: {}", "policy:", "policy: null"])
def test_a_policy_without_types_switches_everything_off(text: str) -> None:
    assert read(text) == PolicyReading({}, {}, ())
    assert read(text).over(IdlePolicy({"notebook": TypePolicy()})) == OFF


def test_a_type_that_is_null_is_off_with_a_warning() -> None:
    reading = read("policy:\n  notebook:\n  explorer: {}\n")
    assert list(reading.types) == ["explorer"]
    assert [str(warning) for warning in reading.warnings] == [
        "policy.notebook: is empty, and the type stays switched off; write notebook: {} for the defaults"
    ]


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("noteboook", "did you mean notebook?"),
        ("Notebook", "did you mean notebook?"),
        ("tensorBoard", "did you mean tensorboard?"),
        ("zzz", "known are notebook, tensorboard, explorer"),
    ],
)
def test_an_unknown_type_is_a_warning_with_a_suggestion(name: str, remedy: str) -> None:
    reading = read_policy({"policy": {name: {"idleTimeout": 5}, "explorer": {}}})
    assert list(reading.types) == ["explorer"]
    assert [(warning.where, warning.remedy) for warning in reading.warnings] == [(f"policy.{name}", remedy)]


def test_unknown_fields_are_warnings_at_every_level() -> None:
    reading = read_policy(
        {"polcy": {}, "policy": {"notebook": {"idleTimout": 60}, "slackwater": {"dryRun": True}}}
    )  # fmt: skip
    assert [(warning.where, warning.remedy) for warning in reading.warnings] == [
        ("polcy", "did you mean policy?"),
        ("policy.notebook.idleTimout", "did you mean idleTimeout?"),
        ("policy.slackwater.dryRun", "remove it"),
    ]
    assert reading.types == {"notebook": TypePolicy()}


@pytest.mark.parametrize(
    ("fields", "paths"),
    [
        ("none", ["policy.notebook"]),
        ([], ["policy.notebook"]),
        ({"idleTimeout": "1h"}, ["policy.notebook.idleTimeout"]),
        ({"idleTimeout": "3600"}, ["policy.notebook.idleTimeout"]),
        ({"idleTimeout": True}, ["policy.notebook.idleTimeout"]),
        ({"idleTimeout": 1.5}, ["policy.notebook.idleTimeout"]),
        ({"idleTimeout": 0}, ["policy.notebook.idleTimeout"]),
        ({"scanInterval": -1}, ["policy.notebook.scanInterval"]),
        ({"scanInterval": 10**30}, ["policy.notebook.scanInterval"]),
        ({"namespaceSelector": "all"}, ["policy.notebook.namespaceSelector"]),
        ({"namespaceSelector": {"matchlabels": {}}}, ["policy.notebook.namespaceSelector.matchlabels"]),
        ({"namespaceSelector": {"matchLabels": ["a"]}}, ["policy.notebook.namespaceSelector.matchLabels"]),
        ({"namespaceSelector": {"matchLabels": {"a": ["b"]}}}, ["policy.notebook.namespaceSelector.matchLabels.a"]),
        (
            {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}},
            ["policy.notebook.namespaceSelector.matchExpressions[0].operator"],
        ),
        (
            {"scanInterval": "5m", "idleTimeout": 0, "namespaceSelector": 7},
            ["policy.notebook.scanInterval", "policy.notebook.idleTimeout", "policy.notebook.namespaceSelector"],
        ),
    ],
)
def test_a_type_that_cannot_be_used_names_every_field(fields: Any, paths: list[str]) -> None:
    reading = read_policy({"policy": {"notebook": fields, "explorer": {"idleTimeout": 60, "scanInterval": 60}}})
    assert [problem.where for problem in reading.broken["notebook"]] == paths
    assert all(problem.remedy for problem in reading.broken["notebook"])
    assert reading.types == {"explorer": TypePolicy(60, 60)}


@pytest.mark.parametrize("seconds", [1, 10 * 365 * 86400])
def test_the_limits_themselves_are_allowed(seconds: int) -> None:
    assert notebook({"scanInterval": seconds, "idleTimeout": seconds}).types == {
        "notebook": TypePolicy(seconds, seconds)
    }


@pytest.mark.parametrize("seconds", [0, 10 * 365 * 86400 + 1])
def test_just_beyond_the_limits_is_refused_and_not_clamped(seconds: int) -> None:
    reading = notebook({"idleTimeout": seconds})
    assert reading.types == {}
    assert str(seconds) in str(reading.broken["notebook"][0])


def test_a_timeout_below_the_scan_interval_holds_with_a_warning_about_what_it_means() -> None:
    reading = notebook({"scanInterval": 300, "idleTimeout": 60})
    assert reading.types == {"notebook": TypePolicy(300, 60)}
    assert [(warning.where, "360 s" in warning.what) for warning in reading.warnings] == [
        ("policy.notebook.idleTimeout", True)
    ]


def test_a_broken_type_keeps_its_last_good_policy_while_the_others_follow() -> None:
    last = IdlePolicy({"notebook": TypePolicy(60, 600), "explorer": TypePolicy(60, 600)})
    reading = read_policy({"policy": {"notebook": {"idleTimeout": -1}, "tensorboard": {}}})
    assert reading.over(last) == IdlePolicy({"notebook": TypePolicy(60, 600), "tensorboard": TypePolicy()})


def test_a_broken_type_that_was_off_stays_off() -> None:
    assert notebook({"idleTimeout": -1}).over(OFF) == OFF


@pytest.mark.parametrize("document", [None, {}, [], "policy", 5, {"Policy": {}}, {"notebook": {}}])
def test_a_document_that_is_no_policy_is_refused_as_a_whole(document: Any) -> None:
    with pytest.raises(InputError, match=r"has no key policy"):
        read_policy(document)


@pytest.mark.parametrize("value", ["all", [], 7, True])
def test_types_that_are_no_mapping_are_refused_as_a_whole(value: Any) -> None:
    with pytest.raises(InputError, match="policy.yaml: policy: is "):
        read_policy({"policy": value})


def test_a_policy_is_printed_in_one_line_with_its_numbers_and_labels() -> None:
    assert str(TypePolicy(300, 86400, OPTED_IN)) == (
        "scanInterval 300 s, idleTimeout 86400 s, tensorstack.dev/resource-keeper In (true)"
    )
    assert str(TypePolicy()) == "scanInterval 300 s, idleTimeout 86400 s, all namespaces"
