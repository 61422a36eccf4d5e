"""The API adapter against an API server over HTTP: calls, errors and watches as its callers meet them."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from component.apiserver import ApiServer

from slackwater.adapters.kube import (
    ApiError,
    ApiUnavailable,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    KubeClient,
    NotFound,
    TooManyRequests,
    emit_event,
)
from slackwater.errors import Unavailable

MAPS = "/api/v1/namespaces/shop/configmaps"


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        yield running


@pytest.fixture
def client(server: ApiServer, tmp_path: Path) -> KubeClient:
    return KubeClient.connect(server.kubeconfig(tmp_path / "kubeconfig", "s3cret"))


def config_map(name: str, **labels: str) -> dict[str, object]:
    return {
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "shop", "labels": labels}, "data": {"a": "1"},
    }  # fmt: skip


def test_an_object_is_created_read_patched_replaced_and_deleted(client: KubeClient) -> None:
    created = client.create(MAPS, config_map("one"))
    assert created["metadata"]["uid"]
    patched = client.patch(f"{MAPS}/one", {"data": {"a": None, "b": "2"}})
    assert patched["data"] == {"b": "2"}
    replaced = client.replace(f"{MAPS}/one", {**patched, "data": {"c": "3"}})
    assert client.get(f"{MAPS}/one") == replaced
    client.delete(f"{MAPS}/one")
    with pytest.raises(NotFound, match='"one" not found'):
        client.get(f"{MAPS}/one")


def test_the_token_of_the_kubeconfig_is_sent(client: KubeClient, server: ApiServer) -> None:
    client.list(MAPS)
    assert server.requests[-1].authorization == "Bearer s3cret"


def test_a_stale_version_and_a_taken_name_are_conflicts(client: KubeClient) -> None:
    first = client.create(MAPS, config_map("one"))
    client.patch(f"{MAPS}/one", {"data": {"a": "2"}})
    with pytest.raises(Conflict) as stale:
        client.replace(f"{MAPS}/one", first)
    with pytest.raises(Conflict) as old_patch:
        client.patch(f"{MAPS}/one", {"metadata": {"resourceVersion": first["metadata"]["resourceVersion"]}})
    with pytest.raises(Conflict) as taken:
        client.create(MAPS, config_map("one"))
    assert [error.value.reason for error in (stale, old_patch, taken)] == ["Conflict", "Conflict", "AlreadyExists"]


def test_listed_items_carry_kind_and_version_and_selectors_reach_the_server(client: KubeClient) -> None:
    client.create(MAPS, config_map("one", app="web"))
    client.create(MAPS, config_map("two", app="db"))
    by_label, version = client.list("/api/v1/configmaps", label_selector="app=web")
    by_field, _ = client.list(MAPS, field_selector="metadata.name=two")
    assert [(item["kind"], item["apiVersion"], item["metadata"]["name"]) for item in by_label + by_field] == [
        ("ConfigMap", "v1", "one"),
        ("ConfigMap", "v1", "two"),
    ]
    assert int(version) > 0


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, Invalid), (401, Forbidden), (403, Forbidden), (404, NotFound), (409, Conflict), (410, Gone),
        (418, ApiError), (422, Invalid), (500, ApiUnavailable), (503, ApiUnavailable),
    ],
)  # fmt: skip
def test_each_status_has_its_error(client: KubeClient, server: ApiServer, status: int, error: type[ApiError]) -> None:
    server.fail_next("GET", "/configmaps/one", status, "Because")
    with pytest.raises(ApiError) as raised:
        client.get(f"{MAPS}/one")
    assert (type(raised.value), raised.value.status, raised.value.reason) == (error, status, "Because")


def test_a_busy_server_says_when_to_come_back(client: KubeClient, server: ApiServer) -> None:
    server.fail_next("POST", "/configmaps", 429, "TooManyRequests", retry_after_s=7)
    with pytest.raises(TooManyRequests) as raised:
        client.create(MAPS, config_map("one"))
    assert raised.value.retry_after_s == 7
    assert len(server.calls("POST", "/configmaps")) == 1, "the adapter does not repeat a refused call by itself"


def test_a_server_that_is_away_is_unavailable(tmp_path: Path) -> None:
    with ApiServer() as server:
        path = server.kubeconfig(tmp_path / "kubeconfig")
    with pytest.raises(ApiUnavailable):
        KubeClient.connect(path).get(f"{MAPS}/one")


def test_without_a_kubeconfig_the_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="KUBECONFIG"):
        KubeClient.connect(str(tmp_path / "absent"))


def test_a_watch_gives_what_happened_after_its_version_and_ends_with_the_server(
    client: KubeClient, server: ApiServer
) -> None:
    client.create(MAPS, config_map("before"))
    _, version = client.list(MAPS)
    client.create(MAPS, config_map("one"))
    client.patch(f"{MAPS}/one", {"data": {"a": "2"}})
    client.delete(f"{MAPS}/one")
    events = client.watch(MAPS, version)
    seen = [next(events) for _ in range(3)]
    assert [(event.type, event.object["metadata"]["name"]) for event in seen] == [
        ("ADDED", "one"), ("MODIFIED", "one"), ("DELETED", "one"),
    ]  # fmt: skip
    server.close_watches()
    assert [event for event in events if event.type != "BOOKMARK"] == []


def test_a_watch_with_a_selector_sees_an_object_leave_it(client: KubeClient) -> None:
    client.create(MAPS, config_map("one", app="web"))
    _, version = client.list(MAPS)
    client.patch(f"{MAPS}/one", {"metadata": {"labels": {"app": "db"}}})
    assert next(client.watch(MAPS, version, label_selector="app=web")).type == "DELETED"


def test_a_quiet_watch_gets_bookmarks(client: KubeClient, server: ApiServer) -> None:
    client.create(MAPS, config_map("one"))
    _, version = client.list(MAPS)
    client.create("/api/v1/namespaces/shop/secrets", {"metadata": {"name": "other"}})
    bookmark = next(client.watch(MAPS, version))
    assert (bookmark.type, int(bookmark.object["metadata"]["resourceVersion"]) > int(version)) == ("BOOKMARK", True)


def test_a_forgotten_version_is_gone(client: KubeClient, server: ApiServer) -> None:
    _, version = client.list(MAPS)
    server.forget_history()
    with pytest.raises(Gone):
        next(client.watch(MAPS, version))


def test_an_event_about_a_cluster_scoped_object_stands_in_default(client: KubeClient, server: ApiServer) -> None:
    emit_event(
        client, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1", "uid": "u"}},
        reason="Why", message="because", component="test",
    )  # fmt: skip
    (event,) = server.all("/api/v1/events")
    assert event["metadata"]["namespace"] == "default"
    assert event["metadata"]["name"].startswith("node-1.")
    assert (event["involvedObject"]["kind"], event["reason"], event["count"]) == ("Node", "Why", 1)


def test_clients_are_shared_between_threads(client: KubeClient, server: ApiServer) -> None:
    threads = [
        threading.Thread(target=client.create, args=(MAPS, config_map(f"m{index}"))) for index in range(8)
    ]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(server.all("/api/v1/configmaps")) == 8
