"""The local copy of a collection stays right through closed watches, forgotten versions, errors and absent types."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from component.apiserver import ApiServer
from component.https_process import eventually

from slackwater.adapters import reflector as reflector_module
from slackwater.adapters.kube import KubeClient
from slackwater.adapters.reflector import Reflector

NOTEBOOKS = "/apis/tensorstack.dev/v1beta1/notebooks"
Start = Callable[..., Reflector]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time only: the same recoveries, sooner."""
    monkeypatch.setattr(reflector_module, "_FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr(reflector_module, "_ABSENT_PAUSE_S", 0.1)


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        yield running


@pytest.fixture
def start(server: ApiServer, tmp_path: Path) -> Iterator[Start]:
    client = KubeClient.connect(server.kubeconfig(tmp_path / "kubeconfig"))
    stop = threading.Event()
    threads: list[threading.Thread] = []

    def started(**arguments: Any) -> Reflector:
        made = Reflector(client, NOTEBOOKS, **arguments)
        threads.append(made.start(stop))
        return made

    yield started
    stop.set()
    server.close_watches()
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()


def notebook(name: str, **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "shop", "labels": labels}
    return {"apiVersion": "tensorstack.dev/v1beta1", "kind": "Notebook", "metadata": metadata}


def named(reflector: Reflector) -> set[str]:
    return {item["metadata"]["name"] for item in reflector.objects()}


def test_what_is_there_and_what_comes_later_is_copied(server: ApiServer, start: Start) -> None:
    server.put(NOTEBOOKS, notebook("old"))
    seen: list[tuple[str, str]] = []
    copy = start(on_change=lambda kind, raw: seen.append((kind, raw["metadata"]["name"])))
    assert copy.synced.wait(5)
    server.put(NOTEBOOKS, notebook("new"))
    assert eventually(lambda: named(copy) == {"old", "new"})
    server.remove("/apis/tensorstack.dev/v1beta1/namespaces/shop/notebooks/old")
    assert eventually(lambda: named(copy) == {"new"})
    assert eventually(lambda: seen == [("ADDED", "old"), ("ADDED", "new"), ("DELETED", "old")])
    assert copy.get("shop/new") is not None
    age_s = copy.age_s()
    assert age_s is not None
    assert 0 <= age_s < 5


def test_a_closed_watch_is_taken_up_where_it_ended(server: ApiServer, start: Start) -> None:
    copy = start()
    assert copy.synced.wait(5)
    server.close_watches()
    server.put(NOTEBOOKS, notebook("new"))
    assert eventually(lambda: named(copy) == {"new"})
    assert len(server.calls("GET", NOTEBOOKS)) == 1, "one list is enough"


def test_a_forgotten_version_leads_to_a_new_list_that_tells_the_differences(server: ApiServer, start: Start) -> None:
    server.put(NOTEBOOKS, notebook("stays"))
    server.put(NOTEBOOKS, notebook("goes"))
    seen: list[tuple[str, str]] = []
    copy = start(on_change=lambda kind, raw: seen.append((kind, raw["metadata"]["name"])))
    assert copy.synced.wait(5)
    server.fail_next("GET", NOTEBOOKS, 503, times=2)
    server.close_watches()
    server.remove("/apis/tensorstack.dev/v1beta1/namespaces/shop/notebooks/goes")
    server.put(NOTEBOOKS, notebook("comes"))
    server.forget_history()
    assert eventually(lambda: named(copy) == {"stays", "comes"})
    assert eventually(lambda: set(seen[2:]) == {("ADDED", "comes"), ("DELETED", "goes")})


def test_a_selector_holds_for_list_and_watch(server: ApiServer, start: Start) -> None:
    server.put(NOTEBOOKS, notebook("mine", team="a"))
    server.put(NOTEBOOKS, notebook("theirs", team="b"))
    copy = start(label_selector="team=a")
    assert copy.synced.wait(5)
    server.put(NOTEBOOKS, notebook("mine-too", team="a"))
    assert eventually(lambda: named(copy) == {"mine", "mine-too"})
    server.put(NOTEBOOKS, notebook("mine", team="b"))
    assert eventually(lambda: named(copy) == {"mine-too"})


def test_a_type_that_is_installed_later_is_found(server: ApiServer, start: Start) -> None:
    server.absent.add(NOTEBOOKS)
    copy = start()
    assert copy.synced.wait(5), "a sure answer that the type does not exist is an answer"
    assert copy.absent
    server.absent.clear()
    server.put(NOTEBOOKS, notebook("first"))
    assert eventually(lambda: named(copy) == {"first"} and not copy.absent)


def test_a_refused_list_is_tried_again(server: ApiServer, start: Start) -> None:
    server.fail_next("GET", NOTEBOOKS, 403, times=3)
    copy = start()
    assert copy.synced.wait(5)


def test_a_fault_in_a_callback_does_not_end_the_copy(server: ApiServer, start: Start) -> None:
    def stumble(_kind: str, raw: dict[str, Any]) -> None:
        if raw["metadata"]["name"] == "odd":
            raise RuntimeError("cannot read this one")

    copy = start(on_change=stumble)
    assert copy.synced.wait(5)
    server.put(NOTEBOOKS, notebook("odd"))
    server.put(NOTEBOOKS, notebook("even"))
    assert eventually(lambda: named(copy) == {"odd", "even"})
