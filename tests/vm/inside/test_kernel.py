"""The VM is what the other tests take it for: cgroup v2, pressure information, three NUMA nodes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_NODES = Path("/sys/devices/system/node")


def test_cgroup_v2_offers_memory_and_cpuset() -> None:
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]

    assert [kind for _, where, kind, *_ in mounts if where == "/sys/fs/cgroup"] == ["cgroup2"]
    assert {"memory", "cpuset"} <= set(Path("/sys/fs/cgroup/cgroup.controllers").read_text().split())
    assert {"memory", "cpuset"} <= set(Path("/sys/fs/cgroup/cgroup.subtree_control").read_text().split())


def test_pressure_is_reported_for_the_machine() -> None:
    some, full = Path("/proc/pressure/memory").read_text().splitlines()

    form = r"avg10=\d+\.\d\d avg60=\d+\.\d\d avg300=\d+\.\d\d total=\d+"
    assert re.fullmatch(f"some {form}", some)
    assert re.fullmatch(f"full {form}", full)


def test_three_numa_nodes_and_the_third_has_no_cpus() -> None:
    cpus = {path.name: (path / "cpulist").read_text().strip() for path in _NODES.glob("node[0-9]*")}

    assert cpus == {"node0": "0", "node1": "1", "node2": ""}
    assert (_NODES / "has_memory").read_text().strip() == "0-2"


@pytest.mark.parametrize("node", [0, 1, 2])
def test_every_numa_node_has_about_one_gibibyte(node: int) -> None:
    fields = re.findall(r"MemTotal:\s+(\d+) kB", (_NODES / f"node{node}" / "meminfo").read_text())

    [kibibytes] = fields
    # The kernel keeps its own image and page tables out of the total, most of it on node 0.
    assert 0.85 * 2**20 < int(kibibytes) <= 2**20
