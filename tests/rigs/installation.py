"""Slackwater on a rig cluster: build the image, install the chart, wait until it lends.

Shared by the demo, the cluster tests and the benchmarks, so that all three run what a user runs.
"""

import json
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rigs.cluster import Cluster
from rigs.images import build_image
from rigs.progress import Progress

REPOSITORY = Path(__file__).resolve().parents[2]
CHART = REPOSITORY / "charts" / "slackwater"
NAMESPACE = "slackwater-system"
IMAGE = "slackwater.io/slackwater:rig"
RESOURCE = "slackwater.io/colocation-memory"
BLOCK = 512 * 1024 * 1024

NODE_CAPACITY = "6Gi"
"""What the agent is told its node has: a pressure test then needs 6 GiB of the machine, not all of it."""


@dataclass(frozen=True)
class Installation:
    """An installed chart on a running cluster, and short ways to ask what it does."""

    cluster: Cluster
    values: Mapping[str, Any] = field(default_factory=dict)

    def nodeslack(self) -> dict[str, Any]:
        """``status`` of the node's NodeSlack, empty before there is one."""
        found = self.cluster.kubectl_json("get", "nodeslacks", "--ignore-not-found", self.cluster.node_name)
        status = found.get("status", {}) if found else {}
        return dict(status)

    def allocatable_blocks(self) -> int:
        """What the kubelet offers the scheduler, as the Node says."""
        node = self.cluster.kubectl_json("get", "node", self.cluster.node_name)
        return int(node["status"].get("allocatable", {}).get(RESOURCE, "0"))

    def webhook_is_active(self) -> bool:
        """True once the controller has put rules and a CA into the webhook configuration."""
        name = "mutatingwebhookconfiguration"
        webhooks = self.cluster.kubectl_json("get", name, "slackwater").get("webhooks") or []
        return bool(webhooks) and all(webhook["clientConfig"].get("caBundle") for webhook in webhooks)

    def pods(self, selector: str, namespace: str) -> list[dict[str, Any]]:
        """The pods that ``selector`` finds, raw."""
        return list(self.cluster.kubectl_json("get", "pods", "-n", namespace, "-l", selector)["items"])

    def events(self, namespace: str, reason: str) -> list[dict[str, Any]]:
        """Events of one reason, raw."""
        answer = self.cluster.kubectl_json("get", "events", "-n", namespace, "--field-selector", f"reason={reason}")
        return list(answer["items"])

    @contextmanager
    def agent_down(self) -> Iterator[None]:
        """No node agent runs inside the block: its DaemonSet is sent to nodes that do not exist."""
        path = "/spec/template/spec/nodeSelector/slackwater.io~1nowhere"
        selector = self._agent_daemonset()["spec"]["template"]["spec"].get("nodeSelector")
        ops: list[dict[str, Any]] = [{"op": "add", "path": path, "value": "true"}]
        if not selector:
            ops.insert(0, {"op": "add", "path": path.rpartition("/")[0], "value": {}})
        self._patch_agent(ops)
        self.cluster.wait(lambda: not self._agent_pods(), 60, "the node agent to be gone")
        try:
            yield
        finally:
            self._patch_agent([{"op": "remove", "path": path}])
            self.cluster.kubectl(
                "rollout", "status", "-n", NAMESPACE, "daemonset/slackwater-nodeagent", "--timeout=120s"
            )

    def kill_agent(self) -> None:
        """SIGKILL the node agent's process, as the kernel's OOM killer would; the kubelet starts it again."""
        uid = self._agent_pods()[0]["metadata"]["uid"]
        for file in self.cluster.pod_cgroup(uid).rglob("cgroup.procs"):
            for pid in map(int, file.read_text(encoding="ascii").split()):
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                if b"nodeagent" in command:
                    os.kill(pid, signal.SIGKILL)

    def _agent_daemonset(self) -> dict[str, Any]:
        return self.cluster.kubectl_json("get", "daemonset", "-n", NAMESPACE, "slackwater-nodeagent")

    def _agent_pods(self) -> list[dict[str, Any]]:
        """The real node's; fake nodes get an agent too, which does not run."""
        pods = self.pods("app.kubernetes.io/component=nodeagent", NAMESPACE)
        return [pod for pod in pods if pod["spec"].get("nodeName") == self.cluster.node_name]

    def _patch_agent(self, ops: list[dict[str, Any]]) -> None:
        self.cluster.kubectl(
            "patch", "daemonset", "-n", NAMESPACE, "slackwater-nodeagent", "--type=json", "-p", json.dumps(ops)
        )

    def metrics(self, component: str, port: int = 9465) -> str:
        """The ``/metrics`` text of a component's first pod."""
        pods = self.pods(f"app.kubernetes.io/component={component}", NAMESPACE)
        pod = next(
            pod["metadata"]["name"]
            for pod in pods
            if pod["spec"].get("nodeName") == self.cluster.node_name and "deletionTimestamp" not in pod["metadata"]
        )
        return self.cluster.kubectl("get", "--raw", f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}:{port}/proxy/metrics")


def default_values(cluster: Cluster) -> dict[str, Any]:
    """Values that tell the chart what kind of node the rig is; everything else is the chart's own default."""
    repository, _, tag = IMAGE.rpartition(":")
    return {
        "image": {"repository": repository, "tag": tag, "pullPolicy": "IfNotPresent"},
        "webhook": {"replicas": 1},
        "extender": {"replicas": 1},
        "controller": {"replicas": 1},
        "nodeagent": {
            "nodeCgroup": cluster.cgroup_root,
            "nodeCapacity": NODE_CAPACITY,
            "kubeletCgroupRoot": cluster.cgroup_root,
            "podResourcesDir": str(Path(cluster.pod_resources_socket).parent),
            "growInterval": "5s",
        },
    }


def install(cluster: Cluster, progress: Progress, values: Mapping[str, Any] | None = None) -> Installation:
    """Build and load the image, ``helm install`` the chart, and wait until the node lends.

    Raises:
        RuntimeError: something did not come up in time; the message has the pods, events and logs.
    """
    archive = build_image(REPOSITORY, IMAGE, progress)
    progress("loading the images into containerd")
    cluster.load_image(archive)
    cluster.load_scheduler_image()
    merged = _merged(default_values(cluster), values or {})
    values_file = cluster.run_dir / "values.json"
    values_file.write_text(json.dumps(merged, indent=2), encoding="utf-8")
    progress("helm install slackwater")
    cluster.helm(
        "upgrade", "--install", "slackwater", str(CHART), "--namespace", NAMESPACE, "--create-namespace",
        "--values", str(values_file),
    )  # fmt: skip
    installation = Installation(cluster, merged)
    for workload in ("deploy/slackwater-controller", "deploy/slackwater-webhook", "deploy/slackwater-extender"):
        progress(f"waiting for {workload}")
        cluster.kubectl("rollout", "status", "-n", NAMESPACE, workload, "--timeout=120s")
    progress("waiting for the node agent to lend")
    cluster.kubectl("rollout", "status", "-n", NAMESPACE, "daemonset/slackwater-nodeagent", "--timeout=120s")
    cluster.wait(installation.webhook_is_active, 60, "the webhook's rules to become active")
    if merged.get("mode", "lend") == "lend":
        cluster.wait(lambda: installation.allocatable_blocks() > 0, 60, f"{RESOURCE} to be allocatable on the node")
    return installation


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        result[key] = _merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return result
