"""Which limits a colocated pod should have, and which of those in force are wrong."""

from dataclasses import replace

import pytest
from builders import PodBuilder, pod

from nodeagent.decide.limits import POD, SETTLE_S, Observed, Repair, expected_limits, repair_message, repairs
from slackwater.names import DEFAULT_BLOCK_SIZE, GIB, MIB
from slackwater.pod import ContainerView, PodView, read_pod


def _view(builder: PodBuilder) -> PodView:
    return read_pod(builder.raw)


def test_container_and_pod_are_limited_to_their_blocks() -> None:
    assert expected_limits(_view(pod("be").be().blocks(3)), DEFAULT_BLOCK_SIZE) == {POD: 1536 * MIB, "app": 1536 * MIB}


def test_the_pods_own_block_size_counts_not_the_agents() -> None:
    assert expected_limits(_view(pod("be").be().blocks(3, GIB)), DEFAULT_BLOCK_SIZE) == {POD: 3 * GIB, "app": 3 * GIB}


def test_a_lower_plain_limit_is_never_loosened() -> None:
    view = _view(pod("be").be().blocks(2).limits(memory="300Mi"))
    assert expected_limits(view, DEFAULT_BLOCK_SIZE)["app"] == 300 * MIB


def test_containers_without_blocks_keep_their_plain_limit_and_others_have_none() -> None:
    view = _view(pod("be").be().blocks(1))
    with_others = replace(
        view,
        containers=(*view.containers, ContainerView("free")),
        init_containers=(ContainerView("proxy", memory_limit=64 * MIB, is_sidecar=True),),
    )
    assert expected_limits(with_others, DEFAULT_BLOCK_SIZE) == {
        POD: 512 * MIB,
        "app": 512 * MIB,
        "proxy": 64 * MIB,
    }


@pytest.mark.parametrize(
    "builder",
    [
        pytest.param(pod("online").blocks(2), id="online"),
        pytest.param(pod("be").be(), id="holds nothing"),
        pytest.param(pod("be").be().blocks(0), id="zero blocks"),
        pytest.param(pod("be").be().blocks(2).phase("Succeeded"), id="finished"),
    ],
)
def test_a_pod_that_is_not_colocated_is_never_limited(builder: PodBuilder) -> None:
    assert expected_limits(_view(builder), DEFAULT_BLOCK_SIZE) == {}


EXPECTED = {POD: GIB, "app": GIB}


def _seen(container: str, limit: int | None, known_for_s: float = SETTLE_S) -> Observed:
    return Observed(container, limit, known_for_s)


def test_only_what_differs_is_written() -> None:
    assert repairs(EXPECTED, [_seen(POD, GIB), _seen("app", None)]) == (Repair("app", GIB, None),)


def test_the_kernels_rounding_to_pages_is_no_difference() -> None:
    assert repairs({POD: 500_000_001}, [_seen(POD, 499_998_720)]) == ()


def test_lowering_goes_from_the_containers_up_and_raising_from_the_pod_down() -> None:
    found = repairs({POD: GIB, "app": GIB, "b": GIB}, [_seen(POD, 2 * GIB), _seen("app", None), _seen("b", MIB)])
    assert [(repair.container, repair.is_lowering) for repair in found] == [("app", True), (POD, True), ("b", False)]


def test_a_cgroup_that_has_just_appeared_is_left_to_the_kubelet_for_a_moment() -> None:
    assert repairs(EXPECTED, [_seen(POD, None, 0.0)]) == ()


def test_an_unknown_container_is_not_touched() -> None:
    assert repairs(EXPECTED, [_seen("injected", None)]) == ()


def test_the_sentence_carries_the_numbers() -> None:
    view = _view(pod("be").be().blocks(2))
    assert repair_message(view, Repair("app", GIB, 5 * GIB)) == (
        "the memory limit of container app was 5368709120 bytes (5Gi); set to 1073741824 bytes (1Gi), which its blocks "
        "say (2 in the pod)"
    )
    assert repair_message(view, Repair(POD, GIB, None)).startswith("the memory limit of the pod was unlimited; set to")
