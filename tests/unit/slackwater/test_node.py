"""What a node is and whether it refuses to lend."""

import pytest
from builders import NodeBuilder, node

from slackwater import names
from slackwater.errors import InputError
from slackwater.node import read_node


def test_amounts_are_whole_units() -> None:
    view = read_node(node().capacity("120G", "118G").advertises(names.RESOURCE, "40").raw)
    assert view.capacity == {"memory": 120 * 10**9, names.RESOURCE: 40}
    assert view.allocatable == {"memory": 118 * 10**9, names.RESOURCE: 40}


@pytest.mark.parametrize(
    ("built", "refusal"),
    [
        pytest.param(node(), None, id="ordinary"),
        pytest.param(node().cordoned(), "cordoned", id="cordoned"),
        pytest.param(node().annotation(names.LEND_ANNOTATION, "false"), "annotation", id="annotated"),
        pytest.param(node().label(names.CONTROL_PLANE_LABEL, ""), "control-plane", id="control-plane"),
        pytest.param(
            node().label(names.CONTROL_PLANE_LABEL, "").annotation(names.LEND_ANNOTATION, "true"),
            None,
            id="all-the-same",
        ),
        pytest.param(
            node().cordoned().annotation(names.LEND_ANNOTATION, "true"), "cordoned", id="cordoned-all-the-same"
        ),
    ],
)
def test_refusing_to_lend(built: NodeBuilder, refusal: str | None) -> None:
    found = read_node(built.raw).lending_refusal
    assert (found is None) if refusal is None else (found is not None and refusal in found)


def test_every_unusable_field_is_named_at_once() -> None:
    with pytest.raises(InputError) as refusal:
        read_node({"metadata": {}, "status": {"capacity": {"memory": "lots"}, "allocatable": {"cpu": "1x"}}}, "f")
    assert [problem.where for problem in refusal.value.problems] == [
        "f.metadata.name",
        "f.status.capacity[memory]",
        "f.status.allocatable[cpu]",
    ]
