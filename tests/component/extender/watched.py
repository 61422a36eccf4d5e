"""An API server reduced to list and watch: what the extender's reflectors talk to."""

import json
import queue
import threading
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from slackwater.objects import object_key


class WatchedCollections:
    """Collections by REST path; :meth:`put` and :meth:`delete` reach open watches at once."""

    def __init__(self) -> None:
        self.queries: dict[str, dict[str, list[str]]] = {}
        """The last list's query of each path."""
        self._lock = threading.Lock()
        self._version = 1
        self._objects: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        self._watches: dict[str, list[queue.SimpleQueue[bytes | None]]] = defaultdict(list)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def put(self, path: str, raw: dict[str, Any]) -> None:
        with self._lock:
            kind = "MODIFIED" if object_key(raw) in self._objects[path] else "ADDED"
            self._tell(path, kind, raw)
            self._objects[path][object_key(raw)] = raw

    def delete(self, path: str, key: str) -> None:
        with self._lock:
            self._tell(path, "DELETED", self._objects[path].pop(key))

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
                    watch.put(None)
        self._server.shutdown()
        self._server.server_close()

    def _tell(self, path: str, kind: str, raw: dict[str, Any]) -> None:
        self._version += 1
        raw["metadata"]["resourceVersion"] = str(self._version)
        line = json.dumps({"type": kind, "object": raw}).encode() + b"\n"
        for watch in self._watches[path]:
            watch.put(line)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        collections = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                url = urlsplit(self.path)
                query = parse_qs(url.query)
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                if "watch" in query:
                    self.send_header("Transfer-Encoding", "chunked")
                    self.end_headers()
                    self._stream(url.path, int(query["resourceVersion"][0]))
                    return
                collections.queries[url.path] = query
                with collections._lock:
                    items = list(collections._objects[url.path].values())
                    version = str(collections._version)
                body = json.dumps({"metadata": {"resourceVersion": version}, "items": items}).encode()
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def _stream(self, path: str, version: int) -> None:
                watch: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
                with collections._lock:
                    for raw in collections._objects[path].values():
                        if int(raw["metadata"]["resourceVersion"]) > version:
                            watch.put(json.dumps({"type": "MODIFIED", "object": raw}).encode() + b"\n")
                    collections._watches[path].append(watch)
                while (line := watch.get()) is not None:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                self.wfile.write(b"0\r\n\r\n")

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler
