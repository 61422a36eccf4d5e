"""Builders for the objects that tests talk about; each gives a raw object, as the API server would send it.

``pod("be1").be().blocks(4).uses("1Gi")``: methods return a new builder; ``.raw`` is the object. ``uses`` is not part of
a Pod: ``reading().of(...)`` makes the pod's sample of it.
"""

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from slackwater import names

NODE = "node-1"
TIME = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class _Builder:
    """Keeps an object and gives changed copies."""

    content: dict[str, Any]

    @property
    def raw(self) -> dict[str, Any]:
        """The object, free to be changed."""
        return copy.deepcopy(self.content)

    @property
    def name(self) -> str:
        return str(self.content["metadata"]["name"])

    def set(self, path: str, value: Any) -> Self:
        """A copy with ``value`` at a dotted path; for keys with dots use the special methods."""
        return self._put(path.split("."), value)

    def label(self, key: str, value: str) -> Self:
        return self._put(["metadata", "labels", key], value)

    def annotation(self, key: str, value: str) -> Self:
        return self._put(["metadata", "annotations", key], value)

    def _put(self, path: list[str], value: Any) -> Self:
        content = self.raw
        place = content
        for key in path[:-1]:
            place = place.setdefault(key, {})
        place[path[-1]] = value
        return replace(self, content=content)


@dataclass(frozen=True)
class PodBuilder(_Builder):
    used: str | None = None

    @property
    def namespace(self) -> str:
        return str(self.content["metadata"]["namespace"])

    def be(self) -> Self:
        return self.label(names.QOS_LABEL, "BE")

    def uid(self, uid: str) -> Self:
        return self.set("metadata.uid", uid)

    def on(self, node: str) -> Self:
        return self.set("spec.nodeName", node)

    def unbound(self) -> Self:
        content = self.raw
        content["spec"].pop("nodeName", None)
        content["status"]["phase"] = "Pending"
        return replace(self, content=content)

    def phase(self, phase: str) -> Self:
        return self.set("status.phase", phase)

    def priority(self, priority: int) -> Self:
        return self.set("spec.priority", priority)

    def requests(self, **amounts: str) -> Self:
        return self._resources("requests", amounts)

    def limits(self, **amounts: str) -> Self:
        return self._resources("limits", amounts)

    def guaranteed(self) -> Self:
        return self.requests(cpu="1", memory="1Gi").limits(cpu="1", memory="1Gi")

    def blocks(self, count: int, block_size: int = names.DEFAULT_BLOCK_SIZE) -> Self:
        """As the webhook leaves a best-effort pod that asked for that much."""
        return (
            self._resources("requests", {"memory": "0", names.RESOURCE: str(count)})
            ._resources("limits", {"memory": str(count * block_size), names.RESOURCE: str(count)})
            .annotation(names.BLOCK_SIZE_ANNOTATION, str(block_size))
        )

    def init_container(
        self, name: str, memory: str | None = None, *, sidecar: bool = False, requests: Mapping[str, str] | None = None
    ) -> Self:
        content = self.raw
        asked = {**(requests or {}), **({} if memory is None else {"memory": memory})}
        container: dict[str, Any] = {"name": name, "resources": {"requests": asked}}
        if sidecar:
            container["restartPolicy"] = "Always"
        content["spec"].setdefault("initContainers", []).append(container)
        return replace(self, content=content)

    def container(self, name: str, **requests: str) -> Self:
        content = self.raw
        content["spec"]["containers"].append({"name": name, "resources": {"requests": dict(requests)}})
        return replace(self, content=content)

    def owned_by(self, kind: str, name: str = "owner") -> Self:
        reference = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}
        return self.set("metadata.ownerReferences", [reference])

    def deleted(self, at: str, grace: int = 30) -> Self:
        return self.set("metadata.deletionTimestamp", at).set("metadata.deletionGracePeriodSeconds", grace)

    def uses(self, amount: str | int) -> Self:
        return replace(self, used=str(amount))

    def _resources(self, kind: str, amounts: Mapping[str, str]) -> Self:
        content = self.raw
        content["spec"]["containers"][0].setdefault("resources", {}).setdefault(kind, {}).update(amounts)
        return replace(self, content=content)


@dataclass(frozen=True)
class NodeBuilder(_Builder):
    def capacity(self, memory: str, allocatable: str | None = None) -> Self:
        built = self.set("status.capacity.memory", memory)
        return built.set("status.allocatable.memory", allocatable or memory)

    def advertises(self, resource: str, amount: str) -> Self:
        return self._put(["status", "capacity", resource], amount)._put(["status", "allocatable", resource], amount)

    def cordoned(self) -> Self:
        return self.set("spec.unschedulable", True)


@dataclass(frozen=True)
class ReadingBuilder(_Builder):
    def of(self, *pods: PodBuilder) -> Self:
        """Samples of those pods that use something."""
        samples = [
            {"namespace": pod.namespace, "name": pod.name, "used": pod.used} for pod in pods if pod.used is not None
        ]
        return self.set("pods", self.raw.get("pods", []) + samples)

    def numa(self, *nodes: tuple[str, str]) -> Self:
        """(capacity, used) of NUMA nodes 0, 1, ..."""
        return self.set(
            "node.numa",
            [{"id": index, "capacity": capacity, "used": used} for index, (capacity, used) in enumerate(nodes)],
        )


def pod(name: str, namespace: str = "default") -> PodBuilder:
    """A running pod with one container, bound to :data:`NODE`, without class, priority or resources."""
    return PodBuilder(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}"},
            "spec": {"nodeName": NODE, "containers": [{"name": "app", "image": "app"}]},
            "status": {"phase": "Running"},
        }
    )


def node(name: str = NODE) -> NodeBuilder:
    """A node without capacity, labels or annotations."""
    return NodeBuilder({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {}, "status": {}})


def reading(name: str = NODE, *, capacity: str = "100Gi", used: str = "0", time: str = TIME) -> ReadingBuilder:
    """A MemoryReading without samples."""
    return ReadingBuilder(
        {
            "apiVersion": names.API_VERSION,
            "kind": "MemoryReading",
            "metadata": {"name": name},
            "time": time,
            "node": {"capacity": capacity, "used": used},
            "pods": [],
        }
    )


def slo_config(
    colocation: Mapping[str, Any] | str | None = None, threshold: Mapping[str, Any] | str | None = None
) -> dict[str, str]:
    """The ``data`` of ConfigMap ``slo-controller-config``; None leaves the key out."""
    keys = {names.SLO_COLOCATION_KEY: colocation, names.SLO_THRESHOLD_KEY: threshold}
    return {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in keys.items() if value is not None
    }


def config_map(name: str, data: Mapping[str, str], namespace: str = names.SYSTEM_NAMESPACE) -> dict[str, Any]:
    """A ConfigMap object."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": dict(data),
    }
