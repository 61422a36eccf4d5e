"""Writes ``overview.json``, the Grafana dashboard that the chart ships. ``make verify`` runs it and wants no change.

Every query uses metrics of the components as they are; a unit test checks the names, a cluster test asks a Prometheus
that scrapes real components.
"""

import json
from pathlib import Path
from string import ascii_uppercase

from grafana_foundation_sdk.builders import dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.builders.common import ReduceDataOptions, VizLegendOptions
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement
from grafana_foundation_sdk.models.dashboard import DataSourceRef, VariableRefresh, VariableSort
from grafana_foundation_sdk.models.units import BytesIEC, OpsPerSecond, Percent, RequestsPerSecond, Seconds, Short

TARGET = Path(__file__).with_name("overview.json")
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
NODE = 'instance=~"$node"'
WIDTH, HEIGHT = 12, 8
STAT_WIDTH, STAT_HEIGHT = 4, 4

Query = tuple[str, str]
"""PromQL, and the legend of its series."""


def per_second(metric: str, selector: str = "", by: str = "") -> str:
    """Rate of a counter, summed."""
    grouping = f" by ({by})" if by else ""
    return f"sum{grouping} (rate({metric}{{{selector}}}[$__rate_interval]))"


def quantile(share: float, metric: str) -> str:
    """A quantile of a histogram, over all processes."""
    return f"histogram_quantile({share}, sum by (le) (rate({metric}_bucket[$__rate_interval])))"


def in_bytes(state: str) -> str:
    """Blocks of one state over all nodes, in bytes."""
    blocks = f'slackwater_blocks{{state="{state}", {NODE}}}'
    return f"sum({blocks} * on (instance) group_left slackwater_block_size_bytes)"


def number(title: str, description: str, query: str, unit: str = Short) -> stat.Panel:
    """One number, now."""
    return (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .span(STAT_WIDTH)
        .height(STAT_HEIGHT)
        .reduce_options(ReduceDataOptions().calcs(["lastNotNull"]))
        .with_target(prometheus.Dataquery().expr(query).instant().ref_id("A"))
    )


