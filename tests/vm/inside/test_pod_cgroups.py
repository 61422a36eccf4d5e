"""The node agent's reading and limiting of pods, on a real cgroup v2 kernel with real processes.

Every test runs on both forms of tree that a kubelet makes, and where the class matters on all three
Kubernetes QoS classes: the code must not care which it meets.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from vm.inside.cgroups import MIB, Workload, counters, make, remove, write
from vm.inside.pods import CLASSES, FORMS, PodCgroups, pod, tree

from slackwater.adapters.cgroups import CgroupTree, LimitRefused, Vanished

#: What a process holds beside the memory that it was told to hold: the interpreter and kernel structures.
_INTERPRETER = 16 * MIB

#: How far the whole machine's use may move for reasons of its own: what ended tests held is freed by and by.
_MACHINE_NOISE = 48 * MIB


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> Iterator[str]:
    """One form of tree, with its QoS levels."""
    chosen: str = request.param
    with tree(chosen):
        yield chosen


def _oom_kills(cgroups: PodCgroups) -> int:
    return counters(cgroups.pod / "memory.events")["oom_kill"]


@pytest.mark.parametrize("kubernetes_qos", CLASSES)
def test_a_pod_is_found_and_uses_what_it_cannot_give_back(form: str, kubernetes_qos: str) -> None:
    uid = str(uuid.uuid4())
    cgroups = pod(form, kubernetes_qos, uid, containers=2)
    first, second = cgroups.containers
    agent = CgroupTree()
    with (
        Workload(first, anonymous=48 * MIB, cached=64 * MIB) as one,
        Workload(second, shared=32 * MIB, cached=32 * MIB) as other,
    ):
        assert one.ready()
        assert other.ready()
        found = agent.pods()
        assert {name: (one.path, one.driver.value) for name, one in found.items()} == {uid: (cgroups.pod, form)}
        assert set(agent.containers(found[uid]).values()) == {first, second}
        assert 80 * MIB <= agent.pod_used(found[uid]) <= 80 * MIB + 2 * _INTERPRETER
        # The kernel, in contrast, charges the cache as well.
        assert agent.usage(cgroups.pod) >= (80 + 96) * MIB


def test_pods_of_all_classes_and_both_forms_are_told_apart() -> None:
    sizes = {(form, kubernetes_qos): 8 * MIB * number for number, (form, kubernetes_qos) in enumerate(_every_kind(), 1)}
    agent = CgroupTree()
    running: list[Workload] = []
    expected: dict[str, int] = {}
    with tree("cgroupfs"), tree("systemd"):
        try:
            for (form, kubernetes_qos), size in sizes.items():
                cgroups = pod(form, kubernetes_qos, str(uuid.uuid4()))
                running.append(Workload(cgroups.containers[0], anonymous=size))
                expected[cgroups.uid] = size
            assert all(one.ready() for one in running)
            used = {uid: agent.pod_used(one) for uid, one in agent.pods().items()}
        finally:
            for one in running:
                one.close()
    assert used.keys() == expected.keys()
    for uid, size in expected.items():
        assert size <= used[uid] <= size + _INTERPRETER


def _every_kind() -> list[tuple[str, str]]:
    return [(form, kubernetes_qos) for form in FORMS for kubernetes_qos in CLASSES]


def test_dropping_the_page_cache_changes_nothing(form: str) -> None:
    cgroups = pod(form, "BestEffort", str(uuid.uuid4()))
    agent = CgroupTree()
    with Workload(cgroups.containers[0], anonymous=16 * MIB, cached=96 * MIB) as workload:
        assert workload.ready()
        found = agent.pods()[cgroups.uid]
        used_before, charged_before = agent.pod_used(found), agent.usage(cgroups.pod)
        write(cgroups.pod / "memory.reclaim", str(64 * MIB))
        used_after, charged_after = agent.pod_used(found), agent.usage(cgroups.pod)

    assert charged_before - charged_after >= 60 * MIB
    assert abs(used_before - used_after) <= 2 * MIB


def test_the_machine_uses_what_its_pods_use_and_no_cache(form: str) -> None:
    """MemAvailable keeps back the first cache, up to the low watermark; what comes after is available."""
    cgroups = pod(form, "Burstable", str(uuid.uuid4()), containers=2)
    first, second = cgroups.containers
    agent = CgroupTree()
    with Workload(first, cached=256 * MIB) as reader:
        assert reader.ready()
        before = agent.node_memory()
        with Workload(second, anonymous=128 * MIB, cached=256 * MIB) as workload:
            assert workload.ready()
            during = agent.node_memory()

    assert before.capacity == during.capacity
    assert 2600 * MIB <= during.capacity <= 3072 * MIB
    assert abs(during.used - before.used - 128 * MIB) <= _MACHINE_NOISE


def test_a_cgroup_can_stand_for_the_node(form: str) -> None:
    cgroups = pod(form, "BestEffort", str(uuid.uuid4()))
    top = "kubepods" if form == "cgroupfs" else "kubepods.slice"
    agent = CgroupTree(node_cgroup=f"/{top}", node_capacity=512 * MIB)
    with Workload(cgroups.containers[0], anonymous=64 * MIB, cached=64 * MIB) as workload:
        assert workload.ready()
        node = agent.node_memory()

    assert node.capacity == 512 * MIB
    assert 64 * MIB <= node.used <= 64 * MIB + _INTERPRETER
    assert agent.numa_memory() == ()


def test_memory_on_the_numa_node_without_cpus_is_accounted_there(form: str) -> None:
    cgroups = pod(form, "BestEffort", str(uuid.uuid4()))
    write(cgroups.pod / "cpuset.mems", "2")
    agent = CgroupTree()
    before = {numa.id: numa.memory for numa in agent.numa_memory()}
    with Workload(cgroups.containers[0], anonymous=128 * MIB, cached=64 * MIB) as workload:
        assert workload.ready()
        during = {numa.id: numa.memory for numa in agent.numa_memory()}
        held = agent.pod_used_by_numa(agent.pods()[cgroups.uid])

    assert list(before) == [0, 1, 2]
    grown = {node: during[node].used - before[node].used for node in during}
    assert abs(grown[2] - 128 * MIB) <= _MACHINE_NOISE
    assert abs(grown[0]) <= _MACHINE_NOISE
    assert abs(grown[1]) <= _MACHINE_NOISE
    assert 128 * MIB <= held[2] <= 128 * MIB + _INTERPRETER
    assert held[0] + held[1] <= 2 * MIB


@pytest.mark.parametrize("kubernetes_qos", CLASSES)
def test_a_limit_is_set_and_set_again_on_a_pod_that_fits(form: str, kubernetes_qos: str) -> None:
    cgroups = pod(form, kubernetes_qos, str(uuid.uuid4()))
    agent = CgroupTree()
    with Workload(cgroups.containers[0], anonymous=32 * MIB) as workload:
        assert workload.ready()
        assert agent.limit(cgroups.pod) is None
        for directory in (cgroups.pod, cgroups.containers[0]):
            agent.set_limit(directory, 64 * MIB)
            assert agent.limit(directory) == 64 * MIB
        write(cgroups.pod / "memory.max", "max")  # somebody else's write
        assert agent.limit(cgroups.pod) is None
        agent.set_limit(cgroups.pod, 64 * MIB)
        assert (cgroups.pod / "memory.max").read_text() == f"{64 * MIB}\n"
        assert workload.alive()
        assert _oom_kills(cgroups) == 0


def test_a_limit_below_the_use_is_refused_and_nobody_is_killed(form: str) -> None:
    cgroups = pod(form, "BestEffort", str(uuid.uuid4()))
    agent = CgroupTree()
    with Workload(cgroups.containers[0], anonymous=96 * MIB) as workload:
        assert workload.ready()
        agent.set_limit(cgroups.pod, 256 * MIB)
        with pytest.raises(LimitRefused, match=str(64 * MIB)):
            agent.set_limit(cgroups.pod, 64 * MIB)
        assert agent.limit(cgroups.pod) == 256 * MIB
        assert workload.alive()
        assert _oom_kills(cgroups) == 0


def test_page_cache_makes_room_for_a_lower_limit(form: str) -> None:
    cgroups = pod(form, "BestEffort", str(uuid.uuid4()))
    agent = CgroupTree()
    with Workload(cgroups.containers[0], anonymous=32 * MIB, cached=128 * MIB) as workload:
        assert workload.ready()
        assert agent.usage(cgroups.pod) > 96 * MIB
        agent.set_limit(cgroups.pod, 96 * MIB)
        assert agent.limit(cgroups.pod) == 96 * MIB
        assert agent.usage(cgroups.pod) <= 96 * MIB
        assert workload.alive()
        assert _oom_kills(cgroups) == 0


def test_the_limit_holds_the_pod_and_a_container_that_starts_again_in_it(form: str) -> None:
    limited = pod(form, "BestEffort", str(uuid.uuid4()))
    beside = pod(form, "Burstable", str(uuid.uuid4()))
    agent = CgroupTree()
    agent.set_limit(limited.pod, 64 * MIB)
    container = limited.containers[0]
    with Workload(beside.containers[0], anonymous=96 * MIB) as bystander:
        assert bystander.ready()
        for attempt in (1, 2):
            with Workload(container, anonymous=128 * MIB) as greedy:
                assert greedy.killed()
            assert _oom_kills(limited) == attempt
            # The runtime makes a new directory for a container that starts again; the pod's stays.
            container.rmdir()
            make(container)
        assert bystander.alive()
        assert _oom_kills(beside) == 0


def test_a_pod_that_has_ended_has_vanished(form: str) -> None:
    cgroups = pod(form, "BestEffort", str(uuid.uuid4()))
    agent = CgroupTree()
    found = agent.pods()[cgroups.uid]
    remove(cgroups.pod)

    assert agent.pods() == {}
    assert agent.containers(found) == {}
    with pytest.raises(Vanished):
        agent.pod_used(found)
    with pytest.raises(Vanished):
        agent.limit(cgroups.pod)
    with pytest.raises(Vanished):
        agent.set_limit(cgroups.pod, 64 * MIB)
