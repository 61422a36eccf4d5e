"""The idle policy: key ``policy.yaml`` of ConfigMap ``resource-keeper-policy-config``, in the Resource Keeper's format.

::

    policy:
      notebook:                  # and tensorboard, explorer; a type that is absent is switched off
        scanInterval: 300        # seconds
        idleTimeout: 86400       # seconds; idle for longer than this is suspended
        namespaceSelector:       # metav1.LabelSelector; absent, null or empty = all namespaces
          matchLabels: {...}

Rules: every type stands for itself. A type that cannot be used keeps its last good policy while the others apply; a
text that cannot be used keeps everything as it was. Label values written as YAML booleans or numbers become text, as
the Kubernetes tools read them. Nothing is clamped in silence. Pure; the text is parsed by the caller's YAML loader.
"""

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from slackwater.errors import InputError, Problem
from slackwater.selectors import LabelSelector

TYPES = ("notebook", "tensorboard", "explorer")
DEFAULT_SCAN_INTERVAL_S = 300
DEFAULT_IDLE_TIMEOUT_S = 86400
CONTROLLER_KEY = "slackwater"
"""Where settings for the whole controller stand, beside the types."""

_LONGEST_S = 10 * 365 * 86400
"""Ten years; more is a mistake in the unit, and would leave what a date can hold."""
_FIELDS = ("scanInterval", "idleTimeout", "namespaceSelector")


@dataclass(frozen=True, slots=True)
class TypePolicy:
    """What holds for one type. ``selector`` chooses namespaces by their labels."""

    scan_interval_s: int = DEFAULT_SCAN_INTERVAL_S
    idle_timeout_s: int = DEFAULT_IDLE_TIMEOUT_S
    selector: LabelSelector = field(default_factory=lambda: LabelSelector(()))

    @property
    def all_namespaces(self) -> bool:
        """True where no label is asked for, so that namespaces need not even be known."""
        return not self.selector.requirements

    def __str__(self) -> str:
        where = "all namespaces" if self.all_namespaces else "; ".join(map(str, self.selector.requirements))
        return f"scanInterval {self.scan_interval_s} s, idleTimeout {self.idle_timeout_s} s, {where}"


@dataclass(frozen=True, slots=True)
class IdlePolicy:
    """The types that are switched on; the rest are off."""

    types: Mapping[str, TypePolicy] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PolicyReading:
    """One text as read: usable types, the problems of unusable ones by type, and what else was doubtful."""

    types: Mapping[str, TypePolicy]
    broken: Mapping[str, tuple[Problem, ...]]
    warnings: tuple[Problem, ...]

    def over(self, last: IdlePolicy) -> IdlePolicy:
        """The policy that holds now: a broken type keeps what it had in ``last``."""
        kept = {name: last.types[name] for name in self.broken if name in last.types}
        return IdlePolicy({**self.types, **kept})


OFF = IdlePolicy()


def read_policy(document: Any, where: str = "policy.yaml") -> PolicyReading:
    """Read the decoded YAML of one policy text.

    Raises:
        InputError: the document is no policy at all; whatever held before goes on.
    """
    if not isinstance(document, Mapping) or "policy" not in document:
        raise InputError([Problem(where, "has no key policy", "write policy: with the types below it, or policy: {}")])
    types_raw = document["policy"]
    if types_raw is None:
        types_raw = {}
    if not isinstance(types_raw, Mapping):
        raise InputError([Problem(f"{where}: policy", f"is {_shown(types_raw)}", "write the types below it")])
    warnings = [
        Problem(key, "is not a known field and has no effect", _remedy(key, ("policy",)))
        for key in document
        if key != "policy"
    ]
    types: dict[str, TypePolicy] = {}
    broken: dict[str, tuple[Problem, ...]] = {}
    for name, raw in types_raw.items():
        path = f"policy.{name}"
        if name == CONTROLLER_KEY:
            warnings.extend(_unknown(raw if isinstance(raw, Mapping) else {}, path, ()))
        elif name not in TYPES:
            warnings.append(Problem(path, "is not a known type and has no effect", _remedy(name, TYPES)))
        elif raw is None:
            warnings.append(
                Problem(path, "is empty, and the type stays switched off", f"write {name}: {{}} for the defaults")
            )
        else:
            problems: list[Problem] = []
            read = _read_type(raw, path, problems, warnings)
            if read is None:
                broken[name] = tuple(problems)
            else:
                types[name] = read
    return PolicyReading(types, broken, tuple(warnings))


