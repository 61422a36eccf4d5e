"""The admission decision: what becomes of this object? Pure; the webhook and ``slackwater admit`` call it.

``admit`` is the whole decision. It looks at pods when they are created, and at the pod templates of top-level
workloads; what the class of a pod asks for is worked out by ``profiles``, ``priority`` and ``memory`` on a copy.

Twice is once: the answer carries ``slackwater.io/original``, what the owner had sent. A second pass undoes it, decides
anew, and where that gives the very object received there is nothing left to do. Otherwise the record is stale (the
object was edited, or the record made up) and the object counts as its owner's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from slackwater import names
from slackwater.errors import InputError
from slackwater.objects import RawObject, integer, mapping, sequence, string_map, text
from slackwater.policy.profile import Profile, Selection, select
from slackwater.qos import Qos, read_qos
from webhook import memory, original, priority, profiles
from webhook.patch import same
from webhook.priority import KNOWN_CLASSES, PriorityClass

SYSTEM_NAMESPACES = frozenset({"kube-system"})
_NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"
_HASH_LABEL = "pod-template-hash"

_POD = ("", "Pod")
_TEMPLATES: Mapping[tuple[str, str], tuple[str, ...]] = {
    _POD: (),
    ("apps", "Deployment"): ("spec", "template"),
    ("apps", "StatefulSet"): ("spec", "template"),
    ("apps", "DaemonSet"): ("spec", "template"),
    ("apps", "ReplicaSet"): ("spec", "template"),
    ("batch", "Job"): ("spec", "template"),
    ("batch", "CronJob"): ("spec", "jobTemplate", "spec", "template"),
}
"""Where a kind keeps its pod template; a pod is its own."""
_IMMUTABLE_TEMPLATES = frozenset({"Job"})


class PassReason(StrEnum):
    """Why an object is left as it is."""

    NO_POD_TEMPLATE = "NoPodTemplate"
    SYSTEM_NAMESPACE = "SystemNamespace"
    STATIC_POD = "StaticPod"
    ALREADY_BOUND = "AlreadyBound"
    NOT_A_CREATE = "NotACreate"
    TEMPLATE_UNCHANGED = "TemplateUnchanged"
    OWNED_BY_CONTROLLER = "OwnedByController"
    NOT_SELECTED = "NotSelected"
    ALREADY_ADMITTED = "AlreadyAdmitted"
    NOTHING_TO_CHANGE = "NothingToChange"


class DenyReason(StrEnum):
    """Why an object is refused."""

    PRIORITY_NOT_ALLOWED = "PriorityNotAllowed"
    PRIORITY_CLASS_MISSING = "PriorityClassMissing"
    PROFILE_PATCH_FAILS = "ProfilePatchFails"


@dataclass(frozen=True, slots=True)
class Settings:
    """What the installation fixes."""

    block_size: int = names.DEFAULT_BLOCK_SIZE
    scheduler_name: str = names.SCHEDULER_NAME
    """For pods that get blocks; empty = leave every pod its own."""
    excluded_namespaces: frozenset[str] = SYSTEM_NAMESPACES | {names.SYSTEM_NAMESPACE}


@dataclass(frozen=True, slots=True)
class Context:
    """What the decision knows of the cluster."""

    profiles: tuple[Profile, ...] = ()
    priority_classes: Mapping[str, PriorityClass] = field(default_factory=dict)
    namespace_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    settings: Settings = Settings()

    def classes(self) -> Mapping[str, PriorityClass]:
        return {**KNOWN_CLASSES, **self.priority_classes}

    def labels_of_namespace(self, name: str) -> Mapping[str, str]:
        """A namespace's labels; the API server gives every one its name as a label."""
        return {_NAMESPACE_NAME_LABEL: name, **self.namespace_labels.get(name, {})}


@dataclass(frozen=True, slots=True)
class Subject:
    """The object to decide about. ``old`` is what it replaces, None at its creation."""

    object: RawObject
    namespace: str
    old: RawObject | None = None

    @property
    def kind(self) -> tuple[str, str]:
        """API group and kind."""
        group, slash, _ = text(self.object, "apiVersion").rpartition("/")
        return (group if slash else "", text(self.object, "kind"))


