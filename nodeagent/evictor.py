"""One round of evictions: survey, choose, ask, and choose again without those that were refused.

Runs in a worker thread on values and gives values back; the loop keeps what is remembered between rounds.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final

from nodeagent import act
from nodeagent.decide import evict
from nodeagent.metrics import Metrics
from nodeagent.observe import ApiObserver
from nodeagent.settings import Settings
from nodeagent.survey import Survey, Surveyor
from slackwater import victims
from slackwater.adapters.kube import KubeClient
from slackwater.adapters.logs import kv
from slackwater.pod import PodView
from slackwater.victims import EvictionPlan, Victim, choose

_LOG = logging.getLogger("slackwater.nodeagent.evictor")
_REFUSED_FOR_S: Final = 5.0
"""How long a pod is left alone after a 429 that names no time."""
_FAILED_FOR_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Gone:
    """A pod whose eviction was accepted, and the rule that asked for it."""

    pod: PodView
    reason: str


class Evictor:
    """Evicts through the API server. One round at a time."""

    def __init__(
        self,
        client: KubeClient,
        settings: Settings,
        surveyor: Surveyor,
        api: ApiObserver,
        speaker: act.Speaker,
        metrics: Metrics,
    ) -> None:
        self._client = client
        self._settings = settings
        self._surveyor = surveyor
        self._api = api
        self._speaker = speaker
        self._metrics = metrics

    def round(self, rounds: evict.Rounds, over_since_s: float | None) -> tuple[evict.Rounds, Sequence[Gone]]:
        """Evict until what is needed is on its way, at most the burst; blocks.

        Args:
            over_since_s: monotonic seconds when the threshold was seen crossed, for the metric.

        Raises:
            Unavailable: the node cannot be surveyed now.
        """
        gone: list[Gone] = []
        while len(gone) < victims.DEFAULT_BURST:
            survey = self._surveyor.survey(rounds)
            rounds = evict.pruned(rounds, survey.pods, survey.at_s)
            plan = self._choose(survey, rounds, victims.DEFAULT_BURST - len(gone))
            if not plan.victims:
                self._speaker.once("nobody goes", "", partial(_LOG.warning, "%s", plan.message))
                break
            pods = {pod.uid: pod for pod in survey.pods}
            outcomes = set()
            for victim in plan.victims:
                outcome, rounds = self._evict(pods[victim.uid], victim, plan, rounds)
                outcomes.add(outcome)
                if outcome is act.Outcome.EVICTED:
                    gone.append(Gone(pods[victim.uid], victim.reason))
                    if over_since_s is not None:
                        self._metrics.reaction.observe(time.monotonic() - over_since_s)
                elif outcome is act.Outcome.FAILED:
                    return rounds, gone  # the API server is away or refuses us: the next victim would fare no better
            if not outcomes & {act.Outcome.REFUSED, act.Outcome.GONE}:
                break
        return rounds, gone

    def _choose(self, survey: Survey, rounds: evict.Rounds, burst: int) -> EvictionPlan:
        return choose(
            survey.node,
            evict.without_refused(survey.pods, rounds, survey.at_s),
            survey.reading,
            survey.policy,
            self._settings.block_size,
            survey.reading.time,
            burst=burst,
            headroom=survey.headroom,
        )

    def _evict(
        self, pod: PodView, victim: Victim, plan: EvictionPlan, rounds: evict.Rounds
    ) -> tuple[act.Outcome, evict.Rounds]:
        result = act.evict(self._client, pod.namespace, pod.name, pod.uid)
        now, at_s = datetime.now(UTC), time.monotonic()
        self._metrics.evictions.labels(str(result.outcome)).inc()
        sentence = victims.event_message(pod.name, plan.node, plan.release, victim.reason)
        fields = kv(pod=pod.key, uid=pod.uid, release=plan.release, bytes=victim.bytes, detail=result.detail)
        if result.outcome is act.Outcome.EVICTED:
            self._metrics.evicted_bytes.inc(victim.bytes)
            _LOG.warning("evicted", extra=fields)
            self._speaker.event(self._api.raw_pod(pod), "evictPodSuccess", sentence, kind="Warning")
            return result.outcome, evict.after_accepted(rounds, pod, now, at_s)
        _LOG.warning("an eviction did not succeed", extra=fields)
        wait_s = _FAILED_FOR_S
        if result.outcome is act.Outcome.REFUSED:
            wait_s = result.retry_after_s or _REFUSED_FOR_S
        if result.outcome is not act.Outcome.GONE:
            failure = partial(
                self._speaker.event,
                self._api.raw_pod(pod),
                "evictPodFail",
                f"{sentence}, error: {result.detail}",
                kind="Warning",
            )
            self._speaker.once(f"fail {pod.uid}", str(result.outcome), failure)
        return result.outcome, evict.after_refused(rounds, pod.uid, at_s + wait_s)
