"""What the webhook knows of the cluster, kept in memory by watches: profiles, PriorityClasses, namespaces.

No request waits for the API server. Profiles and classes are parsed again when one of them changed; a profile that
cannot be used matches nothing, and the log says why.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Gauge

from slackwater import names
from slackwater.adapters.kube import KubeClient
from slackwater.adapters.logs import kv
from slackwater.adapters.reflector import Reflector
from slackwater.errors import InputError
from slackwater.objects import string_map
from slackwater.policy.profile import Profile, parse_profile
from webhook.decide import Context, Decision, Settings, Subject, admit
from webhook.priority import PriorityClass, parse_priority_class

_LOG = logging.getLogger("slackwater.webhook")


class ClusterContext:
    """A Decider for one cluster; :meth:`start` begins to watch. Thread safe."""

    def __init__(self, client: KubeClient, settings: Settings, registry: CollectorRegistry) -> None:
        self._settings = settings
        self._changed = threading.Event()
        self._changed.set()
        self._lock = threading.Lock()
        self._profiles: tuple[Profile, ...] = ()
        self._classes: dict[str, PriorityClass] = {}
        self._unusable: dict[str, str] = {}

        def watched(path: str) -> Reflector:
            return Reflector(client, path, on_change=lambda _kind, _object: self._changed.set())

        self._profile_sources = (watched(names.PROFILES_PATH), watched(names.KOORDINATOR_PROFILES_PATH))
        self._class_source = watched(names.PRIORITY_CLASSES_PATH)
        self._namespaces = Reflector(client, names.NAMESPACES_PATH)
        self._usable = Gauge(
            "slackwater_profiles", "Colocation profiles, by whether they can be used.", ["usable"], registry=registry
        )

    def start(self, stop: threading.Event) -> None:
        """Watch, in threads of their own, until ``stop`` is set."""
        for reflector in (*self._profile_sources, self._class_source, self._namespaces):
            reflector.start(stop)

    def problems(self) -> Sequence[str]:
        """The collections that have not been read yet."""
        return [
            f"waiting for the first list of {reflector.path}"
            for reflector in (*self._profile_sources, self._class_source, self._namespaces)
            if not reflector.synced.is_set()
        ]

    def admit(self, subject: Subject) -> Decision:
        """Decide with what is known now."""
        profiles, classes = self._parsed()
        namespace = self._namespaces.get(subject.namespace)
        labels = {} if namespace is None else {subject.namespace: string_map(namespace, "metadata", "labels")}
        return admit(subject, Context(profiles, classes, labels, self._settings))

    def _parsed(self) -> tuple[tuple[Profile, ...], dict[str, PriorityClass]]:
        with self._lock:
            if self._changed.is_set():
                # Cleared first: a change that comes while we parse is seen by the next request.
                self._changed.clear()
                self._parse()
            return self._profiles, self._classes

    def _parse(self) -> None:
        unusable: dict[str, str] = {}

        def usable(raws: Sequence[dict[str, Any]], parse: Callable[[dict[str, Any]], Any]) -> list[Any]:
            found = []
            for raw in raws:
                try:
                    found.append(parse(raw))
                except InputError as error:
                    unusable[str(error)] = str(raw.get("metadata", {}).get("name"))
            return found

        profiles = usable(
            [raw for source in self._profile_sources for raw in source.objects()], lambda raw: parse_profile(raw)[0]
        )
        refused_profiles = len(unusable)
        classes = usable(self._class_source.objects(), parse_priority_class)
        for problem, name in unusable.items():
            if problem not in self._unusable:
                _LOG.warning("object cannot be used and counts as absent", extra=kv(name=name, problem=problem))
        self._unusable = unusable
        self._profiles = tuple(profiles)
        self._classes = {known.name: known for known in classes}
        self._usable.labels("yes").set(len(profiles))
        self._usable.labels("no").set(refused_profiles)
