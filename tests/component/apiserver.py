"""An API server over HTTP, in memory: enough of the real one for tests of clients, watches, leases and upkeep.

It stores objects by resource, namespace and name; gives out uid, creationTimestamp and resourceVersion; lists and
watches with label and field selectors, bookmarks, 410 for forgotten versions; answers 404 for absent objects and
resource types, 409 for a stale resourceVersion or a name that is taken, 415 for patches other than merge patches.
Writes leave ``status`` alone unless they go to ``/status``. Validation, defaults and admission are not played.

Tests speak to it directly with :meth:`ApiServer.put` and :meth:`ApiServer.get`, steer it with
:meth:`ApiServer.fail_next`, :meth:`ApiServer.before_next`, :attr:`ApiServer.absent`, :meth:`ApiServer.forget_history`
and :meth:`ApiServer.close_watches`, and read back what was asked in :attr:`ApiServer.requests`.
"""

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from slackwater.timestamps import format_time

Raw = dict[str, Any]
_BOOKMARK_EVERY_S = 1.0
_MERGE_PATCH = "application/merge-patch+json"


@dataclass(frozen=True)
class Request:
    """One call as the server received it; ``watch`` calls too."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    authorization: str


@dataclass(frozen=True)
class _Place:
    """What a REST path names. ``name`` is empty for a collection."""

    group_version: str
    resource: str
    namespace: str
    name: str
    subresource: str

    @property
    def collection(self) -> str:
        """The path of all objects of this resource in all namespaces."""
        return f"{self.group_version}/{self.resource}"

    @property
    def key(self) -> tuple[str, str, str]:
        return self.collection, self.namespace, self.name


@dataclass(frozen=True)
class _Change:
    """One step of history."""

    version: int
    collection: str
    before: Raw | None
    after: Raw | None
    """None: deleted."""


@dataclass
class _Interception:
    """Something that happens to the next call that fits."""

    method: str
    part: str
    answer: tuple[int, Raw, dict[str, str]] | None = None
    action: Callable[[], object] | None = None
    times: int = 1
    client: str = ""
    """Only for the client with this token; empty = any."""

    def fits(self, request: Request) -> bool:
        fits_client = self.client in ("", request.authorization.removeprefix("Bearer "))
        return fits_client and self.method == request.method and self.part in request.path


@dataclass(frozen=True)
class _Filter:
    """Label and field selector of a list or watch: ``a=b``, ``a!=b``, ``a``, ``!a``, joined by commas."""

    namespace: str
    labels: str = ""
    fields: str = ""

    def takes(self, raw: Raw) -> bool:
        metadata = raw["metadata"]
        if self.namespace and metadata.get("namespace") != self.namespace:
            return False
        labels = metadata.get("labels") or {}
        return all(_fits(term, labels.get) for term in _terms(self.labels)) and all(
            _fits(term, lambda path: _at(raw, path)) for term in _terms(self.fields)
        )


class _Answer(Exception):
    """Ends a call with this status and body."""

    def __init__(self, status: int, body: Raw, headers: dict[str, str] | None = None) -> None:
        super().__init__(status)
        self.status = status
        self.body = body
        self.headers = headers or {}


@dataclass
class _Store:
    """Objects and their history; guarded by the server's condition."""

    version: int = 100
    objects: dict[tuple[str, str, str], Raw] = field(default_factory=dict)
    history: list[_Change] = field(default_factory=list)
    oldest: int = 0
    """Watches from before this version get 410."""


