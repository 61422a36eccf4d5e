"""The extender protocol's JSON: Go's field names, both forms of candidates, everything that is no request."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.extender.states import BLOCK, NOW, pending, slack, view

from extender.decide import Snapshot, filter_nodes
from extender.wire import parse_filter_request, read_filter_request, render_error, render_filter_result
from slackwater.errors import InputError

FIELDS = ["Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"]


def args(**fields: Any) -> dict[str, Any]:
    return {"Pod": pending(1).raw, "Nodes": None, "NodeNames": ["node-1", "node-2"], **fields}


def test_names_are_read_in_the_schedulers_order() -> None:
    asked = read_filter_request(args(NodeNames=["b", "a", "b"]))
    assert asked.names == ("b", "a")
    assert asked.pod == view(pending(1))


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        pytest.param([], "is a list", id="no-object"),
        pytest.param({}, "Pod: is missing", id="empty"),
        pytest.param({"pod": {}, "nodenames": []}, "field names are Go's: Pod, Nodes, NodeNames", id="lower-case"),
        pytest.param(args(NodeNames=None), "set nodeCacheCapable: true", id="no-candidates"),
        pytest.param(args(NodeNames="node-1"), "NodeNames: is a str", id="names-as-text"),
        pytest.param(args(NodeNames=["a", 7]), "NodeNames[1]: is 7", id="name-as-number"),
        pytest.param(args(Pod={"metadata": {}}), "Pod.metadata.name: is missing", id="pod-without-name"),
        pytest.param(args(NodeNames=None, Nodes={"items": 3}), "Nodes.items: is a int", id="items-as-number"),
        pytest.param(args(NodeNames=None, Nodes={"items": [{}]}), "without metadata.name", id="node-without-name"),
    ],
)
def test_unusable_arguments_are_refused_by_field(raw: Any, words: str) -> None:
    with pytest.raises(InputError) as error:
        read_filter_request(raw)
    assert words in str(error.value)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b'{"Pod": NaN', b"[" * 100_000], ids=repr)
def test_body_that_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(InputError, match="is not JSON"):
        parse_filter_request(body)


KEYS = st.sampled_from(["Pod", "Nodes", "NodeNames", "items", "metadata", "name", "spec", "containers"]) | st.text()
LEAVES = st.none() | st.booleans() | st.integers() | st.text()


@given(st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner)))
def test_any_json_is_read_or_refused_with_a_reason(raw: Any) -> None:
    with contextlib.suppress(InputError):
        assert read_filter_request(raw).pod.name


def test_every_name_comes_back_in_exactly_one_field() -> None:
    asked = read_filter_request(args(NodeNames=["fits", "full", "closed"]))
    slacks = {"fits": slack("fits"), "full": slack("full", total=0), "closed": slack("closed", mode="observe")}
    result = render_filter_result(asked, filter_nodes(asked.pod, asked.names, Snapshot(slacks), BLOCK, NOW))
    assert list(result) == FIELDS
    assert result["Nodes"] is None
    assert result["NodeNames"] == ["fits"]
    assert list(result["FailedNodes"]) == ["full"]
    assert list(result["FailedAndUnresolvableNodes"]) == ["closed"]
    assert result["Error"] == ""


def test_no_fitting_node_is_an_empty_list_and_not_null() -> None:
    asked = read_filter_request(args())
    result = render_filter_result(asked, filter_nodes(asked.pod, asked.names, Snapshot(), BLOCK, NOW))
    assert result["NodeNames"] == []


def test_whole_nodes_are_answered_with_whole_nodes() -> None:
    items = [{"metadata": {"name": name}, "x": name} for name in ("fits", "full")]
    sent = {"metadata": {}, "items": items}
    asked = read_filter_request(json.loads(json.dumps(args(NodeNames=None, Nodes=sent))))
    slacks = {"fits": slack("fits"), "full": slack("full", total=0)}
    result = render_filter_result(asked, filter_nodes(asked.pod, asked.names, Snapshot(slacks), BLOCK, NOW))
    assert result["NodeNames"] is None
    assert result["Nodes"] == {"metadata": {}, "items": items[:1]}


def test_error_has_the_same_form() -> None:
    assert list(render_error("why")) == FIELDS
