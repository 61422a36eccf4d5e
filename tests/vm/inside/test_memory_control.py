"""What the kernel itself promises about limits and reclaim, on which the agent's steps are built.

Kernel documentation: Documentation/admin-guide/cgroup-v2.rst, "Memory Interface Files".
"""

from __future__ import annotations

from vm.inside.cgroups import MIB, Workload, cgroup, counters, number, write


def test_a_process_that_exceeds_memory_max_is_killed_inside_its_cgroup_only() -> None:
    with cgroup("limited") as limited, cgroup("bystander") as beside:
        write(limited / "memory.max", str(64 * MIB))
        with Workload(beside, anonymous=16 * MIB) as bystander, Workload(limited, anonymous=128 * MIB) as greedy:
            assert bystander.ready()
            assert not greedy.ready()
            assert greedy.killed()
            assert bystander.alive()
        assert counters(limited / "memory.events")["oom_kill"] == 1
        assert counters(beside / "memory.events")["oom_kill"] == 0
        assert number(limited / "memory.peak") <= 64 * MIB


def test_a_process_below_memory_max_is_left_alone() -> None:
    with cgroup("limited") as limited:
        write(limited / "memory.max", str(64 * MIB))
        with Workload(limited, anonymous=32 * MIB) as modest:
            assert modest.ready()
            assert 32 * MIB <= number(limited / "memory.current") <= 64 * MIB
            assert counters(limited / "memory.events")["oom_kill"] == 0


def test_page_cache_gives_way_under_memory_max_without_a_kill() -> None:
    with cgroup("limited") as limited:
        write(limited / "memory.max", str(48 * MIB))
        with Workload(limited, cached=96 * MIB) as reader:
            assert reader.ready()
            assert number(limited / "memory.current") <= 48 * MIB
            assert counters(limited / "memory.events")["oom_kill"] == 0


def test_memory_reclaim_drops_page_cache_and_spares_anonymous_memory() -> None:
    with cgroup("cached") as cached, Workload(cached, anonymous=32 * MIB, cached=64 * MIB) as workload:
        assert workload.ready()
        before = number(cached / "memory.current")
        write(cached / "memory.reclaim", str(48 * MIB))
        after = number(cached / "memory.current")

        assert before >= 96 * MIB
        assert before - after >= 40 * MIB
        assert counters(cached / "memory.stat")["anon"] >= 32 * MIB
        assert workload.alive()


def test_pressure_is_reported_for_a_cgroup() -> None:
    with cgroup("observed") as observed:
        assert (observed / "memory.pressure").read_text().startswith("some avg10=0.00 avg60=0.00 avg300=0.00 total=0")
