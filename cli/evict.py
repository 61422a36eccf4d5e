"""``slackwater evict``: which pods would have to go on a node, in kill order, and why the others stay."""

from datetime import datetime
from typing import Any

import click
from tabulate import tabulate

from cli.memory_state import age_warnings, load_memory_state
from cli.options import block_size_option, files_option, now_option, output_option
from cli.output import print_result, print_warnings
from slackwater.quantity import format_bytes
from slackwater.victims import EvictionPlan, Spared, Victim, choose


@click.command("evict", short_help="which pods would have to go, and why the others stay")
@files_option("Node, Pods, MemoryReading and, if there is one, ConfigMap slo-controller-config")
@output_option()
@now_option("the reading's own time")
@block_size_option()
def command(paths: tuple[str, ...], form: str, now: datetime | None, block_size: int) -> None:
    """Print what each Node would evict: one object for one Node, a list for several.

    "release" is what is needed before pods on their way out are credited, "bytes" of a pod what it uses. Victims stand
    in kill order, at most three in one round; "spared" names every other best-effort pod and a constant reason.
    """
    state = load_memory_state(paths)
    plans = [
        choose(node.node, state.pods, node.reading, node.policy, block_size, now or node.reading.time)
        for node in state.nodes
    ]
    print_warnings(
        [*state.warnings, *age_warnings(state, now), *(warning for plan in plans for warning in plan.warnings)]
    )
    found = [_document(plan) for plan in plans]
    print_result(found[0] if len(found) == 1 else found, form, _tables)


def _document(plan: EvictionPlan) -> dict[str, Any]:
    return {
        "node": plan.node,
        "release": plan.release,
        "victims": [_pod(victim) for victim in plan.victims],
        "spared": [_pod(spared) for spared in plan.spared],
        "message": plan.message,
        "enabled": plan.enabled,
    }


def _pod(pod: Victim | Spared) -> dict[str, Any]:
    return {"namespace": pod.namespace, "name": pod.name, "bytes": pod.bytes, "reason": pod.reason}


def _tables(value: Any) -> str:
    return "\n\n".join(_table(plan) for plan in (value if isinstance(value, list) else [value]))


def _table(plan: dict[str, Any]) -> str:
    lines = [f"{plan['node']}: {format_bytes(plan['release'])} to release", plan["message"]]
    rows = [
        (verdict, f"{pod['namespace']}/{pod['name']}", format_bytes(pod["bytes"]), pod["reason"])
        for verdict, pods in (("evict", plan["victims"]), ("spare", plan["spared"]))
        for pod in pods
    ]
    if rows:
        lines.append(tabulate(rows, headers=("", "pod", "uses", "reason"), tablefmt="plain", disable_numparse=True))
    return "\n".join(lines)
