"""A node as Slackwater sees it, read once from a raw Node object."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from slackwater import names
from slackwater.errors import InputError, Problem
from slackwater.objects import RawObject, mapping, string_map, text
from slackwater.quantity import QuantityError, parse_bytes


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node. ``capacity`` and ``allocatable`` hold whole units (bytes for memory) by resource name."""

    name: str
    uid: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, int] = field(default_factory=dict)
    allocatable: Mapping[str, int] = field(default_factory=dict)
    unschedulable: bool = False

    @property
    def lending_refusal(self) -> str | None:
        """Why this node must not lend whatever it has free, as a sentence; None where nothing forbids it."""
        value = self.annotations.get(names.LEND_ANNOTATION)
        if value is not None and value.lower() != "true":
            return f"annotation {names.LEND_ANNOTATION} is {value!r}"
        if self.unschedulable:
            return "the node is cordoned"
        if names.CONTROL_PLANE_LABEL in self.labels and value is None:
            return f"it is a control-plane node; annotate it {names.LEND_ANNOTATION}=true to lend it all the same"
        return None


def read_node(raw: RawObject, where: str = "") -> NodeView:
    """Read a Node object.

    Raises:
        InputError: no name, or a quantity that is none.
    """
    metadata, spec, status = mapping(raw, "metadata"), mapping(raw, "spec"), mapping(raw, "status")
    problems: list[Problem] = []
    if not text(metadata, "name"):
        problems.append(Problem("metadata.name", "is missing", "give the node a name"))

    def amounts(kind: str) -> dict[str, int]:
        read = {}
        for resource, value in mapping(status, kind).items():
            try:
                read[resource] = parse_bytes(value)
            except QuantityError as error:
                problems.append(Problem(f"status.{kind}[{resource}]", str(error)))
        return read

    node = NodeView(
        name=text(metadata, "name"),
        uid=text(metadata, "uid"),
        labels=string_map(metadata, "labels"),
        annotations=string_map(metadata, "annotations"),
        capacity=amounts("capacity"),
        allocatable=amounts("allocatable"),
        unschedulable=spec.get("unschedulable") is True,
    )
    if problems:
        raise InputError(problem.under(where) for problem in problems)
    return node
