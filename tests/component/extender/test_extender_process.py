"""The extender as the scheduler meets it: a real process, TLS, Go's JSON on one kept connection.

The API server behind it is reduced to list and watch. Certificate rotation and SIGTERM: see the shared server's tests.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import pod
from component.extender.process import PODS, Extender, live
from component.extender.watched import WatchedCollections
from component.https_process import eventually
from unit.extender.states import pending

from slackwater.names import NODESLACKS_PATH


@pytest.fixture(scope="module")
def extender(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Extender]:
    collections = WatchedCollections()
    collections.put(NODESLACKS_PATH, live("node-1", total=4))
    running = Extender(tmp_path_factory.mktemp("extender"), collections)
    try:
        assert eventually(lambda: running.observe("/readyz")[0] == 200), running.log.read_text()
        yield running
    finally:
        running.close()
        collections.close()


def bind(extender: Extender, asked: dict[str, Any], node: str) -> None:
    bound = {**asked, "spec": {**asked["spec"], "nodeName": node}}
    extender.collections.put(PODS, bound)
    assert eventually(lambda: extender.metric("slackwater_filter_assumed_pods") == 0)


def test_watches_only_best_effort_pods_that_are_bound_and_unfinished_or_wait_for_a_node(extender: Extender) -> None:
    queries = extender.collections.queries[PODS]
    assert {query["labelSelector"] for query in queries} == {"slackwater.io/qos=BE"}
    assert {query["fieldSelector"] for query in queries} == {
        "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed",
        "spec.nodeName=,status.phase=Pending",
    }


def test_names_every_node_and_counts_the_call(extender: Extender) -> None:
    before = extender.metric('slackwater_filter_requests_total{result="fit"}')
    result = extender.filter(pending(1, "counted").raw, ["node-1", "elsewhere"])
    assert result["NodeNames"] == ["node-1"]
    assert list(result["FailedNodes"]) == ["elsewhere"]
    assert result["Error"] == ""
    assert extender.metric('slackwater_filter_requests_total{result="fit"}') == before + 1
    bind(extender, pending(1, "counted").raw, "nowhere")


def test_blocks_follow_pods_that_come_and_go_between_two_readings(extender: Extender) -> None:
    extender.collections.put(NODESLACKS_PATH, live("node-2", total=2))
    known = extender.metric("slackwater_filter_known_nodes")
    assert eventually(lambda: extender.metric("slackwater_filter_known_nodes") >= max(2, known))
    first, second = pending(2, "first").raw, pending(1, "second").raw
    assert extender.filter(first, ["node-2"])["NodeNames"] == ["node-2"]
    refused = extender.filter(second, ["node-2"])
    assert refused["NodeNames"] == []
    assert refused["FailedNodes"]["node-2"].startswith(
        "colocation memory: 1 block (512Mi) needed, 0 blocks (0) available"
    )
    bind(extender, first, "node-2")
    assert extender.filter(second, ["node-2"])["NodeNames"] == []
    extender.collections.delete(PODS, "default/first")
    assert eventually(lambda: extender.filter(second, ["node-2"])["NodeNames"] == ["node-2"])
    bind(extender, second, "nowhere")


def test_garbage_in_a_nodeslack_closes_its_node(extender: Extender) -> None:
    broken = live("node-3", total=8)
    broken["status"]["blocks"]["total"] = "8"
    extender.collections.put(NODESLACKS_PATH, broken)
    asked = pending(1, "third").raw
    assert eventually(
        lambda: "cannot be read" in extender.filter(asked, ["node-3"])["FailedAndUnresolvableNodes"].get("node-3", "")
    )
    assert b"status.blocks.total" in extender.log.read_bytes()


def test_five_hundred_names_on_one_connection(extender: Extender) -> None:
    names = [f"node-with-a-name-of-usual-length-{number:05}" for number in range(500)]
    asked = pod("large").be().blocks(1).unbound().raw
    result = extender.filter(asked, names)
    socket = extender.connection.sock
    assert len(result["FailedNodes"]) == 500
    assert len(set(result["FailedNodes"].values())) == 1
    extender.filter(asked, names)
    assert extender.connection.sock is socket


@pytest.mark.parametrize("body", [b"", b"not json", b"{}", b'{"Pod": {}, "NodeNames": [1]}'], ids=repr)
def test_garbage_is_answered_with_an_error_that_reaches_the_pods_events(extender: Extender, body: bytes) -> None:
    before = extender.metric('slackwater_filter_requests_total{result="error"}')
    status, _, answer = extender.call("/filter", body)
    assert status == 200
    assert "slackwater extender cannot use this request" in json.loads(answer)["Error"]
    assert extender.metric('slackwater_filter_requests_total{result="error"}') == before + 1


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/filter", 405), ("POST", "/bind", 404)])
def test_other_verbs_are_no_part_of_it(extender: Extender, method: str, path: str, status: int) -> None:
    assert extender.call(path, b"{}", method)[0] == status


def test_oversized_request_is_refused_without_being_read(extender: Extender) -> None:
    connection = extender.connection
    connection.close()
    connection.putrequest("POST", "/filter")
    connection.putheader("Content-Length", str(10**10))
    connection.endheaders()
    with connection.getresponse() as response:
        assert "takes at most" in json.loads(response.read())["Error"]
    connection.close()


def test_is_not_ready_before_it_has_listed(tmp_path: Path) -> None:
    collections = WatchedCollections()
    collections.close()
    lonely = Extender(tmp_path, collections)
    try:
        assert eventually(lambda: lonely.observe("/readyz")[0] == 503 and "listed" in lonely.observe("/readyz")[1])
        assert lonely.observe("/livez")[0] == 200
        assert "not ready" in lonely.filter(pending(1).raw, ["node-1"])["Error"]
    finally:
        lonely.close()
