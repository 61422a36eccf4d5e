"""Cgroup names against the kubelet's own rules (``cgroup_manager_linux.go``): both drivers, three classes, any root."""

import pytest

from slackwater.cgroup.layout import Driver, container_id, pod_directories, pod_uid, qos_directories

UID = "6f1c2a7e-0b7d-4c53-9a55-2f0a3a1f6f10"
ESCAPED = UID.replace("-", "_")


@pytest.mark.parametrize(
    ("root", "driver", "expected"),
    [
        ("", Driver.CGROUPFS, ("kubepods", "kubepods/burstable", "kubepods/besteffort")),
        ("/", Driver.CGROUPFS, ("kubepods", "kubepods/burstable", "kubepods/besteffort")),
        ("/rig/a", Driver.CGROUPFS, ("rig/a/kubepods", "rig/a/kubepods/burstable", "rig/a/kubepods/besteffort")),
        (
            "",
            Driver.SYSTEMD,
            (
                "kubepods.slice",
                "kubepods.slice/kubepods-burstable.slice",
                "kubepods.slice/kubepods-besteffort.slice",
            ),
        ),
        (
            "/kubelet",
            Driver.SYSTEMD,
            (
                "kubelet.slice/kubelet-kubepods.slice",
                "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice",
                "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice",
            ),
        ),
    ],
)
def test_pods_stand_below_three_classes(root: str, driver: Driver, expected: tuple[str, ...]) -> None:
    assert qos_directories(root, driver) == expected


def test_a_dash_in_the_root_is_no_step_down_for_systemd() -> None:
    assert qos_directories("/slackwater-rig", Driver.SYSTEMD)[0] == (
        "slackwater_rig.slice/slackwater_rig-kubepods.slice"
    )


def test_every_form_of_a_pod_leads_back_to_its_uid() -> None:
    directories = list(pod_directories("/kubelet", UID))
    assert len({path for _, path in directories}) == 6
    assert [pod_uid(path.rsplit("/", 1)[-1]) for _, path in directories] == [UID] * 6


@pytest.mark.parametrize(
    ("name", "uid"),
    [
        (f"pod{UID}", UID),
        (f"kubepods-besteffort-pod{ESCAPED}.slice", UID),
        (f"kubelet-kubepods-pod{ESCAPED}.slice", UID),
        ("pod0123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdef"),  # static: hash of its file
        ("kubepods-burstable.slice", None),
        ("burstable", None),
        ("pod", None),
        ("system.slice", None),
    ],
)
def test_only_pods_directories_have_a_uid(name: str, uid: str | None) -> None:
    assert pod_uid(name) == uid


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a" * 64, "a" * 64),
        (f"cri-containerd-{'b' * 64}.scope", "b" * 64),
        (f"crio-{'c' * 64}.scope", "c" * 64),
        (f"crio-{'c' * 64}", "c" * 64),
        (f"docker-{'d' * 64}.scope", "d" * 64),
        ("init.scope", None),
        ("a" * 63, None),
    ],
)
def test_container_directories_of_each_runtime(name: str, expected: str | None) -> None:
    assert container_id(name) == expected
