"""The extender's metrics. The overview dashboard uses these names."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from extender.decide import FilterDecision, Verdict

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0)
"""From a lookup of one node to the 2 s at which the scheduler gives up."""
RESULTS = ("fit", "none", "error")


class Metrics:
    """All of them, in one registry."""

    def __init__(
        self, registry: CollectorRegistry, *, known_nodes: Callable[[], float], assumed_pods: Callable[[], float]
    ) -> None:
        self.requests = Counter(
            "slackwater_filter_requests_total",
            "Filter calls of the scheduler: fit (a node was found), none, error (the call could not be answered).",
            ["result"],
            registry=registry,
        )
        self.nodes = Counter(
            "slackwater_filter_nodes_total", "Nodes judged in filter calls.", ["verdict"], registry=registry
        )
        self.gave_way = Counter(
            "slackwater_filter_avoidance_gave_way_total",
            "Calls in which a pod was let onto a node that its owner avoids, because no other node fitted.",
            registry=registry,
        )
        self.seconds = Histogram(
            "slackwater_filter_seconds", "Time to answer a filter call.", buckets=_SECONDS, registry=registry
        )
        self.explanations = Counter(
            "slackwater_pending_explanations_total",
            "Events that this process wrote on pending pods: no node has the colocation memory that they ask for.",
            registry=registry,
        )
        known = Gauge("slackwater_filter_known_nodes", "Nodes whose NodeSlack can be read.", registry=registry)
        known.set_function(known_nodes)
        assumed = Gauge("slackwater_filter_assumed_pods", "Pods let through and not seen bound yet.", registry=registry)
        assumed.set_function(assumed_pods)
        for result in RESULTS:
            self.requests.labels(result)
        for verdict in Verdict:
            self.nodes.labels(verdict.value)

    def answered(self, decision: FilterDecision, seconds: float) -> None:
        """One call that was decided."""
        self.requests.labels("fit" if decision.fit else "none").inc()
        for verdict, count in decision.verdicts.items():
            self.nodes.labels(verdict.value).inc(count)
        if decision.gave_way:
            self.gave_way.inc()
        self.seconds.observe(seconds)

    def explained(self) -> None:
        """One Event was written on a pending pod."""
        self.explanations.inc()

    def refused(self) -> None:
        """One call that could not be answered."""
        self.requests.labels("error").inc()
