"""A cluster in memory with a controller among its clients."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from component.apiserver import ApiServer

from controller.loop import IdleController
from slackwater.adapters import reflector as reflector_module
from slackwater.adapters.kube import KubeClient
from slackwater.timestamps import format_time

NOTEBOOKS = "/apis/tensorstack.dev/v1beta1/notebooks"
POLICY = "/api/v1/namespaces/slackwater-system/configmaps/resource-keeper-policy-config"


@dataclass
class Cluster:
    """The API server, its clients and the threads that were started on them."""

    server: ApiServer
    directory: Path
    stop: threading.Event = field(default_factory=threading.Event)
    threads: list[threading.Thread] = field(default_factory=list)

    def client(self, token: str = "") -> KubeClient:
        return KubeClient.connect(self.server.kubeconfig(self.directory / f"kubeconfig-{token}", token))

    def start_controller(self, is_leading: Callable[[], bool] = lambda: True) -> IdleController:
        """An idle controller with its own reflectors, running."""
        made = IdleController(self.client(), "slackwater-system", "resource-keeper-policy-config", is_leading)
        self.threads.append(made.start(self.stop))
        return made

    def set_policy(self, text: str) -> None:
        self.server.put(
            "/api/v1/configmaps",
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "resource-keeper-policy-config", "namespace": "slackwater-system"},
                "data": {"policy.yaml": text},
            },
        )

    def notebook(
        self, name: str, namespace: str = "shop", idle_for: timedelta = timedelta(hours=2), **spec: Any
    ) -> str:
        """Put an idle Notebook; gives its path."""
        since = format_time(datetime.now(UTC) - idle_for, micros=True)
        self.server.put(
            NOTEBOOKS,
            {
                "apiVersion": "tensorstack.dev/v1beta1",
                "kind": "Notebook",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"type": "jupyter", **spec},
                "status": {"conditions": [{"type": "Idle", "status": "True", "lastTransitionTime": since}]},
            },
        )
        return f"/apis/tensorstack.dev/v1beta1/namespaces/{namespace}/notebooks/{name}"

    def is_suspended(self, path: str) -> bool:
        raw = self.server.get(path)
        return raw is not None and raw["spec"].get("suspend") is True

    def annotation(self, path: str, key: str) -> str | None:
        raw = self.server.get(path) or {}
        value = (raw.get("metadata", {}).get("annotations") or {}).get(f"slackwater.io/{key}")
        return None if value is None else str(value)

    def events(self, reason: str) -> list[dict[str, Any]]:
        return [event for event in self.server.all("/api/v1/events") if event["reason"] == reason]

    def stays(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Whether ``condition`` holds all the time for so long."""
        pause, left = threading.Event(), seconds
        while left > 0 and condition():
            pause.wait(0.05)
            left -= 0.05
        return condition()


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A cluster with namespaces ``shop`` (team a) and ``other`` (no labels), without a policy."""
    monkeypatch.setattr(reflector_module, "_ABSENT_PAUSE_S", 0.1)
    monkeypatch.setattr(reflector_module, "_FIRST_PAUSE_S", 0.05)
    with ApiServer() as server:
        for name, labels in (("shop", {"team": "a"}), ("other", {})):
            server.put(
                "/api/v1/namespaces",
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}},
            )
        made = Cluster(server, tmp_path)
        try:
            yield made
        finally:
            made.stop.set()
            server.close_watches()
    for thread in made.threads:
        thread.join(5)
        assert not thread.is_alive(), f"{thread.name} does not end"
