"""Drift of a colocated pod's limits is found and repaired on real cgroups, and nobody dies of a repair."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from vm.inside.cgroups import MIB, Workload, counters, write
from vm.inside.pods import FORMS, PodCgroups, pod, tree

from nodeagent.decide import limits
from slackwater import names
from slackwater.adapters.cgroups import CgroupTree, LimitRefused
from slackwater.pod import PodView, read_pod

_BLOCK = 64 * MIB


@pytest.fixture(params=FORMS)
def lent(request: pytest.FixtureRequest) -> Iterator[tuple[PodView, PodCgroups]]:
    """A BE pod with two containers of two blocks and one: as the API server shows it, and its cgroups."""
    form: str = request.param
    uid = str(uuid.uuid4())
    with tree(form):
        cgroups = pod(form, "BestEffort", uid, containers=2)
        yield read_pod(_raw(uid, {"trainer": 2, "logger": 1}, _runtime_ids(uid))), cgroups


def _runtime_ids(uid: str) -> list[str]:
    tree = CgroupTree()
    return sorted(tree.containers(tree.pods()[uid]))


def _raw(uid: str, blocks: dict[str, int], runtime_ids: list[str]) -> dict[str, object]:
    """The part of a Pod object that decides its limits."""
    return {
        "metadata": {
            "name": "lent",
            "namespace": "default",
            "uid": uid,
            "labels": {names.QOS_LABEL: "BE"},
            "annotations": {names.BLOCK_SIZE_ANNOTATION: str(_BLOCK)},
        },
        "spec": {
            "nodeName": "this",
            "containers": [
                {"name": name, "resources": {"limits": {names.RESOURCE: str(count)}}} for name, count in blocks.items()
            ],
        },
        "status": {
            "phase": "Running",
            "containerStatuses": [
                {"name": name, "containerID": f"containerd://{one}"}
                for name, one in zip(blocks, runtime_ids, strict=True)
            ],
        },
    }


def _repair(view: PodView) -> list[tuple[str, int, int | None]]:
    """One turn of the agent: read what is in force, write what differs; return (container, new, old)."""
    agent = CgroupTree()
    found = agent.pods()[view.uid]
    by_id = agent.containers(found)
    directories = {limits.POD: found.path, **{name: by_id[one] for name, one in view.container_ids}}
    observed = [limits.Observed(name, agent.limit(path), limits.SETTLE_S) for name, path in directories.items()]
    planned = limits.repairs(limits.expected_limits(view, names.DEFAULT_BLOCK_SIZE), observed)
    for repair in planned:
        agent.set_limit(directories[repair.container], repair.expected)
    return [(repair.container, repair.expected, repair.actual) for repair in planned]


def _oom_kills(cgroups: PodCgroups) -> int:
    return counters(cgroups.pod / "memory.events")["oom_kill"]


def test_limits_that_nobody_set_are_set_and_then_left_alone(lent: tuple[PodView, PodCgroups]) -> None:
    view, cgroups = lent
    trainer, logger = cgroups.containers
    with Workload(trainer, anonymous=96 * MIB, cached=64 * MIB) as one, Workload(logger, anonymous=16 * MIB) as other:
        assert one.ready()
        assert other.ready()
        assert sorted(_repair(view)) == [
            ("", 3 * _BLOCK, None),
            ("logger", _BLOCK, None),
            ("trainer", 2 * _BLOCK, None),
        ]
        assert _repair(view) == []
        written = [(path / "memory.max").read_text() for path in (cgroups.pod, trainer, logger)]
        assert written == [f"{blocks * _BLOCK}\n" for blocks in (3, 2, 1)]
        assert one.alive()
        assert other.alive()
        assert _oom_kills(cgroups) == 0


@pytest.mark.parametrize("foreign", ["max", str(_BLOCK * 5 // 2), str(_BLOCK * 4)])
def test_a_foreign_write_is_repaired_in_one_turn(lent: tuple[PodView, PodCgroups], foreign: str) -> None:
    view, cgroups = lent
    with Workload(cgroups.containers[0], anonymous=32 * MIB) as workload:
        assert workload.ready()
        _repair(view)
        write(cgroups.pod / "memory.max", foreign)
        actual = None if foreign == "max" else int(foreign)
        assert _repair(view) == [("", 3 * _BLOCK, actual)]
        assert _repair(view) == []
        assert workload.alive()
        assert _oom_kills(cgroups) == 0


def test_a_pod_that_already_uses_more_is_not_killed_by_the_repair(lent: tuple[PodView, PodCgroups]) -> None:
    view, cgroups = lent
    with Workload(cgroups.containers[1], anonymous=96 * MIB) as workload:
        assert workload.ready()
        with pytest.raises(LimitRefused):
            _repair(view)
        assert (cgroups.containers[1] / "memory.max").read_text() == "max\n"
        assert workload.alive()
        assert _oom_kills(cgroups) == 0


def test_after_the_repair_a_container_is_held_to_its_own_blocks(lent: tuple[PodView, PodCgroups]) -> None:
    view, cgroups = lent
    trainer, logger = cgroups.containers
    _repair(view)
    with Workload(trainer, anonymous=96 * MIB) as modest:
        assert modest.ready()
        with Workload(logger, anonymous=96 * MIB) as greedy:
            assert greedy.killed()
        assert modest.alive()
    assert counters(logger / "memory.events")["oom_kill"] == 1
    assert counters(trainer / "memory.events")["oom_kill"] == 0
