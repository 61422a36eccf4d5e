"""One extender process and its client; used by every component test of the extender."""

import http.client
import json
import os
import re
import ssl
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from component.extender.watched import WatchedCollections
from component.https_process import free_port, write_certificate
from unit.extender.states import nodeslack

PODS = "/api/v1/pods"


class Extender:
    """One running extender and a client that keeps its connection, as the scheduler's does."""

    def __init__(self, folder: Path, collections: WatchedCollections) -> None:
        self.collections = collections
        write_certificate(folder / "tls", "extender")
        self.port, self.metrics_port = free_port(), free_port()
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-P", "-m", "extender", f"--port={self.port}", f"--tls-dir={folder / 'tls'}",
                    f"--metrics-port={self.metrics_port}", "--log-format=text",
                    f"--kubeconfig={collections.write_kubeconfig(folder / 'kubeconfig')}",
                ],
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
            )  # fmt: skip
        context = ssl.create_default_context(cafile=str(folder / "tls" / "tls.crt"))
        self.connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=10, context=context)

    def call(self, path: str, body: bytes, method: str = "POST") -> tuple[int, dict[str, str], bytes]:
        self.connection.request(method, path, body, {"Content-Type": "application/json"})
        with self.connection.getresponse() as response:
            return response.status, dict(response.headers), response.read()

    def filter(self, asked: dict[str, Any], names: list[str]) -> dict[str, Any]:
        body = json.dumps({"Pod": asked, "Nodes": None, "NodeNames": names}).encode()
        status, headers, answer = self.call("/filter", body)
        assert status == 200
        assert headers["Content-Length"] == str(len(answer))
        return dict(json.loads(answer))

    def observe(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.metrics_port, timeout=5)
        try:
            connection.request("GET", path)
            with connection.getresponse() as response:
                return response.status, response.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()

    def metric(self, series: str) -> float:
        found = re.search(rf"^{re.escape(series)} (\S+)$", self.observe("/metrics")[1], re.MULTILINE)
        return float(found[1]) if found else 0.0

    def close(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.wait()


def live(name: str, **kwargs: Any) -> dict[str, Any]:
    return nodeslack(name, now=datetime.now(UTC), **kwargs)
