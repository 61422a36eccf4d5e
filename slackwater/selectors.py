"""Label selectors (``metav1.LabelSelector``): parse once, match often.

Semantics are those of the API server: all parts are ANDed, ``NotIn`` and ``DoesNotExist`` match objects that lack the
key, an empty selector matches everything. What an *absent* selector means is the caller's business.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slackwater.errors import InputError, Problem

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One expression: ``key operator values``."""

    key: str
    operator: str
    values: frozenset[str]

    def __str__(self) -> str:
        return f"{self.key} {self.operator}" + (f" ({', '.join(sorted(self.values))})" if self.values else "")

    def matches(self, labels: Mapping[str, str]) -> bool:
        present = self.key in labels
        match self.operator:
            case "In":
                return present and labels[self.key] in self.values
            case "NotIn":
                return not present or labels[self.key] not in self.values
            case "Exists":
                return present
            case _:
                return not present


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """A parsed selector. ``LabelSelector(())`` matches everything."""

    requirements: tuple[Requirement, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """True where every requirement holds for ``labels``."""
        return all(requirement.matches(labels) for requirement in self.requirements)

    @staticmethod
    def parse(raw: Any, where: str = "selector") -> "LabelSelector":
        """Read ``{matchLabels, matchExpressions}``; ``None`` and ``{}`` give the selector that matches everything.

        Raises:
            InputError: naming every field that cannot be used.
        """
        if raw is None:
            return EVERYTHING
        if not isinstance(raw, Mapping):
            raise InputError([Problem(where, f"is {raw!r}", "write matchLabels or matchExpressions")])
        problems = [
            Problem(
                f"{where}.{key}",
                "is not a field of a label selector",
                "use matchLabels or matchExpressions",
            )
            for key in raw
            if key not in ("matchLabels", "matchExpressions")
        ]
        requirements: list[Requirement] = []
        labels = raw.get("matchLabels") or {}
        if not isinstance(labels, Mapping):
            problems.append(Problem(f"{where}.matchLabels", f"is {labels!r}", "write key: value pairs"))
            labels = {}
        for key, value in labels.items():
            if isinstance(value, str):
                requirements.append(Requirement(str(key), "In", frozenset([value])))
            else:
                problems.append(
                    Problem(
                        f"{where}.matchLabels.{key}",
                        f"is {value!r}, not a string",
                        "put the value in quotes",
                    )
                )
        expressions = raw.get("matchExpressions") or []
        if not isinstance(expressions, list):
            problems.append(Problem(f"{where}.matchExpressions", f"is {expressions!r}", "write a list"))
            expressions = []
        for index, expression in enumerate(expressions):
            read = _read_expression(expression, f"{where}.matchExpressions[{index}]")
            if isinstance(read, Requirement):
                requirements.append(read)
            else:
                problems.extend(read)
        if problems:
            raise InputError(problems)
        return LabelSelector(tuple(requirements))


EVERYTHING = LabelSelector(())


def _read_expression(raw: Any, where: str) -> Requirement | list[Problem]:
    if not isinstance(raw, Mapping):
        return [Problem(where, f"is {raw!r}", "write key, operator and values")]
    problems = []
    key, operator, values = raw.get("key"), raw.get("operator"), raw.get("values") or []
    if not isinstance(key, str) or not key:
        problems.append(Problem(f"{where}.key", f"is {key!r}", "name a label key"))
    if operator not in _OPERATORS:
        problems.append(Problem(f"{where}.operator", f"is {operator!r}", f"use one of {', '.join(_OPERATORS)}"))
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        problems.append(Problem(f"{where}.values", f"is {values!r}", "write a list of strings"))
    elif operator in ("In", "NotIn") and not values:
        problems.append(
            Problem(
                f"{where}.values",
                f"is empty, but operator {operator} needs values",
                "name one or more",
            )
        )
    elif operator in ("Exists", "DoesNotExist") and values:
        problems.append(
            Problem(
                f"{where}.values",
                f"is set, but operator {operator} takes none",
                "remove the values",
            )
        )
    if problems:
        return problems
    return Requirement(str(key), str(operator), frozenset(values))
