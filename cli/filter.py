"""``slackwater filter``: which nodes a scheduler may choose for a pod, and why not the others."""

from datetime import datetime
from typing import Any

import click
from tabulate import tabulate

from cli.options import block_size_option, now_option, output_option
from cli.output import print_result, print_warnings
from extender.decide import HeldPod, Slack, Snapshot, UnreadableSlack, filter_nodes, hold
from extender.wire import FilterRequest, read_filter_request, render_filter_result
from slackwater.adapters.documents import Document, load_documents
from slackwater.errors import InputError, Problem
from slackwater.nodeslack import NodeSlackView, read_nodeslack
from slackwater.objects import text
from slackwater.pod import read_pod


@click.command("filter", short_help="which nodes a scheduler may choose for a pod, and why not the others")
@click.option(
    "-f", "--filename", "arguments", required=True, metavar="PATH", help="A scheduler's ExtenderArgs: a file or -."
)
@click.option(
    "--state",
    "paths",
    multiple=True,
    required=True,
    metavar="PATH",
    help="NodeSlacks and Pods of the cluster: a file, a folder or -; repeatable.",
)
@output_option(default="json")
@now_option("the time of the newest reading")
@block_size_option()
def command(arguments: str, paths: tuple[str, ...], form: str, now: datetime | None, block_size: int) -> None:
    """Print the ExtenderFilterResult that the extender would send to the scheduler.

    A NodeSlack that cannot be read closes its node, with a warning here. Nothing is remembered between calls: pods that
    were just let through count only if the state shows them bound.
    """
    asked = _request(arguments)
    snapshot, newest, warnings = _snapshot(load_documents(paths), block_size)
    moment = now or newest
    if moment is None:
        raise InputError([Problem("--state", "has no readable NodeSlack", "add one, or give the time with --now")])
    print_warnings(warnings)
    decision = filter_nodes(asked.pod, asked.names, snapshot, block_size, moment)
    print_result(render_filter_result(asked, decision), form, _table)


def _request(path: str) -> FilterRequest:
    documents = load_documents([path])
    if len(documents) != 1:
        raise InputError([Problem(path, f"holds {len(documents)} objects", "give one ExtenderArgs")])
    try:
        return read_filter_request(documents[0].raw)
    except InputError as error:
        raise error.under(documents[0].where) from error


def _snapshot(documents: list[Document], block_size: int) -> tuple[Snapshot, datetime | None, list[str]]:
    slacks: dict[str, Slack] = {}
    held: dict[str, list[HeldPod]] = {}
    problems: list[Problem] = []
    warnings: list[str] = []
    for document in documents:
        if document.kind == "NodeSlack":
            name = text(document.raw, "metadata", "name")
            if name in slacks:
                problems.append(Problem(document.where, f"is the second NodeSlack {name}", "keep one"))
            try:
                slacks[name] = read_nodeslack(document.raw, document.where)
            except InputError as error:
                slacks[name] = UnreadableSlack(name, str(error))
                warnings.extend(str(problem) for problem in error.problems)
        elif document.kind == "Pod":
            try:
                pod = hold(read_pod(document.raw), block_size)
            except InputError as error:
                problems.extend(error.under(document.where).problems)
                continue
            if pod is not None:
                held.setdefault(pod.node, []).append(pod)
        elif not document.kind:
            problems.append(Problem(document.where, "has no kind", "write NodeSlacks and Pods"))
        else:
            warnings.append(f"{document.where}: {document.kind} is not used here")
    if problems:
        raise InputError(problems)
    newest = max((slack.time for slack in slacks.values() if isinstance(slack, NodeSlackView)), default=None)
    return Snapshot(slacks, held), newest, warnings


def _table(result: Any) -> str:
    names = result["NodeNames"] or [
        text(node, "metadata", "name") for node in (result["Nodes"] or {"items": []})["items"]
    ]
    rows = [(name, "fits", "") for name in names]
    rows += [(name, "no room", reason) for name, reason in result["FailedNodes"].items()]
    rows += [(name, "closed", reason) for name, reason in result["FailedAndUnresolvableNodes"].items()]
    return tabulate(rows, headers=("node", "verdict", "reason"), tablefmt="plain", disable_numparse=True)
