"""A pod as Slackwater sees it: read once from a raw object, then only values.

Used by every component and by the command line. Nothing here decides; it answers questions about one pod.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from typing import Any

from slackwater import names
from slackwater.errors import InputError, Problem
from slackwater.objects import RawObject, integer, mapping, sequence, string_map, text
from slackwater.qos import Band, Qos, band_of, read_qos
from slackwater.quantity import QuantityError, parse_bytes, parse_quantity
from slackwater.timestamps import parse_time

_CRITICAL_CLASSES = ("system-cluster-critical", "system-node-critical")
_CRITICAL_PRIORITY = 2_000_000_000
"""kubelet's IsCriticalPod: at and above this a pod belongs to the system."""
_FINISHED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Owner:
    """The controller that made a pod."""

    api_version: str
    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class ContainerView:
    """One container's name and memory: bytes of request and limit (None = not given) and whole blocks."""

    name: str
    memory_request: int | None = None
    memory_limit: int | None = None
    cpu_request: Fraction | None = None
    cpu_limit: Fraction | None = None
    blocks: int = 0
    batch_memory: int = 0
    """Bytes requested of Koordinator's ``kubernetes.io/batch-memory``: memory that somebody else lends."""
    is_sidecar: bool = False
    """A restartable init container: it runs beside the app containers."""

    @property
    def memory_requested(self) -> int:
        """The request that Kubernetes counts: absent means the limit, else 0."""
        if self.memory_request is not None:
            return self.memory_request
        return self.memory_limit or 0


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod. Bytes are plain integers; times are aware UTC."""

    uid: str
    namespace: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    node_name: str = ""
    phase: str = "Pending"
    priority: int | None = None
    priority_class_name: str = ""
    scheduler_name: str = ""
    created: datetime | None = None
    deleted_at: datetime | None = None
    """``deletionTimestamp``: when its grace period ends, in the API's own words."""
    grace_seconds: int | None = None
    containers: tuple[ContainerView, ...] = ()
    init_containers: tuple[ContainerView, ...] = ()
    overhead_memory: int = 0
    pod_level_memory_request: int | None = None
    pod_level_memory_limit: int | None = None
    pod_level_cpu_request: Fraction | None = None
    pod_level_cpu_limit: Fraction | None = None
    owner: Owner | None = None
    container_ids: tuple[tuple[str, str], ...] = ()
    """(container name, runtime id without its scheme), init containers included."""
    reported_qos_class: str = ""
    """``status.qosClass`` where the API server has filled it in."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def qos(self) -> Qos | None:
        return read_qos(self.labels, self.annotations).qos

    @property
    def qos_warnings(self) -> tuple[str, ...]:
        """What was doubtful about the class: contradicting or misspelt labels."""
        return read_qos(self.labels, self.annotations).warnings

    @property
    def is_be(self) -> bool:
        """The class makes a pod best-effort, nothing else: neither blocks nor the Kubernetes QoS class."""
        return self.qos is Qos.BE

    @property
    def band(self) -> Band | None:
        return band_of(self.priority)

    @property
    def is_finished(self) -> bool:
        return self.phase in _FINISHED

    @property
    def is_terminating(self) -> bool:
        return self.deleted_at is not None

    @property
    def is_bound(self) -> bool:
        return bool(self.node_name)

    @property
    def blocks(self) -> int:
        """Blocks held: only app containers ever hold any."""
        return sum(container.blocks for container in self.containers)

    @property
    def batch_memory(self) -> int:
        """Bytes of ``kubernetes.io/batch-memory`` held by containers that run together."""
        sidecars = (container for container in self.init_containers if container.is_sidecar)
        return sum(container.batch_memory for container in (*self.containers, *sidecars))

    def block_size(self, default: int) -> int:
        """Bytes per block of this pod: written beside its blocks, else the installation's."""
        text = self.annotations.get(names.BLOCK_SIZE_ANNOTATION, "")
        size = int(text) if len(text) < 20 and text.isascii() and text.isdigit() else 0
        return size or default

    @property
    def memory_request(self) -> int:
        """Effective request (KEP-753): app containers and sidecars, or the init peak if larger, plus overhead."""
        if self.pod_level_memory_request is not None:
            return self.pod_level_memory_request + self.overhead_memory
        sidecars = 0
        init_peak = 0
        for container in self.init_containers:
            if container.is_sidecar:
                sidecars += container.memory_requested
                init_peak = max(init_peak, sidecars)
            else:
                init_peak = max(init_peak, sidecars + container.memory_requested)
        apps = sum(container.memory_requested for container in self.containers)
        return max(apps + sidecars, init_peak) + self.overhead_memory

    @property
    def kubernetes_qos(self) -> str:
        """``Guaranteed``, ``Burstable`` or ``BestEffort``, from status or computed as the API server does.

        Only cpu and memory count, and only positive amounts; Guaranteed needs both limits on every container, equal
        to their requests (an absent request equals its limit). Pod-level resources, where given, stand for all
        containers' (KEP-2837).
        """
        if self.reported_qos_class:
            return self.reported_qos_class
        everyone = self.containers + self.init_containers
        amounts: list[tuple[int | Fraction | None, int | Fraction | None]] = [
            (self.pod_level_memory_request, self.pod_level_memory_limit),
            (self.pod_level_cpu_request, self.pod_level_cpu_limit),
        ]
        if all(amount is None for pair in amounts for amount in pair):
            amounts = [
                (request, limit)
                for container in everyone
                for request, limit in (
                    (container.memory_request, container.memory_limit),
                    (container.cpu_request, container.cpu_limit),
                )
            ]
        if not any(request or limit for request, limit in amounts):
            return "BestEffort"
        if all(limit and (request is None or request == limit) for request, limit in amounts):
            return "Guaranteed"
        return "Burstable"

    @property
    def is_static(self) -> bool:
        """Run by the kubelet from a file, or the mirror of such a pod: evicting it does nothing."""
        source = self.annotations.get(names.CONFIG_SOURCE_ANNOTATION, "api")
        return source != "api" or names.CONFIG_MIRROR_ANNOTATION in self.annotations

    @property
    def is_daemonset(self) -> bool:
        return self.owner is not None and self.owner.kind == "DaemonSet"

    @property
    def is_critical(self) -> bool:
        return self.priority_class_name in _CRITICAL_CLASSES or (
            self.priority is not None and self.priority >= _CRITICAL_PRIORITY
        )

    @property
    def cgroup_uid(self) -> str:
        """The uid in the kubelet's cgroup names: a static pod's is its file's hash, not its mirror's uid."""
        return self.annotations.get(names.CONFIG_HASH_ANNOTATION) or self.uid


