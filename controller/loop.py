"""Suspend idle workloads by the policy ConfigMap: follow it, look at the objects, act on what ``decide`` says.

One turn, in this order: read the policy that holds, see which types are due (their ``scanInterval`` has passed, their
policy has changed, or somebody resumed an object), decide about each of their objects, and act. Only the leader acts;
standby replicas follow along, so that a new leader starts with everything in memory. Nothing is kept outside the
objects that a restart could lose to anybody's harm.
"""

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from controller import metrics
from controller.decide import Action, Clock, Reason, Row, decide, reaches, resume_patch, suspension_patch
from controller.kinds import KINDS, IdleKind
from slackwater import names
from slackwater.adapters.documents import load_single_document
from slackwater.adapters.kube import ApiError, ApiUnavailable, Conflict, KubeClient, NotFound, emit_event
from slackwater.adapters.logs import kv
from slackwater.adapters.reflector import Reflector
from slackwater.errors import InputError, Problem
from slackwater.objects import RawObject, mapping, string_map, text
from slackwater.policy.idle import OFF, TYPES, IdlePolicy, TypePolicy, read_policy

_LOG = logging.getLogger("slackwater.controller.idle")
_COMPONENT = "slackwater-controller"
_LONGEST_PAUSE_S = 2.0
"""Between turns when nothing wakes the loop: leadership and clocks are looked at this often."""
_UNREAD_PAUSE_S = 0.2
"""While something has not been read for the first time."""
_AFTER_CONFLICT_S = 0.5
"""By then the watch has brought the version that somebody else wrote."""
_AFTER_FAILURE_S = 10.0
"""A type's next scan after the API server refused an action or was away; never later than its ``scanInterval``."""
_STUCK_S = 300.0
"""Without a turn for this long the process is not alive. A turn over 10,000 objects takes seconds."""


