"""Memory into blocks: every place where a pod may state memory, and what is not the owner's statement."""

from typing import Any

import pytest

from slackwater import names
from slackwater.errors import InputError
from slackwater.policy.profile import CpuRule
from webhook.memory import translate

BLOCK = names.DEFAULT_BLOCK_SIZE


def container(name: str, *, request: str | None = None, limit: str | None = None, **fields: Any) -> dict[str, Any]:
    resources = {
        kind: {"memory": amount} for kind, amount in (("requests", request), ("limits", limit)) if amount is not None
    }
    return {"name": name, **({"resources": resources} if resources else {}), **fields}


def pod_of(*containers: dict[str, Any], init: list[dict[str, Any]] | None = None, **spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": list(containers), **({"initContainers": init} if init else {}), **spec}}


def blocks_of(pod: dict[str, Any]) -> list[int]:
    return [int(container["resources"]["limits"].get(names.RESOURCE, 0)) for container in pod["spec"]["containers"]]


@pytest.mark.parametrize(
    ("request_", "limit", "blocks"),
    [
        pytest.param("512Mi", None, 1, id="request-of-exactly-one"),
        pytest.param("513Mi", None, 2, id="rounded-up"),
        pytest.param("1", None, 1, id="one-byte"),
        pytest.param(None, "1Gi", 2, id="limit-alone"),
        pytest.param("100Mi", "1Gi", 2, id="limit-wins-over-request"),
        pytest.param("600Mi", "0", 2, id="a-limit-of-zero-is-none"),
        pytest.param("1G", None, 2, id="decimal-unit"),
        pytest.param("1e3Mi", None, None, id="not-a-quantity"),
    ],
)
def test_one_container(request_: str | None, limit: str | None, blocks: int | None) -> None:
    pod = pod_of(container("app", request=request_, limit=limit))
    if blocks is None:
        with pytest.raises(InputError, match=r"spec\.containers\[0\]\.resources\.requests\[memory\]"):
            translate(pod, BLOCK, CpuRule.KEEP)
        return
    translation = translate(pod, BLOCK, CpuRule.KEEP)
    assert translation.blocks == blocks
    assert pod["spec"]["containers"][0]["resources"] == {
        "requests": {"memory": "0", names.RESOURCE: str(blocks)},
        "limits": {"memory": {1: "512Mi", 2: "1Gi"}[blocks], names.RESOURCE: str(blocks)},
    }
    assert not translation.warnings


def test_each_container_is_rounded_up_on_its_own() -> None:
    pod = pod_of(container("a", request="300Mi"), container("b", request="300Mi"))
    assert translate(pod, BLOCK, CpuRule.KEEP).blocks == 2
    assert blocks_of(pod) == [1, 1]


def test_a_pod_without_memory_gets_one_block_and_a_warning() -> None:
    pod = pod_of(container("a"), container("b"))
    translation = translate(pod, BLOCK, CpuRule.KEEP)
    assert blocks_of(pod) == [1, 0]
    assert translation.warnings == ("no container states any memory; a gets 1 block of 512Mi",)


def test_a_container_without_memory_beside_others_gets_no_block_but_the_pods_limit() -> None:
    """The kubelet limits a pod's cgroup only where every container has a limit."""
    pod = pod_of(container("a", limit="1Gi"), container("b"))
    assert not translate(pod, BLOCK, CpuRule.KEEP).warnings
    assert blocks_of(pod) == [2, 0]
    assert pod["spec"]["containers"][1]["resources"] == {"requests": {"memory": "0"}, "limits": {"memory": "1Gi"}}


@pytest.mark.parametrize(
    ("init", "spec", "blocks"),
    [
        pytest.param([container("i", limit="1Gi")], {}, [2, 1], id="init-peak-covered-by-the-sum"),
        pytest.param([container("i", limit="2Gi")], {}, [3, 1], id="init-peak-goes-to-the-first"),
        pytest.param(
            [container("i", limit="1Gi"), container("j", limit="1Gi")], {}, [2, 1], id="init-containers-take-turns"
        ),
        pytest.param([container("s", limit="512Mi", restartPolicy="Always")], {}, [3, 1], id="sidecar-beside-the-apps"),
        pytest.param(
            [container("s", request="1Mi", restartPolicy="Always")], {}, [2, 1], id="sidecar-fits-into-the-rounding"
        ),
        pytest.param(
            [container("s", limit="1Gi", restartPolicy="Always"), container("i", limit="1Gi")],
            {},
            [4, 1],
            id="init-container-with-a-sidecar-started-before-it",
        ),
        pytest.param(
            [container("i", limit="1536Mi"), container("s", limit="1Mi", restartPolicy="Always")],
            {},
            [2, 1],
            id="init-container-with-a-sidecar-started-after-it",
        ),
        pytest.param([], {"overhead": {"memory": "600Mi"}}, [3, 1], id="overhead"),
        pytest.param([], {"resources": {"limits": {"memory": "4Gi"}}}, [7, 1], id="pod-level-limit"),
        pytest.param([], {"resources": {"requests": {"memory": "1Gi"}}}, [2, 1], id="pod-level-request-covered"),
    ],
)
def test_the_pods_other_memory_is_added_to_the_first_app_container(
    init: list[dict[str, Any]], spec: dict[str, Any], blocks: list[int]
) -> None:
    pod = pod_of(container("a", limit="700Mi"), container("b", limit="512Mi"), init=init, **spec)
    translate(pod, BLOCK, CpuRule.KEEP)
    assert blocks_of(pod) == blocks


def test_init_containers_and_sidecars_keep_or_get_a_limit_and_never_hold_blocks() -> None:
    pod = pod_of(
        container("app", limit="1Gi"),
        init=[
            container("own", limit="200Mi"),
            container("asked", request="300Mi"),
            container("side", restartPolicy="Always"),
            {"name": "held", "resources": {"limits": {names.RESOURCE: "1"}, "requests": {names.RESOURCE: "1"}}},
        ],
    )
    translate(pod, BLOCK, CpuRule.KEEP)
    assert [each["resources"] for each in pod["spec"]["initContainers"]] == [
        {"limits": {"memory": "200Mi"}, "requests": {"memory": "0"}},
        {"requests": {"memory": "0"}, "limits": {"memory": "1Gi"}},
        {"requests": {"memory": "0"}, "limits": {"memory": "1Gi"}},
        {"requests": {"memory": "0"}, "limits": {"memory": "1Gi"}},
    ]


def test_pod_level_memory_becomes_the_limit_of_the_blocks() -> None:
    pod = pod_of(container("a"), container("b"), resources={"requests": {"memory": "1100Mi", "cpu": "1"}})
    translation = translate(pod, BLOCK, CpuRule.KEEP)
    assert blocks_of(pod) == [3, 0]
    assert pod["spec"]["resources"] == {"requests": {"memory": "0", "cpu": "1"}, "limits": {"memory": "1536Mi"}}
    assert not translation.warnings


def test_values_of_limit_ranger_make_no_blocks() -> None:
    """The text is LimitRanger's own (plugin/pkg/admission/limitranger)."""
    said = (
        "LimitRanger plugin set: cpu, memory request for container a; cpu, memory limit for container a; "
        "memory limit for container b; memory limit for init container i"
    )
    pod = pod_of(
        container("a", request="4Gi", limit="8Gi"),
        container("b", request="600Mi", limit="8Gi"),
        container("c", request="100Mi", limit="100Mi"),
        init=[container("i", limit="8Gi")],
    )
    pod["metadata"] = {"annotations": {names.LIMIT_RANGER_ANNOTATION: said}}
    translate(pod, BLOCK, CpuRule.KEEP)
    assert blocks_of(pod) == [0, 2, 1]
    assert pod["spec"]["containers"][0]["resources"]["limits"]["memory"] == "1536Mi"
    assert pod["spec"]["initContainers"][0]["resources"]["limits"]["memory"] == "1536Mi"


@pytest.mark.parametrize(
    ("resources", "blocks"),
    [
        pytest.param({"limits": {names.RESOURCE: "3"}}, 3, id="blocks-alone"),
        pytest.param({"limits": {names.RESOURCE: "3", "memory": "1Gi"}}, 2, id="the-plain-limit-decides"),
        pytest.param(
            {"limits": {names.RESOURCE: "1"}, "requests": {"memory": "1Gi"}}, 2, id="the-larger-of-blocks-and-request"
        ),
    ],
)
def test_blocks_that_the_owner_asks_for(resources: dict[str, Any], blocks: int) -> None:
    pod = pod_of({"name": "app", "resources": resources})
    translate(pod, BLOCK, CpuRule.KEEP)
    assert blocks_of(pod) == [blocks]


def test_blocks_of_another_size_keep_their_bytes() -> None:
    pod = pod_of({"name": "app", "resources": {"limits": {names.RESOURCE: "3"}}})
    pod["metadata"] = {"annotations": {names.BLOCK_SIZE_ANNOTATION: str(1024**3)}}
    translate(pod, BLOCK, CpuRule.KEEP)
    assert blocks_of(pod) == [6]


def test_a_thousand_blocks_are_written_as_the_api_server_prints_them() -> None:
    pod = pod_of(container("app", limit="500Gi"))
    translate(pod, BLOCK, CpuRule.KEEP)
    assert pod["spec"]["containers"][0]["resources"]["limits"][names.RESOURCE] == "1k"


@pytest.mark.parametrize(
    ("rule", "resources"),
    [
        pytest.param(CpuRule.KEEP, {"requests": {"cpu": "2"}, "limits": {"cpu": "4"}}, id="keep"),
        pytest.param(CpuRule.SHARE, {"requests": {"cpu": "10m"}, "limits": {"cpu": "4"}}, id="share"),
        pytest.param(CpuRule.DROP, {"requests": {}, "limits": {}}, id="drop"),
    ],
)
def test_cpu(rule: CpuRule, resources: dict[str, dict[str, str]]) -> None:
    pod = pod_of({"name": "app", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "4"}}}, container("b"))
    translate(pod, BLOCK, rule)
    first, second = (each["resources"] for each in pod["spec"]["containers"])
    cpu = {kind: {key: value for key, value in first[kind].items() if key == "cpu"} for kind in first}
    assert cpu == resources
    assert "cpu" not in second["requests"]


def test_a_share_of_cpu_never_exceeds_the_limit() -> None:
    pod = pod_of({"name": "app", "resources": {"limits": {"cpu": "5m"}}})
    translate(pod, BLOCK, CpuRule.SHARE)
    assert pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "5m"


def test_every_unreadable_quantity_is_named() -> None:
    pod = pod_of(container("a", limit="much"), container("b", request="-1"), overhead={"memory": "1Zi"})
    with pytest.raises(InputError) as caught:
        translate(pod, BLOCK, CpuRule.KEEP)
    assert [problem.where for problem in caught.value.problems] == [
        "spec.containers[0].resources.limits[memory]",
        "spec.containers[1].resources.requests[memory]",
        "spec.overhead.memory",
    ]


@pytest.mark.parametrize("spec", [{}, {"containers": None}, {"containers": []}, {"containers": ["text", None]}])
def test_a_pod_without_usable_containers_gets_nothing(spec: dict[str, Any]) -> None:
    assert translate({"spec": spec}, BLOCK, CpuRule.KEEP).blocks == 0