def read_pod(raw: RawObject, where: str = "") -> PodView:
    """Read a Pod object.

    Raises:
        InputError: naming every field that cannot be used (a quantity that is none, a block count below 0, ...).
    """
    problems: list[Problem] = []
    spec, status, metadata = mapping(raw, "spec"), mapping(raw, "status"), mapping(raw, "metadata")
    if not text(metadata, "name"):
        problems.append(Problem("metadata.name", "is missing", "give the pod a name"))

    def containers(kind: str) -> tuple[ContainerView, ...]:
        return tuple(
            _read_container(container, f"spec.{kind}[{index}]", problems)
            for index, container in enumerate(sequence(spec, kind))
        )

    def memory(path: str, *keys: str) -> int | None:
        return _read_bytes(mapping(spec, *keys).get("memory"), path, problems)

    def moment(name: str) -> datetime | None:
        value = metadata.get(name)
        if value is None:
            return None
        try:
            return parse_time(value)
        except ValueError as error:
            problems.append(Problem(f"metadata.{name}", str(error)))
            return None

    pod = PodView(
        uid=text(metadata, "uid"),
        namespace=text(metadata, "namespace") or "default",
        name=text(metadata, "name"),
        labels=string_map(metadata, "labels"),
        annotations=string_map(metadata, "annotations"),
        node_name=text(spec, "nodeName"),
        phase=text(status, "phase") or "Pending",
        priority=integer(spec, "priority"),
        priority_class_name=text(spec, "priorityClassName"),
        scheduler_name=text(spec, "schedulerName"),
        created=moment("creationTimestamp"),
        deleted_at=moment("deletionTimestamp"),
        grace_seconds=integer(spec, "terminationGracePeriodSeconds"),
        containers=containers("containers"),
        init_containers=containers("initContainers"),
        overhead_memory=memory("spec.overhead.memory", "overhead") or 0,
        pod_level_memory_request=memory("spec.resources.requests.memory", "resources", "requests"),
        pod_level_memory_limit=memory("spec.resources.limits.memory", "resources", "limits"),
        pod_level_cpu_request=_read_amount(
            mapping(spec, "resources", "requests").get("cpu"), "spec.resources.requests.cpu", problems
        ),
        pod_level_cpu_limit=_read_amount(
            mapping(spec, "resources", "limits").get("cpu"), "spec.resources.limits.cpu", problems
        ),
        owner=_read_owner(metadata),
        container_ids=tuple(_container_ids(status)),
        reported_qos_class=text(status, "qosClass"),
    )
    if problems:
        raise InputError(problem.under(where) for problem in problems)
    return pod


