"""Fake nodes for scale: kwok plays the kubelets of nodes that carry its annotation, and nobody else's.

Who calls it: the cluster. The API server, the scheduler and everything of ours that runs against them are real.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rigs.binaries import TOOLS, module_directory
from rigs.processes import Supervisor
from rigs.requirements import search_path

ANNOTATION = "kwok.x-k8s.io/node"
PROCESS = "kwok"

#: kwok's own rules of what happens to a node and a pod, as files in its module: Ready at once, Running at once,
#: a Job's pod completes, deleted at once.
_STAGES = ("kustomize/stage/node/fast", "kustomize/stage/pod/fast")

#: The fake nodes' pods get addresses from here; nothing listens on them.
_POD_CIDR = "10.64.0.1/10"


def start(supervisor: Supervisor, binaries: Mapping[str, Path], kubeconfig: Path, run_dir: Path) -> None:
    source = module_directory(TOOLS, "sigs.k8s.io/kwok")
    stages = [file for stage in _STAGES for file in sorted((source / stage).glob("*.yaml"))]
    documents = [file.read_text() for file in stages if file.name != "kustomization.yaml"]
    config = run_dir / "kwok.yaml"
    config.write_text("\n---\n".join(documents))
    supervisor.start(
        PROCESS,
        [
            str(binaries["kwok"]),
            f"--config={config}",
            f"--kubeconfig={kubeconfig}",
            "--manage-all-nodes=false",
            f"--manage-nodes-with-annotation-selector={ANNOTATION}=fake",
            f"--cidr={_POD_CIDR}",
            "--node-lease-duration-seconds=40",
        ],
        {"PATH": search_path(), "HOME": str(run_dir)},
    )


def node(name: str, resources: Mapping[str, str], labels: Mapping[str, str], tainted: bool) -> dict[str, Any]:
    """A Node that kwok adopts. With the taint, only pods that tolerate `kwok.x-k8s.io/node` come to it."""
    taints = [{"key": ANNOTATION, "value": "fake", "effect": "NoSchedule"}] if tainted else []
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {ANNOTATION: "fake", "node.alpha.kubernetes.io/ttl": "0"},
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "type": "kwok",
                **labels,
            },
        },
        "spec": {"taints": taints},
        "status": {"allocatable": dict(resources), "capacity": dict(resources)},
    }


def node_list(nodes: list[dict[str, Any]]) -> str:
    """JSON that kubectl creates in one call."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes})
