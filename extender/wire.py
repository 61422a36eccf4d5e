"""The scheduler's extender protocol v1: ``ExtenderArgs`` in, ``ExtenderFilterResult`` out.

The Go types (k8s.io/kube-scheduler/extender/v1) carry no JSON tags, so their field names stand on the wire as they are
and their case counts in requests. A node left out of every map of the answer would be refused without a word in the
pod's events; :func:`render_filter_result` gets a verdict for each.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from extender.decide import FilterDecision
from slackwater.errors import InputError, Problem
from slackwater.objects import RawObject, mapping, text
from slackwater.pod import PodView, read_pod

BODY_LIMIT = 64 * 1024 * 1024
"""Bytes of a request. Names of 5,000 nodes take 0.25 MB; whole Node objects (not our configuration) 61 MB."""


@dataclass(frozen=True, slots=True)
class FilterRequest:
    """A pod and the nodes that passed the scheduler's own filters, in its order."""

    pod: PodView
    names: tuple[str, ...]
    nodes: Mapping[str, RawObject] | None = None
    """The Node objects by name, where the scheduler sends those instead of names (``nodeCacheCapable: false``)."""


def parse_filter_request(body: bytes) -> FilterRequest:
    """Read the body of a filter call.

    Raises:
        InputError: not JSON, or not ExtenderArgs; names every field that cannot be used.
    """
    try:
        raw = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InputError([Problem("ExtenderArgs", f"is not JSON: {error}", "send a scheduler's request")]) from error
    return read_filter_request(raw)


def read_filter_request(raw: Any) -> FilterRequest:
    """Read decoded ExtenderArgs.

    Raises:
        InputError: naming every field that cannot be used.
    """
    if not isinstance(raw, Mapping):
        raise InputError(
            [Problem("ExtenderArgs", f"is a {type(raw).__name__}", "send an object with Pod and NodeNames")]
        )
    problems: list[Problem] = []
    pod = PodView("", "", "")
    if not isinstance(raw.get("Pod"), Mapping):
        remedy = "field names are Go's: Pod, Nodes, NodeNames" if "pod" in raw else "send the pod to be placed"
        problems.append(Problem("Pod", "is missing", remedy))
    else:
        try:
            pod = read_pod(raw["Pod"])
        except InputError as error:
            problems.extend(error.under("Pod").problems)
    names, nodes = _candidates(raw, problems)
    if problems:
        raise InputError(problems)
    return FilterRequest(pod, tuple(dict.fromkeys(names)), nodes)


def _candidates(raw: RawObject, problems: list[Problem]) -> tuple[list[str], dict[str, RawObject] | None]:
    names, nodes = raw.get("NodeNames"), raw.get("Nodes")
    if isinstance(names, list):
        wrong = [index for index, name in enumerate(names) if not isinstance(name, str)]
        problems.extend(Problem(f"NodeNames[{index}]", f"is {names[index]!r}", "send node names") for index in wrong)
        return names, None
    if names is not None:
        problems.append(Problem("NodeNames", f"is a {type(names).__name__}", "send a list of node names"))
        return [], None
    if isinstance(nodes, Mapping):
        items = nodes.get("items") or []
        if not isinstance(items, list):
            problems.append(Problem("Nodes.items", f"is a {type(items).__name__}", "send a list of Nodes"))
            return [], None
        by_name = {text(node, "metadata", "name"): mapping({"node": node}, "node") for node in items}
        if "" in by_name:
            problems.append(Problem("Nodes.items", "has a Node without metadata.name", "send whole Nodes"))
        return list(by_name), by_name
    problems.append(Problem("NodeNames", "is null, and so is Nodes", "set nodeCacheCapable: true"))
    return [], None


def render_filter_result(request: FilterRequest, decision: FilterDecision) -> dict[str, Any]:
    """The ``ExtenderFilterResult``: nodes in the form in which they were sent, each of them in exactly one field."""
    nodes = None
    if request.nodes is not None:
        nodes = {"metadata": {}, "items": [request.nodes[name] for name in decision.fit]}
    return {
        "Nodes": nodes,
        "NodeNames": None if request.nodes is not None else list(decision.fit),
        "FailedNodes": dict(decision.failed),
        "FailedAndUnresolvableNodes": dict(decision.unresolvable),
        "Error": "",
    }


def render_error(message: str) -> dict[str, Any]:
    """A result that fails this scheduling attempt. The scheduler shows ``message`` in the pod's events."""
    return {
        "Nodes": None,
        "NodeNames": None,
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {},
        "Error": message,
    }
