"""The observability port of every process: ``/metrics`` for Prometheus, ``/livez`` and ``/readyz`` for the kubelet.

Plain HTTP on the pod's own address; nothing secret is served.
"""

import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import REGISTRY, CollectorRegistry, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

Checks = Callable[[], Sequence[str]]
"""Gives what is wrong, one sentence each; nothing means all is well."""


class ObservabilityServer:
    """A running server; :meth:`close` ends it."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self._server = server
        self.port: int = server.server_address[1]
        threading.Thread(target=server.serve_forever, name="observability", daemon=True).start()

    def close(self) -> None:
        """Stop serving and free the port."""
        self._server.shutdown()
        self._server.server_close()


def serve_observability(
    port: int, *, ready: Checks, alive: Checks = tuple, registry: CollectorRegistry = REGISTRY
) -> ObservabilityServer:
    """Serve ``/metrics``, ``/readyz`` and ``/livez`` on ``port`` (0 = any) from a thread.

    ``ready`` and ``alive`` are asked on each probe and must answer from memory. A check that raises counts as failed.
    """

    disable_created_metrics()  # type: ignore[no-untyped-call]  # a gauge beside each counter that nobody asks for

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(200, generate_latest(registry), CONTENT_TYPE_LATEST)
            elif path in ("/readyz", "/livez"):
                problems = _ask(ready if path == "/readyz" else alive)
                text = "\n".join(problems) if problems else "ok"
                self._answer(503 if problems else 200, text.encode(), "text/plain; charset=utf-8")
            else:
                self._answer(404, b"try /metrics, /readyz or /livez\n", "text/plain; charset=utf-8")

        def _answer(self, status: int, body: bytes, content_type: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Probes come every few seconds; their lines would bury everything else."""

    server = ThreadingHTTPServer(("", port), Handler)
    server.daemon_threads = True
    return ObservabilityServer(server)


def _ask(checks: Checks) -> Sequence[str]:
    try:
        return checks()
    except Exception as error:  # noqa: BLE001  a broken check is an answer too: not well
        return [f"the check itself failed: {error}"]
