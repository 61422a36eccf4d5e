"""What the agent sees: cgroups and ``/proc`` on one side, the API server's objects on the other. No decisions.

Called from the loops' worker threads. The API side is a live copy (reflectors), so that everything here answers while
the API server is away.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from nodeagent.decide.limits import POD, Observed
from nodeagent.metrics import Metrics
from nodeagent.settings import Settings
from slackwater.adapters.cgroups import CgroupTree, Vanished
from slackwater.adapters.kube import KubeClient
from slackwater.adapters.logs import kv
from slackwater.adapters.reflector import Reflector
from slackwater.errors import InputError, Problem, Unavailable
from slackwater.node import NodeView, read_node
from slackwater.objects import RawObject, mapping, text
from slackwater.pod import PodView, read_pod
from slackwater.policy.colocation import ColocationPolicy, LendingStrategy, parse_colocation
from slackwater.reading import MemoryReading, NumaReading, PodSample

_BEFORE_ANY = ColocationPolicy(lending=LendingStrategy(enabled=False))
"""In force where the first ConfigMap seen cannot be used: nobody knows what its owner wants, so nothing new is lent."""
_LOG = logging.getLogger("slackwater.nodeagent")


def read_memory(tree: CgroupTree, node: str, pods: Sequence[PodView], now: datetime, metrics: Metrics) -> MemoryReading:
    """One whole reading: the node, its NUMA nodes and every pod's cgroup.

    A pod whose files cannot be read has no sample (it then counts at its request).

    Raises:
        Unavailable: the node's own memory cannot be read.
    """
    try:
        numa = tree.numa_memory()
        memory = tree.node_memory()
    except Unavailable:
        metrics.reading_failures.labels("node").inc()
        raise
    pod_by_cgroup = {pod.cgroup_uid: pod for pod in pods}
    samples = []
    for uid, cgroup in tree.pods().items():
        pod = pod_by_cgroup.get(uid)
        try:
            used = tree.pod_used(cgroup)
            places = tree.pod_used_by_numa(cgroup) if numa else {}
        except Vanished:
            continue
        except Unavailable as error:
            metrics.reading_failures.labels("pod").inc()
            _LOG.warning("a pod's memory cannot be read", extra=kv(uid=uid, error=str(error)))
            continue
        samples.append(
            PodSample(
                uid=pod.uid if pod else uid,
                namespace=pod.namespace if pod else "",
                name=pod.name if pod else "",
                used=used,
                numa=tuple(sorted(places.items())),
            )
        )
    return MemoryReading(
        node=node,
        time=now,
        capacity=memory.capacity,
        used=memory.used,
        numa=tuple(NumaReading(part.id, part.memory.capacity, part.memory.used) for part in numa),
        pods=tuple(samples),
    )


@dataclass(frozen=True, slots=True)
class PodLimits:
    """The limits in force on one colocated pod; ``paths`` gives the directory of each container, and the pod's own."""

    pod: PodView
    observed: tuple[Observed, ...]
    paths: Mapping[str, Path]


class LimitObserver:
    """Reads the limits of colocated pods; remembers since when each cgroup is known. Not shared between threads."""

    def __init__(self, tree: CgroupTree) -> None:
        self._tree = tree
        self._known_since_s: dict[str, float] = {}

    def look(self, pods: Sequence[PodView], at_s: float) -> list[PodLimits]:
        """The limits of those of ``pods`` that have cgroups."""
        cgroups = self._tree.pods()
        seen: dict[str, float] = {}
        found = []
        for pod in pods:
            cgroup = cgroups.get(pod.cgroup_uid)
            if cgroup is None:
                continue
            running = self._tree.containers(cgroup)
            paths = {POD: cgroup.path}
            paths |= {name: running[runtime_id] for name, runtime_id in pod.container_ids if runtime_id in running}
            observed = []
            for name, path in paths.items():
                since_s = seen[str(path)] = self._known_since_s.get(str(path), at_s)
                try:
                    observed.append(Observed(name, self._tree.limit(path), at_s - since_s))
                except Vanished:
                    continue
            found.append(PodLimits(pod, tuple(observed), paths))
        self._known_since_s = seen
        return found


