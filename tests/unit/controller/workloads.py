"""Objects of the kinds that can be idle, for the tests of the controller and its command."""

from datetime import UTC, datetime
from typing import Any

from controller.kinds import KINDS
from slackwater.timestamps import format_time

NOTEBOOK, TENSORBOARD, EXPLORER = KINDS
NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


def workload(
    name: str = "one",
    *,
    kind: str = "Notebook",
    namespace: str = "lab",
    idle_since: datetime | str | None = None,
    idle: str = "True",
    suspend: bool | None = False,
    annotations: dict[str, str] | None = None,
) -> dict[str, Any]:
    """A workload; ``idle_since`` None gives it no condition at all."""
    raw: dict[str, Any] = {
        "apiVersion": "tensorstack.dev/v1beta1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": "7"},
        "spec": {"type": "jupyter"} if suspend is None else {"suspend": suspend},
    }
    if annotations:
        raw["metadata"]["annotations"] = annotations
    if idle_since is not None:
        since = format_time(idle_since) if isinstance(idle_since, datetime) else idle_since
        raw["status"] = {
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"},
                {"type": "Idle", "status": idle, "lastTransitionTime": since},
            ]
        }
    return raw


def namespace(name: str, **labels: str) -> dict[str, Any]:
    """A Namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
