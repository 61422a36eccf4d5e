"""The names that dashboards and alerts are built on. Changing one here means changing it there."""

from prometheus_client import CollectorRegistry

from nodeagent.metrics import Metrics

NAMES = {
    "slackwater_node_memory_bytes": ("term",),
    "slackwater_numa_memory_bytes": ("numa", "term"),
    "slackwater_colocated_memory_bytes": (),
    "slackwater_pods": ("class",),
    "slackwater_blocks": ("state",),
    "slackwater_block_size_bytes": (),
    "slackwater_lending": (),
    "slackwater_eviction_release_bytes": (),
    "slackwater_eviction_threshold_bytes": (),
    "slackwater_evictions": ("result",),
    "slackwater_evicted_bytes": (),
    "slackwater_eviction_reaction_seconds": (),
    "slackwater_limit_repairs": (),
    "slackwater_limit_repair_failures": ("result",),
    "slackwater_reading_age_seconds": (),
    "slackwater_reading_failures": ("source",),
    "slackwater_device_plugin_registrations": ("result",),
    "slackwater_device_plugin_streams": (),
    "slackwater_device_plugin_updates": (),
    "slackwater_device_plugin_request_seconds": ("method",),
    "slackwater_loop_seconds": ("loop",),
    "slackwater_loop_failures": ("loop",),
    "slackwater_nodeslack_writes": ("result",),
    "slackwater_policy_valid": (),
    "slackwater_policy_rejections": (),
    "slackwater_events_dropped": (),
}
"""Without the ``_total`` of counters."""


def test_names_and_labels_are_stable() -> None:
    metrics = Metrics(CollectorRegistry())
    found = {
        metric._name: metric._labelnames  # the library has no public way to ask
        for metric in vars(metrics).values()
        if hasattr(metric, "_labelnames")
    }
    assert found == NAMES
    assert all(family.documentation for family in metrics.registry.collect())
