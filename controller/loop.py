"""Suspend idle workloads by the policy ConfigMap: follow it, look at the objects, act on what ``decide`` says.

One turn, in this order: read the policy that holds, see which types are due (their ``scanInterval`` has passed, their
policy has changed, or somebody resumed an object), decide about each of their objects, and act. Only the leader acts;
standby replicas follow along, so that a new leader starts with everything in memory.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from controller import metrics
from controller.decide import Action, Reason, Row, decide, reaches, resume_patch, suspension_patch
from controller.kinds import KINDS, IdleKind
from slackwater import names
from slackwater.adapters.documents import load_single_document
from slackwater.adapters.kube import ApiError, Conflict, KubeClient, NotFound, emit_event
from slackwater.adapters.logs import kv
from slackwater.adapters.reflector import Reflector
from slackwater.errors import InputError, Problem
from slackwater.objects import mapping, string_map, text
from slackwater.policy.idle import OFF, TYPES, IdlePolicy, TypePolicy, read_policy

_LOG = logging.getLogger("slackwater.controller.idle")
_COMPONENT = "slackwater-controller"
_LONGEST_PAUSE_S = 2.0
"""Between turns when nothing wakes the loop: leadership and clocks are looked at this often."""


class IdleController:
    """Watches the policy and the objects, and suspends. Start it once."""

    def __init__(
        self, client: KubeClient, policy_namespace: str, policy_name: str, is_leading: Callable[[], bool]
    ) -> None:
        self._client = client
        self._is_leading = is_leading
        self._wake = threading.Event()
        self._policy_path = f"{policy_namespace}/{policy_name}"
        self._config_maps = Reflector(
            client,
            f"/api/v1/namespaces/{policy_namespace}/configmaps",
            field_selector=f"metadata.name={policy_name}",
            on_change=lambda _type, _object: self._wake.set(),
        )
        self._namespaces = Reflector(client, "/api/v1/namespaces")
        self._objects = {
            kind.policy_type: Reflector(client, kind.collection_path, on_change=self._watcher_of(kind))
            for kind in KINDS
        }
        self._policy = OFF
        self._policy_version: str | None = None
        self._due_at_s: dict[str, float] = {}
        """Monotonic time of each type's next scan; a type that is absent here is due now."""
        self._suspended: dict[str, set[str]] = {kind.policy_type: set() for kind in KINDS}
        """Uids that were suspended when last seen: going from there to running is a resume."""
        self._resumed: set[str] = set()
        """Uids of objects that somebody has just resumed, until that is written on them."""
        self._lock = threading.Lock()
        """Guards the two sets above: watchers write them, the loop reads them."""

    def start(self, stop: threading.Event) -> None:
        """Follow the cluster and run turns in a thread until ``stop`` is set."""
        for reflector in (self._config_maps, self._namespaces, *self._objects.values()):
            reflector.start(stop)
        threading.Thread(target=self._run, args=(stop,), name="idle", daemon=True).start()

    def problems(self) -> list[str]:
        """What keeps this replica from being ready."""
        watched = (self._config_maps, self._namespaces, *self._objects.values())
        return [f"{reflector.path} has not been read yet" for reflector in watched if not reflector.synced.is_set()]

    def _run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self._wake.clear()
            pause_s = _LONGEST_PAUSE_S
            try:
                if not self.problems():
                    pause_s = self.turn(datetime.now(UTC), time.monotonic())
            except Exception:  # noqa: BLE001  one bad turn must not end the loop; logged and counted
                metrics.FAILURES.labels("idle").inc()
                _LOG.exception("a turn failed, the next one follows")
            self._wake.wait(max(0.05, min(pause_s, _LONGEST_PAUSE_S)))

    # -- one turn -----------------------------------------------------------------------------------------------

    def turn(self, now: datetime, now_s: float) -> float:
        """One turn; the seconds until the next type is due. ``now_s`` is monotonic."""
        self._follow_policy()
        leading = self._is_leading()
        metrics.LEADER.set(leading)
        if not leading:
            self._due_at_s.clear()  # a new leader looks at everything at once
            return _LONGEST_PAUSE_S
        for kind in KINDS:
            policy = self._policy.types.get(kind.policy_type)
            if policy is None or now_s < self._due_at_s.get(kind.policy_type, now_s):
                continue
            if self._objects[kind.policy_type].absent:
                continue  # stays due: a CRD that is installed later is looked at as soon as it is there
            self._due_at_s[kind.policy_type] = now_s + policy.scan_interval_s
            self._scan(kind, policy, now)
        waits = [due_s - now_s for name, due_s in self._due_at_s.items() if name in self._policy.types]
        return min(waits, default=_LONGEST_PAUSE_S)

    def _scan(self, kind: IdleKind, policy: TypePolicy, now: datetime) -> None:
        """Decide about every object of one kind, and act. One object's failure does not stop the others."""
        started_s = time.monotonic()
        counts: dict[str, int] = {reason.value: 0 for reason in Reason}
        for raw in self._objects[kind.policy_type].objects():
            namespace = self._namespaces.get(text(raw, "metadata", "namespace"))
            labels = None if namespace is None else string_map(namespace, "metadata", "labels")
            if not reaches(policy, labels):
                continue
            uid = text(raw, "metadata", "uid")
            with self._lock:
                resumed = uid in self._resumed
            row = decide(kind, policy, raw, now, seen_suspended=resumed)
            counts[row.reason.value] += 1
            try:
                self._act(kind, policy, raw, row, now)
            except ApiError as error:
                metrics.SUSPENSIONS.labels(kind.kind, "failed").inc()
                _LOG.warning("cannot act on an object", extra=kv(object=_named(kind, row), error=str(error)))
        for reason, count in counts.items():
            metrics.OBJECTS.labels(kind.kind, reason).set(count)
        metrics.SCAN_SECONDS.labels(kind.kind).set(time.monotonic() - started_s)

    def _act(self, kind: IdleKind, policy: TypePolicy, raw: dict[str, Any], row: Row, now: datetime) -> None:
        path = kind.object_path(row.namespace, row.name)
        try:
            if row.records_resume:
                self._client.patch(path, resume_patch(raw, now))
                with self._lock:
                    self._resumed.discard(text(raw, "metadata", "uid"))
                metrics.RESUMES.labels(kind.kind).inc()
                _LOG.info("resumed by a person", extra=kv(object=_named(kind, row), due_at=row.due_at))
            elif row.action is Action.SUSPEND and self._is_leading():
                self._client.patch(path, suspension_patch(raw, row, policy, now))
                metrics.SUSPENSIONS.labels(kind.kind, "suspended").inc()
                _LOG.info("suspended", extra=kv(object=_named(kind, row), why=row.message))
                regarding = {"apiVersion": kind.api_version, "kind": kind.kind, **raw}
                message = f"Suspended {kind.kind} {row.namespace}/{row.name}: {row.message}"
                emit_event(self._client, regarding, reason="Suspended", message=message, component=_COMPONENT)
        except Conflict:
            # It changed after we looked: the watch brings the new version, and it is decided on anew.
            _LOG.info("object changed meanwhile, deciding again", extra=kv(object=_named(kind, row)))
            self._due_at_s.pop(kind.policy_type, None)
        except NotFound:
            _LOG.info("object is gone", extra=kv(object=_named(kind, row)))

    def _watcher_of(self, kind: IdleKind) -> Callable[[str, dict[str, Any]], None]:
        """Notices resumes as they happen; everything else waits for the next scan."""

        def watch(event: str, raw: dict[str, Any]) -> None:
            uid = text(raw, "metadata", "uid")
            known = self._suspended[kind.policy_type]
            with self._lock:
                if event == "DELETED":
                    known.discard(uid)
                    self._resumed.discard(uid)
                    return
                if mapping(raw, "spec").get("suspend") is True:
                    known.add(uid)
                    self._resumed.discard(uid)
                    return
                if uid not in known:
                    return
                known.discard(uid)
                self._resumed.add(uid)
            self._due_at_s.pop(kind.policy_type, None)
            self._wake.set()

        return watch

    # -- the policy ---------------------------------------------------------------------------------------------

    def _follow_policy(self) -> None:
        config_map = self._config_maps.get(self._policy_path)
        version = "" if config_map is None else text(config_map, "metadata", "resourceVersion")
        if version == self._policy_version:
            return
        self._policy_version = version
        data = {} if config_map is None else string_map(config_map, "data")
        if config_map is None or names.IDLE_POLICY_KEY not in data:
            missing = self._policy_path if config_map is None else f"{self._policy_path}: data.{names.IDLE_POLICY_KEY}"
            _LOG.info("there is no idle policy, nothing is suspended", extra=kv(missing=missing))
            self._take(OFF)
            return
        where = f"{self._policy_path}: {names.IDLE_POLICY_KEY}"
        try:
            reading = read_policy(load_single_document(data[names.IDLE_POLICY_KEY], where), where)
        except InputError as error:
            metrics.POLICY_VALID.labels("text").set(0)
            self._report(config_map, list(error.problems), "the last good policy goes on")
            return
        metrics.POLICY_VALID.labels("text").set(1)
        for name in TYPES:
            metrics.POLICY_VALID.labels(name).set(name not in reading.broken)
        for name, problems in reading.broken.items():
            goes_on = "keeps its last good policy" if name in self._policy.types else "stays switched off"
            self._report(config_map, list(problems), f"type {name} {goes_on}")
        for problem in reading.warnings:
            _LOG.warning("idle policy has a doubtful part", extra=kv(problem=str(problem)))
        self._take(reading.over(self._policy))

    def _take(self, policy: IdlePolicy) -> None:
        """Switch to ``policy``, type by type; a type that did not change keeps its timer."""
        before, self._policy = self._policy, policy
        for name in TYPES:
            old, new = before.types.get(name), policy.types.get(name)
            if old == new:
                _LOG.info("policy of this type is unchanged, nothing to do", extra=kv(type=name, policy=str(new)))
                continue
            self._due_at_s.pop(name, None)
            _LOG.info("policy of this type changed", extra=kv(type=name, before=str(old), now=str(new)))

    def _report(self, config_map: Mapping[str, Any], problems: list[Problem], consequence: str) -> None:
        sentence = "; ".join(map(str, problems))
        _LOG.error("idle policy cannot be used", extra=kv(problems=sentence, consequence=consequence))
        if not self._is_leading():
            return
        regarding = {**config_map, "apiVersion": "v1", "kind": "ConfigMap"}
        message = f"{sentence}; {consequence}"
        try:
            emit_event(
                self._client, regarding, reason="IdlePolicyInvalid", message=message, component=_COMPONENT,
                kind="Warning",
            )  # fmt: skip
        except ApiError as error:
            _LOG.warning("Event cannot be written", extra=kv(error=str(error)))


def _named(kind: IdleKind, row: Row) -> str:
    return f"{kind.kind} {row.namespace}/{row.name}"
