"""Which idle workloads are suspended now, which are kept, and why: the same for production and ``slackwater idle``.

An object is suspended when its condition ``Idle`` is True and has been so for *longer* than the type's ``idleTimeout``,
counted from the condition's ``lastTransitionTime`` or, if that is later, from the moment a person resumed the object.
A resume leaves the old condition in place for a while; without the second rule the object would be suspended again at
once. Unknown is never idle, and nothing that lies in the future is believed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from controller.kinds import IdleKind
from slackwater import names
from slackwater.objects import RawObject, mapping, sequence, string_map, text
from slackwater.policy.idle import TypePolicy
from slackwater.timestamps import format_time, parse_time

JUMP_HOLD_S = 3600.0
"""Long enough for a time service or a person to set a wrong clock right."""
_JUMP = timedelta(seconds=10)
"""Between two turns of a loop; corrections by a time service are far slower."""


class Action(StrEnum):
    """What to do with an object."""

    SUSPEND = "suspend"
    KEEP = "keep"


class Reason(StrEnum):
    """Why, as a constant for counters and scripts; the row's message has the numbers."""

    IDLE = "IdleTimeoutExceeded"
    NOT_DUE = "IdleTimeoutNotReached"
    ACTIVE = "NotIdle"
    UNKNOWN = "IdlenessUnknown"
    SUSPENDED = "AlreadySuspended"
    RESUMED = "Resumed"
    EXCLUDED = "Excluded"
    TERMINATING = "Terminating"
    FUTURE = "IdleSinceInTheFuture"


@dataclass(frozen=True, slots=True)
class Row:
    """The decision about one object. ``due_at`` is when its idleness reaches the timeout, where that is known."""

    kind: str
    namespace: str
    name: str
    action: Action
    reason: Reason
    due_at: datetime | None
    message: str
    records_resume: bool = False
    """The moment of a resume has to be written on the object, so that a restart neither resets nor skips the clock."""

    def as_output(self) -> dict[str, Any]:
        """The row as ``slackwater idle`` prints it."""
        return {
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "action": self.action.value,
            "reason": self.reason.value,
            "dueAt": None if self.due_at is None else format_time(self.due_at),
            "message": self.message,
        }


def reaches(policy: TypePolicy, namespace_labels: Mapping[str, str] | None) -> bool:
    """Whether a type's policy reaches a namespace; one whose labels are not known (None) is reached only by "all"."""
    if policy.all_namespaces:
        return True
    return namespace_labels is not None and policy.selector.matches(namespace_labels)


def decide(kind: IdleKind, policy: TypePolicy, raw: RawObject, now: datetime, *, seen_suspended: bool = False) -> Row:
    """Decide about one object that ``policy`` reaches.

    ``seen_suspended``: the object was suspended when it was last looked at, whoever had done it.
    """
    namespace, name = text(raw, "metadata", "namespace") or "default", text(raw, "metadata", "name")

    def row(action: Action, reason: Reason, due_at: datetime | None, message: str, *, resume: bool = False) -> Row:
        return Row(kind.kind, namespace, name, action, reason, due_at, message, resume)

    annotations = string_map(raw, "metadata", "annotations")
    timeout = timedelta(seconds=policy.idle_timeout_s)
    if text(raw, "metadata", "deletionTimestamp"):
        return row(Action.KEEP, Reason.TERMINATING, None, "it is being deleted")
    if mapping(raw, "spec").get("suspend") is True:
        return row(Action.KEEP, Reason.SUSPENDED, None, "spec.suspend is true already")
    resumed_at = _time(annotations.get(names.RESUMED_AT_ANNOTATION))
    if seen_suspended or _is_resumed_unrecorded(annotations, resumed_at):
        return row(
            Action.KEEP, Reason.RESUMED, _after(now, timeout),
            f"somebody resumed it; its {policy.idle_timeout_s} s start anew", resume=True,
        )  # fmt: skip
    if annotations.get(names.EXCLUDE_ANNOTATION, "false").lower() != "false":
        return row(Action.KEEP, Reason.EXCLUDED, None, f"annotation {names.EXCLUDE_ANNOTATION} excludes it")
    condition = _idle_condition(raw)
    if text(condition, "status") == "False":
        return row(Action.KEEP, Reason.ACTIVE, None, "its condition Idle is False")
    if text(condition, "status") != "True":
        what = "Unknown" if condition else "missing"
        return row(Action.KEEP, Reason.UNKNOWN, None, f"its condition Idle is {what}; unknown is never idle")
    changed_at = _time(text(condition, "lastTransitionTime"))
    if changed_at is None:
        return row(Action.KEEP, Reason.UNKNOWN, None, "its condition Idle has no usable lastTransitionTime")
    since = changed_at if resumed_at is None else max(changed_at, resumed_at)
    due_at = _after(since, timeout)
    idle_for = int((now - since) / timedelta(seconds=1))
    if since > now:
        return row(Action.KEEP, Reason.FUTURE, due_at, f"it is idle since {format_time(since)}, which is in the future")
    if now - since > timeout:
        return row(
            Action.SUSPEND, Reason.IDLE, due_at,
            f"idle for {idle_for} s since {format_time(since)}, longer than idleTimeout {policy.idle_timeout_s} s",
        )  # fmt: skip
    return row(
        Action.KEEP, Reason.NOT_DUE, due_at,
        f"idle for {idle_for} s since {format_time(since)}, idleTimeout is {policy.idle_timeout_s} s",
    )  # fmt: skip


