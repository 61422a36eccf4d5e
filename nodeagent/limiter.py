"""Keeping colocated pods' memory limits as their blocks say. Runs in a worker thread, once a second."""

import logging
import time
from functools import partial

from nodeagent import act
from nodeagent.decide import limits
from nodeagent.metrics import Metrics
from nodeagent.observe import ApiObserver, LimitObserver, PodLimits
from nodeagent.settings import Settings
from slackwater.adapters.cgroups import CgroupTree, LimitRefused, Vanished
from slackwater.adapters.logs import kv
from slackwater.errors import Unavailable
from slackwater.pod import PodView

_LOG = logging.getLogger("slackwater.nodeagent.limiter")


class Limiter:
    """Compares and repairs; only ever writes a limit that differs. Not shared between threads."""

    def __init__(
        self, settings: Settings, api: ApiObserver, tree: CgroupTree, speaker: act.Speaker, metrics: Metrics
    ) -> None:
        self._settings = settings
        self._api = api
        self._tree = tree
        self._observer = LimitObserver(tree)
        self._expected: dict[str, tuple[PodView, dict[str, int]]] = {}
        """uid → the pod as it was last seen, and its limits: few pods change from one second to the next."""
        self._speaker = speaker
        self._metrics = metrics

    def check(self) -> None:
        """Look at every colocated pod once. Pods are known from the API server, also while that is away."""
        if not self._api.synced:
            return
        pods = self._api.pods()
        before = self._expected
        self._expected = {
            pod.uid: known
            if (known := before.get(pod.uid)) is not None and known[0] is pod
            else (pod, limits.expected_limits(pod, self._settings.block_size))
            for pod in pods
        }
        colocated = [pod for pod in pods if self._expected[pod.uid][1]]
        for found in self._observer.look(colocated, time.monotonic()):
            for repair in limits.repairs(self._expected[found.pod.uid][1], found.observed):
                self._repair(found, repair)

    def _repair(self, found: PodLimits, repair: limits.Repair) -> None:
        pod = found.pod
        fields = kv(pod=pod.key, container=repair.container, expected=repair.expected, actual=repair.actual)
        try:
            self._tree.set_limit(found.paths[repair.container], repair.expected)
        except Vanished:
            return
        except LimitRefused as error:
            self._metrics.repair_failures.labels("refused").inc()
            warning = partial(_LOG.warning, "a limit was not lowered: %s", error, extra=fields)
            self._speaker.once(f"refused {pod.uid}", repair.container, warning)
        except Unavailable as error:
            self._metrics.repair_failures.labels("failed").inc()
            warning = partial(_LOG.warning, "a limit was not repaired: %s", error, extra=fields)
            self._speaker.once(f"failed {pod.uid}", repair.container, warning)
        else:
            self._metrics.repairs.inc()
            _LOG.warning("limit repaired", extra=fields)
            sentence = limits.repair_message(pod, repair)
            event = partial(
                self._speaker.event, self._api.raw_pod(pod), "MemoryLimitRepaired", sentence, kind="Warning"
            )
            self._speaker.once(f"repair {pod.uid}", repair.container, event)