def graph(title: str, description: str, unit: str, *queries: Query) -> timeseries.Panel:
    """Lines over time; the table below them shows the last value of each."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .span(WIDTH)
        .height(HEIGHT)
        .fill_opacity(8)
        .legend(
            VizLegendOptions()
            .display_mode(LegendDisplayMode.TABLE)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(True)
            .calcs(["lastNotNull", "max"])
        )
    )
    for letter, (expression, legend) in zip(ascii_uppercase, queries, strict=False):
        panel.with_target(prometheus.Dataquery().expr(expression).legend_format(legend).ref_id(letter))
    return panel


def overview() -> dashboard.Dashboard:
    """The dashboard: what is lent, what was taken back, what was admitted and placed, and whether the data is fresh."""
    built = (
        dashboard.Dashboard("Slackwater overview")
        .uid("slackwater-overview")
        .description("Slack memory that nodes lend to best-effort pods, and how it is taken back.")
        .tags(["slackwater"])
        .readonly()
        .refresh("30s")
        .time("now-3h", "now")
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(
            dashboard.QueryVariable("node")
            .label("Node")
            .query("label_values(slackwater_lending, instance)")
            .datasource(SOURCE)
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(VariableSort.ALPHABETICAL_ASC)
            .multi(True)
            .include_all(True)
            .all_value(".*")
        )
    )
    return health(idle(scheduling(taking_back(lending(built)))))


def lending(built: dashboard.Dashboard) -> dashboard.Dashboard:
    return (
        built.with_row(dashboard.Row("Lending"))
        .with_panel(
            number("Nodes that lend", "NodeSlack says why another does not.", f"sum(slackwater_lending{{{NODE}}})")
        )
        .with_panel(number("Lent", "Blocks held by pods.", in_bytes("lent"), BytesIEC))
        .with_panel(number("Free", "Offered and not held.", in_bytes("free"), BytesIEC))
        .with_panel(
            number(
                "Used by best-effort pods",
                "Memory in use, of what they hold.",
                f"sum(slackwater_colocated_memory_bytes{{{NODE}}})",
                BytesIEC,
            )
        )
        .with_panel(
            number(
                "Evictions in an hour",
                "Pods evicted so that online pods keep their memory.",
                f'sum(increase(slackwater_evictions_total{{result="evicted", {NODE}}}[1h]))',
            )
        )
        .with_panel(
            number(
                "Oldest reading",
                "Above 300 s a node gets no more pods.",
                f"max(slackwater_reading_age_seconds{{{NODE}}})",
                Seconds,
            )
        )
        .with_panel(
            graph(
                "Blocks",
                "offered: what the kubelet may hand out; lendable: what the sum allows; lent: held by pods.",
                Short,
                (f'slackwater_blocks{{state=~"offered|lendable|lent|free", {NODE}}}', "{{instance}} {{state}}"),
            )
        )
        .with_panel(
            graph(
                "Memory, by term of the sum",
                "lendable = capacity - margin - system - online; eviction starts at the threshold.",
                BytesIEC,
                (f"slackwater_node_memory_bytes{{{NODE}}}", "{{instance}} {{term}}"),
                (f"slackwater_colocated_memory_bytes{{{NODE}}}", "{{instance}} best-effort pods"),
                (f"slackwater_eviction_threshold_bytes{{{NODE}}}", "{{instance}} eviction threshold"),
            )
        )
        .with_panel(
            graph(
                "Use of capacity",
                "Memory in use on the node, as a share of what it has.",
                Percent,
                (
                    f'100 * slackwater_node_memory_bytes{{term="used", {NODE}}}'
                    f' / on (instance) slackwater_node_memory_bytes{{term="capacity", {NODE}}}',
                    "{{instance}}",
                ),
            )
        )
        .with_panel(
            graph("Pods", "Unfinished pods by class.", Short, (f"slackwater_pods{{{NODE}}}", "{{instance}} {{class}}"))
        )
    )


def taking_back(built: dashboard.Dashboard) -> dashboard.Dashboard:
    return (
        built.with_row(dashboard.Row("Taking back"))
        .with_panel(
            graph(
                "Evictions",
                "Asked for, by what came of it. refused: a PodDisruptionBudget said no, and the next pod was tried.",
                RequestsPerSecond,
                (per_second("slackwater_evictions_total", NODE, "result"), "{{result}}"),
            )
        )
        .with_panel(
            graph(
                "Memory to release, and released",
                "What has to be released now, and the use of evicted pods when they were chosen.",
                BytesIEC,
                (f"slackwater_eviction_release_bytes{{{NODE}}}", "{{instance}} to release"),
                (f"sum(increase(slackwater_evicted_bytes_total{{{NODE}}}[$__rate_interval]))", "evicted"),
            )
        )
        .with_panel(
            graph(
                "Reaction",
                "From seeing the threshold crossed to an accepted eviction.",
                Seconds,
                (quantile(0.5, "slackwater_eviction_reaction_seconds"), "half"),
                (quantile(0.99, "slackwater_eviction_reaction_seconds"), "99 %"),
            )
        )
        .with_panel(
            graph(
                "Limit repairs",
                "Memory limits of best-effort pods that somebody had changed and that were put back, or could not be.",
                OpsPerSecond,
                (per_second("slackwater_limit_repairs_total", NODE), "put back"),
                (per_second("slackwater_limit_repair_failures_total", NODE, "result"), "{{result}}"),
            )
        )
    )


def scheduling(built: dashboard.Dashboard) -> dashboard.Dashboard:
    return (
        built.with_row(dashboard.Row("Admission and scheduling"))
        .with_panel(
            graph(
                "Admissions",
                "Pods that the webhook saw, by result and reason.",
                RequestsPerSecond,
                (per_second("slackwater_admissions_total", by="result, reason"), "{{result}} {{reason}}"),
            )
        )
        .with_panel(
            graph(
                "Admission latency",
                "In the webhook.",
                Seconds,
                (quantile(0.5, "slackwater_admission_duration_seconds"), "half"),
                (quantile(0.99, "slackwater_admission_duration_seconds"), "99 %"),
            )
        )
        .with_panel(
            graph(
                "Filter calls",
                "Of the scheduler, for pods with blocks. none: no node has room; error: no answer was possible.",
                RequestsPerSecond,
                (per_second("slackwater_filter_requests_total", by="result"), "{{result}}"),
            )
        )
        .with_panel(
            graph(
                "Filter latency",
                "In the extender.",
                Seconds,
                (quantile(0.5, "slackwater_filter_seconds"), "half"),
                (quantile(0.99, "slackwater_filter_seconds"), "99 %"),
            )
        )
        .with_panel(
            graph(
                "Nodes judged",
                "Why nodes were refused.",
                OpsPerSecond,
                (per_second("slackwater_filter_nodes_total", by="verdict"), "{{verdict}}"),
            )
        )
        .with_panel(
            graph(
                "Known to the extender",
                "Nodes whose reading it can use, and pods that it let through and does not see bound yet.",
                Short,
                ("max(slackwater_filter_known_nodes)", "nodes"),
                ("sum(slackwater_filter_assumed_pods)", "pods on their way"),
            )
        )
    )


def idle(built: dashboard.Dashboard) -> dashboard.Dashboard:
    # Without a policy there are no series of any kind yet; the zero then stands for them.
    suspensions = "sum by (kind, result) (increase(slackwater_idle_suspensions_total[1h]))"
    resumes = "sum by (kind) (increase(slackwater_idle_resumes_total[1h]))"
    objects = "sum by (kind, reason) (slackwater_idle_objects)"
    return (
        built.with_row(dashboard.Row("Idle workloads"))
        .with_panel(
            graph(
                "Suspensions in an hour",
                "Idle workloads that were suspended, and those that a person resumed.",
                Short,
                (f"{suspensions} or vector(0)", "suspended {{kind}} {{result}}"),
                (f"{resumes} or vector(0)", "resumed {{kind}}"),
            )
        )
        .with_panel(
            graph(
                "Objects that the policy reaches",
                "By the last scan's decision.",
                Short,
                (f"{objects} or vector(0)", "{{kind}} {{reason}}"),
            )
        )
    )


def health(built: dashboard.Dashboard) -> dashboard.Dashboard:
    return (
        built.with_row(dashboard.Row("Health"))
        .with_panel(
            graph(
                "Age of readings",
                "Of the newest whole reading of each node's memory.",
                Seconds,
                (f"slackwater_reading_age_seconds{{{NODE}}}", "{{instance}}"),
            )
        )
        .with_panel(
            graph(
                "Failures",
                "Turns of a loop, files that could not be read, writes of NodeSlack, registrations with the kubelet.",
                OpsPerSecond,
                (f"{per_second('slackwater_loop_failures_total', NODE, 'loop')} or vector(0)", "loop {{loop}}"),
                (f"{per_second('slackwater_reading_failures_total', NODE, 'source')} or vector(0)", "read {{source}}"),
                (per_second("slackwater_nodeslack_writes_total", f'result="failure", {NODE}'), "NodeSlack"),
                (
                    per_second("slackwater_device_plugin_registrations_total", f'result="failure", {NODE}'),
                    "registration",
                ),
            )
        )
        .with_panel(
            graph(
                "Settings in force",
                "0 where the ConfigMap cannot be used and the last good one holds.",
                Short,
                (f"slackwater_policy_valid{{{NODE}}}", "{{instance}}"),
            )
        )
        .with_panel(
            graph(
                "Controller",
                "Leaders (1 is right), and whether the webhook's rules are in force as wished.",
                Short,
                ("sum(slackwater_controller_leader)", "leaders"),
                ("max(slackwater_webhook_rules_active)", "webhook rules"),
            )
        )
        .with_panel(
            graph(
                "Device plugin",
                "Open streams of the kubelet; 1 is right.",
                Short,
                (f"slackwater_device_plugin_streams{{{NODE}}}", "{{instance}}"),
            )
        )
    )


def main() -> None:
    """Write the file."""
    built = overview().build()
    TARGET.write_text(
        json.dumps(json.loads(JSONEncoder(sort_keys=True).encode(built)), indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
