"""When the webhook's rules have to be written, and what the chart's ConfigMap may hold."""

import base64
from typing import Any

import pytest

from controller.activation import read_rules, rules_to_write
from slackwater.errors import InputError

CA = b"-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n"
ENCODED = base64.b64encode(CA).decode()
WISHED: list[dict[str, Any]] = [
    {
        "name": name,
        "failurePolicy": policy,
        "clientConfig": {"service": {"name": "slackwater-webhook", "namespace": "slackwater-system", "port": 443}},
        "rules": [{"apiGroups": [""], "operations": ["CREATE"], "resources": ["pods"]}],
    }
    for name, policy in (("best-effort.slackwater.io", "Fail"), ("profiles.slackwater.io", "Ignore"))
]


def in_force() -> list[dict[str, Any]]:
    """As the API server gives the written rules back: with its defaults."""
    written = rules_to_write([], WISHED, CA)
    assert written is not None
    for rule in written:
        rule |= {"matchPolicy": "Equivalent", "objectSelector": {}, "namespaceSelector": {}, "timeoutSeconds": 10}
        rule["rules"] = [{**one, "scope": "*"} for one in rule["rules"]]
    return written


def test_an_empty_configuration_gets_all_rules_with_the_ca() -> None:
    written = rules_to_write([], WISHED, CA)
    assert written is not None
    assert [rule["clientConfig"]["caBundle"] for rule in written] == [ENCODED, ENCODED]
    assert [(rule["name"], rule["failurePolicy"]) for rule in written] == [
        ("best-effort.slackwater.io", "Fail"),
        ("profiles.slackwater.io", "Ignore"),
    ]
    assert [rule["clientConfig"]["service"] for rule in written] == [rule["clientConfig"]["service"] for rule in WISHED]
    assert "caBundle" not in WISHED[0]["clientConfig"], "the wish itself is left as it is"


def test_defaults_of_the_server_are_no_difference() -> None:
    assert rules_to_write(in_force(), WISHED, CA) is None


def test_nothing_wished_and_nothing_there_is_in_order() -> None:
    assert rules_to_write([], [], CA) is None


def _lose_the_ca(rules: list[dict[str, Any]]) -> None:
    del rules[1]["clientConfig"]["caBundle"]


def _replace_the_ca(rules: list[dict[str, Any]]) -> None:
    rules[0]["clientConfig"]["caBundle"] = base64.b64encode(b"another").decode()


def _soften(rules: list[dict[str, Any]]) -> None:
    rules[0]["failurePolicy"] = "Ignore"


def _send_less(rules: list[dict[str, Any]]) -> None:
    rules[0]["rules"][0]["operations"] = []


def _send_more(rules: list[dict[str, Any]]) -> None:
    rules[0]["rules"].append({"resources": ["*"]})


def _drop_one(rules: list[dict[str, Any]]) -> None:
    rules.pop()


def _add_one(rules: list[dict[str, Any]]) -> None:
    rules.append({"name": "foreign"})


def _swap(rules: list[dict[str, Any]]) -> None:
    rules.reverse()


def _narrow(rules: list[dict[str, Any]]) -> None:
    rules[0]["objectSelector"] = {"matchLabels": {"never": "there"}}


def _break(rules: list[dict[str, Any]]) -> None:
    rules[0]["clientConfig"] = None


@pytest.mark.parametrize(
    "edit",
    [_lose_the_ca, _replace_the_ca, _soften, _send_less, _send_more, _drop_one, _add_one, _swap, _narrow, _break],
    ids=lambda edit: edit.__name__,
)
def test_what_somebody_changed_is_written_again(edit: Any) -> None:
    rules = in_force()
    edit(rules)
    assert rules_to_write(rules, WISHED, CA) == rules_to_write([], WISHED, CA)


def test_rules_are_read_from_the_config_map() -> None:
    text = "- name: a\n  sideEffects: None\n- name: b\n"
    assert read_rules({"data": {"webhooks.yaml": text}}, "ConfigMap x") == [
        {"name": "a", "sideEffects": "None"},
        {"name": "b"},
    ]


@pytest.mark.parametrize(
    "config_map",
    [
        {}, {"data": {}}, {"data": {"webhooks.yaml": ""}}, {"data": {"webhooks.yaml": "a: b"}},
        {"data": {"webhooks.yaml": "[1"}}, {"data": {"webhooks.yaml": "[null, text]"}}, {"data": {"other": "[]"}},
    ],
)  # fmt: skip
def test_rules_that_cannot_be_used_name_the_config_map(config_map: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"ConfigMap x: webhooks\.yaml"):
        read_rules(config_map, "ConfigMap x")
