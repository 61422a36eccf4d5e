"""Which PriorityClass a pod gets. Pure.

Name, number and preemptionPolicy always travel together: the API server's Priority plugin has filled them in before we
are called, runs again after us, and forbids a pod whose number or policy differs from its class
(plugin/pkg/admission/priority, v1.36). That is also why a best-effort pod under a class that may preempt has to move to
one that may not: with the policy ``Never`` alone it would be refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from slackwater import names
from slackwater.errors import InputError, Problem
from slackwater.objects import RawObject, integer, text
from slackwater.qos import Band, band_of

NEVER = "Never"
PREEMPT = "PreemptLowerPriority"
_BE_BANDS = (Band.MID, Band.BATCH, Band.FREE)


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """One PriorityClass. ``preemption_policy`` is empty where it is not known."""

    name: str
    value: int
    preemption_policy: str = ""
    is_global_default: bool = False


@dataclass(frozen=True, slots=True)
class Priority:
    """What a pod is to have. ``value`` is None where the class is not known."""

    class_name: str
    value: int | None
    preemption_policy: str
    reason: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a pod cannot have its priority: the other name in the sentence, and the sentence."""

    sentence: str
    class_is_missing: bool = False


KNOWN_CLASSES: Mapping[str, PriorityClass] = {
    known.name: known
    for known in (
        *(
            PriorityClass(name, value, NEVER if band_of(value) in (Band.BATCH, Band.FREE) else "")
            for name, value in names.PRIORITY_CLASSES.items()
        ),
        *(
            PriorityClass(name.replace("slackwater-", "koord-"), value)
            for name, value in names.PRIORITY_CLASSES.items()
        ),
        PriorityClass("system-cluster-critical", 2_000_000_000, PREEMPT),
        PriorityClass("system-node-critical", 2_000_001_000, PREEMPT),
    )
}
"""Classes whose numbers are known without a cluster; an object of the same name always wins."""


def parse_priority_class(raw: RawObject) -> PriorityClass:
    """Read a PriorityClass.

    Raises:
        InputError: no name, or a value that is no whole number.
    """
    problems = []
    name, value = text(raw, "metadata", "name"), integer(raw, "value")
    if not name:
        problems.append(Problem("metadata.name", "is missing", "give the PriorityClass a name"))
    if value is None:
        problems.append(Problem("value", f"is {raw.get('value')!r}", "write a whole number"))
    policy = raw.get("preemptionPolicy")
    if policy not in (None, "", NEVER, PREEMPT):
        problems.append(Problem("preemptionPolicy", f"is {policy!r}", f"use {NEVER} or {PREEMPT}"))
    if problems or value is None:
        raise InputError(problem.under(f"PriorityClass {name}".strip()) for problem in problems)
    return PriorityClass(name, value, text(raw, "preemptionPolicy"), raw.get("globalDefault") is True)


def of_class(class_name: str, classes: Mapping[str, PriorityClass]) -> Priority | Refusal:
    """The priority of a pod that is not best-effort and that a profile puts into ``class_name``."""
    found = classes.get(class_name)
    if found is None:
        return _missing(class_name)
    return Priority(
        class_name, found.value, found.preemption_policy or PREEMPT, f"PriorityClass {class_name} ({found.value})"
    )


def best_effort(
    class_name: str, value: int | None, *, by_profile: bool, classes: Mapping[str, PriorityClass]
) -> Priority | Refusal:
    """The priority of a best-effort pod that comes with ``class_name`` and the number ``value``.

    No class and no number (or 0), or the cluster's globalDefault class, count as none: it gets slackwater-batch.
    A number outside the bands mid, batch and free is refused, never overwritten.
    """
    found = classes.get(class_name)
    if by_profile and found is None:
        return _missing(class_name)
    is_default = found is not None and found.is_global_default and not by_profile
    if is_default or (not class_name and not value):
        none = "no PriorityClass" if not class_name else f"only the default PriorityClass {class_name}"
        return _never(names.DEFAULT_BE_PRIORITY_CLASS, classes, f"the pod names {none}")
    number = found.value if found is not None else value
    if number is None:
        warning = f"PriorityClass {class_name} is not known here, so its number was not checked"
        return Priority(class_name, None, NEVER, f"PriorityClass {class_name}, never preempting", (warning,))
    band = band_of(number)
    if band not in _BE_BANDS:
        return Refusal(
            f"{names.QOS_LABEL}=BE and priorityClass={class_name or number} ({number}) cannot be used in combination: "
            f"best-effort pods have priorities of batch (5000-5999), free (3000-3999) or mid (7000-7999); "
            f"name {names.DEFAULT_BE_PRIORITY_CLASS} or none"
        )
    own = f"slackwater-{band}" if band in (Band.BATCH, Band.FREE) else names.DEFAULT_BE_PRIORITY_CLASS
    if not class_name:
        return _never(own, classes, f"the pod has the number {number} without a PriorityClass")
    if found is not None and found.preemption_policy == PREEMPT:
        warning = f"PriorityClass {class_name} may preempt, which a best-effort pod must not; {own} takes its place"
        return _never(own, classes, warning, (warning,))
    return Priority(class_name, number, NEVER, f"PriorityClass {class_name} ({number}), never preempting")


def _never(name: str, classes: Mapping[str, PriorityClass], why: str, warnings: tuple[str, ...] = ()) -> Priority:
    known = classes.get(name) or KNOWN_CLASSES[name]
    return Priority(
        name, known.value, NEVER, f"PriorityClass {name} ({known.value}), never preempting: {why}", warnings
    )


def _missing(class_name: str) -> Refusal:
    return Refusal(
        f"a profile names PriorityClass {class_name}, which does not exist; make it or mend the profile",
        class_is_missing=True,
    )