class IdleController:
    """Watches the policy and the objects, and suspends. Start it once."""

    def __init__(
        self, client: KubeClient, policy_namespace: str, policy_name: str, is_leading: Callable[[], bool]
    ) -> None:
        self._client = client
        self._is_leading = is_leading
        self._wake = threading.Event()
        self._policy_key = f"{policy_namespace}/{policy_name}"
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
        self._reports: list[tuple[RawObject, str]] = []
        """Events about the policy that are not written yet: only the leader writes."""
        self._clock: Clock | None = None
        self._due_at_s: dict[str, float] = {}
        """Monotonic time of each type's next scan; a type that is absent here is due now."""
        self._turned_at_s = time.monotonic()

        self._lock = threading.Lock()
        """Guards what follows: watchers write it, the loop reads it."""
        self._suspended: set[str] = set()
        """Uids that were suspended when last seen: going from there to running is a resume."""
        self._resumed: dict[str, str] = {}
        """Uid of an object that somebody has just resumed → its annotation ``resumed-at`` then (``""`` = none). The
        resume is on record, by whichever leader, once the annotation says something else."""
        self._poked: set[str] = set()
        """Types that are due because somebody resumed an object."""

    def start(self, stop: threading.Event) -> threading.Thread:
        """Follow the cluster and run turns in a thread until ``stop`` is set."""
        for reflector in (self._config_maps, self._namespaces, *self._objects.values()):
            reflector.start(stop)
        thread = threading.Thread(target=self._run, args=(stop,), name="idle", daemon=True)
        thread.start()
        return thread

    def problems(self) -> list[str]:
        """What keeps this replica from being ready. A kind that cannot be read is no reason: the others go on."""
        watched = (self._config_maps, self._namespaces)
        return [f"{reflector.path} has not been read yet" for reflector in watched if not reflector.synced.is_set()]

    def stuck(self) -> list[str]:
        """Why this process should be restarted; nothing while turns go on."""
        age_s = time.monotonic() - self._turned_at_s
        return [f"the idle loop has made no turn for {age_s:.0f} s"] if age_s > _STUCK_S else []

    def _run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self._wake.clear()
            pause_s = _UNREAD_PAUSE_S
            try:
                if self._config_maps.synced.is_set():
                    pause_s = self.turn(datetime.now(UTC), time.monotonic())
            except Exception:  # noqa: BLE001  one bad turn must not end the loop; logged and counted
                metrics.FAILURES.labels("idle").inc()
                _LOG.exception("a turn failed, the next one follows")
            self._turned_at_s = time.monotonic()
            self._wake.wait(max(0.05, min(pause_s, _LONGEST_PAUSE_S)))

    # -- one turn -----------------------------------------------------------------------------------------------

    def turn(self, wall: datetime, now_s: float) -> float:
        """One turn; the seconds until the next type is due. ``wall`` is the clock's time, ``now_s`` monotonic."""
        now = self._steady_time(wall, now_s)
        self._follow_policy()
        leading = self._is_leading()
        metrics.LEADER.set(leading)
        if not leading:
            self._due_at_s.clear()  # a new leader looks at everything at once
            return _LONGEST_PAUSE_S
        self._report_policy()
        with self._lock:
            poked, self._poked = self._poked, set()
        for name in poked:
            self._due_at_s.pop(name, None)
        longest_s = _LONGEST_PAUSE_S
        for kind in KINDS:
            policy = self._policy.types.get(kind.policy_type)
            if policy is None or now_s < self._due_at_s.get(kind.policy_type, now_s):
                continue
            if not self._is_readable(kind, policy):
                # Stays due: a CRD that is installed later is looked at as soon as it is there.
                longest_s = longest_s if self._objects[kind.policy_type].absent else _UNREAD_PAUSE_S
                continue
            self._due_at_s[kind.policy_type] = now_s + self._scan(kind, policy, now)
        waits = [due_s - now_s for name, due_s in self._due_at_s.items() if name in self._policy.types]
        return min([*waits, longest_s])

    def _steady_time(self, wall: datetime, now_s: float) -> datetime:
        before = self._clock
        self._clock = Clock(wall, now_s) if before is None else before.advance(wall, now_s)
        ahead_s = (wall - self._clock.now).total_seconds()
        metrics.CLOCK_AHEAD_SECONDS.set(ahead_s)
        if ahead_s and (before is None or before.ahead_since_s is None):
            _LOG.warning("the clock leapt ahead, going on without the leap for now", extra=kv(seconds=ahead_s))
        return self._clock.now

    def _is_readable(self, kind: IdleKind, policy: TypePolicy) -> bool:
        objects = self._objects[kind.policy_type]
        readable = objects.synced.is_set() and not objects.absent
        metrics.KIND_READABLE.labels(kind.kind).set(readable)
        return readable and (policy.all_namespaces or self._namespaces.synced.is_set())

    def _scan(self, kind: IdleKind, policy: TypePolicy, now: datetime) -> float:
        """Decide about every object of one kind, and act; the seconds until its next scan.

        One object's failure does not stop the others, unless the API server is away for all of them.
        """
        started_s = time.monotonic()
        next_s = float(policy.scan_interval_s)
        counts: dict[str, int] = {reason.value: 0 for reason in Reason}
        for raw in self._objects[kind.policy_type].objects():
            try:
                if not reaches(policy, self._labels_of(text(raw, "metadata", "namespace"))):
                    continue
                row = decide(kind, policy, raw, now, seen_suspended=self._was_resumed(raw))
                counts[row.reason.value] += 1
                self._act(kind, policy, raw, row, now)
            except Conflict:
                # It changed after we looked: the watch brings the new version, and it is decided on anew.
                next_s = min(next_s, _AFTER_CONFLICT_S)
                metrics.CONFLICTS.labels(kind.kind).inc()
                _LOG.info("object changed meanwhile, deciding again", extra=kv(object=_named(kind, raw)))
            except NotFound:
                _LOG.info("object is gone", extra=kv(object=_named(kind, raw)))
            except ApiError as error:
                next_s = min(next_s, _AFTER_FAILURE_S)
                metrics.SUSPENSIONS.labels(kind.kind, "failed").inc()
                _LOG.warning("cannot act on an object", extra=kv(object=_named(kind, raw), error=str(error)))
                if isinstance(error, ApiUnavailable):
                    break
            except Exception:  # noqa: BLE001  a broken object must not keep the others from their turn
                metrics.FAILURES.labels("idle").inc()
                _LOG.exception("cannot decide about an object", extra=kv(object=_named(kind, raw)))
        for reason, count in counts.items():
            metrics.OBJECTS.labels(kind.kind, reason).set(count)
        metrics.SCAN_SECONDS.labels(kind.kind).set(time.monotonic() - started_s)
        return next_s

    def _labels_of(self, namespace: str) -> dict[str, str] | None:
        raw = self._namespaces.get(namespace)
        return None if raw is None else string_map(raw, "metadata", "labels")

    def _act(self, kind: IdleKind, policy: TypePolicy, raw: dict[str, Any], row: Row, now: datetime) -> None:
        path = kind.object_path(row.namespace, row.name)
        if not self._is_leading():
            return
        if row.records_resume:
            self._client.patch(path, resume_patch(raw, now))
            with self._lock:
                self._resumed.pop(text(raw, "metadata", "uid"), None)
                self._suspended.discard(text(raw, "metadata", "uid"))
            metrics.RESUMES.labels(kind.kind).inc()
            _LOG.info("resumed by a person", extra=kv(object=_named(kind, raw), due_at=row.due_at))
        elif row.action is Action.SUSPEND:
            written = self._client.patch(path, suspension_patch(raw, row, policy, now))
            metrics.SUSPENSIONS.labels(kind.kind, "suspended").inc()
            _LOG.info("suspended", extra=kv(object=_named(kind, raw), why=row.message))
            message = f"Suspended {_named(kind, raw)}: {row.message}"
            self._tell(
                {"apiVersion": kind.api_version, "kind": kind.kind, **written},
                reason="Suspended", message=message, severity="Normal",
            )  # fmt: skip

    def _tell(self, regarding: RawObject, *, reason: str, message: str, severity: str) -> None:
        """Write an Event. The log has said the same: without it nothing is lost."""
        try:
            emit_event(self._client, regarding, reason=reason, message=message, component=_COMPONENT, kind=severity)
        except ApiError as error:
            metrics.FAILURES.labels("event").inc()
            _LOG.warning("Event cannot be written", extra=kv(reason=reason, error=str(error)))

    # -- resumes, as the watches show them ----------------------------------------------------------------------

    def _was_resumed(self, raw: RawObject) -> bool:
        """The object has gone from suspended to running in our sight, and nobody has put that on record yet."""
        uid = text(raw, "metadata", "uid")
        with self._lock:
            return uid in self._resumed or uid in self._suspended

    def _watcher_of(self, kind: IdleKind) -> Callable[[str, dict[str, Any]], None]:
        """Notices resumes as they happen; everything else waits for the next scan."""

        def watch(event: str, raw: dict[str, Any]) -> None:
            uid = text(raw, "metadata", "uid")
            recorded = text(raw, "metadata", "annotations", names.RESUMED_AT_ANNOTATION)
            with self._lock:
                if event == "DELETED" or mapping(raw, "spec").get("suspend") is True:
                    self._resumed.pop(uid, None)
                    self._suspended.discard(uid)
                    if event != "DELETED":
                        self._suspended.add(uid)
                    return
                if self._resumed.get(uid, recorded) != recorded:
                    del self._resumed[uid]
                if uid not in self._suspended:
                    return
                self._suspended.discard(uid)
                self._resumed[uid] = recorded
                self._poked.add(kind.policy_type)
            self._wake.set()

        return watch

    # -- the policy ---------------------------------------------------------------------------------------------

    def _follow_policy(self) -> None:
        config_map = self._config_maps.get(self._policy_key)
        version = "" if config_map is None else text(config_map, "metadata", "resourceVersion")
        if version == self._policy_version:
            return
        self._policy_version = version
        self._reports.clear()
        data = {} if config_map is None else string_map(config_map, "data")
        if config_map is None or names.IDLE_POLICY_KEY not in data:
            missing = self._policy_key if config_map is None else f"{self._policy_key}: data.{names.IDLE_POLICY_KEY}"
            _LOG.info("there is no idle policy, nothing is suspended", extra=kv(missing=missing))
            _count_validity({})
            self._take(OFF)
            return
        where = f"{self._policy_key}: {names.IDLE_POLICY_KEY}"
        try:
            reading = read_policy(load_single_document(data[names.IDLE_POLICY_KEY], where), where)
        except InputError as error:
            _count_validity({"text": error.problems})
            self._refuse(config_map, error.problems, "the last good policy goes on")
            return
        _count_validity(reading.broken)
        for name, problems in reading.broken.items():
            goes_on = "keeps its last good policy" if name in self._policy.types else "stays switched off"
            self._refuse(config_map, problems, f"type {name} {goes_on}")
        for problem in reading.warnings:
            _LOG.warning("idle policy has a doubtful part", extra=kv(problem=str(problem)))
        self._take(reading.over(self._policy))

    def _take(self, policy: IdlePolicy) -> None:
        """Switch to ``policy``, type by type; a type that did not change keeps its timer."""
        before, self._policy = self._policy, policy
        for kind in KINDS:
            name = kind.policy_type
            old, new = before.types.get(name), policy.types.get(name)
            if old == new:
                _LOG.info("policy of this type is unchanged, nothing to do", extra=kv(type=name, policy=_shown(new)))
                continue
            self._due_at_s.pop(name, None)
            _LOG.info("policy of this type changed", extra=kv(type=name, before=_shown(old), now=_shown(new)))
            if new is None:
                for reason in Reason:
                    metrics.OBJECTS.labels(kind.kind, reason.value).set(0)

    def _refuse(self, config_map: RawObject, problems: tuple[Problem, ...], consequence: str) -> None:
        sentence = "; ".join(map(str, problems))
        _LOG.error("idle policy cannot be used", extra=kv(problems=sentence, consequence=consequence))
        self._reports.append((config_map, f"{sentence}; {consequence}"))

    def _report_policy(self) -> None:
        reports, self._reports = self._reports, []
        for config_map, message in reports:
            regarding = {**config_map, "apiVersion": "v1", "kind": "ConfigMap"}
            self._tell(regarding, reason="IdlePolicyInvalid", message=message, severity="Warning")


def _count_validity(broken: dict[str, Any] | Any) -> None:
    for part in ("text", *TYPES):
        metrics.POLICY_VALID.labels(part).set(part not in broken)


def _named(kind: IdleKind, raw: RawObject) -> str:
    return f"{kind.kind} {text(raw, 'metadata', 'namespace')}/{text(raw, 'metadata', 'name')}"


def _shown(policy: TypePolicy | None) -> str:
    return "off" if policy is None else str(policy)
