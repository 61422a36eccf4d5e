"""An API server over HTTP with what a node agent asks of one: list and watch, NodeSlack, Events, evictions.

It keeps objects by REST path, so ``/status`` writes change ``status`` only and other writes leave it alone. An
accepted eviction sets ``deletionTimestamp``, as the real one does for a bound pod; one whose pod is in ``protected``
gets the 429 of a PodDisruptionBudget.
"""

import json
import queue
import threading
import time
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from slackwater.timestamps import format_time

NODESLACKS = "/apis/slackwater.io/v1alpha1/nodeslacks"
PODS = "/api/v1/pods"
NODES = "/api/v1/nodes"
CONFIG_MAPS = "/api/v1/namespaces/slackwater-system/configmaps"


class ApiServer:
    """Runs from construction until :meth:`close`. Times are monotonic seconds."""

    def __init__(self, directory: Path) -> None:
        self.protected: set[str] = set()
        """Names of pods that a PodDisruptionBudget protects."""
        self.evictions: list[tuple[str, str, float]] = []
        """(pod, uid asked for, when), refused ones too."""
        self.events: list[dict[str, Any]] = []
        self.status_writes: list[dict[str, Any]] = []
        self.away = False
        """True: every call and watch breaks."""
        self._lock = threading.Lock()
        self._version = 1
        self._objects: dict[str, dict[str, Any]] = {}
        """Full REST path of each object → object."""
        self._watches: list[tuple[str, queue.SimpleQueue[bytes | None]]] = []
        self._server = _QuietServer(("127.0.0.1", 0), _handler(self))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.kubeconfig = directory / "kubeconfig"
        self.kubeconfig.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "test",
                    "clusters": [
                        {"name": "test", "cluster": {"server": f"http://127.0.0.1:{self._server.server_port}"}}
                    ],
                    "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
                    "users": [{"name": "test", "user": {}}],
                }
            )
        )

    def put(self, collection: str, raw: dict[str, Any]) -> None:
        """Create or change one object."""
        with self._lock:
            self._store(f"{collection}/{_key(raw)}", deepcopy(raw))

    def delete(self, collection: str, key: str) -> None:
        with self._lock:
            raw = self._objects.pop(f"{collection}/{key}")
            self._version += 1
            raw["metadata"]["resourceVersion"] = str(self._version)
            self._tell(f"{collection}/{key}", "DELETED", raw)

    def get(self, collection: str, key: str) -> dict[str, Any] | None:
        with self._lock:
            return deepcopy(self._objects.get(f"{collection}/{key}"))

    def nodeslack(self, name: str = "node-1") -> dict[str, Any]:
        """The status of one NodeSlack; empty where there is none yet."""
        status = (self.get(NODESLACKS, name) or {}).get("status") or {}
        return dict(status)

    def events_about(self, reason: str) -> list[str]:
        """The sentences of the Events with this reason."""
        return [event["message"] for event in self.events if event["reason"] == reason]

    def break_off(self) -> None:
        """Go away: open watches end, new calls fail."""
        self.away = True
        with self._lock:
            for _, watch in self._watches:
                watch.put(None)
            self._watches.clear()

    def close(self) -> None:
        self.break_off()
        self._server.shutdown()
        self._server.server_close()

    # -- called by the handler ------------------------------------------------------------------------------------

    def list_or_watch(self, path: str, query: dict[str, list[str]]) -> tuple[list[Any], str]:
        with self._lock:
            items = [deepcopy(raw) for key, raw in self._objects.items() if _collection(key, raw) == path]
            return items, str(self._version)

    def open_watch(self, path: str, version: int) -> "queue.SimpleQueue[bytes | None]":
        watch: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        with self._lock:
            for key, raw in self._objects.items():
                if _collection(key, raw) == path and int(raw["metadata"]["resourceVersion"]) > version:
                    watch.put(_line("MODIFIED", raw))
            self._watches.append((path, watch))
        return watch

    def create(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if path.endswith("/eviction"):
            return self._evict(path.removesuffix("/eviction"), body)
        if path.endswith("/events"):
            self.events.append(body)
            return 201, body
        with self._lock:
            key = f"{path}/{_key(body)}"
            if key in self._objects:
                return 409, _failure(409, "AlreadyExists", "it exists")
            self._store(key, {**body, "status": None})
        return 201, body

    def patch(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        with self._lock:
            is_status = path.endswith("/status")
            key = path.removesuffix("/status")
            raw = self._objects.get(key)
            if raw is None:
                return 404, _failure(404, "NotFound", "it does not exist")
            wanted = {"status": body["status"]} if is_status else {k: v for k, v in body.items() if k != "status"}
            patched = _merge(raw, wanted)
            if is_status:
                self.status_writes.append(patched["status"])
            self._store(key, patched)
            return 200, patched

    def _evict(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        _, _, _, _, namespace, _, name = path.split("/")
        uid = body["deleteOptions"]["preconditions"]["uid"]
        with self._lock:
            self.evictions.append((name, uid, time.monotonic()))
            raw = self._objects.get(f"{PODS}/{namespace}/{name}")
            if raw is None:
                return 404, _failure(404, "NotFound", "no such pod")
            if raw["metadata"]["uid"] != uid:
                return 409, _failure(409, "Conflict", "the UID in the precondition does not match")
            if name in self.protected:
                message = "Cannot evict pod as it would violate the pod's disruption budget."
                return 429, _failure(429, "TooManyRequests", message)
            grace = raw["spec"].get("terminationGracePeriodSeconds", 30)
            raw["metadata"]["deletionTimestamp"] = format_time(datetime.now(UTC) + timedelta(seconds=grace))
            self._store(f"{PODS}/{namespace}/{name}", raw)
        return 201, {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    def _store(self, key: str, raw: dict[str, Any]) -> None:
        self._version += 1
        raw["metadata"]["resourceVersion"] = str(self._version)
        kind = "MODIFIED" if key in self._objects else "ADDED"
        self._objects[key] = raw
        self._tell(key, kind, raw)

    def _tell(self, key: str, kind: str, raw: dict[str, Any]) -> None:
        for path, watch in self._watches:
            if _collection(key, raw) == path:
                watch.put(_line(kind, raw))


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """An agent that was killed in the middle of a call is what the tests are about."""


def _key(raw: dict[str, Any]) -> str:
    metadata = raw["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if "namespace" in metadata else str(metadata["name"])


def _collection(key: str, raw: dict[str, Any]) -> str:
    return key.removesuffix(f"/{_key(raw)}")


def _line(kind: str, raw: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": raw}).encode() + b"\n"


def _failure(code: int, reason: str, message: str) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "code": code, "reason": reason, "message": message}


def _merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _merge(result.get(name), value)
    return result


def _handler(server: ApiServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            query = parse_qs(url.query)
            if server.away:
                self.close_connection = True
                return
            if "watch" in query:
                self._stream(server.open_watch(url.path, int(query["resourceVersion"][0])))
                return
            if url.path.rpartition("/")[0] == NODESLACKS:
                raw = server.get(NODESLACKS, url.path.rpartition("/")[2])
                self._answer(200, raw) if raw else self._answer(404, _failure(404, "NotFound", "no such NodeSlack"))
                return
            items, version = server.list_or_watch(url.path, query)
            self._answer(
                200, {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": items}
            )

        def do_POST(self) -> None:
            body = self._body()
            if not server.away:
                self._answer(*server.create(urlsplit(self.path).path, body))

        def do_PATCH(self) -> None:
            body = self._body()
            if not server.away:
                self._answer(*server.patch(urlsplit(self.path).path, body))

        def _body(self) -> dict[str, Any]:
            self.close_connection = server.away
            return dict(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, status: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _stream(self, watch: "queue.SimpleQueue[bytes | None]") -> None:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            try:
                while (line := watch.get()) is not None:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                    self.wfile.flush()
                self.wfile.write(b"0\r\n\r\n")
            except OSError:
                pass  # the agent has gone

        def log_message(self, format: str, *args: object) -> None:
            """Keep the tests' output for what failed."""

    return Handler
