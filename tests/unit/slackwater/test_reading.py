"""MemoryReadings, and whose sample is whose."""

from datetime import UTC, datetime
from typing import Any

import pytest
from builders import PodBuilder, ReadingBuilder, pod, reading

from slackwater import names
from slackwater.errors import InputError
from slackwater.pod import read_pod
from slackwater.reading import MemoryReading, NumaReading, PodSample, attribute, read_reading

G = 10**9


def test_the_documented_example() -> None:
    raw = {
        "apiVersion": names.API_VERSION,
        "kind": "MemoryReading",
        "metadata": {"name": "node-1"},
        "time": "2026-01-01T00:00:00Z",
        "node": {
            "capacity": "120G",
            "used": "115G",
            "available": "5G",
            "systemReserved": "2G",
            "numa": [{"id": 0, "capacity": "60G", "used": "58G"}],
        },
        "pods": [
            {"namespace": "default", "name": "be1", "used": "5G", "numa": [{"id": 0, "used": "5G"}]},
            {"uid": "u-2", "used": 17},
        ],
    }
    assert read_reading(raw) == MemoryReading(
        node="node-1",
        time=datetime(2026, 1, 1, tzinfo=UTC),
        capacity=120 * G,
        used=115 * G,
        available=5 * G,
        system_reserved=2 * G,
        numa=(NumaReading(0, 60 * G, 58 * G),),
        pods=(PodSample(None, "default", "be1", 5 * G, ((0, 5 * G),)), PodSample("u-2", "default", "", 17)),
    )


@pytest.mark.parametrize(
    ("used", "available", "in_use"),
    [
        pytest.param("70G", None, 70 * G, id="used"),
        pytest.param("70G", "40G", 60 * G, id="available-decides-because-used-holds-cache"),
        pytest.param(None, "40G", 60 * G, id="available-alone"),
        pytest.param(None, "100G", 0, id="all-available"),
    ],
)
def test_memory_in_use(used: str | None, available: str | None, in_use: int) -> None:
    raw = reading(capacity="100G").set("node.available", available).set("node.used", used).raw
    assert read_reading(raw).in_use == in_use


def test_dropping_cache_changes_nothing() -> None:
    """Used with 30 G of cache, and after the cache was dropped."""
    before = reading(capacity="100G", used="70G").set("node.available", "60G")
    after = reading(capacity="100G", used="40G").set("node.available", "60G")
    assert read_reading(before.raw).in_use == read_reading(after.raw).in_use


@pytest.mark.parametrize(
    ("built", "where"),
    [
        pytest.param(reading().set("apiVersion", "v1"), ["apiVersion"], id="version"),
        pytest.param(reading().set("metadata", {}), ["metadata.name"], id="no-name"),
        pytest.param(reading().set("time", None), ["time"], id="no-time"),
        pytest.param(reading().set("time", "now"), ["time"], id="bad-time"),
        pytest.param(reading().set("node", None), ["node"], id="no-node"),
        pytest.param(reading().set("node", {"capacity": "1G"}), ["node.used"], id="no-used"),
        pytest.param(reading().set("node", {"used": "1G"}), ["node.capacity"], id="no-capacity"),
        pytest.param(reading(capacity="0"), ["node.capacity"], id="zero-capacity"),
        pytest.param(reading(capacity="-5G"), ["node.capacity"], id="negative"),
        pytest.param(reading(used="12GB"), ["node.used"], id="no-quantity"),
        pytest.param(reading().set("node.used", float("nan")), ["node.used"], id="nan"),
        pytest.param(reading().set("node.used", True), ["node.used"], id="boolean"),
        pytest.param(reading().set("node.available", "200Gi"), ["node.available"], id="more-than-there-is"),
        pytest.param(reading().set("pods", {}), ["pods"], id="pods-no-list"),
        pytest.param(reading().set("pods", [5]), ["pods[0]"], id="sample-no-object"),
        pytest.param(reading().set("pods", [{"used": "1G"}]), ["pods[0]"], id="nobodys-sample"),
        pytest.param(reading().set("pods", [{"name": "x"}]), ["pods[0].used"], id="sample-without-use"),
        pytest.param(reading().set("pods", [{"name": "x", "used": "-1"}]), ["pods[0].used"], id="negative-use"),
        pytest.param(reading().set("pods", [{"name": "x", "used": 1}] * 2), ["pods"], id="twice"),
        pytest.param(
            reading().set("node.numa", [{"id": "0", "capacity": 1, "used": 1}]), ["node.numa[0].id"], id="numa-id"
        ),
        pytest.param(
            reading().set("node.numa", [{"id": 0, "capacity": 1, "used": 1}] * 2), ["node.numa"], id="numa-twice"
        ),
        pytest.param(reading(used="x").set("time", "y"), ["node.used", "time"], id="all-at-once"),
    ],
)
def test_what_cannot_be_used_names_its_field(built: ReadingBuilder, where: list[str]) -> None:
    with pytest.raises(InputError) as refusal:
        read_reading(built.raw)
    assert sorted(problem.where for problem in refusal.value.problems) == where


def test_an_unknown_field_and_use_above_capacity_are_warnings() -> None:
    found = read_reading(reading(capacity="1G", used="2G").set("node.availabel", "1G").raw)
    assert len(found.warnings) == 2


def samples(*entries: dict[str, Any]) -> ReadingBuilder:
    return reading().set("pods", list(entries))


@pytest.mark.parametrize(
    ("built", "pods", "owned", "unlisted"),
    [
        pytest.param(samples({"name": "a", "used": 1}), [pod("a")], {"default/a": 1}, 0, id="by-name"),
        pytest.param(samples({"uid": "uid-default-a", "used": 1}), [pod("a")], {"default/a": 1}, 0, id="by-uid"),
        pytest.param(samples(), [pod("a")], {"default/a": None}, 0, id="no-sample"),
        pytest.param(samples({"name": "a", "used": 1}), [], {}, 1, id="no-pod"),
        pytest.param(
            samples({"name": "a", "namespace": "x", "used": 1}), [pod("a")], {"default/a": None}, 1, id="namespace"
        ),
        pytest.param(
            samples({"uid": "old", "name": "a", "used": 1}),
            [pod("a")],
            {"default/a": None},
            1,
            id="an-earlier-pod-of-that-name",
        ),
        pytest.param(
            samples({"uid": "u", "name": "a", "used": 1}),
            [pod("a").uid("")],
            {"default/a": 1},
            0,
            id="a-manifest-has-no-uid",
        ),
        pytest.param(samples({"name": "a", "used": 1}), [pod("a").on("node-2")], {}, 1, id="bound-elsewhere"),
        pytest.param(samples(), [pod("a").unbound()], {}, 0, id="not-bound"),
        pytest.param(samples({"name": "a", "used": 1}), [pod("a").unbound()], {"default/a": 1}, 0, id="measured-here"),
        pytest.param(
            samples({"name": "a", "used": 1}, {"uid": "uid-default-a", "used": 2}),
            [pod("a")],
            {"default/a": 1},
            1,
            id="two-samples",
        ),
    ],
)
def test_whose_sample(
    built: ReadingBuilder, pods: list[PodBuilder], owned: dict[str, int | None], unlisted: int
) -> None:
    found = attribute(read_reading(built.raw), [read_pod(each.raw) for each in pods])
    assert {sampled.pod.key: sampled.used for sampled in found.pods} == owned
    assert len(found.unlisted) == len(found.warnings) == unlisted
