"""PriorityClasses of best-effort pods: what counts as none, what is refused, and that none may preempt."""

import pytest

from slackwater.errors import InputError
from webhook.priority import (
    KNOWN_CLASSES,
    NEVER,
    PREEMPT,
    Priority,
    PriorityClass,
    Refusal,
    best_effort,
    of_class,
    parse_priority_class,
)

CLASSES = {
    **KNOWN_CLASSES,
    "usual": PriorityClass("usual", 9500, PREEMPT, is_global_default=True),
    "low": PriorityClass("low", 100, NEVER),
    "ours": PriorityClass("ours", 5500, NEVER),
    "koord-free": PriorityClass("koord-free", 3000, PREEMPT),
    "eager-mid": PriorityClass("eager-mid", 7100, PREEMPT),
}


@pytest.mark.parametrize(
    ("class_name", "value", "by_profile", "expected"),
    [
        pytest.param("", None, False, ("slackwater-batch", 5000), id="none"),
        pytest.param("", 0, False, ("slackwater-batch", 5000), id="none-as-the-api-server-sends-it"),
        pytest.param("usual", 9500, False, ("slackwater-batch", 5000), id="the-global-default-counts-as-none"),
        pytest.param("usual", 9500, True, None, id="unless-a-profile-names-it"),
        pytest.param("slackwater-free", 3000, False, ("slackwater-free", 3000), id="free"),
        pytest.param("ours", None, False, ("ours", 5500), id="a-class-of-the-cluster"),
        pytest.param("ours", 17, False, ("ours", 5500), id="the-class-knows-the-number"),
        pytest.param("koord-batch", None, False, ("koord-batch", 5000), id="koordinators"),
        pytest.param("koord-free", 3000, False, ("slackwater-free", 3000), id="a-class-that-may-preempt"),
        pytest.param("eager-mid", 7100, False, ("slackwater-batch", 5000), id="mid-that-may-preempt"),
        pytest.param("slackwater-mid", None, False, ("slackwater-mid", 7000), id="mid"),
        pytest.param("stranger", None, False, ("stranger", None), id="unknown-class"),
        pytest.param("stranger", 5100, False, ("stranger", 5100), id="unknown-class-with-its-number"),
        pytest.param("", 3100, False, ("slackwater-free", 3000), id="a-number-alone"),
        pytest.param("slackwater-prod", None, False, None, id="prod"),
        pytest.param("koord-prod", 9000, False, None, id="koordinators-prod"),
        pytest.param("", 9999, False, None, id="a-prod-number-alone"),
        pytest.param("low", 100, False, None, id="outside-every-band"),
        pytest.param("system-node-critical", None, False, None, id="critical"),
        pytest.param("stranger", None, True, None, id="a-profile-names-an-unknown-class"),
    ],
)
def test_best_effort(
    class_name: str, value: int | None, by_profile: bool, expected: tuple[str, int | None] | None
) -> None:
    settled = best_effort(class_name, value, by_profile=by_profile, classes=CLASSES)
    if expected is None:
        assert isinstance(settled, Refusal)
    else:
        assert isinstance(settled, Priority)
        assert (settled.class_name, settled.value, settled.preemption_policy) == (*expected, NEVER)


def test_the_refusal_says_what_clashes_and_what_to_do() -> None:
    refusal = best_effort("koord-prod", 9000, by_profile=False, classes=CLASSES)
    assert isinstance(refusal, Refusal)
    assert refusal.sentence == (
        "slackwater.io/qos=BE and priorityClass=koord-prod (9000) cannot be used in combination: best-effort pods have "
        "priorities of batch (5000-5999), free (3000-3999) or mid (7000-7999); name slackwater-batch or none"
    )


def test_a_changed_class_is_said() -> None:
    settled = best_effort("koord-free", 3000, by_profile=False, classes=CLASSES)
    assert isinstance(settled, Priority)
    assert settled.warnings == (
        "PriorityClass koord-free may preempt, which a best-effort pod must not; slackwater-free takes its place",
    )


def test_a_class_of_an_online_pod_keeps_its_policy() -> None:
    settled = of_class("usual", CLASSES)
    assert isinstance(settled, Priority)
    assert (settled.class_name, settled.value, settled.preemption_policy) == ("usual", 9500, PREEMPT)
    assert isinstance(of_class("stranger", CLASSES), Refusal)


def test_parse_names_every_mistake() -> None:
    with pytest.raises(InputError) as caught:
        parse_priority_class({"metadata": {}, "value": "5", "preemptionPolicy": "Sometimes"})
    assert [problem.where for problem in caught.value.problems] == [
        "PriorityClass.metadata.name",
        "PriorityClass.value",
        "PriorityClass.preemptionPolicy",
    ]


def test_parse() -> None:
    raw = {"metadata": {"name": "a"}, "value": 5, "globalDefault": True, "preemptionPolicy": "Never"}
    assert parse_priority_class(raw) == PriorityClass("a", 5, NEVER, is_global_default=True)
