"""``slackwater lend``: what a node would lend, with every term of the sum."""

from datetime import datetime
from typing import Any

import click
from tabulate import tabulate

from cli.memory_state import age_warnings, load_memory_state
from cli.options import block_size_option, files_option, now_option, output_option
from cli.output import print_result, print_warnings
from slackwater.headroom import compute
from slackwater.quantity import format_bytes


@click.command("lend", short_help="what a node would lend, with every term of the sum")
@files_option("Node, Pods, MemoryReading and, if there is one, ConfigMap slo-controller-config")
@output_option()
@now_option("the reading's own time")
@block_size_option()
def command(paths: tuple[str, ...], form: str, now: datetime | None, block_size: int) -> None:
    """Print what each Node would lend: one object for one Node, a list for several.

    \b
    lendable = capacity - margin - system - online       line = capacity x memoryEvictThresholdPercent - one block
    blocks   = min(lendable, line - system - online) / block, rounded down       free = blocks - lent
    """
    state = load_memory_state(paths)
    sums = [compute(node.node, state.pods, node.reading, node.policy, block_size) for node in state.nodes]
    print_warnings(
        [*state.warnings, *age_warnings(state, now), *(warning for headroom in sums for warning in headroom.warnings)]
    )
    terms = [headroom.as_terms() for headroom in sums]
    print_result(terms[0] if len(terms) == 1 else terms, form, _tables)


def _tables(value: Any) -> str:
    return "\n\n".join(_table(terms) for terms in (value if isinstance(value, list) else [value]))


def _table(terms: dict[str, Any]) -> str:
    rows = [
        ("", "capacity", terms["capacity"], "the node's memory"),
        ("−", "margin", terms["margin"], "stays unlent"),
        ("−", "system", terms["system"], "use outside pods, or what is reserved for it"),
        ("−", "online", terms["online"], "pods that are not best-effort, and use beyond blocks"),
        ("=", "lendable", terms["lendable"], ""),
    ]
    if "cap" in terms:
        rows.append(("≤", "cap", terms["cap"], "batchMemoryThresholdPercent"))
    if terms["line"] is not None:
        rows.append(("≤", "line", terms["line"], "the eviction line, less one block; system and online count too"))
    body = tabulate(
        [(sign, name, count, format_bytes(count), meaning) for sign, name, count, meaning in rows],
        headers=("", terms["node"], "bytes", "", ""),
        tablefmt="plain",
        disable_numparse=True,
        colalign=("left", "left", "right", "right", "left"),
    )
    block = format_bytes(terms["blockSize"])
    lines = [
        body,
        f"{terms['blocks']} blocks of {block} may be lent, {terms['lent']} are, {terms['free']} are free",
        *(f"lending is off ({reason['reason']}): {reason['message']}" for reason in terms.get("reasons", ())),
        *(f"NUMA node {part['id']}: {part['blocks']} blocks" for part in terms.get("numa", ())),
    ]
    return "\n".join(lines)
