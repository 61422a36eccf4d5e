"""Objects that cluster tests make, and what they ask about them."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rigs.cluster import Cluster
from rigs.installation import Installation


@dataclass(frozen=True)
class Namespace:
    """A namespace of one test: makes pods in it and asks about them."""

    cluster: Cluster
    name: str

    def pod(self, name: str, **fields: Any) -> dict[str, Any]:
        """Create a busybox pod; see :func:`pod_manifest`. Returns it as stored."""
        self.cluster.apply(pod_manifest(name, self.name, **fields))
        return self.get(name)

    def get(self, name: str, kind: str = "pod") -> dict[str, Any]:
        """The object as stored now, or ``{}`` where it is gone."""
        return dict(self.cluster.kubectl_json("get", kind, "-n", self.name, name, "--ignore-not-found") or {})

    def wait_for(self, name: str, condition: Callable[[Mapping[str, Any]], Any], timeout_s: float, what: str) -> float:
        """Seconds until ``condition`` holds for the pod."""
        started = time.monotonic()
        self.cluster.wait(lambda: condition(self.get(name)), timeout_s, f"pod {self.name}/{name} {what}")
        return time.monotonic() - started

    def running(self, name: str, timeout_s: float = 90) -> dict[str, Any]:
        """Wait until the pod runs; the pod."""
        self.wait_for(name, lambda pod: pod.get("status", {}).get("phase") == "Running", timeout_s, "to run")
        return self.get(name)

    def logs(self, name: str, *arguments: str) -> str:
        return self.cluster.kubectl("logs", "-n", self.name, name, *arguments)

    def events(self, reason: str, uid: str = "") -> list[dict[str, Any]]:
        """Events of one reason in this namespace, of one object where ``uid`` is given."""
        answer = self.cluster.kubectl_json("get", "events", "-n", self.name, "--field-selector", f"reason={reason}")
        return [event for event in answer["items"] if not uid or event["involvedObject"].get("uid") == uid]


def pod_manifest(
    name: str,
    namespace: str,
    *,
    command: str = "exec sleep 3600",
    labels: Mapping[str, str] | None = None,
    resources: Mapping[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A one-container busybox pod that runs ``command`` in a shell; further fields go into ``spec``."""
    container = {
        "name": "main",
        "image": "busybox:1.36",
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", command],
        "resources": dict(resources or {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels or {})},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container], **spec},
    }


_HOLD_AT_ONCE = 1024**3
"""One busybox dd holds at most this much: read(2) returns less than 2 GiB at once."""


def hold_memory(count: int, seconds: int = 120) -> str:
    """A shell command that takes ``count`` bytes in the background, at once, and holds them for ``seconds``."""
    holders = -(-count // _HOLD_AT_ONCE)
    each = count // holders
    one = f"(dd if=/dev/zero bs={each} count=1 2>/dev/null | sleep {seconds}) >/dev/null 2>&1 &"
    return " ".join([one] * holders)


BE = {"slackwater.io/qos": "BE"}


def memory(amount: str) -> dict[str, Any]:
    """Resources with one memory limit."""
    return {"limits": {"memory": amount}}


def blocks_free(slackwater: Installation) -> int:
    """What may still be lent, as NodeSlack says."""
    return int(slackwater.nodeslack()["blocks"]["free"])


# -- what the kernel says --------------------------------------------------------------------------------------


def memory_limit_of(cluster: Cluster, uid: str) -> int:
    """The memory limit of a pod's cgroup, bytes; a missing limit is a very large number."""
    return _read_limit(_limit_file(cluster.pod_cgroup(uid)))


def lift_memory_limit(cluster: Cluster, uid: str, limit: int) -> None:
    """Write another limit into a pod's cgroup, as a stranger would."""
    _limit_file(cluster.pod_cgroup(uid)).write_text(str(limit), encoding="ascii")


def memory_used_by(cluster: Cluster, uid: str) -> int:
    """What a pod holds without page cache, bytes."""
    return _used(cluster.pod_cgroup(uid))


def node_memory_used(cluster: Cluster) -> int:
    """What everything in the rig's own cgroup holds without page cache, bytes."""
    return _used(cluster.memory_cgroup)


def _limit_file(directory: Path) -> Path:
    v2 = directory / "memory.max"
    return v2 if v2.exists() else directory / "memory.limit_in_bytes"


def _read_limit(file: Path) -> int:
    text = file.read_text(encoding="ascii").strip()
    return 2**63 if text == "max" else int(text)


def _used(directory: Path) -> int:
    stat = dict(line.split() for line in (directory / "memory.stat").read_text(encoding="ascii").splitlines())
    v2 = (directory / "memory.current").exists()
    usage = int((directory / ("memory.current" if v2 else "memory.usage_in_bytes")).read_text(encoding="ascii"))
    prefix = "" if v2 else "total_"
    cache = int(stat[f"{prefix}inactive_file"]) + int(stat[f"{prefix}active_file"])
    return usage - cache - (int(stat.get("slab_reclaimable", 0)) if v2 else 0)


# -- as somebody else ------------------------------------------------------------------------------------------


def create_as(cluster: Cluster, raw: Mapping[str, Any], *, user: str, extra: Mapping[str, str]) -> str:
    """Try to create an object as ``user`` with these extra fields of a token; what kubectl said, refusals included."""
    flags = [f"--as={user}", *(f"--as-user-extra={key}={value}" for key, value in extra.items())]
    return cluster.kubectl("create", "-f", "-", *flags, input=json.dumps(raw), check=False)