class ApiServer:
    """Serves on a free port of 127.0.0.1 from construction until :meth:`close`; usable in a ``with``."""

    def __init__(self) -> None:
        self.absent: set[str] = set()
        """Collections (``/apis/GROUP/VERSION/PLURAL``) of types that are not installed: every call is a 404."""
        self.cut_off: set[str] = set()
        """Tokens of clients that cannot reach the server any more: their calls get 503, their watches end."""
        self.requests: list[Request] = []
        self._store = _Store()
        self._changed = threading.Condition()
        self._watch_round = 0
        self._closed = False
        self._interceptions: list[_Interception] = []
        self._server = _QuietServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def kubeconfig(self, path: Path, token: str = "") -> str:
        """Write a kubeconfig for this server to ``path``; gives the path as text, for ``KubeClient.connect``."""
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": self.url}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "users": [{"name": "test", "user": {"token": token} if token else {}}],
        }
        path.write_text(json.dumps(content), encoding="utf-8")
        return str(path)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    # -- for tests ------------------------------------------------------------------------------------------------

    def put(self, collection: str, raw: Raw) -> Raw:
        """Create or overwrite one object, status included; ``collection`` without a namespace, which ``raw`` has."""
        metadata = raw["metadata"]
        group_version, _, resource = collection.rpartition("/")
        place = _Place(group_version, resource, metadata.get("namespace", ""), metadata["name"], "")
        with self._changed:
            return self._write(place, deepcopy(raw))

    def edit(self, path: str, patch: Raw) -> Raw:
        """Merge ``patch`` into the object at ``path``, as a person with kubectl does (status too)."""
        place = _parse(path)
        with self._changed:
            return self._write(place, _merged(self._existing(place), patch))

    def remove(self, path: str) -> None:
        """Delete the object at ``path``."""
        with self._changed:
            self._delete(_parse(path))

    def get(self, path: str) -> Raw | None:
        """The object at ``path``, or None."""
        with self._changed:
            return deepcopy(self._store.objects.get(_parse(path).key))

    def all(self, collection: str) -> list[Raw]:
        """Every object of a collection, oldest change last."""
        with self._changed:
            return [deepcopy(raw) for key, raw in self._store.objects.items() if key[0] == collection]

    def fail_next(
        self,
        method: str,
        part: str,
        status: int,
        reason: str = "Injected",
        *,
        times: int = 1,
        retry_after_s: int | None = None,
    ) -> None:
        """Answer the next ``times`` calls of ``method`` whose path contains ``part`` with an error."""
        headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
        answer = (status, _status(status, reason, f"injected {status}"), headers)
        self._interceptions.append(_Interception(method, part, answer=answer, times=times))

    def before_next(self, method: str, part: str, action: Callable[[], object], *, client: str = "") -> None:
        """Do something just before the next such call is served: somebody else is faster, or the network is slow.

        ``client`` is a client's token: only a call of that one counts.
        """
        self._interceptions.append(_Interception(method, part, action=action, client=client))

    def close_watches(self) -> None:
        """End every open watch as a server does when its timeout is over."""
        with self._changed:
            self._watch_round += 1
            self._changed.notify_all()

    def forget_history(self) -> None:
        """Compact: watches from any version so far get 410."""
        with self._changed:
            self._store.version += 1
            self._store.oldest = self._store.version
            self._store.history.clear()
            self._changed.notify_all()

    def calls(self, method: str, part: str) -> list[Request]:
        """The calls so far whose path contains ``part``, watches excluded."""
        return [
            call for call in list(self.requests)
            if call.method == method and part in call.path and "watch" not in call.query
        ]  # fmt: skip

    # -- serving --------------------------------------------------------------------------------------------------

    def serve(self, request: Request, content_type: str) -> tuple[int, Raw, dict[str, str]]:
        """The answer to one call that is not a watch."""
        self.requests.append(request)
        try:
            self._intercept(request)
            place = self._known(request.path)
            with self._changed:
                return self._serve(request, place, content_type)
        except _Answer as answer:
            return answer.status, answer.body, answer.headers

    def watch(self, request: Request) -> Iterator[bytes]:
        """The lines of a watch; the first ``next`` raises :class:`_Answer` where there is none."""
        self.requests.append(request)
        self._intercept(request)
        place = self._known(request.path)
        chosen = _Filter(
            place.namespace, request.query.get("labelSelector", ""), request.query.get("fieldSelector", "")
        )
        version = int(request.query.get("resourceVersion") or 0)
        deadline_s = time.monotonic() + float(request.query.get("timeoutSeconds", "300"))
        bookmarks = request.query.get("allowWatchBookmarks") == "true"
        with self._changed:
            watch_round = self._watch_round
            if version < self._store.oldest:
                yield _line("ERROR", _status(410, "Expired", "too old resource version"))
                return
        yield b""  # the headers can go out
        while True:
            with self._changed:
                fresh = [c for c in self._store.history if c.version > version and c.collection == place.collection]
                over = self._closed or self._watch_round != watch_round or time.monotonic() >= deadline_s
                over = over or self._is_cut_off(request)
                if version < self._store.oldest:
                    yield _line("ERROR", _status(410, "Expired", "too old resource version"))
                    return
                if not fresh and not over:
                    woken = self._changed.wait(min(_BOOKMARK_EVERY_S, max(0.01, deadline_s - time.monotonic())))
                    if woken:
                        continue
            for change in fresh:
                version = change.version
                yield from _event(change, chosen)
            if over:
                return
            if bookmarks and not fresh:
                with self._changed:
                    version = max(version, self._store.version)
                yield _line("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})

    def _serve(self, request: Request, place: _Place, content_type: str) -> tuple[int, Raw, dict[str, str]]:
        match request.method:
            case "GET" if place.name:
                return 200, deepcopy(self._existing(place)), {}
            case "GET":
                return 200, self._list(place, request.query), {}
            case "POST":
                return 201, self._create(place, request.body), {}
            case "PUT":
                return 200, self._update(place, request.body, request.body), {}
            case "PATCH" if content_type == _MERGE_PATCH:
                return 200, self._update(place, request.body, _merged(self._existing(place), request.body)), {}
            case "DELETE":
                wanted = ((request.body or {}).get("preconditions") or {}).get("uid")
                if wanted not in (None, self._existing(place)["metadata"]["uid"]):
                    raise _Answer(409, _status(409, "Conflict", "the UID in the precondition does not match"))
                return 200, self._delete(place), {}
        raise _Answer(415, _status(415, "UnsupportedMediaType", f"{request.method} with {content_type}"))

    def _list(self, place: _Place, query: dict[str, str]) -> Raw:
        chosen = _Filter(place.namespace, query.get("labelSelector", ""), query.get("fieldSelector", ""))
        found = [
            raw for key, raw in self._store.objects.items() if key[0] == place.collection and chosen.takes(raw)
        ]  # fmt: skip
        kind = next((str(raw.get("kind", "")) for raw in found), "")
        items = [{key: value for key, value in raw.items() if key not in ("kind", "apiVersion")} for raw in found]
        return {
            "kind": f"{kind}List",
            "apiVersion": place.group_version.removeprefix("/apis/").removeprefix("/api/"),
            "metadata": {"resourceVersion": str(self._store.version)},
            "items": deepcopy(items),
        }

    def _create(self, place: _Place, body: Raw) -> Raw:
        metadata = body["metadata"]
        name = metadata.get("name") or f"{metadata['generateName']}{uuid.uuid4().hex[:5]}"
        named = _Place(place.group_version, place.resource, place.namespace, name, "")
        if named.key in self._store.objects:
            raise _Answer(409, _status(409, "AlreadyExists", f'{place.resource} "{name}" already exists'))
        return self._write(named, {**body, "metadata": {**metadata, "name": name}})

    def _update(self, place: _Place, body: Raw, wished: Raw) -> Raw:
        old = self._existing(place)
        asked = (body.get("metadata") or {}).get("resourceVersion")
        if asked not in (None, "", old["metadata"]["resourceVersion"]):
            message = "the object has been modified; please apply your changes to the latest version and try again"
            raise _Answer(409, _status(409, "Conflict", message))
        if place.subresource == "status":
            return self._write(place, {**old, "status": wished.get("status")})
        kept = {"status": old["status"]} if "status" in old else {}
        return self._write(place, {key: value for key, value in wished.items() if key != "status"} | kept)

    def _write(self, place: _Place, raw: Raw) -> Raw:
        old = self._store.objects.get(place.key)
        self._store.version += 1
        metadata = raw["metadata"]
        metadata["resourceVersion"] = str(self._store.version)
        metadata["uid"] = old["metadata"]["uid"] if old else metadata.get("uid") or str(uuid.uuid4())
        created = old["metadata"]["creationTimestamp"] if old else format_time(datetime.now(UTC))
        metadata["creationTimestamp"] = created
        if place.namespace:
            metadata["namespace"] = place.namespace
        self._store.objects[place.key] = raw
        self._remember(place, old, raw)
        return deepcopy(raw)

    def _delete(self, place: _Place) -> Raw:
        old = self._existing(place)
        self._store.version += 1
        del self._store.objects[place.key]
        self._remember(place, old, None)
        return _status(200, "", "deleted") | {"status": "Success"}

    def _remember(self, place: _Place, before: Raw | None, after: Raw | None) -> None:
        version = self._store.version
        self._store.history.append(_Change(version, place.collection, deepcopy(before), deepcopy(after)))
        self._changed.notify_all()

    def _existing(self, place: _Place) -> Raw:
        raw = self._store.objects.get(place.key)
        if raw is None:
            raise _Answer(404, _status(404, "NotFound", f'{place.resource} "{place.name}" not found'))
        return raw

    def _known(self, path: str) -> _Place:
        place = _parse(path)
        if place.collection in self.absent:
            raise _Answer(404, _status(404, "NotFound", "the server could not find the requested resource"))
        return place

    def _is_cut_off(self, request: Request) -> bool:
        return request.authorization.removeprefix("Bearer ") in self.cut_off

    def _intercept(self, request: Request) -> None:
        if self._is_cut_off(request):
            raise _Answer(503, _status(503, "ServiceUnavailable", "cut off"))
        with self._changed:
            found = next((one for one in self._interceptions if one.fits(request)), None)
            if found is None:
                return
            found.times -= 1
            if not found.times:
                self._interceptions.remove(found)
        if found.action is not None:
            found.action()
        if found.answer is not None:
            raise _Answer(*found.answer)


def _parse(path: str) -> _Place:
    parts = path.strip("/").split("/")
    head = 2 if parts[0] == "api" else 3
    group_version, rest = "/" + "/".join(parts[:head]), parts[head:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    resource, name, subresource = [*rest, "", ""][:3]
    return _Place(group_version, resource, namespace, name, subresource)


def _merged(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result


def _event(change: _Change, chosen: _Filter) -> Iterator[bytes]:
    """A watch with selectors sees objects come and go as they begin and cease to match."""
    was = change.before is not None and chosen.takes(change.before)
    if change.after is not None and chosen.takes(change.after):
        yield _line("MODIFIED" if was else "ADDED", change.after)
    elif was and change.before is not None:
        last = _merged(change.before, {"metadata": {"resourceVersion": str(change.version)}})
        yield _line("DELETED", last)


def _terms(selector: str) -> list[str]:
    return [term.strip() for term in selector.split(",") if term.strip()]


def _fits(term: str, value_of: Callable[[str], Any]) -> bool:
    if "!=" in term:
        key, _, value = term.partition("!=")
        return bool(value_of(key) != value)
    if "=" in term:
        key, _, value = term.partition("=")
        return bool(value_of(key) == value.removeprefix("="))
    return value_of(term[1:]) is None if term.startswith("!") else value_of(term) is not None


def _at(raw: Any, path: str) -> Any:
    for key in path.split("."):
        raw = raw.get(key) if isinstance(raw, dict) else None
    return raw


def _line(kind: str, raw: Raw) -> bytes:
    return json.dumps({"type": kind, "object": raw}).encode() + b"\n"


def _status(code: int, reason: str, message: str) -> Raw:
    return {
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message,
    }  # fmt: skip


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away in the middle of a watch is what some tests are about."""


def _handler(server: ApiServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # headers and body are two writes; the client would wait 40 ms between them

        def do_GET(self) -> None:
            self._handle()

        def do_POST(self) -> None:
            self._handle()

        def do_PUT(self) -> None:
            self._handle()

        def do_PATCH(self) -> None:
            self._handle()

        def do_DELETE(self) -> None:
            self._handle()

        def _handle(self) -> None:
            url = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(url.query).items()}
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            request = Request(self.command, url.path, query, body, self.headers.get("Authorization", ""))
            if query.get("watch") == "true":
                self._stream(request)
            else:
                self._answer(*server.serve(request, self.headers.get("Content-Type", "")))

        def _answer(self, status: int, body: Raw, headers: dict[str, str]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Type": "application/json", "Content-Length": len(data)}.items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(data)

        def _stream(self, request: Request) -> None:
            lines = server.watch(request)
            try:
                first = next(lines)
            except _Answer as answer:
                self._answer(answer.status, answer.body, answer.headers)
                return
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self._chunk(first)
            for line in lines:
                self._chunk(line)
            self.wfile.write(b"0\r\n\r\n")

        def _chunk(self, data: bytes) -> None:
            if data:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                self.wfile.flush()

        def log_message(self, format: str, *args: object) -> None:
            """Keep the tests' output for what failed."""

    return Handler
