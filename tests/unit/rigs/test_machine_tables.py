"""What the rigs read from the kernel's tables."""

from pathlib import Path

from rigs.cgroups import CgroupTree, Hierarchy, find_hierarchies, is_within
from rigs.mounts import Mount, parse_mountinfo
from rigs.state import parse_start_time

HYBRID = """\
20 1 0:18 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
30 20 0:25 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
31 30 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
32 30 0:27 / /sys/fs/cgroup/memory rw,relatime shared:7 master:2 - cgroup cgroup rw,memory
33 30 0:28 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
34 30 0:29 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
35 20 0:30 / /mnt/with\\040blank rw - tmpfs tmpfs rw
36 20 0:27 / /host/sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
"""


def test_mount_points_are_unescaped() -> None:
    assert parse_mountinfo(HYBRID)[6] == Mount(Path("/mnt/with blank"), "tmpfs", frozenset({"rw"}))


def test_a_line_without_the_separator_is_passed_over() -> None:
    assert parse_mountinfo("garbage\n") == []


def test_hybrid_hierarchies_are_found_and_copies_elsewhere_are_not() -> None:
    assert find_hierarchies(parse_mountinfo(HYBRID)) == [
        Hierarchy(Path("/sys/fs/cgroup/cpu,cpuacct"), False, frozenset({"cpu", "cpuacct"})),
        Hierarchy(Path("/sys/fs/cgroup/memory"), False, frozenset({"memory"})),
        Hierarchy(Path("/sys/fs/cgroup/systemd"), False, frozenset()),
        Hierarchy(Path("/sys/fs/cgroup/unified"), True, frozenset()),
    ]


def test_memory_is_in_the_hierarchy_that_has_the_controller() -> None:
    tree = CgroupTree("/slackwater-rig", tuple(find_hierarchies(parse_mountinfo(HYBRID))))
    assert tree.memory == Path("/sys/fs/cgroup/memory/slackwater-rig")


def test_memory_is_in_the_only_hierarchy_of_a_pure_version_2_machine() -> None:
    tree = CgroupTree("/slackwater-rig", (Hierarchy(Path("/sys/fs/cgroup"), True, frozenset()),))
    assert tree.memory == Path("/sys/fs/cgroup/slackwater-rig")


def test_a_longer_name_is_not_within_a_cgroup() -> None:
    assert is_within("/slackwater-rig", "/slackwater-rig")
    assert is_within("/slackwater-rig/kubepods/podx", "/slackwater-rig")
    assert not is_within("/slackwater-rig2/kubepods", "/slackwater-rig")
    assert not is_within("/", "/slackwater-rig")


def test_start_time_is_read_behind_a_command_with_brackets_and_blanks() -> None:
    fields = " ".join(["S", *(str(number) for number in range(4, 53))])
    assert parse_start_time(f"42 (a) b (c) {fields}") == 22


def test_a_zombie_does_not_run() -> None:
    fields = " ".join(["Z", *(str(number) for number in range(4, 53))])
    assert parse_start_time(f"42 (etcd) {fields}") is None
