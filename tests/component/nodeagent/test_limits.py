"""Limits are put back as the blocks say, whoever changed them; v1 and v2, both drivers."""

from pathlib import Path

import pytest
from component.nodeagent.api_server import PODS
from component.nodeagent.conftest import NodeRig, colocated, eventually
from component.nodeagent.host_files import GIB, MIB, HostFiles

from slackwater.cgroup.layout import Driver
from slackwater.cgroup.parse import Version

FORMS = [(version, driver) for version in Version for driver in Driver]


@pytest.fixture(params=FORMS, ids=lambda form: f"{form[0]}-{form[1]}")
def formed(rig: NodeRig, request: pytest.FixtureRequest) -> NodeRig:
    """The rig with its kernel's files in every form."""
    version, driver = request.param
    rig.files = HostFiles(rig.directory / "other-host", version, driver, "/kubelet")
    rig.files.machine(8 * GIB, GIB)
    return rig


def _with_container(rig: NodeRig, name: str, blocks: int, limit: int | None) -> tuple[Path, Path]:
    builder = colocated(name, blocks)
    directory = rig.add_pod(builder, used=100 * MIB)
    runtime_id = builder.raw["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
    rig.files.set_limit(directory, limit)
    return directory, rig.files.container(directory, runtime_id, used=100 * MIB, limit=limit)


def test_pod_and_container_are_limited_to_their_blocks_in_every_form(formed: NodeRig) -> None:
    pod, container = _with_container(formed, "be1", 2, None)
    formed.offering_agent()
    eventually(lambda: formed.files.read_limit(pod) == str(GIB), "the pod's limit")
    eventually(lambda: formed.files.read_limit(container) == str(GIB), "the container's limit")


def test_drift_is_repaired_both_ways_counted_and_told(rig: NodeRig) -> None:
    pod, container = _with_container(rig, "be1", 2, GIB)
    rig.offering_agent()
    eventually(lambda: rig.metric('slackwater_loop_seconds_count{loop="limits"}') > 2, "some looks")
    assert rig.metric("slackwater_limit_repairs_total") == 0, "nothing is written where nothing differs"
    rig.files.set_limit(container, 5 * GIB)
    rig.files.set_limit(pod, 64 * MIB)
    eventually(lambda: rig.metric("slackwater_limit_repairs_total") == 2, "two repairs")
    assert (rig.files.read_limit(pod), rig.files.read_limit(container)) == (str(GIB), str(GIB))
    eventually(lambda: len(rig.api.events_about("MemoryLimitRepaired")) == 2, "two Events")
    assert rig.api.events_about("MemoryLimitRepaired")[0] == (
        "the memory limit of container app was 5368709120 bytes (5Gi); set to 1073741824 bytes (1Gi), which its blocks "
        "say (2 in the pod)"
    )


def test_a_limit_is_not_lowered_onto_what_is_in_use(rig: NodeRig) -> None:
    pod, _ = _with_container(rig, "be1", 2, None)
    rig.files.pod("uid-default-be1", used=3 * GIB, limit=None)
    rig.offering_agent()
    eventually(lambda: rig.metric('slackwater_limit_repair_failures_total{result="refused"}') > 0, "a refusal")
    assert rig.files.read_limit(pod) == "max"
    rig.files.pod("uid-default-be1", used=GIB // 2, limit=None)
    eventually(lambda: rig.files.read_limit(pod) == str(GIB), "the limit, now that it fits")


def test_a_pod_that_appears_later_is_limited_too_also_with_the_api_server_away(rig: NodeRig) -> None:
    rig.api.put(PODS, colocated("be1", 2).raw)
    rig.offering_agent()
    rig.api.break_off()
    directory = rig.files.pod("uid-default-be1", used=MIB)
    eventually(lambda: rig.files.read_limit(directory) == str(GIB), "the limit")
    assert rig.kubelet.allocatable == 12


def test_online_pods_are_never_limited(rig: NodeRig) -> None:
    directory = rig.add_pod(colocated("online", 2).label("slackwater.io/qos", "LS"), used=MIB)
    rig.offering_agent()
    eventually(lambda: rig.metric('slackwater_loop_seconds_count{loop="limits"}') > 3, "some looks")
    assert rig.files.read_limit(directory) == "max"
