"""The cgroup adapter on folders of plain files: two versions × two drivers × three classes, any root.

What only a kernel does (EBUSY, reclaim, OOM) is shown on real kernels elsewhere.
"""

from pathlib import Path

import pytest
from component.nodeagent.host_files import GIB, MIB, HostFiles

from slackwater.adapters.cgroups import CgroupTree, LimitRefused, NumaMemory, Vanished
from slackwater.cgroup.layout import Driver
from slackwater.cgroup.parse import MachineMemory, Version
from slackwater.errors import Unavailable

UID = "6f1c2a7e-0b7d-4c53-9a55-2f0a3a1f6f10"
STATIC = "0123456789abcdef0123456789abcdef"

every_form = pytest.mark.parametrize(
    ("version", "driver", "root"),
    [(version, driver, root) for version in Version for driver in Driver for root in ("", "/kubelet-2/inner")],
)
both_versions = pytest.mark.parametrize("version", Version)


@every_form
def test_pods_of_every_class_are_found_and_measured_without_cache(
    tmp_path: Path, version: Version, driver: Driver, root: str
) -> None:
    files = HostFiles(tmp_path, version, driver, root)
    expected = {}
    for number, qos in enumerate(("Guaranteed", "Burstable", "BestEffort")):
        uid = f"{UID[:-1]}{number}"
        files.pod(uid, used=(number + 1) * MIB, cache=GIB, qos=qos)
        expected[uid] = (number + 1) * MIB
    files.pod(STATIC, used=7 * MIB, qos="Burstable")
    expected[STATIC] = 7 * MIB
    tree = CgroupTree(tmp_path, kubelet_root=root)
    assert (tree.version, {uid: tree.pod_used(cgroup) for uid, cgroup in tree.pods().items()}) == (version, expected)


@every_form
def test_limits_of_pod_and_containers_are_read_and_written(
    tmp_path: Path, version: Version, driver: Driver, root: str
) -> None:
    files = HostFiles(tmp_path, version, driver, root)
    directory = files.pod(UID, used=10 * MIB)
    container = files.container(directory, "a" * 64, limit=GIB)
    tree = CgroupTree(tmp_path, kubelet_root=root)
    pod = tree.pods()[UID]
    assert tree.containers(pod) == {"a" * 64: container}
    assert (tree.limit(pod.path), tree.limit(container)) == (None, GIB)
    tree.set_limit(pod.path, 512 * MIB)
    assert tree.limit(pod.path) == 512 * MIB


@both_versions
def test_no_limit_is_lowered_below_what_is_held(tmp_path: Path, version: Version) -> None:
    files = HostFiles(tmp_path, version)
    directory = files.pod(UID, used=600 * MIB, limit=GIB)
    tree = CgroupTree(tmp_path)
    with pytest.raises(LimitRefused, match=f"holds {600 * MIB} bytes of {512 * MIB}"):
        tree.set_limit(directory, 512 * MIB)
    assert files.read_limit(directory) == str(GIB)


def test_v2_is_not_lowered_while_cache_stays_charged(tmp_path: Path) -> None:
    files = HostFiles(tmp_path, Version.V2)
    directory = files.pod(UID, used=100 * MIB, cache=500 * MIB, limit=GIB)
    tree = CgroupTree(tmp_path)
    with pytest.raises(LimitRefused, match=f"uses {600 * MIB} bytes of {512 * MIB}"):
        tree.set_limit(directory, 512 * MIB)
    assert files.read_limit(directory) == str(GIB)


@both_versions
def test_a_pod_that_has_gone_is_vanished_not_broken(tmp_path: Path, version: Version) -> None:
    files = HostFiles(tmp_path, version)
    files.pod(UID, used=1)
    tree = CgroupTree(tmp_path)
    pod = tree.pods()[UID]
    for file in pod.path.iterdir():
        file.unlink()
    pod.path.rmdir()
    for call in (tree.pod_used, lambda gone: tree.limit(gone.path), lambda gone: tree.set_limit(gone.path, 1)):
        with pytest.raises(Vanished):
            call(pod)
    assert tree.containers(pod) == {}
    assert tree.pods() == {}


@both_versions
def test_garbage_in_a_pods_files_is_unavailable(tmp_path: Path, version: Version) -> None:
    files = HostFiles(tmp_path, version)
    directory = files.pod(UID, used=1)
    (directory / "memory.stat").write_text("\0\0\0")
    (directory / files.limit_file).write_text("lots")
    tree = CgroupTree(tmp_path)
    with pytest.raises(Unavailable, match="inactive_anon is missing"):
        tree.pod_used(tree.pods()[UID])
    with pytest.raises(Unavailable, match="'lots' is not a number"):
        tree.limit(directory)


@both_versions
def test_the_machine_is_the_node_unless_a_cgroup_is(tmp_path: Path, version: Version) -> None:
    files = HostFiles(tmp_path, version)
    files.machine(8 * GIB, 3 * GIB, cache=GIB)
    files.cgroup("rig", used=100 * MIB, cache=400 * MIB, limit=2 * GIB)
    assert CgroupTree(tmp_path).node_memory() == MachineMemory(8 * GIB, 3 * GIB)
    assert CgroupTree(tmp_path, node_cgroup="/rig").node_memory() == MachineMemory(2 * GIB, 100 * MIB)
    told = CgroupTree(tmp_path, node_cgroup="/rig", node_capacity=GIB)
    assert told.node_memory() == MachineMemory(GIB, 100 * MIB)


@both_versions
def test_a_node_cgroup_without_limit_needs_a_capacity(tmp_path: Path, version: Version) -> None:
    HostFiles(tmp_path, version).cgroup("rig", used=1)
    with pytest.raises(Unavailable, match="give the capacity"):
        CgroupTree(tmp_path, node_cgroup="rig").node_memory()


def test_a_node_that_cannot_be_read_is_unavailable(tmp_path: Path) -> None:
    HostFiles(tmp_path)
    with pytest.raises(Unavailable, match="proc/meminfo"):
        CgroupTree(tmp_path).node_memory()


def test_no_memory_controller_says_what_to_mount(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="mount the host's /sys/fs/cgroup there"):
        CgroupTree(tmp_path)


def test_numa_counts_where_there_is_more_than_one_node_with_memory(tmp_path: Path) -> None:
    files = HostFiles(tmp_path)
    files.numa(0, 4 * GIB, GIB, cache=GIB)
    assert CgroupTree(tmp_path).numa_memory() == ()
    files.numa(1, 4 * GIB, 2 * GIB)
    files.numa(2, 0, 0)
    tree = CgroupTree(tmp_path)
    assert tree.numa_memory() == (
        NumaMemory(0, MachineMemory(4 * GIB, GIB)),
        NumaMemory(1, MachineMemory(4 * GIB, 2 * GIB)),
    )
    assert CgroupTree(tmp_path, node_cgroup="rig", node_capacity=GIB).numa_memory() == ()
