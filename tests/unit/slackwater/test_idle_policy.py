"""The idle policy text, in the Resource Keeper's format: what is read, refused, kept and doubted."""

import pytest

from slackwater.adapters.documents import load_single_document
from slackwater.errors import InputError
from slackwater.policy.idle import OFF, IdlePolicy, PolicyReading, TypePolicy, read_policy
from slackwater.selectors import EVERYTHING, LabelSelector


def read(text: str) -> PolicyReading:
    return read_policy(load_single_document(text, "policy.yaml"))


def problems_of(text: str) -> list[str]:
    reading = read(text)
    return [str(problem) for problems in reading.broken.values() for problem in problems]


def selector(**labels: str) -> LabelSelector:
    return LabelSelector.parse({"matchLabels": labels})


def test_published_format_is_read_with_its_unquoted_label_value() -> None:
    reading = read("""
policy:
  notebook:
    scanInterval: 60
    idleTimeout: 7200
    namespaceSelector:
      matchLabels:
        tensorstack.dev/resource-keeper: true
  tensorboard:
    namespaceSelector:
      matchExpressions:
      - {key: tier, operator: In, values: [1, gold, false]}
  explorer: {}
""")
    tiers = {"key": "tier", "operator": "In", "values": ["1", "gold", "false"]}
    assert reading.types == {
        "notebook": TypePolicy(60, 7200, selector(**{"tensorstack.dev/resource-keeper": "true"})),
        "tensorboard": TypePolicy(300, 86400, LabelSelector.parse({"matchExpressions": [tiers]})),
        "explorer": TypePolicy(300, 86400, EVERYTHING),
    }
    assert not reading.broken
    assert not reading.warnings


@pytest.mark.parametrize("text", ["null", "{}", "{matchLabels: null}", "{matchLabels: {}, matchExpressions: []}"])
def test_null_or_empty_selector_means_all_namespaces(text: str) -> None:
    policy = read(f"policy: {{notebook: {{namespaceSelector: {text}}}}}").types["notebook"]
    assert policy.all_namespaces
    assert policy.selector.matches({})


@pytest.mark.parametrize("text", ["policy: {}", "policy:", "policy: {notebook: null}"])
def test_absent_types_are_switched_off(text: str) -> None:
    assert read(text).over(OFF) == OFF


def test_null_fields_mean_the_defaults() -> None:
    assert read("policy: {notebook: {scanInterval: null, idleTimeout: null}}").types == {"notebook": TypePolicy()}


@pytest.mark.parametrize(
    ("written", "label"),
    [
        ("true", "true"),
        ("False", "false"),
        ("yes", "true"),
        ("1", "1"),
        ("1.10", "1.1"),
        ("1e6", "1e+06"),
        ("1234567.5", "1.2345675e+06"),
        ("0.00001", "1e-05"),
        ("100000.5", "100000.5"),
        ("'1.10'", "1.10"),
        ("2026-01-01", "2026-01-01"),
        ("1:30", "1:30"),
    ],
)
def test_label_values_become_the_text_that_kubernetes_tools_make_of_them(written: str, label: str) -> None:
    reading = read(f"policy: {{notebook: {{namespaceSelector: {{matchLabels: {{tier: {written}}}}}}}}}")
    assert reading.types["notebook"].selector == selector(tier=label)


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        ("idleTimeout: -1", "policy.notebook.idleTimeout: is -1"),
        ("idleTimeout: 0", "policy.notebook.idleTimeout: is 0"),
        ("idleTimeout: 24h", "policy.notebook.idleTimeout: is '24h' (str)"),
        ("idleTimeout: '300'", "policy.notebook.idleTimeout: is '300' (str)"),
        ("idleTimeout: 1.5", "policy.notebook.idleTimeout: is '1.5' (float)"),
        ("idleTimeout: true", "policy.notebook.idleTimeout: is 'True' (bool)"),
        ("idleTimeout: 99999999999999999999", "policy.notebook.idleTimeout: is 99999999999999999999"),
        ("scanInterval: 0", "policy.notebook.scanInterval: is 0"),
        ("scanInterval: [1]", "policy.notebook.scanInterval: is '[1]' (list)"),
        ("namespaceSelector: all", "policy.notebook.namespaceSelector: is 'all'"),
        ("namespaceSelector: {matchLabel: {a: b}}", "policy.notebook.namespaceSelector.matchLabel: is not a field"),
        (
            "namespaceSelector: {matchExpressions: [{key: a, operator: Equals, values: [b]}]}",
            "policy.notebook.namespaceSelector.matchExpressions[0].operator: is 'Equals'",
        ),
        (
            "namespaceSelector: {matchExpressions: [{key: a, operator: In}]}",
            "policy.notebook.namespaceSelector.matchExpressions[0].values: is empty",
        ),
    ],
)
def test_unusable_field_is_named_and_breaks_its_type_only(field: str, problem: str) -> None:
    text = f"policy: {{notebook: {{{field}}}, explorer: {{idleTimeout: 400}}}}"
    (told,) = problems_of(text)
    assert told.startswith(problem)
    assert read(text).types == {"explorer": TypePolicy(300, 400)}


def test_every_problem_of_a_type_is_told() -> None:
    assert len(problems_of("policy: {notebook: {idleTimeout: x, scanInterval: y, namespaceSelector: [z]}}")) == 3


def test_broken_type_keeps_its_last_good_policy_and_the_others_follow() -> None:
    last = IdlePolicy({"notebook": TypePolicy(60, 100), "explorer": TypePolicy(60, 200)})
    now = read("policy: {notebook: {idleTimeout: x}, tensorboard: {}}").over(last)
    assert now == IdlePolicy({"notebook": TypePolicy(60, 100), "tensorboard": TypePolicy()})


def test_broken_type_that_never_worked_stays_switched_off() -> None:
    assert read("policy: {notebook: {idleTimeout: x}}").over(OFF) == OFF


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("policy: {jupyter: {}}", "policy.jupyter: is not a known type"),
        ("policy: {Notebook: {}}", "policy.Notebook: is not a known type and has no effect; did you mean notebook?"),
        ("policy: {notebook: {idleTimeOut: 5}}", "policy.notebook.idleTimeOut: is not a known field"),
        ("policy: {slackwater: {maxFraction: 1}}", "policy.slackwater.maxFraction: is not a known field"),
        ("policy: {}\nversion: 2", "version: is not a known field"),
        ("policy: {notebook: null}", "policy.notebook: is empty"),
        ("policy: {notebook: {idleTimeout: 60}}", "policy.notebook.idleTimeout: is 60 s, less than scanInterval 300 s"),
    ],
)
def test_doubtful_parts_are_warnings(text: str, warning: str) -> None:
    reading = read(text)
    assert [str(one)[: len(warning)] for one in reading.warnings] == [warning]
    assert not reading.broken


@pytest.mark.parametrize("text", ["just words", "[1, 2]", "notebook: {}", "policy: [notebook]", "policy: 5"])
def test_text_that_is_no_policy_is_an_error(text: str) -> None:
    with pytest.raises(InputError):
        read(text)


def test_policy_reads_as_a_sentence_for_the_log() -> None:
    policy = TypePolicy(60, 120, selector(tier="gold"))
    assert str(policy) == "scanInterval 60 s, idleTimeout 120 s, tier In (gold)"
    assert str(TypePolicy()) == "scanInterval 300 s, idleTimeout 86400 s, all namespaces"
