"""Tells pods that wait for colocation memory how much they need and how much there is, as Events.

Runs in a thread of its own beside the filter, in every replica: the Event's name keeps it single. A lost Event is made
up for at the pod's next turn; nothing here can delay or fail a filter call.
"""

import logging
import threading
from datetime import UTC, datetime
from typing import Any

from extender.decide import Snapshot, filter_nodes
from extender.explain import NOTHING_TOLD, Told, due, event_name, explain, read_waiting, render_event
from extender.metrics import Metrics
from extender.observe import Cluster
from slackwater import names
from slackwater.adapters.kube import ApiError, ApiUnavailable, Conflict, KubeClient, TooManyRequests
from slackwater.adapters.logs import kv
from slackwater.adapters.reflector import Reflector
from slackwater.errors import InputError
from slackwater.objects import object_key, text
from slackwater.pod import PodView
from slackwater.timestamps import format_time

_LOG = logging.getLogger("slackwater.extender")

_TURN_S = 3.0
_JUDGED_A_TURN = 50_000
"""Nodes judged in one turn, about 0.3 s of one core: filter calls share the interpreter with us."""
_UNBOUND_AND_PENDING = "spec.nodeName=,status.phase=Pending"


class PendingPods:
    """The best-effort pods without a node, and what each was told."""

    def __init__(self, client: KubeClient, cluster: Cluster, metrics: Metrics, block_size: int) -> None:
        self._client = client
        self._cluster = cluster
        self._metrics = metrics
        self._block_size = block_size
        self._lock = threading.Lock()
        self._pods: dict[str, PodView | None] = {}
        """By uid; None while the pod waits for something else."""
        self._told: dict[str, Told] = {}
        self._reflector = Reflector(
            client,
            "/api/v1/pods",
            label_selector=f"{names.QOS_LABEL}=BE",
            field_selector=_UNBOUND_AND_PENDING,
            on_change=self._pod_changed,
        )

    def watch(self, stop: threading.Event) -> None:
        """Begin to watch, in a thread of its own, until ``stop`` is set."""
        self._reflector.start(stop)

    def start(self, stop: threading.Event) -> None:
        """Begin to watch, and to take a turn every few seconds, in threads of their own until ``stop`` is set."""
        self.watch(stop)
        threading.Thread(target=self._run, args=(stop,), name="explain pending pods", daemon=True).start()

    def is_complete(self) -> bool:
        """Everything has been listed: before, what looks like no room may be what we do not know yet."""
        return self._reflector.synced.is_set() and not self._cluster.not_ready()

    def waiting(self) -> int:
        """Pods that the scheduler found no node for and that ask for blocks."""
        with self._lock:
            return sum(pod is not None for pod in self._pods.values())

    def turn(self, now: datetime) -> None:
        """Look at the pods that are due, and write an Event where there is something new to tell."""
        with self._lock:
            waiting = [pod for pod in self._pods.values() if pod is not None]
            self._told = {uid: told for uid, told in self._told.items() if uid in self._pods}
        pods = due(waiting, self._told, now)
        if not pods:
            return
        snapshot, avoided_since = self._cluster.view()
        # Pods of one workload ask the same question: it is answered once a turn.
        answers: dict[tuple[object, ...], str | None] = {}
        assumed = {other.uid for other in snapshot.assumed}
        for pod in pods:
            since = avoided_since.get(pod.uid)
            own = pod.uid if pod.uid in assumed else ""
            shape = (pod.blocks, pod.block_size(self._block_size), pod.owner and pod.owner.uid, since, own)
            if shape not in answers:
                if answers and (len(answers) + 1) * len(snapshot.slacks) > _JUDGED_A_TURN:
                    continue  # unseen for longest, so among the first of the next turn
                answers[shape] = self._explain(pod, snapshot, now, since)
            sentence = answers[shape]
            told = self._told.get(pod.uid, NOTHING_TOLD)
            if sentence is None or sentence == told.sentence:
                self._told[pod.uid] = told.looked(now)
                continue
            try:
                self._write(pod, sentence, again=bool(told.sentence), now=now)
            except ApiError as error:
                _LOG.warning("a pending pod could not be told", extra=kv(pod=pod.key, error=str(error)))
                self._told[pod.uid] = told.tried(sentence, now, written=False)
                if isinstance(error, ApiUnavailable | TooManyRequests):
                    return  # the others are as due in the next turn
            else:
                self._told[pod.uid] = told.tried(sentence, now, written=True)

    def _explain(self, pod: PodView, snapshot: Snapshot, now: datetime, since: datetime | None) -> str | None:
        decision = filter_nodes(pod, snapshot.slacks, snapshot, self._block_size, now, avoided_since=since)
        return explain(pod, decision, self._block_size)

    def _write(self, pod: PodView, sentence: str, *, again: bool, now: datetime) -> None:
        path = f"/api/v1/namespaces/{pod.namespace}/events"
        try:
            self._client.create(path, render_event(pod, sentence, now))
        except Conflict as error:
            if error.reason != "AlreadyExists":
                raise
            # Another replica was first, or this process before it was restarted. After a different sentence it may
            # also be an older Event that has come true again: make it the latest.
            if again:
                self._client.patch(f"{path}/{event_name(pod, sentence)}", {"lastTimestamp": format_time(now)})
        else:
            self._metrics.explained()
            _LOG.info("told a pending pod", extra=kv(pod=pod.key, uid=pod.uid, sentence=sentence))

    def _run(self, stop: threading.Event) -> None:
        while not stop.wait(_TURN_S):
            if not self.is_complete():
                continue
            try:
                self.turn(datetime.now(UTC))
            except Exception:  # noqa: BLE001  a fault must not end the explanations for the life of the process
                _LOG.exception("explaining pending pods failed")

    def _pod_changed(self, kind: str, raw: dict[str, Any]) -> None:
        pod: PodView | None = None
        uid = text(raw, "metadata", "uid")
        if kind != "DELETED":
            try:
                pod = read_waiting(raw)
            except InputError as error:
                _LOG.warning("pod cannot be read", extra=kv(pod=object_key(raw), problem=str(error)))
        with self._lock:
            if kind == "DELETED":
                self._pods.pop(uid, None)
            else:
                self._pods[uid] = pod