@dataclass(frozen=True, slots=True)
class PolicyState:
    """The policy in force. ``problems`` are those of a newer ConfigMap that cannot be used."""

    policy: ColocationPolicy
    problems: tuple[Problem, ...] = ()
    config_map: RawObject | None = None


class ApiObserver:
    """The node's objects: its Node, its pods, the ConfigMap. Any thread may ask."""

    def __init__(self, client: KubeClient, settings: Settings, on_change: Callable[[], None]) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._views: dict[str, tuple[str, PodView | None]] = {}
        self._policy = PolicyState(_BEFORE_ANY)
        self._read_version: str | None = None

        def changed(_kind: str, _object: dict[str, Any]) -> None:
            on_change()

        self._node = Reflector(
            client, "/api/v1/nodes", field_selector=f"metadata.name={settings.node_name}", on_change=changed
        )
        self._pods = Reflector(
            client, "/api/v1/pods", field_selector=f"spec.nodeName={settings.node_name}", on_change=changed
        )
        self._config = Reflector(
            client,
            f"/api/v1/namespaces/{settings.config_map_namespace}/configmaps",
            field_selector=f"metadata.name={settings.config_map_name}",
            on_change=changed,
        )

    def start(self, stop: threading.Event) -> None:
        """Follow the collections until ``stop`` is set."""
        for reflector in (self._node, self._pods, self._config):
            reflector.start(stop)

    @property
    def synced(self) -> bool:
        """Whether node, pods and configuration have been seen once; before that nothing is decided."""
        return self._node.synced.is_set() and self._pods.synced.is_set() and self._config.synced.is_set()

    def node(self) -> NodeView | None:
        """Our Node; None where it does not exist (yet) or makes no sense."""
        raw = self._node.get(self._settings.node_name)
        if raw is None:
            return None
        try:
            return read_node(raw)
        except InputError as error:
            _LOG.warning("our Node cannot be read", extra=kv(error=str(error)))
            return None

    def raw_node(self) -> dict[str, Any] | None:
        return self._node.get(self._settings.node_name)

    def pods(self) -> tuple[PodView, ...]:
        """Our pods. One that makes no sense is left out: what it uses then counts as online."""
        raws = self._pods.objects()
        with self._lock:
            views: dict[str, tuple[str, PodView | None]] = {}
            for raw in raws:
                key, version = text(raw, "metadata", "uid"), text(raw, "metadata", "resourceVersion")
                known = self._views.get(key)
                views[key] = known if known and known[0] == version else (version, _pod_or_none(raw))
            self._views = views
            return tuple(view for _, view in views.values() if view is not None)

    def raw_pod(self, pod: PodView) -> dict[str, Any]:
        """The object to write an Event about; made up from what is known where the pod is gone."""
        return self._pods.get(pod.key) or {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid},
        }

    def policy(self) -> PolicyState:
        """The policy in force: the newest ConfigMap that could be used, the defaults where there is none."""
        raw = self._config.get(f"{self._settings.config_map_namespace}/{self._settings.config_map_name}")
        version = "" if raw is None else text(raw, "metadata", "resourceVersion")
        with self._lock:
            if version == self._read_version:
                return self._policy
            self._read_version = version
            try:
                policy, warnings = parse_colocation(None if raw is None else mapping(raw, "data"))
            except InputError as error:
                self._policy = PolicyState(self._policy.policy, error.problems, raw)
                return self._policy
            for warning in warnings:
                _LOG.warning("doubtful setting", extra=kv(setting=str(warning)))
            self._policy = PolicyState(policy, (), raw)
            return self._policy


def _pod_or_none(raw: RawObject) -> PodView | None:
    try:
        return read_pod(raw)
    except InputError as error:
        _LOG.warning(
            "a pod cannot be read and counts as online",
            extra=kv(
                namespace=text(raw, "metadata", "namespace"), name=text(raw, "metadata", "name"), error=str(error)
            ),
        )
        return None
