"""Pod cgroups as a kubelet and containerd lay them out, in both forms, for the tests in the VM.

The names are written out here a second time, independently of the code under test. Sources: kubelet's
pkg/kubelet/cm (cgroup manager and QOS container manager), containerd's CRI plugin.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vm.inside.cgroups import ROOT, make, remove

#: The two cgroup drivers of the kubelet.
FORMS = ("cgroupfs", "systemd")

#: The Kubernetes QoS classes.
CLASSES = ("Guaranteed", "Burstable", "BestEffort")


@dataclass(frozen=True, slots=True)
class PodCgroups:
    """One pod's directories: its own, and its containers' below it."""

    uid: str
    pod: Path
    containers: tuple[Path, ...]


@contextmanager
def tree(form: str) -> Iterator[None]:
    """An empty kubepods tree of this form with its QoS levels; removed afterwards with what is in it."""
    top = _top(form)
    for kubernetes_qos in CLASSES:
        make(_level(form, kubernetes_qos))
    try:
        yield
    finally:
        remove(top)


def pod(form: str, kubernetes_qos: str, uid: str, containers: int = 1) -> PodCgroups:
    """Make the cgroups of a pod with so many containers (the sandbox's own is not among them)."""
    ids = [f"{index:x}".rjust(2, "0") * 32 for index in range(1, containers + 1)]
    level = _level(form, kubernetes_qos)
    if form == "cgroupfs":
        directory = level / f"pod{uid}"
        below = [directory / one for one in ids]
    else:
        prefix = level.name.removesuffix(".slice")
        directory = level / f"{prefix}-pod{uid.replace('-', '_')}.slice"
        below = [directory / f"cri-containerd-{one}.scope" for one in ids]
    for path in below:
        make(path)
    return PodCgroups(uid, directory, tuple(below))


def _top(form: str) -> Path:
    return ROOT / ("kubepods" if form == "cgroupfs" else "kubepods.slice")


def _level(form: str, kubernetes_qos: str) -> Path:
    """The directory that holds the pods of a class; Guaranteed pods lie directly under the top."""
    if kubernetes_qos == "Guaranteed":
        return _top(form)
    name = kubernetes_qos.lower()
    return _top(form) / (name if form == "cgroupfs" else f"kubepods-{name}.slice")
