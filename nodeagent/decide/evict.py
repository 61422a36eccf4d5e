"""When an eviction round may run, and what is remembered between rounds. :mod:`slackwater.victims` chooses who goes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from slackwater.cgroup.parse import MachineMemory
from slackwater.nodeslack import Avoidance
from slackwater.pod import PodView
from slackwater.policy.colocation import EvictionStrategy


@dataclass(frozen=True, slots=True)
class Rounds:
    """What eviction rounds have done so far on this node."""

    evicted: Mapping[str, datetime]
    """uid → when the pod's grace period ends, for pods whose eviction was accepted."""
    refused_until_s: Mapping[str, float]
    """uid → monotonic seconds until when asking again is useless (a PodDisruptionBudget)."""
    acted_at_s: float | None = None
    """Monotonic seconds of the last accepted eviction."""

    @staticmethod
    def none() -> "Rounds":
        return Rounds({}, {})


def is_over(memory: MachineMemory, eviction: EvictionStrategy) -> bool:
    """Whether use has reached the eviction threshold; exact, as the choice of victims compares."""
    return eviction.enabled and memory.used * 100 >= eviction.threshold_percent * memory.capacity


def is_cooling(rounds: Rounds, at_s: float, cooling_s: float) -> bool:
    """Whether the last eviction is so recent that its effect must be seen first."""
    return rounds.acted_at_s is not None and at_s - rounds.acted_at_s < cooling_s


def with_evicted(pods: Iterable[PodView], rounds: Rounds) -> tuple[PodView, ...]:
    """The pods, those as terminating whose eviction was accepted, even before the API server's watch shows it."""
    return tuple(
        replace(pod, deleted_at=rounds.evicted[pod.uid])
        if pod.deleted_at is None and pod.uid in rounds.evicted
        else pod
        for pod in pods
    )


def without_refused(pods: Iterable[PodView], rounds: Rounds, at_s: float) -> tuple[PodView, ...]:
    """The pods that may be chosen now: not those whose eviction has just been refused."""
    return tuple(pod for pod in pods if rounds.refused_until_s.get(pod.uid, at_s) <= at_s)


def after_accepted(rounds: Rounds, pod: PodView, now: datetime, at_s: float) -> Rounds:
    """An eviction was accepted."""
    leaves_at = now + timedelta(seconds=30 if pod.grace_seconds is None else pod.grace_seconds)
    return replace(rounds, evicted={**rounds.evicted, pod.uid: leaves_at}, acted_at_s=at_s)


def after_refused(rounds: Rounds, uid: str, until_s: float) -> Rounds:
    """An eviction was refused, or the pod turned out to be gone: leave it out until then."""
    return replace(rounds, refused_until_s={**rounds.refused_until_s, uid: until_s})


def pruned(rounds: Rounds, pods: Iterable[PodView], at_s: float) -> Rounds:
    """Without pods that no longer exist and refusals that are over."""
    uids = {pod.uid for pod in pods}
    return replace(
        rounds,
        evicted={uid: until for uid, until in rounds.evicted.items() if uid in uids},
        refused_until_s={uid: until for uid, until in rounds.refused_until_s.items() if until > at_s},
    )


def avoid(avoiding: Sequence[Avoidance], owner: str, until: datetime, reason: str) -> tuple[Avoidance, ...]:
    """With ``owner`` staying away at least until then; one entry per owner."""
    others = tuple(entry for entry in avoiding if entry.owner != owner)
    latest = max([until, *(entry.until for entry in avoiding if entry.owner == owner)])
    return (*others, Avoidance(owner, latest, reason))


def still_avoiding(avoiding: Iterable[Avoidance], now: datetime) -> tuple[Avoidance, ...]:
    """Entries whose time has not come, soonest first."""
    return tuple(
        sorted((entry for entry in avoiding if entry.until > now), key=lambda entry: (entry.until, entry.owner))
    )