def _read_container(raw: Any, where: str, problems: list[Problem]) -> ContainerView:
    requests, limits = mapping(raw, "resources", "requests"), mapping(raw, "resources", "limits")
    blocks_value = limits.get(names.RESOURCE, requests.get(names.RESOURCE))
    blocks = _read_bytes(blocks_value, f"{where}.resources.limits[{names.RESOURCE}]", problems)
    return ContainerView(
        name=text(raw, "name"),
        memory_request=_read_bytes(requests.get("memory"), f"{where}.resources.requests.memory", problems),
        memory_limit=_read_bytes(limits.get("memory"), f"{where}.resources.limits.memory", problems),
        cpu_request=_read_amount(requests.get("cpu"), f"{where}.resources.requests.cpu", problems),
        cpu_limit=_read_amount(limits.get("cpu"), f"{where}.resources.limits.cpu", problems),
        blocks=blocks or 0,
        batch_memory=_read_bytes(
            requests.get(names.KOORDINATOR_BATCH_MEMORY, limits.get(names.KOORDINATOR_BATCH_MEMORY)),
            f"{where}.resources.requests[{names.KOORDINATOR_BATCH_MEMORY}]",
            problems,
        )
        or 0,
        is_sidecar=text(raw, "restartPolicy") == "Always",
    )


def _read_amount(value: Any, where: str, problems: list[Problem]) -> Fraction | None:
    if value is None:
        return None
    try:
        return parse_quantity(value)
    except QuantityError as error:
        problems.append(Problem(where, str(error)))
        return None


def _read_bytes(value: Any, where: str, problems: list[Problem]) -> int | None:
    if value is None:
        return None
    try:
        amount = parse_bytes(value)
    except QuantityError as error:
        problems.append(Problem(where, str(error)))
        return None
    if amount < 0:  # the API server refuses it too; here it would make room out of nothing
        problems.append(Problem(where, f"is {value}, below 0", "write an amount of 0 or more"))
        return None
    return amount


def _read_owner(metadata: RawObject) -> Owner | None:
    for reference in sequence(metadata, "ownerReferences"):
        if mapping({"r": reference}, "r").get("controller") is True:
            return Owner(
                text(reference, "apiVersion"),
                text(reference, "kind"),
                text(reference, "name"),
                text(reference, "uid"),
            )
    return None


def _container_ids(status: RawObject) -> list[tuple[str, str]]:
    found = []
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in sequence(status, kind):
            runtime_id = text(container, "containerID")
            if runtime_id:
                found.append((text(container, "name"), runtime_id.rsplit("/", 1)[-1]))
    return found
