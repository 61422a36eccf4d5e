"""What ``lend`` and ``evict`` read: Nodes, Pods, MemoryReadings and the ConfigMap ``slo-controller-config``."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

from slackwater import names
from slackwater.adapters.documents import Document, load_documents
from slackwater.errors import InputError, Problem
from slackwater.node import NodeView, read_node
from slackwater.objects import RawObject, text
from slackwater.pod import PodView, read_pod
from slackwater.policy.colocation import DEFAULT_POLICY, ColocationPolicy, NodePolicy, parse_colocation
from slackwater.reading import KIND as READING_KIND
from slackwater.reading import MemoryReading, read_reading

_OLD_READING = timedelta(minutes=5)
_View = TypeVar("_View")


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node with its reading and the settings that hold for it."""

    node: NodeView
    reading: MemoryReading
    policy: NodePolicy


@dataclass(frozen=True, slots=True)
class MemoryState:
    """The whole input. ``pods`` are those of every node."""

    nodes: tuple[NodeState, ...]
    pods: tuple[PodView, ...]
    warnings: tuple[str, ...]


def load_memory_state(paths: Iterable[str]) -> MemoryState:
    """Read the files.

    Raises:
        InputError: naming everything that is missing, doubled or cannot be used.
    """
    documents = load_documents(paths)
    problems: list[Problem] = []
    nodes = _read(documents, "Node", read_node, lambda node: node.name, problems)
    pods = _read(documents, "Pod", read_pod, lambda pod: pod.key, problems)
    readings = _read(documents, READING_KIND, read_reading, lambda reading: reading.node, problems)
    policy, warnings = _read_policy(documents, problems)
    problems.extend(
        Problem(document.where, "has no kind", "write a Kubernetes object")
        for document in documents
        if not document.kind
    )
    if not any(document.kind == "Node" for document in documents):
        problems.append(Problem("", "there is no Node in the input", "add the Node object with -f"))
    if not any(document.kind == READING_KIND for document in documents):
        problems.append(Problem("", f"there is no {READING_KIND} in the input", "add one for each Node with -f"))
    elif not problems:
        problems.extend(
            Problem(f"Node {name}", f"has no {READING_KIND}", f"add one whose metadata.name is {name}")
            for name in nodes
            if name not in readings
        )
    if problems:
        raise InputError(problems)
    warnings.extend(
        f"the {READING_KIND} of {name} is not used, because there is no such Node in the input"
        for name in readings
        if name not in nodes
    )
    warnings.extend(_unused(documents))
    states = tuple(NodeState(node, readings[name], policy.for_node(node)) for name, node in nodes.items())
    return MemoryState(states, tuple(pods.values()), tuple(warnings))


def age_warnings(state: MemoryState, now: datetime | None) -> list[str]:
    """Readings that are old at ``now``: production would neither lend more nor evict on them."""
    if now is None:
        return []
    return [
        f"the reading of node {node.reading.node} is {int((now - node.reading.time).total_seconds())} s old"
        for node in state.nodes
        if now - node.reading.time > _OLD_READING
    ]


def _read(
    documents: Iterable[Document],
    kind: str,
    read: Callable[[RawObject], _View],
    name_of: Callable[[_View], str],
    problems: list[Problem],
) -> dict[str, _View]:
    found: dict[str, _View] = {}
    for document in documents:
        if document.kind != kind:
            continue
        try:
            view = read(document.raw)
        except InputError as error:
            where = f"{document.where}: {kind} {_label(document.raw)}: "
            problems.extend(replace(problem, where=where + problem.where) for problem in error.problems)
            continue
        if name_of(view) in found:
            problems.append(Problem(document.where, f"is the second {kind} {name_of(view)}", "keep one"))
        found[name_of(view)] = view
    return found


def _read_policy(documents: Iterable[Document], problems: list[Problem]) -> tuple[ColocationPolicy, list[str]]:
    """The namespace does not matter: offline there is one cluster, and one such ConfigMap in it."""
    maps = [
        document
        for document in documents
        if document.kind == "ConfigMap" and text(document.raw, "metadata", "name") == names.SLO_CONFIG_MAP
    ]
    if not maps:
        return DEFAULT_POLICY, []
    if len(maps) > 1:
        places = ", ".join(document.where for document in maps)
        problems.append(Problem(places, f"there are {len(maps)} ConfigMaps {names.SLO_CONFIG_MAP}", "keep one"))
        return DEFAULT_POLICY, []
    where = f"{maps[0].where}: ConfigMap {names.SLO_CONFIG_MAP}: data."
    data = maps[0].raw.get("data") or {}
    if not isinstance(data, dict):
        problems.append(Problem(where.rstrip("."), f"is {data!r}", "write key: text pairs"))
        return DEFAULT_POLICY, []
    try:
        policy, warnings = parse_colocation(data)
    except InputError as error:
        problems.extend(replace(problem, where=where + problem.where) for problem in error.problems)
        return DEFAULT_POLICY, []
    return policy, [str(replace(warning, where=where + warning.where)) for warning in warnings]


def _unused(documents: Iterable[Document]) -> list[str]:
    counts = Counter(document.kind for document in documents)
    return [
        f"{count} of kind {kind} not used here"
        for kind, count in counts.items()
        if kind not in ("Node", "Pod", "ConfigMap", READING_KIND)
    ]


def _label(raw: RawObject) -> str:
    return text(raw, "metadata", "name") or "without a name"