@dataclass(frozen=True, slots=True)
class Admit:
    """Let it in, changed. ``reasons`` tell what was done, ``warnings`` what its owner should know."""

    object: dict[str, Any]
    reasons: tuple[str, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pass:
    """Let it in as it is."""

    reason: PassReason
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Deny:
    """Keep it out; ``message`` is for its owner."""

    reason: DenyReason
    message: str


Decision: TypeAlias = Admit | Pass | Deny


def template_path(raw: RawObject) -> tuple[str, ...]:
    """Where ``raw`` keeps its pod template; a pod, or a kind without one, is its own."""
    return _TEMPLATES.get(Subject(raw, "").kind, ())


def admit(subject: Subject, context: Context) -> Decision:
    """Decide about one object. ``subject.object`` is not changed; the answer shares its untouched parts.

    Raises:
        InputError: a best-effort pod whose quantities cannot be read, by field path.
    """
    # 1. objects that are none of our business
    path = _TEMPLATES.get(subject.kind)
    if path is None or (path and not mapping(subject.object, *path)):
        return Pass(PassReason.NO_POD_TEMPLATE)
    exempt = _exempt(subject, path, context.settings)
    if exempt is not None:
        return Pass(exempt)

    # 2. as its owner sent it, if an earlier pass of ours left a record that holds
    received = dict(mapping(subject.object, *path))
    task = _Task(subject, path, context)
    before = original.restored(received)
    if before is not None:
        again = _outcome(before, task)
        if isinstance(again, Admit) and _came_to(again.object, received):
            if same(again.object, received):
                return Pass(PassReason.ALREADY_ADMITTED)
            return Admit(_with_template(subject.object, path, again.object), again.reasons)

    # 3. as it stands
    outcome = _outcome(original.without_record(received) if before is not None else received, task)
    if isinstance(outcome, Admit):
        return Admit(_with_template(subject.object, path, outcome.object), outcome.reasons, outcome.warnings)
    return outcome


@dataclass(frozen=True, slots=True)
class _Task:
    """What stays the same while one object is looked at."""

    subject: Subject
    path: tuple[str, ...]
    context: Context

    @property
    def is_pod(self) -> bool:
        return not self.path

    @property
    def title(self) -> str:
        metadata = mapping(self.subject.object, "metadata")
        name = text(metadata, "name") or f"{text(metadata, 'generateName')}..."
        return f"{self.subject.kind[1]} {self.subject.namespace}/{name}"


def _exempt(subject: Subject, path: tuple[str, ...], settings: Settings) -> PassReason | None:
    if subject.namespace in settings.excluded_namespaces:
        return PassReason.SYSTEM_NAMESPACE
    if subject.kind == _POD:
        annotations = string_map(subject.object, "metadata", "annotations")
        if subject.old is not None:
            return PassReason.NOT_A_CREATE  # a pod's spec is immutable
        source = annotations.get(names.CONFIG_SOURCE_ANNOTATION, "api")
        if source != "api" or names.CONFIG_MIRROR_ANNOTATION in annotations:
            return PassReason.STATIC_POD
        if text(subject.object, "spec", "nodeName"):
            return PassReason.ALREADY_BOUND
        return None
    if _controller(subject.object):
        # A Deployment finds its ReplicaSet by comparing templates: a changed one would be made again and again.
        return PassReason.OWNED_BY_CONTROLLER
    if subject.old is not None:
        if subject.kind[1] in _IMMUTABLE_TEMPLATES:
            return PassReason.NOT_A_CREATE
        if same(mapping(subject.old, *path), mapping(subject.object, *path)):
            return PassReason.TEMPLATE_UNCHANGED  # this very request did not ask for a rollout
    return None


# -- the change -------------------------------------------------------------------------------------------


def _outcome(before: Mapping[str, Any], task: _Task) -> Decision:
    """What the owner's pod or template ``before`` is to become (as the object of an Admit)."""
    labels = string_map(before, "metadata", "labels")
    sent = read_qos(labels, string_map(before, "metadata", "annotations"))
    selection = select(
        task.context.profiles, labels, task.context.labels_of_namespace(task.subject.namespace), _owner(task, labels)
    )
    if not selection.applied and sent.qos is not Qos.BE:
        return Pass(PassReason.NOT_SELECTED)

    after: dict[str, Any] = profiles.copied(before)
    try:
        warnings = [*sent.warnings, *profiles.apply(selection.applied, after)]
    except InputError as error:
        return Deny(DenyReason.PROFILE_PATCH_FAILS, f"{task.title}: {error}")
    reasons = [f"profile {profile.name} applies" for profile in selection.applied]

    reading = read_qos(string_map(after, "metadata", "labels"), string_map(after, "metadata", "annotations"))
    named_by_profile = {profile.priority_class_name for profile in selection.applied}
    refusal = _write_priority(after, before, reading.qos, named_by_profile, task, reasons, warnings)
    if refusal is not None:
        return refusal
    if reading.qos is Qos.BE:
        reasons.insert(0, f"class BE by {sent.source if sent.qos is Qos.BE else 'profile'}")
        profiles.write_class(after, Qos.BE)
        if not selection.skips_resources:
            _write_blocks(after, selection, task, reasons, warnings)
    if selection.applied:
        names_applied = ",".join(profile.name for profile in selection.applied)
        profiles.string_fields(after, "annotations")[names.PROFILES_ANNOTATION] = names_applied
    warnings.extend(_keep_selector_labels(after, labels, task))
    _drop_empty_fields(after, before)

    if same(after, dict(before)):
        return Pass(PassReason.NOTHING_TO_CHANGE, tuple(warnings))
    record = original.annotation(before, after)
    profiles.string_fields(after, "annotations")[names.ORIGINAL_ANNOTATION] = record
    return Admit(after, tuple(reasons), tuple(warnings))


def _write_priority(
    after: dict[str, Any],
    before: Mapping[str, Any],
    qos: Qos | None,
    named_by_profile: set[str],
    task: _Task,
    reasons: list[str],
    warnings: list[str],
) -> Deny | None:
    """Settle the PriorityClass. Templates get its name alone: the API server works out the rest for their pods."""
    sent_name, name = text(before, "spec", "priorityClassName"), text(after, "spec", "priorityClassName")
    by_profile = name != "" and (name != sent_name or name in named_by_profile)
    classes = task.context.classes()
    if qos is Qos.BE:
        value = integer(after, "spec", "priority")
        settled = priority.best_effort(name, value, by_profile=by_profile, classes=classes)
    elif by_profile:
        settled = priority.of_class(name, classes)
    else:
        return None
    if isinstance(settled, priority.Refusal):
        reason = DenyReason.PRIORITY_CLASS_MISSING if settled.class_is_missing else DenyReason.PRIORITY_NOT_ALLOWED
        return Deny(reason, f"{task.title}: {settled.sentence}")
    spec = profiles.spec_of(after)
    spec["priorityClassName"] = settled.class_name
    if task.is_pod:
        if settled.value is not None:
            spec["priority"] = settled.value
        spec["preemptionPolicy"] = settled.preemption_policy
    reasons.append(settled.reason)
    warnings.extend(settled.warnings)
    return None


def _write_blocks(
    after: dict[str, Any], selection: Selection, task: _Task, reasons: list[str], warnings: list[str]
) -> None:
    settings = task.context.settings
    try:
        translation = memory.translate(after, settings.block_size, selection.cpu)
    except InputError as error:
        raise error.under(".".join(task.path)) from error
    reasons.extend(translation.reasons)
    warnings.extend(translation.warnings)
    if not translation.blocks:
        return
    profiles.string_fields(after, "annotations")[names.BLOCK_SIZE_ANNOTATION] = str(settings.block_size)
    if settings.scheduler_name:
        warnings.extend(profiles.name_scheduler(after, settings.scheduler_name, "blocks are placed better if it"))


def _keep_selector_labels(after: dict[str, Any], sent: Mapping[str, str], task: _Task) -> list[str]:
    """Undo changes of template labels that the workload's own selector needs; returns a warning for each."""
    if task.is_pod:
        return []
    selector = mapping(task.subject.object, "spec", "selector")
    needed = [*mapping(selector, "matchLabels")]
    needed += [text(expression, "key") for expression in sequence(selector, "matchExpressions")]
    labels = profiles.string_fields(after, "labels")
    warnings = []
    for key in dict.fromkeys(needed):
        if labels.get(key) == sent.get(key):
            continue
        warnings.append(f"label {key} stays as it was sent, because the selector of {task.title} needs it")
        if key in sent:
            labels[key] = sent[key]
        else:
            del labels[key]
    return warnings


def _drop_empty_fields(after: dict[str, Any], before: Mapping[str, Any]) -> None:
    """Take back mappings that were made on the way and stayed empty."""
    for kind in ("labels", "annotations"):
        metadata, former = after.get("metadata"), mapping(before, "metadata")
        if isinstance(metadata, dict) and metadata.get(kind) == {} and former.get(kind) is None:
            if kind in former:
                metadata[kind] = None
            else:
                del metadata[kind]
    if after.get("metadata") == {} and before.get("metadata") is None:
        if "metadata" in before:
            after["metadata"] = None
        else:
            del after["metadata"]


# -- reading ----------------------------------------------------------------------------------------------


def _came_to(outcome: Mapping[str, Any], received: Mapping[str, Any]) -> bool:
    """Whether deciding anew gave the object received.

    A template carries its PriorityClass by name, so its pods may arrive without the number and the policy.
    """
    spec = dict(mapping(received, "spec"))
    for key in ("priority", "preemptionPolicy"):
        if spec.get(key) is None and key in mapping(outcome, "spec"):
            spec[key] = mapping(outcome, "spec")[key]
    return same(dict(outcome), {**received, "spec": spec})


def _controller(raw: RawObject) -> RawObject | None:
    for reference in sequence(raw, "metadata", "ownerReferences"):
        if mapping({"it": reference}, "it").get("controller") is True:
            found: RawObject = reference
            return found
    return None


def _owner(task: _Task, labels: Mapping[str, str]) -> str:
    """The workload that a pod or template belongs to, the same before and after a rollout."""
    raw = task.subject.object
    controller = _controller(raw)
    if controller is None:
        kind = task.subject.kind[1]
        name = text(raw, "metadata", "name") or text(raw, "metadata", "generateName")
    else:
        kind, name = text(controller, "kind"), text(controller, "name")
        rollout = labels.get(_HASH_LABEL)
        if kind == "ReplicaSet" and rollout and name.endswith(f"-{rollout}"):
            kind, name = "Deployment", name.removesuffix(f"-{rollout}")
    return f"{task.subject.namespace}/{kind}/{name}"


def _with_template(raw: RawObject, path: tuple[str, ...], template: dict[str, Any]) -> dict[str, Any]:
    """``raw`` with another pod template at ``path``; everything else is shared."""
    if not path:
        return template
    head, *rest = path
    return {**raw, head: _with_template(raw[head], tuple(rest), template)}
