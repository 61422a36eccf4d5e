"""Keep a local copy of one collection of the API server: list, then watch, for ever.

Every component that needs live objects runs one :class:`Reflector` per collection in a thread of its own. Readers get
raw objects that they must not change. A closed or broken watch, a forgotten version (410) and a missing resource type
(404, the CRD is not installed yet) are all recovered by listing anew, with back-off.
"""

import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from slackwater.adapters.kube import ApiError, KubeClient, NotFound
from slackwater.adapters.logs import kv
from slackwater.objects import object_key

_LOG = logging.getLogger("slackwater.reflector")
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 15.0
_ABSENT_PAUSE_S = 5.0
"""How soon a CRD that appears later is noticed."""

OnChange = Callable[[str, dict[str, Any]], None]
"""Called with ``ADDED``, ``MODIFIED`` or ``DELETED`` and the object, from the reflector's thread."""


class Reflector:
    """A live copy of the collection at ``path``; start it once, read it from any thread."""

    def __init__(
        self,
        client: KubeClient,
        path: str,
        *,
        label_selector: str = "",
        field_selector: str = "",
        on_change: OnChange | None = None,
    ) -> None:
        self.path = path
        self.synced = threading.Event()
        """Set after the first complete list (or the first sure answer that the type does not exist)."""
        self._client = client
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._on_change = on_change
        self._lock = threading.Lock()
        self._objects: dict[str, dict[str, Any]] = {}
        self._absent = False
        self._heard_at: datetime | None = None

    def start(self, stop: threading.Event) -> threading.Thread:
        """Run in a daemon thread until ``stop`` is set (an open watch ends with the process)."""
        thread = threading.Thread(target=self._run, args=(stop,), name=f"reflect {self.path}", daemon=True)
        thread.start()
        return thread

    def objects(self) -> list[dict[str, Any]]:
        """All objects now; the dicts are shared, do not change them."""
        with self._lock:
            return list(self._objects.values())

    def get(self, key: str) -> dict[str, Any] | None:
        """The object ``namespace/name`` (or ``name``), or None."""
        with self._lock:
            return self._objects.get(key)

    @property
    def absent(self) -> bool:
        """True while the server does not know this resource type."""
        return self._absent

    def age_s(self) -> float | None:
        """Seconds since the server last answered a list or sent an event or bookmark; None before the first."""
        heard = self._heard_at
        return None if heard is None else (datetime.now(UTC) - heard) / timedelta(seconds=1)

    # -- the thread -----------------------------------------------------------------------------------------

    def _run(self, stop: threading.Event) -> None:
        pause_s = _FIRST_PAUSE_S
        while not stop.is_set():
            try:
                version = self._list()
                pause_s = _FIRST_PAUSE_S
                while not stop.is_set():
                    version = self._watch(version, stop)
            except NotFound:
                if not self._absent:
                    _LOG.info("resource type is not installed, waiting for it", extra=kv(path=self.path))
                self._absent = True
                self._replace([])
                self.synced.set()
                stop.wait(_ABSENT_PAUSE_S)
            except ApiError as error:
                _LOG.warning(
                    "lost touch with the collection, listing anew",
                    extra=kv(path=self.path, error=str(error), pause_s=pause_s),
                )
                stop.wait(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            except Exception:  # noqa: BLE001  see below; logged with its traceback
                # A bad object or a fault in a callback must not end the copy for the life of the process.
                _LOG.exception("reflector failed, listing anew", extra=kv(path=self.path))
                stop.wait(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _list(self) -> str:
        items, version = self._client.list(
            self.path, label_selector=self._label_selector, field_selector=self._field_selector
        )
        self._heard_at = datetime.now(UTC)
        self._replace(items)
        self._absent = False
        self.synced.set()
        return version

    def _watch(self, version: str, stop: threading.Event) -> str:
        events = self._client.watch(
            self.path, version, label_selector=self._label_selector, field_selector=self._field_selector
        )
        for event in events:
            self._heard_at = datetime.now(UTC)
            version = event.object.get("metadata", {}).get("resourceVersion", version)
            if event.type != "BOOKMARK":
                self._take(event.type, event.object)
            if stop.is_set():
                break
        return version

    def _replace(self, items: list[dict[str, Any]]) -> None:
        fresh = {object_key(item): item for item in items}
        with self._lock:
            before, self._objects = self._objects, fresh
        for key, item in fresh.items():
            old = before.get(key)
            if old is None:
                self._tell("ADDED", item)
            elif old.get("metadata", {}).get("resourceVersion") != item.get("metadata", {}).get("resourceVersion"):
                self._tell("MODIFIED", item)
        for key, item in before.items():
            if key not in fresh:
                self._tell("DELETED", item)

    def _take(self, kind: str, item: dict[str, Any]) -> None:
        with self._lock:
            if kind == "DELETED":
                self._objects.pop(object_key(item), None)
            else:
                self._objects[object_key(item)] = item
        self._tell(kind, item)

    def _tell(self, kind: str, item: dict[str, Any]) -> None:
        if self._on_change is not None:
            self._on_change(kind, item)