def _read_type(raw: Any, path: str, problems: list[Problem], warnings: list[Problem]) -> TypePolicy | None:
    if not isinstance(raw, Mapping):
        problems.append(Problem(path, f"is {_shown(raw)}", "write scanInterval, idleTimeout and namespaceSelector"))
        return None
    warnings.extend(_unknown(raw, path, _FIELDS))
    scan = _seconds(raw, path, "scanInterval", DEFAULT_SCAN_INTERVAL_S, problems)
    timeout = _seconds(raw, path, "idleTimeout", DEFAULT_IDLE_TIMEOUT_S, problems)
    selector = LabelSelector(())
    try:
        selector = LabelSelector.parse(_with_text_values(raw.get("namespaceSelector")), f"{path}.namespaceSelector")
    except InputError as error:
        problems.extend(error.problems)
    if problems:
        return None
    if timeout < scan:
        warnings.append(
            Problem(
                f"{path}.idleTimeout",
                f"is {timeout} s, less than scanInterval {scan} s, so that objects stay up to {timeout + scan} s",
                "lower scanInterval",
            )
        )
    return TypePolicy(scan, timeout, selector)


def _seconds(raw: Mapping[str, Any], path: str, key: str, default: int, problems: list[Problem]) -> int:
    value = raw.get(key)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool):
        problems.append(Problem(f"{path}.{key}", f"is {_shown(value)}", "write whole seconds, such as 300"))
        return default
    if not 1 <= value <= _LONGEST_S:
        problems.append(Problem(f"{path}.{key}", f"is {value}", f"write seconds from 1 to {_LONGEST_S}"))
        return default
    return value


def _with_text_values(raw: Any) -> Any:
    """Label values as text: ``true`` becomes ``"true"``, ``1`` becomes ``"1"``."""
    if not isinstance(raw, Mapping):
        return raw
    result = dict(raw)
    if isinstance(raw.get("matchLabels"), Mapping):
        result["matchLabels"] = {key: _as_text(value) for key, value in raw["matchLabels"].items()}
    if isinstance(raw.get("matchExpressions"), list):
        result["matchExpressions"] = [
            {**one, "values": [_as_text(value) for value in one["values"]]}
            if isinstance(one, Mapping) and isinstance(one.get("values"), list)
            else one
            for one in raw["matchExpressions"]
        ]
    return result


def _as_text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _float_as_text(value)
    return value


def _float_as_text(value: float) -> str:
    """As Go's ``strconv.FormatFloat(value, 'g', -1, 64)``, which sigs.k8s.io/yaml uses where a string is wanted."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'+' if value > 0 else '-'}Inf"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    point = len(digits) + int(exponent) - 1
    if -4 <= point < 6:
        return f"{Decimal(repr(value)).normalize():f}"
    mantissa = "".join(map(str, digits))
    mantissa = mantissa if len(mantissa) == 1 else f"{mantissa[0]}.{mantissa[1:]}"
    return f"{'-' * sign}{mantissa}e{'-' if point < 0 else '+'}{abs(point):02d}"


def _unknown(raw: Mapping[str, Any], path: str, known: tuple[str, ...]) -> list[Problem]:
    return [
        Problem(f"{path}.{key}", "is not a known field and has no effect", _remedy(key, known))
        for key in raw
        if key not in known
    ]


def _remedy(name: Any, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(str(name).lower(), known, n=1, cutoff=0.5)
    close = close or difflib.get_close_matches(str(name), known, n=1)
    if close:
        return f"did you mean {close[0]}?"
    return f"known are {', '.join(known)}" if known else "remove it"


def _shown(value: Any) -> str:
    return f"{str(value)[:40]!r} ({type(value).__name__})"
