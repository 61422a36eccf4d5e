"""Colocation profiles: which pods an operator wants changed, and how.

The fields are those of Koordinator's ClusterColocationProfile, so that one profile reads the same in both, plus our own
``priority``, ``matchPolicy`` and ``cpu``. Objects of Koordinator's kind are read as they are. The webhook and
``slackwater admit`` apply what is parsed here.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Any

from slackwater import names
from slackwater.errors import InputError, Problem
from slackwater.objects import RawObject, mapping, text
from slackwater.qos import Qos
from slackwater.selectors import EVERYTHING, LabelSelector

KIND = "ColocationProfile"
KOORDINATOR_KIND = "ClusterColocationProfile"
_KOORDINATOR_FIELDS = (
    "namespaceSelector",
    "selector",
    "probability",
    "labels",
    "annotations",
    "labelKeysMapping",
    "annotationKeysMapping",
    "labelSuffixes",
    "schedulerName",
    "qosClass",
    "priorityClassName",
    "koordinatorPriority",
    "patch",
)
_OWN_FIELDS = ("priority", "matchPolicy", "cpu")
_PERCENT = re.compile(r"(\d{1,3})%?", re.ASCII)


class CpuRule(StrEnum):
    """What becomes of a best-effort pod's cpu: as sent, a token request, or nothing."""

    KEEP = "keep"
    SHARE = "share"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Profile:
    """One profile, ready to match and apply. Empty fields change nothing."""

    name: str
    kind: str = KIND
    priority: int = 0
    """Between profiles: the higher one is applied later and so wins; ties go by name."""
    match_first: bool = False
    """Where this profile matches, those of lower rank are not applied."""
    namespace_selector: LabelSelector = EVERYTHING
    selector: LabelSelector = EVERYTHING
    percent: int = 100
    """Share of owners that get it, 0 to 100."""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    label_keys_mapping: Mapping[str, str] = field(default_factory=dict)
    annotation_keys_mapping: Mapping[str, str] = field(default_factory=dict)
    label_suffixes: Mapping[str, str] = field(default_factory=dict)
    scheduler_name: str = ""
    qos: Qos | None = None
    priority_class_name: str = ""
    sub_priority: int | None = None
    patch: Mapping[str, Any] = field(default_factory=dict)
    """Strategic merge patch of the pod; applied last."""
    skip_resources: bool = False
    cpu: CpuRule | None = None

    @property
    def rank(self) -> tuple[int, str, str]:
        """Sort key of the order in which profiles are applied."""
        return (self.priority, self.name, self.kind)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which profiles concern a pod.

    ``applied`` in order of application; ``matched`` also holds those whose percentage left this owner out.
    """

    matched: tuple[Profile, ...] = ()
    applied: tuple[Profile, ...] = ()

    @property
    def skips_resources(self) -> bool:
        return any(profile.skip_resources for profile in self.matched)

    @property
    def cpu(self) -> CpuRule:
        """The rule of the highest-ranking applied profile that states one."""
        return next((profile.cpu for profile in reversed(self.applied) if profile.cpu is not None), CpuRule.KEEP)


def select(
    profiles: Iterable[Profile], labels: Mapping[str, str], namespace_labels: Mapping[str, str], owner: str
) -> Selection:
    """The profiles for a pod with ``labels`` as its owner sent them.

    Args:
        owner: identifies the workload; all its pods fall on the same side of a percentage.
    """
    ranked = sorted(
        (
            profile
            for profile in profiles
            if profile.selector.matches(labels) and profile.namespace_selector.matches(namespace_labels)
        ),
        key=lambda profile: profile.rank,
    )
    chosen = [profile for profile in ranked if _falls_within(profile, owner)]
    lowest = max((index for index, profile in enumerate(chosen) if profile.match_first), default=0)
    return Selection(tuple(ranked), tuple(chosen[lowest:]))


def _falls_within(profile: Profile, owner: str) -> bool:
    """Whether ``owner`` belongs to the profile's share: fixed for ever, and exact over many owners.

    The profile's name is hashed too, so that two profiles of 10 % do not always pick the same owners.
    """
    if profile.percent in (0, 100):
        return profile.percent == 100
    digest = sha256(f"{profile.name}\0{owner}".encode(errors="backslashreplace")).digest()
    return int.from_bytes(digest[:8], "big") * 100 < profile.percent * 2**64


def parse_profile(raw: RawObject) -> tuple[Profile, tuple[Problem, ...]]:
    """Read a profile of either kind. The second value holds warnings: keys that nobody knows.

    Raises:
        InputError: naming every field that cannot be used. Such a profile must match nothing.
    """
    reader = _Reader(mapping(raw, "spec"))
    kind = text(raw, "kind") or KIND
    name = text(raw, "metadata", "name")
    if not name:
        reader.problems.append(Problem("metadata.name", "is missing", "give the profile a name"))
    if raw.get("spec") is not None and not isinstance(raw.get("spec"), Mapping):
        reader.problems.append(Problem("spec", f"is {raw.get('spec')!r}", "write the profile's fields"))
    own = kind != KOORDINATOR_KIND
    known = _KOORDINATOR_FIELDS + (_OWN_FIELDS if own else ())
    profile = Profile(
        name=name,
        kind=kind,
        priority=(reader.integer("priority") or 0) if own else 0,
        match_first=own and reader.choice("matchPolicy", ("All", "First")) == "First",
        namespace_selector=reader.selector("namespaceSelector"),
        selector=reader.selector("selector"),
        percent=reader.percent("probability"),
        labels=reader.strings("labels"),
        annotations=reader.strings("annotations"),
        label_keys_mapping=reader.strings("labelKeysMapping"),
        annotation_keys_mapping=reader.strings("annotationKeysMapping"),
        label_suffixes=reader.strings("labelSuffixes"),
        scheduler_name=reader.string("schedulerName"),
        qos=_as(Qos, reader.choice("qosClass", tuple(Qos))),
        priority_class_name=reader.string("priorityClassName"),
        sub_priority=reader.integer("koordinatorPriority"),
        patch=reader.object("patch"),
        skip_resources=names.KOORDINATOR_SKIP_RESOURCES_ANNOTATION in mapping(raw, "metadata", "annotations"),
        cpu=_as(CpuRule, reader.choice("cpu", tuple(CpuRule))) if own else None,
    )
    if reader.problems:
        raise InputError(problem.under(f"{kind} {name}".strip()) for problem in reader.problems)
    warnings = tuple(
        Problem(f"{kind} {name}.spec.{key}", "is not a field of a profile and is ignored", f"use {', '.join(known)}")
        for key in reader.spec
        if key not in known
    )
    return profile, warnings


def _as(kind: type[Any], value: str) -> Any:
    return kind(value) if value else None


class _Reader:
    """Takes fields out of a spec and gathers what is wrong with them. Absent and null are the same."""

    def __init__(self, spec: RawObject) -> None:
        self.spec = spec
        self.problems: list[Problem] = []

    def _wrong(self, key: str, value: object, remedy: str) -> None:
        self.problems.append(Problem(f"spec.{key}", f"is {value!r}", remedy))

    def string(self, key: str) -> str:
        value = self.spec.get(key)
        if value is None or isinstance(value, str):
            return value or ""
        self._wrong(key, value, "write a string")
        return ""

    def choice(self, key: str, values: tuple[str, ...]) -> str:
        value = self.spec.get(key)
        if value is None or value == "":
            return ""
        if isinstance(value, str) and value in values:
            return value
        self._wrong(key, value, f"use one of {', '.join(values)}")
        return ""

    def integer(self, key: str) -> int | None:
        value = self.spec.get(key)
        if value is None:
            return None
        if isinstance(value, int) and not isinstance(value, bool) and -(2**31) <= value < 2**31:
            return value
        self._wrong(key, value, "write a whole number of 32 bits")
        return None

    def percent(self, key: str) -> int:
        value = self.spec.get(key)
        if value is None:
            return 100
        form = _PERCENT.fullmatch(value) if isinstance(value, str) else None
        number = int(form[1]) if form else value
        if isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= 100:
            return number
        self._wrong(key, value, 'write 0 to 100, or "25%"')
        return 0

    def strings(self, key: str) -> dict[str, str]:
        value = self.spec.get(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self._wrong(key, value, "write key: value pairs")
            return {}
        for entry, content in value.items():
            if not isinstance(content, str):
                self._wrong(f"{key}[{entry}]", content, "put the value in quotes")
        return {entry: content for entry, content in value.items() if isinstance(content, str)}

    def object(self, key: str) -> Mapping[str, Any]:
        value = self.spec.get(key)
        if value is None or isinstance(value, Mapping):
            return value or {}
        self._wrong(key, value, "write a strategic merge patch of a pod")
        return {}

    def selector(self, key: str) -> LabelSelector:
        try:
            return LabelSelector.parse(self.spec.get(key), f"spec.{key}")
        except InputError as error:
            self.problems.extend(error.problems)
            return EVERYTHING
