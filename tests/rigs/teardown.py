"""Ending a cluster completely, from nothing but its state file.

Who calls it: the cluster that started it, another Python (`python -m rigs down`), and the next start, when it
finds what a crash left. Every step is idempotent and does not need the ones before it to have succeeded.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from rigs import controlplane, kwok, node
from rigs.cgroups import CgroupTree
from rigs.mounts import mounts, unmount, unmount_below
from rigs.network import NetworkNamespace
from rigs.processes import Supervisor
from rigs.progress import Progress
from rigs.rootfs import RigError
from rigs.state import State, StateFile
from rigs.waiting import NotInTime, wait_until

#: Pods get this long to end by themselves before their processes are killed.
_POD_GRACE_S = 1
_PODS_GONE_TIMEOUT_S = 15.0

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def tear_down(run_dir: Path, state: State, supervisor: Supervisor, progress: Progress) -> None:
    """End and remove everything of a cluster but its logs; Ctrl-C and SIGTERM wait until that is done.

    Raises:
        RigError: something could not be removed; the rest was, and the state file stays for another try.
    """
    paths = node.NodePaths(run_dir)
    cgroups = CgroupTree.on_this_machine(state.cgroup_root)
    problems: list[str] = []

    def attempt(step: Callable[[], object]) -> None:
        try:
            step()
        except (RigError, OSError, subprocess.SubprocessError) as error:
            problems.append(str(error))

    with _uninterrupted(progress):
        attempt(lambda: _delete_pods(run_dir, state, supervisor))
        attempt(lambda: _end_processes(state, supervisor))
        sockets = node.shim_sockets(paths)
        attempt(cgroups.kill)
        attempt(lambda: _unmount(run_dir))
        if state.node:
            attempt(lambda: node.remove_leftovers(paths, sockets))
            attempt(lambda: node.restore_machine(state))
        attempt(cgroups.remove)
        attempt(NetworkNamespace(state.netns).delete)
        attempt(lambda: _remove_made_paths(state))
        if problems:
            raise RigError(f"the cluster {state.name} is not completely removed: {'; '.join(problems)}")
        _remove_data(run_dir)


def _delete_pods(run_dir: Path, state: State, supervisor: Supervisor) -> None:
    """Let the kubelet end its pods, if it still runs and the API server answers; nobody makes new ones meanwhile."""
    alive = {name for name, record in state.processes.items() if record.running}
    if not {"kubelet", "kube-apiserver", "etcd", "containerd"} <= alive:
        return
    for name in ("kube-scheduler", "kube-controller-manager"):
        if name in alive:
            supervisor.end(state.processes[name], 2.0)
    kubectl = [
        *NetworkNamespace(state.netns).enter,
        state.binaries["kubectl"],
        f"--kubeconfig={run_dir / 'kubeconfig'}",
        "--request-timeout=5s",
    ]
    only_real = f"--field-selector=spec.nodeName={node_name(state.name)}"
    delete = ["delete", "pods", "-A", only_real, f"--grace-period={_POD_GRACE_S}", "--wait=false"]
    subprocess.run([*kubectl, *delete], capture_output=True, timeout=20, check=False)

    def none_left() -> bool:
        listed = subprocess.run(
            [*kubectl, "get", "pods", "-A", only_real, "-o", "name"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        return listed.returncode != 0 or not listed.stdout.strip()

    with suppress(NotInTime):  # a finalizer, a stuck container: what is left is killed in its cgroup
        wait_until("the pods being gone", none_left, _PODS_GONE_TIMEOUT_S, interval_s=0.3)


def _end_processes(state: State, supervisor: Supervisor) -> None:
    """End our processes by id, dependents first; processes that tests added come before all others."""
    order = [*controlplane.PROCESSES, *node.PROCESSES, kwok.PROCESS]
    known = [name for name in order if name in state.processes]
    others = [name for name in state.processes if name not in order]
    for name in (*others, *reversed(known)):
        supervisor.end(state.processes[name], 3.0)


def _unmount(run_dir: Path) -> None:
    left = unmount_below(run_dir)
    if left:
        raise RigError(f"still mounted: {', '.join(map(str, left))}")


def _remove_made_paths(state: State) -> None:
    """Directories that were not there before the start, if they are empty now."""
    for path in map(Path, reversed(state.made_paths)):
        resolved = path.resolve()  # /var/run is a link to /run, and mount tables know only the latter
        # iproute2 mounts its directory of namespaces on itself.
        if resolved.is_dir() and not any(resolved.iterdir()) and any(one.point == resolved for one in mounts()):
            unmount(resolved)
        with suppress(OSError):
            resolved.rmdir()


def _remove_data(run_dir: Path) -> None:
    """Everything but the logs; the state file goes last, for until then there is something to clean up."""
    state_file = StateFile(run_dir / "state.json").path
    for entry in run_dir.iterdir() if run_dir.is_dir() else ():
        if entry.name == "logs" or entry == state_file:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    state_file.unlink(missing_ok=True)


def node_name(cluster: str) -> str:
    """The name of the real node in a cluster."""
    return f"{cluster}-node"


@contextmanager
def _uninterrupted(progress: Progress) -> Iterator[None]:
    """Answer Ctrl-C and SIGTERM with a line instead of ending; the work inside is bounded (under a minute)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def answer(_number: int, _frame: FrameType | None) -> None:
        progress("still cleaning up; this ends by itself")

    before = {number: signal.signal(number, answer) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
