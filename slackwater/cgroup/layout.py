"""Where the kubelet puts a pod's memory cgroup: names in, names out, no files.

The kubelet (pkg/kubelet/cm, ``cgroup_manager_linux.go``) names a pod's directory by its uid, its Kubernetes QoS class
and the cgroup driver, below ``--cgroup-root``. The class is never computed here: all three are tried, because the
kubelet's own idea of it decides. Paths are relative to the root of the memory hierarchy (``/sys/fs/cgroup`` on v2,
``/sys/fs/cgroup/memory`` on v1) and have no leading slash.
"""

import re
from collections.abc import Iterator
from enum import StrEnum

_QOS_DIRECTORIES = ("", "burstable", "besteffort")
"""Guaranteed pods stand directly below ``kubepods``."""
_UID = r"[0-9a-zA-Z]+(?:[-_][0-9a-zA-Z]+)*"
"""An API server's uuid, or the hex digest that names a static pod."""
_CGROUPFS_POD = re.compile(rf"pod({_UID})")
_SYSTEMD_POD = re.compile(rf"(?:.+-)?pod({_UID})\.slice")
_CONTAINER = re.compile(r"(?:(?:cri-containerd|crio|docker|libpod)-)?([0-9a-f]{64})(?:\.scope)?")
"""containerd and CRI-O with the systemd driver name scopes, with cgroupfs plain ids (CRI-O prefixes those too)."""


class Driver(StrEnum):
    """How a kubelet names cgroups (``cgroupDriver``)."""

    CGROUPFS = "cgroupfs"
    SYSTEMD = "systemd"


def qos_directories(kubelet_root: str, driver: Driver) -> tuple[str, ...]:
    """The three directories that may hold pods, Guaranteed first.

    Args:
        kubelet_root: the kubelet's ``--cgroup-root`` as it was given to it, such as ``""``, ``/`` or ``/kubelet``.
    """
    return tuple(
        _directory([*_parts(kubelet_root), "kubepods", *([qos] if qos else [])], driver) for qos in _QOS_DIRECTORIES
    )


def pod_directories(kubelet_root: str, uid: str) -> Iterator[tuple[Driver, str]]:
    """Every directory in which the pod with this uid may stand: three classes by two drivers."""
    for driver in Driver:
        for qos in _QOS_DIRECTORIES:
            parts = [*_parts(kubelet_root), "kubepods", *([qos] if qos else []), f"pod{uid}"]
            yield driver, _directory(parts, driver)


def pod_uid(directory_name: str) -> str | None:
    """The uid in the last part of a pod's path, dashes restored; None where it is not a pod's directory.

    systemd reads ``-`` in a slice name as a step down, so the kubelet writes uids with ``_``.
    """
    match = _CGROUPFS_POD.fullmatch(directory_name) or _SYSTEMD_POD.fullmatch(directory_name)
    return match[1].replace("_", "-") if match else None


def container_id(directory_name: str) -> str | None:
    """The runtime's container id in the last part of a container's path; None for anything else."""
    match = _CONTAINER.fullmatch(directory_name)
    return match[1] if match else None


def _parts(kubelet_root: str) -> list[str]:
    return [part for part in kubelet_root.split("/") if part]


def _directory(parts: list[str], driver: Driver) -> str:
    if driver is Driver.CGROUPFS:
        return "/".join(parts)
    # systemd.slice(5): "foo-bar.slice is a slice that is located within foo.slice"
    escaped = [part.removesuffix(".slice").replace("-", "_") for part in parts]
    return "/".join(f"{'-'.join(escaped[: depth + 1])}.slice" for depth in range(len(escaped)))
