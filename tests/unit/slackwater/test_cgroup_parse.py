"""The kernel's texts as values. The texts are shortened from real ones (6.1, 6.18)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.cgroup import parse
from slackwater.cgroup.parse import MachineMemory, Unreadable, Version

V1 = """cache 9228288
inactive_anon 1
active_anon 2
total_inactive_anon 9822208
total_active_anon 1605632
total_inactive_file 20561920
total_active_file 28835840
total_unevictable 19353600
"""
V2 = """anon 4096000
file 8192000
kernel 900000
sock 5000
slab_reclaimable 600000
slab_unreclaimable 100000
inactive_anon 1000000
active_anon 3096000
inactive_file 5000000
active_file 3192000
unevictable 4096
"""
MEMINFO = """MemTotal:       24684092 kB
MemFree:        20000000 kB
MemAvailable:   24273308 kB
HugePages_Total:       0
Hugepagesize:       2048 kB
Hugetlb:               0 kB
"""
NUMA = """Node 1 MemTotal:       10971348 kB
Node 1 MemFree:        10363396 kB
Node 1 Active(file):      28148 kB
Node 1 Inactive(file):    20108 kB
Node 1 SReclaimable:     404992 kB
Node 1 HugePages_Total:     0
"""


def test_a_pod_holds_its_lru_lists_of_all_descendants_on_v1() -> None:
    assert parse.pod_used(parse.parse_stat(V1), Version.V1) == 9822208 + 1605632 + 19353600


def test_a_pod_holds_also_its_kernel_memory_on_v2_but_not_reclaimable_slab() -> None:
    assert parse.pod_used(parse.parse_stat(V2), Version.V2) == 1000000 + 3096000 + 4096 + 300000 + 5000


def test_before_5_18_the_kernels_share_is_the_sum_of_its_parts() -> None:
    old = V2.replace("kernel 900000", "kernel_stack 50000\npagetables 150000\npercpu 0\nslab 700000")
    assert parse.pod_used(parse.parse_stat(old), Version.V2) == parse.pod_used(parse.parse_stat(V2), Version.V2)


@given(cache=st.integers(0, 2**50), version=st.sampled_from(Version))
def test_cache_that_can_be_dropped_is_never_use(cache: int, version: Version) -> None:
    prefix = "total_" if version is Version.V1 else ""
    stat = {
        f"{prefix}inactive_anon": 5,
        f"{prefix}active_anon": 7,
        f"{prefix}unevictable": 0,
        f"{prefix}inactive_file": cache // 3,
        f"{prefix}active_file": cache - cache // 3,
    }
    assert parse.pod_used(stat, version) == 12
    assert parse.node_used(12 + cache, stat, version) == 12


def test_a_stat_that_lags_behind_the_usage_never_gives_less_than_nothing() -> None:
    assert parse.node_used(1, parse.parse_stat(V2), Version.V2) == 0


@pytest.mark.parametrize("version", Version)
def test_a_text_that_is_no_memory_stat_is_refused(version: Version) -> None:
    with pytest.raises(Unreadable, match="inactive_anon is missing"):
        parse.pod_used(parse.parse_stat("nonsense\n\x00\n12 12 12\nanon -5"), version)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("max\n", None),
        ("9223372036854771712\n", None),  # v1, 4 KiB pages
        ("9223372036854710272\n", None),  # v1, 64 KiB pages
        ("1073741824\n", 1 << 30),
        ("0\n", 0),
    ],
)
def test_limits(text: str, limit: int | None) -> None:
    assert parse.parse_limit(text) == limit


@pytest.mark.parametrize("text", ["", "12 34", "-1", "1e3", "١"])
def test_what_is_no_number_is_no_limit(text: str) -> None:
    with pytest.raises(Unreadable):
        parse.parse_limit(text)


def test_a_machine_uses_what_is_not_available() -> None:
    assert parse.parse_meminfo(MEMINFO) == MachineMemory(24684092 * 1024, (24684092 - 24273308) * 1024)


def test_hugepages_belong_neither_to_capacity_nor_to_use() -> None:
    reserved = MEMINFO.replace("Hugetlb:               0", "Hugetlb:         4000000").replace("24273308", "20273308")
    assert parse.parse_meminfo(reserved) == MachineMemory(20684092 * 1024, (24684092 - 24273308) * 1024)


def test_a_numa_node_has_no_memavailable_so_cache_is_taken_out() -> None:
    used = 10971348 - 10363396 - 28148 - 20108 - 404992
    assert parse.parse_numa_meminfo(NUMA) == MachineMemory(10971348 * 1024, used * 1024)


@pytest.mark.parametrize("reader", [parse.parse_meminfo, parse.parse_numa_meminfo])
@pytest.mark.parametrize("text", ["", "MemTotal: lots kB", "MemFree: 1 kB"])
def test_a_meminfo_without_its_lines_is_refused(reader: object, text: str) -> None:
    assert callable(reader)
    with pytest.raises(Unreadable):
        reader(text)


def test_use_by_numa_node_in_both_forms() -> None:
    v2 = "anon N0=10 N1=20\ninactive_anon N0=4096 N1=8192\nactive_anon N0=1 N1=2\nunevictable N0=0 N1=5\n"
    v1 = "hierarchical_total=9 N0=9\nhierarchical_anon=3 N0=1 N1=2\nhierarchical_unevictable=1 N0=0 N1=1\n\n"
    assert parse.pod_used_by_numa(v2, Version.V2, 4096) == {0: 4097, 1: 8199}
    assert parse.pod_used_by_numa(v1, Version.V1, 4096) == {0: 4096, 1: 12288}
