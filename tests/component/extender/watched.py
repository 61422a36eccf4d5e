"""An API server reduced to what the extender uses: list and watch with selectors, and Events that are written."""

import json
import queue
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from slackwater.objects import mapping, object_key, string_map, text


@dataclass
class _Watch:
    query: dict[str, str]
    lines: "queue.SimpleQueue[bytes | None]" = field(default_factory=queue.SimpleQueue)


class WatchedCollections:
    """Collections by REST path; :meth:`put` and :meth:`delete` reach open watches at once."""

    def __init__(self) -> None:
        self.queries: dict[str, list[dict[str, str]]] = defaultdict(list)
        """The lists' queries of each path."""
        self.events: dict[str, dict[str, Any]] = {}
        """Events that were created, by namespace/name, as they are now."""
        self.creations: list[str] = []
        """Every attempt to create one, refused ones too."""
        self.refusal: tuple[int, str] | None = None
        """Status and reason with which every write is answered."""
        self._lock = threading.Lock()
        self._version = 1
        self._objects: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        self._watches: dict[str, list[_Watch]] = defaultdict(list)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def put(self, path: str, raw: dict[str, Any]) -> None:
        with self._lock:
            before = self._objects[path].get(object_key(raw))
            self._version += 1
            raw["metadata"]["resourceVersion"] = str(self._version)
            self._objects[path][object_key(raw)] = raw
            for watch in self._watches[path]:
                was, is_ = before is not None and _selected(before, watch.query), _selected(raw, watch.query)
                if was or is_:
                    watch.lines.put(_line("DELETED" if not is_ else "MODIFIED" if was else "ADDED", raw))

    def delete(self, path: str, key: str) -> None:
        with self._lock:
            raw = self._objects[path].pop(key)
            self._version += 1
            raw["metadata"]["resourceVersion"] = str(self._version)
            for watch in self._watches[path]:
                if _selected(raw, watch.query):
                    watch.lines.put(_line("DELETED", raw))

    def write_kubeconfig(self, file: Path) -> Path:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{self._server.server_port}"}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "users": [{"name": "test", "user": {}}],
        }
        file.write_text(json.dumps(config), encoding="utf-8")
        return file

    def close(self) -> None:
        with self._lock:
            for watches in self._watches.values():
                for watch in watches:
                    watch.lines.put(None)
        self._server.shutdown()
        self._server.server_close()

    def _create_event(self, path: str, raw: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        with self._lock:
            key = object_key(raw)
            self.creations.append(key)
            if self.refusal is not None:
                return _status(*self.refusal)
            if path != f"/api/v1/namespaces/{raw['metadata']['namespace']}/events":
                return _status(404, "NotFound")
            if key in self.events:
                return _status(409, "AlreadyExists")
            self.events[key] = raw
            return 201, raw

    def _patch_event(self, path: str, patch: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        *_, namespace, _kind, name = path.split("/")
        with self._lock:
            if self.refusal is not None:
                return _status(*self.refusal)
            event = self.events.get(f"{namespace}/{name}")
            if event is None:
                return _status(404, "NotFound")
            event.update(patch)
            return 200, event

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        collections = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                url = urlsplit(self.path)
                query = {key: values[0] for key, values in parse_qs(url.query).items()}
                if "watch" in query:
                    self.send_response(200)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Transfer-Encoding", "chunked")
                    self.end_headers()
                    self._stream(url.path, query)
                    return
                with collections._lock:
                    collections.queries[url.path].append(query)
                    items = [raw for raw in collections._objects[url.path].values() if _selected(raw, query)]
                    version = str(collections._version)
                self._answer(200, {"metadata": {"resourceVersion": version}, "items": items})

            def do_POST(self) -> None:
                self._answer(*collections._create_event(urlsplit(self.path).path, self._body()))

            def do_PATCH(self) -> None:
                self._answer(*collections._patch_event(urlsplit(self.path).path, self._body()))

            def _body(self) -> dict[str, Any]:
                return dict(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def _answer(self, status: int, raw: dict[str, Any]) -> None:
                body = json.dumps(raw).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def _stream(self, path: str, query: dict[str, str]) -> None:
                watch = _Watch(query)
                with collections._lock:
                    for raw in collections._objects[path].values():
                        newer = int(raw["metadata"]["resourceVersion"]) > int(query["resourceVersion"])
                        if newer and _selected(raw, query):
                            watch.lines.put(_line("MODIFIED", raw))
                    collections._watches[path].append(watch)
                while (line := watch.lines.get()) is not None:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                self.wfile.write(b"0\r\n\r\n")

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler


def _line(kind: str, raw: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": raw}).encode() + b"\n"


def _status(code: int, reason: str) -> tuple[int, dict[str, Any]]:
    return code, {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason}


def _selected(raw: dict[str, Any], query: dict[str, str]) -> bool:
    labels = string_map(raw, "metadata", "labels")
    for clause in filter(None, query.get("labelSelector", "").split(",")):
        key, _, value = clause.partition("=")
        if labels.get(key) != value:
            return False
    for clause in filter(None, query.get("fieldSelector", "").split(",")):
        path, _, value = clause.partition("=")
        *parents, last = path.rstrip("!").split(".")
        if (text(mapping(raw, *parents), last) == value) == path.endswith("!"):
            return False
    return True