def suspension_patch(raw: RawObject, row: Row, policy: TypePolicy, now: datetime) -> dict[str, Any]:
    """The one merge patch that suspends: the switch, when and by what, and the version it was decided on."""
    return {
        "metadata": {
            "resourceVersion": text(raw, "metadata", "resourceVersion"),
            "annotations": {
                names.SUSPENDED_AT_ANNOTATION: format_time(now, micros=True),
                names.SUSPENDED_BY_ANNOTATION: f"{names.FIELD_MANAGER}: {row.message} (policy: {policy})"[:256],
            },
        },
        "spec": {"suspend": True},
    }


def resume_patch(raw: RawObject, now: datetime) -> dict[str, Any]:
    """The merge patch that records a resume, once: what the suspension left behind goes away with it."""
    return {
        "metadata": {
            "resourceVersion": text(raw, "metadata", "resourceVersion"),
            "annotations": {
                names.RESUMED_AT_ANNOTATION: format_time(now, micros=True),
                names.SUSPENDED_AT_ANNOTATION: None,
                names.SUSPENDED_BY_ANNOTATION: None,
            },
        }
    }


@dataclass(frozen=True, slots=True)
class Clock:
    """A wall clock that a jump cannot rush: decisions are made at :attr:`now`.

    Between two readings the wall clock and the monotonic one must advance alike. Where the wall clock leaps ahead, time
    goes on as the monotonic clock counts it until the leap is undone or has lasted for ``JUMP_HOLD_S`` (a machine that
    slept is right, and then only late). A clock set back is believed at once: it can only postpone.
    """

    now: datetime
    read_at_s: float
    """Monotonic seconds."""
    ahead_since_s: float | None = None
    """Since when the wall clock has been ahead of :attr:`now`; None = it is not."""

    def advance(self, wall: datetime, monotonic_s: float) -> "Clock":
        """The clock after another reading of both."""
        counted = self.now + timedelta(seconds=monotonic_s - self.read_at_s)
        if wall <= counted + _JUMP:
            return Clock(wall, monotonic_s)
        since_s = monotonic_s if self.ahead_since_s is None else self.ahead_since_s
        if monotonic_s - since_s >= JUMP_HOLD_S:
            return Clock(wall, monotonic_s)
        return Clock(counted, monotonic_s, since_s)


def _is_resumed_unrecorded(annotations: Mapping[str, str], resumed_at: datetime | None) -> bool:
    """We suspended this running object, and its resume is not on record: so no restart of ours can miss one."""
    if names.SUSPENDED_AT_ANNOTATION not in annotations:
        return False
    suspended_at = _time(annotations[names.SUSPENDED_AT_ANNOTATION])
    return suspended_at is None or resumed_at is None or resumed_at < suspended_at


def _idle_condition(raw: RawObject) -> RawObject:
    conditions = (one for one in sequence(raw, "status", "conditions") if text(one, "type") == "Idle")
    return next(conditions, {})


def _after(moment: datetime, timeout: timedelta) -> datetime | None:
    """None where that lies beyond the years that a time can hold."""
    try:
        return moment + timeout
    except OverflowError:
        return None


def _time(value: str | None) -> datetime | None:
    try:
        return parse_time(value)
    except ValueError:
        return None
