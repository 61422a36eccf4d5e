"""The node agent's metrics. The overview dashboard and the alerts use these names."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from slackwater.headroom import Headroom
from slackwater.ledger import Ledger, State
from slackwater.pod import PodView
from slackwater.reading import MemoryReading
from slackwater.victims import EvictionPlan

_SHORT = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)
_REACTION = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0)


class Metrics:
    """All of them, in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.memory = Gauge("slackwater_node_memory_bytes", "Terms of the node's sum.", ["term"], registry=registry)
        self.numa_memory = Gauge(
            "slackwater_numa_memory_bytes", "Memory of each NUMA node.", ["numa", "term"], registry=registry
        )
        self.colocated_memory = Gauge(
            "slackwater_colocated_memory_bytes", "What best-effort pods use.", registry=registry
        )
        self.pods = Gauge("slackwater_pods", "Unfinished pods of the node by class.", ["class"], registry=registry)
        self.blocks = Gauge("slackwater_blocks", "Blocks by state.", ["state"], registry=registry)
        self.block_size = Gauge("slackwater_block_size_bytes", "Bytes of one block.", registry=registry)
        self.lending = Gauge("slackwater_lending", "1 where this node lends.", registry=registry)
        self.release = Gauge(
            "slackwater_eviction_release_bytes", "Memory that has to be released now.", registry=registry
        )
        self.threshold = Gauge(
            "slackwater_eviction_threshold_bytes",
            "Use at which pods are evicted; 0 = eviction is off.",
            registry=registry,
        )
        self.evictions = Counter(
            "slackwater_evictions_total",
            "Evictions asked for: evicted, refused (429), gone, failed.",
            ["result"],
            registry=registry,
        )
        self.evicted_bytes = Counter(
            "slackwater_evicted_bytes_total", "What evicted pods used when they were chosen.", registry=registry
        )
        self.reaction = Histogram(
            "slackwater_eviction_reaction_seconds",
            "From seeing the threshold crossed to an accepted eviction.",
            buckets=_REACTION,
            registry=registry,
        )
        self.repairs = Counter(
            "slackwater_limit_repairs_total", "Memory limits of colocated pods that were put back.", registry=registry
        )
        self.repair_failures = Counter(
            "slackwater_limit_repair_failures_total",
            "Limits that could not be put back: refused (more is in use), failed.",
            ["result"],
            registry=registry,
        )
        self.reading_age = Gauge(
            "slackwater_reading_age_seconds", "Age of the newest whole reading; -1 before the first.", registry=registry
        )
        self.reading_failures = Counter(
            "slackwater_reading_failures_total", "Files that could not be read.", ["source"], registry=registry
        )
        self.registrations = Counter(
            "slackwater_device_plugin_registrations_total",
            "Registrations with the kubelet: success, failure.",
            ["result"],
            registry=registry,
        )
        self.streams = Gauge(
            "slackwater_device_plugin_streams", "Open ListAndWatch streams; 1 is right.", registry=registry
        )
        self.updates = Counter(
            "slackwater_device_plugin_updates_total", "Device lists sent to the kubelet.", registry=registry
        )
        self.plugin_seconds = Histogram(
            "slackwater_device_plugin_request_seconds",
            "Time to answer the kubelet.",
            ["method"],
            buckets=_SHORT,
            registry=registry,
        )
        self.loop_seconds = Histogram(
            "slackwater_loop_seconds", "Duration of one turn of a loop.", ["loop"], buckets=_SHORT, registry=registry
        )
        self.loop_failures = Counter(
            "slackwater_loop_failures_total", "Turns that ended in an unexpected error.", ["loop"], registry=registry
        )
        self.nodeslack_writes = Counter(
            "slackwater_nodeslack_writes_total", "Writes of NodeSlack: success, failure.", ["result"], registry=registry
        )
        self.policy_valid = Gauge(
            "slackwater_policy_valid",
            "0 while the ConfigMap cannot be used and the last good one holds.",
            registry=registry,
        )
        self.policy_rejections = Counter(
            "slackwater_policy_rejections_total", "Versions of the ConfigMap that could not be used.", registry=registry
        )
        self.events_dropped = Counter(
            "slackwater_events_dropped_total", "Events that could not be written.", registry=registry
        )
        for result in ("evicted", "refused", "gone", "failed"):
            self.evictions.labels(result)
        for result in ("success", "failure"):
            self.registrations.labels(result)
            self.nodeslack_writes.labels(result)
        for result in ("refused", "failed"):
            self.repair_failures.labels(result)
        self.policy_valid.set(1)
        self.reading_age.set(-1)

    def show_sum(self, headroom: Headroom, reading: MemoryReading, plan: EvictionPlan) -> None:
        """The terms of one reading."""
        terms = {
            "capacity": headroom.capacity,
            "used": headroom.used,
            "margin": headroom.margin,
            "system": headroom.system,
            "online": headroom.online,
            "lendable": headroom.lendable,
        }
        for term, value in terms.items():
            self.memory.labels(term).set(value)
        if headroom.line is not None:
            self.memory.labels("line").set(headroom.line)
        for numa in reading.numa:
            self.numa_memory.labels(str(numa.id), "capacity").set(numa.capacity)
            self.numa_memory.labels(str(numa.id), "used").set(numa.used)
        self.lending.set(headroom.enabled)
        self.block_size.set(headroom.block_size)
        self.release.set(plan.release)
        self.threshold.set(plan.capacity * plan.threshold_percent // 100 if plan.enabled else 0)

    def show_pods(self, pods: Sequence[PodView], reading: MemoryReading) -> None:
        """Pods of the node, and what the best-effort ones use."""
        colocated = {pod.uid for pod in pods if pod.is_be}
        unfinished = [pod for pod in pods if not pod.is_finished]
        self.pods.labels("colocated").set(sum(pod.is_be for pod in unfinished))
        self.pods.labels("online").set(sum(not pod.is_be for pod in unfinished))
        self.colocated_memory.set(sum(sample.used for sample in reading.pods if sample.uid in colocated))

    def show_blocks(self, ledger: Ledger, headroom: Headroom, offered: int) -> None:
        """Blocks after one turn: ids of the node, on offer (held ones included), lendable by the sum, lent, free, …"""
        counts = {
            "total": len(ledger.blocks),
            "offered": offered,
            "lendable": headroom.lendable_blocks,
            "lent": headroom.lent,
            "free": max(0, offered - headroom.lent),
            "held": len(ledger.held()),
            "withdrawn": ledger.count(State.WITHDRAWN),
            "retired": ledger.count(State.RETIRED),
        }
        for state, count in counts.items():
            self.blocks.labels(state).set(count)
