"""A real Kubernetes cluster on this machine: one real node, any number of fake ones.

Who calls it: the demo, the cluster tests, the benchmarks and `python -m rigs`.

    with Cluster.up(progress=Console()) as cluster:
        cluster.apply(manifest)
        cluster.wait(lambda: cluster.kubectl_json("get", "pod", "x")["status"]["phase"] == "Running", 30, "pod x runs")

Everything runs in a network namespace, a cgroup (`/slackwater-NAME`) and a run directory of its own, is logged
to files there, and is gone afterwards, also when the start fails, on Ctrl-C and on SIGTERM. After a `kill -9` the
next start, or `python -m rigs down`, cleans up.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar

import yaml
from rigs import claims, controlplane, images, kwok, node, teardown
from rigs.binaries import ALL_MODULES, CONTROL_PLANE_MODULES, KUBERNETES_VERSION, programs
from rigs.cgroups import CgroupTree
from rigs.claims import Claim
from rigs.network import NetworkNamespace
from rigs.processes import Process, Supervisor
from rigs.progress import Progress, silent
from rigs.requirements import CLUSTER_PROGRAMS, ensure_packages, require_linux_root, search_path
from rigs.rootfs import RigError, cache_dir
from rigs.state import State, StateFile, current_process
from rigs.waiting import NotInTime, wait_until

T = TypeVar("T")

DEFAULT_NAME = "rig"

#: The name becomes a cgroup, a namespace, a node and a CNI network; interface and socket names are short.
_NAME = re.compile(r"[a-z][a-z0-9-]{0,14}")

_QOS_DIRECTORIES = ("", "burstable", "besteffort")


class CommandFailed(RigError):
    """A command inside the cluster's namespace returned another status than 0."""


class Cluster:
    """A running cluster, or what is left of one: every method reads the state file, so any Python may attach."""

    def __init__(self, run_dir: Path, progress: Progress = silent) -> None:
        self.run_dir = run_dir
        self.state_file = StateFile(run_dir / "state.json")
        state = self.state_file.read()
        self.name = state.name
        self.cgroup_root = state.cgroup_root
        self._progress = progress
        self._binaries = {name: Path(path) for name, path in state.binaries.items()}
        self._namespace = NetworkNamespace(state.netns)
        self._cgroups = CgroupTree.on_this_machine(state.cgroup_root)
        self._paths = node.NodePaths(run_dir)
        self._has_node = state.node
        self._handlers: dict[int, Any] = {}
        self._supervisor = Supervisor(
            self.state_file, run_dir / "logs", self._cgroups.system_directories, self._namespace.enter
        )

    # -- life ------------------------------------------------------------------------------------------------

    @classmethod
    def up(
        cls,
        name: str = DEFAULT_NAME,
        progress: Progress = silent,
        *,
        fake_nodes: int = 0,
        node: bool = True,
        kubelet_config: Mapping[str, Any] | None = None,
        run_dir: Path | None = None,
    ) -> Cluster:
        """Start a cluster and return when the API server answers and the node is Ready.

        `node=False` starts a control plane without kubelet and containerd. `kubelet_config` replaces fields of the
        KubeletConfiguration. Packages that are missing are installed and programs that are not cached are built.
        What a crash of an earlier one left is cleaned up first.

        Raises:
            MachineUnsuitable: not Linux, not root, or a program that cannot be installed from here.
            RigError: another cluster is in the way, or a part did not start; everything is removed again.
        """
        require_linux_root("a cluster")
        if not _NAME.fullmatch(name):
            raise RigError(f"cluster name {name!r}: use at most 15 lower-case letters, digits and dashes")
        ensure_packages(progress, CLUSTER_PROGRAMS)
        binaries = programs(ALL_MODULES if node else CONTROL_PLANE_MODULES, progress)
        directory = (run_dir or cache_dir() / "run" / name).absolute()
        _claim(name, directory, node, binaries, progress)
        cluster = cls(directory, progress)
        cluster._end_on_termination()
        try:
            cluster._start(kubelet_config or {})
            if fake_nodes:
                cluster.add_fake_nodes(fake_nodes)
        except BaseException:
            progress(f"the cluster did not start; cleaning up (logs stay in {directory / 'logs'})")
            cluster.down()
            raise
        return cluster

    @classmethod
    def attach(cls, name: str = DEFAULT_NAME, progress: Progress = silent, *, run_dir: Path | None = None) -> Cluster:
        """A cluster that was left up, or what a crash left; raises RigError if there is none of this name."""
        directory = (run_dir or cache_dir() / "run" / name).absolute()
        if not StateFile(directory / "state.json").exists():
            raise RigError(f"there is no cluster {name} (no {directory / 'state.json'})")
        return cls(directory, progress)

    def down(self) -> None:
        """End and remove everything but the logs. Does nothing if that has happened."""
        try:
            if self.state_file.exists():
                teardown.tear_down(self.run_dir, self.state_file.read(), self._supervisor, self._progress)
                with claims.exclusive():
                    claims.drop(self.name)
        finally:
            self._restore_signals()

    def keep(self) -> None:
        """Leave it up when this Python ends; `python -m rigs down` ends it."""
        with self.state_file.change() as state:
            state.owner = None
        self._restore_signals()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.state_file.exists() and self.state_file.read().owner is not None:
            self.down()

    # -- where things are --------------------------------------------------------------------------------------

    @property
    def kubeconfig(self) -> Path:
        """The administrator's; its server address exists only in the namespace, see `run_in`."""
        return self.run_dir / "kubeconfig"

    @property
    def node_name(self) -> str:
        return teardown.node_name(self.name)

    @property
    def pod_resources_socket(self) -> Path:
        return self._paths.pod_resources_socket

    @property
    def enter(self) -> tuple[str, ...]:
        """The command prefix that enters the cluster's network namespace."""
        return self._namespace.enter

    @property
    def memory_cgroup(self) -> Path:
        """The memory cgroup of the whole node: its daemons and its pods."""
        return self._cgroups.memory

    @property
    def kubernetes_version(self) -> str:
        return KUBERNETES_VERSION

    def pod_cgroup(self, uid: str) -> Path:
        """The memory cgroup of a pod; raises RigError while it has none."""
        for qos in _QOS_DIRECTORIES:
            directory = self.memory_cgroup / "kubepods" / qos / f"pod{uid}"
            if directory.is_dir():
                return directory
        raise RigError(f"pod {uid} has no cgroup below {self.memory_cgroup / 'kubepods'}")

    # -- commands ----------------------------------------------------------------------------------------------

    def run_in(
        self,
        *argv: str,
        input: str | None = None,
        check: bool = True,
        timeout_s: float = 300.0,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the cluster's network namespace, with KUBECONFIG set and kubectl and helm on PATH."""
        done = subprocess.run(
            [*self._namespace.enter, *argv],
            input=input,
            capture_output=True,
            text=True,
            env={**self.environment(), **(environment or {})},
            timeout=timeout_s,
            check=False,
        )
        if check and done.returncode != 0:
            said = done.stderr.strip() or done.stdout.strip()
            raise CommandFailed(f"{shlex.join(argv)} returned {done.returncode}: {said}")
        return done

    def environment(self) -> dict[str, str]:
        """The environment of commands in the cluster; helm's files stay in the run directory."""
        helm = self.run_dir / "helm"
        return {
            **{key: value for key, value in os.environ.items() if not key.startswith(("HELM_", "KUBE"))},
            "PATH": os.pathsep.join((str(self.run_dir / "bin"), search_path())),
            "KUBECONFIG": str(self.kubeconfig),
            "HELM_CACHE_HOME": str(helm / "cache"),
            "HELM_CONFIG_HOME": str(helm / "config"),
            "HELM_DATA_HOME": str(helm / "data"),
        }

    def kubectl(self, *arguments: str, input: str | None = None, check: bool = True) -> str:
        """What kubectl printed; with `check=False` its error text too, instead of CommandFailed."""
        done = self.run_in(str(self._binaries["kubectl"]), *arguments, input=input, check=check)
        return done.stdout if check else done.stdout + done.stderr

    def kubectl_json(self, *arguments: str) -> dict[str, Any]:
        """The object that kubectl prints with `-o json`; empty if it prints nothing (`--ignore-not-found`)."""
        printed = self.kubectl(*arguments, "-o", "json")
        return dict(json.loads(printed)) if printed.strip() else {}

    def apply(self, manifest: str | Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> str:
        """`kubectl apply` a YAML or JSON text, an object or several objects."""
        if isinstance(manifest, Mapping):
            text = yaml.safe_dump(dict(manifest))
        elif isinstance(manifest, str):
            text = manifest
        else:
            text = yaml.safe_dump_all([dict(one) for one in manifest])
        return self.kubectl("apply", "-f", "-", input=text)

    def helm(self, *arguments: str) -> str:
        return self.run_in(str(self._binaries["helm"]), *arguments).stdout

    # -- waiting -----------------------------------------------------------------------------------------------

    def wait(self, condition: Callable[[], T | None], timeout_s: float, what: str, *, interval_s: float = 0.2) -> T:
        """Call `condition` until it is truthy and return that; a failing command counts as "not yet".

        Raises:
            NotInTime: with `what`, the pods, the latest events and where the logs are.
        """
        try:
            return wait_until(what, condition, timeout_s, interval_s=interval_s)
        except NotInTime as error:
            raise NotInTime(f"{error}\n{self.diagnosis()}") from error

    def diagnosis(self) -> str:
        """Pods, latest events, dead processes and log locations: what a person looks at first."""
        parts = []
        for title, arguments in (
            ("pods", ("get", "pods", "-A", "-o", "wide", "--field-selector=status.phase!=Succeeded")),
            ("latest events", ("get", "events", "-A", "--sort-by=.metadata.creationTimestamp")),
        ):
            lines = self.kubectl("--request-timeout=5s", *arguments, check=False).strip().splitlines()
            parts.append(f"-- {title}\n" + "\n".join(lines[:1] + lines[1:][-25:]))
        for name, record in self.state_file.read().processes.items():
            if not record.running:
                parts.append(f"-- {self.process(name).death()}")
        parts.append(f"-- logs are in {self.run_dir / 'logs'}")
        return "\n".join(parts)

    # -- processes ---------------------------------------------------------------------------------------------

    def process(self, name: str) -> Process:
        """etcd, kube-apiserver, kube-controller-manager, kube-scheduler, containerd, kubelet, kube-proxy or kwok."""
        return self._supervisor.process(name)

    def start_process(self, name: str, argv: Sequence[str], environment: Mapping[str, str] | None = None) -> Process:
        """Start a process of a test's own in the namespace, the node's system cgroup and the log directory."""
        return self._supervisor.start(name, argv, {**self.environment(), **(environment or {})})

    def stop_kubelet(self) -> None:
        """End the kubelet; its pods keep running."""
        self.process("kubelet").stop()

    def start_kubelet(self) -> None:
        """Start the kubelet again and wait until it calls itself healthy."""
        self.process("kubelet").start()
        self._wait_for_kubelet()

    def restart_kubelet(self) -> None:
        self.stop_kubelet()
        self.start_kubelet()

    # -- images and nodes --------------------------------------------------------------------------------------

    def load_image(self, archive: Path) -> None:
        """Import an OCI or Docker archive for the kubelet's use."""
        ctr = [str(self._binaries["ctr"]), f"--address={self._paths.containerd_socket}", "--namespace=k8s.io"]
        self.run_in(*ctr, "images", "import", str(archive))

    def load_scheduler_image(self) -> str:
        """Import the stock kube-scheduler under its official name, from the built program; returns that name."""
        self.load_image(images.kube_scheduler(self._binaries["kube-scheduler"], KUBERNETES_VERSION))
        return f"registry.k8s.io/kube-scheduler:{KUBERNETES_VERSION}"

    def add_fake_nodes(
        self,
        count: int,
        *,
        memory: str = "64Gi",
        cpu: str = "32",
        pods: str = "250",
        resources: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        tainted: bool = False,
        timeout_s: float = 120.0,
    ) -> list[str]:
        """Create `count` more nodes that kwok plays, wait until they are Ready, and return their names.

        `resources` are further extended resources. Without `tainted`, any pod may be scheduled to them, also
        those of a DaemonSet; with it, only pods that tolerate `kwok.x-k8s.io/node`.
        """
        if kwok.PROCESS not in self.state_file.read().processes:
            kwok.start(self._supervisor, self._binaries, self.kubeconfig, self.run_dir)
        before = len(self.kubectl("get", "nodes", "-l", "type=kwok", "-o", "name").split())
        names = [f"fake-{number:05d}" for number in range(before, before + count)]
        self._progress(f"adding {count} fake nodes")
        capacity = {"memory": memory, "cpu": cpu, "pods": pods, **(resources or {})}
        nodes = [kwok.node(name, capacity, labels or {}, tainted) for name in names]
        self.kubectl("create", "-f", "-", input=kwok.node_list(nodes))
        # One list a second: `kubectl wait` would open a watch for each node, one after the other.
        template = "jsonpath={.items[*].status.conditions[?(@.type=='Ready')].status}"

        def ready() -> bool:
            answer = self.kubectl("get", "nodes", "-l", "type=kwok", "-o", template)
            return answer.split().count("True") >= before + count

        wait_until(
            f"{before + count} fake nodes being Ready",
            ready,
            timeout_s,
            interval_s=1.0,
            give_up=self.process(kwok.PROCESS).death,
        )
        return names

    # -- start -------------------------------------------------------------------------------------------------

    def _start(self, kubelet_config: Mapping[str, Any]) -> None:
        say, supervisor = self._progress, self._supervisor
        with self.state_file.change() as state:
            node.record_machine(state)
        self._cgroups.create()
        self._namespace.create()
        credentials = controlplane.make_credentials(self.run_dir / "pki", self.kubeconfig, self.node_name)
        self._write_commands()
        say("starting etcd and the API server" + (" and containerd" if self._has_node else ""))
        controlplane.start_api(supervisor, self._binaries, credentials, self.run_dir / "etcd")
        if self._has_node:
            node.start_containerd(supervisor, self._binaries, self._paths)
            self._load_first_images()
        controlplane.wait_for_api(supervisor, self._binaries, credentials, self._namespace)
        say("the API server is ready; starting the controllers" + (" and the kubelet" if self._has_node else ""))
        controlplane.start_controllers(supervisor, self._binaries, credentials, self.run_dir / "etcd")
        if self._has_node:
            config = node.kubelet_configuration(self._paths, credentials, self.cgroup_root, kubelet_config)
            node.start_kubelet(supervisor, self._binaries, credentials, self._paths, self.node_name, config)
            node.start_kube_proxy(supervisor, self._binaries, credentials, self.node_name)
            self._wait_for_node()
        self._wait_for_controllers()
        say(f"the cluster is up: Kubernetes {KUBERNETES_VERSION}")

    def _load_first_images(self) -> None:
        containerd = self.process("containerd")
        wait_until(
            "containerd answering",
            lambda: self._paths.containerd_socket.exists() and bool(self._ctr_version()),
            30.0,
            give_up=containerd.death,
        )
        self.load_image(images.pause())
        self.load_image(images.busybox())

    def _ctr_version(self) -> str:
        ctr = [str(self._binaries["ctr"]), f"--address={self._paths.containerd_socket}"]
        return self.run_in(*ctr, "version").stdout

    def _wait_for_node(self) -> None:
        def ready() -> bool:
            conditions = self.kubectl_json("get", "node", self.node_name)["status"].get("conditions", [])
            return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

        wait_until(f"node {self.node_name} being Ready", ready, 90.0, interval_s=0.3, give_up=self._node_death)

    def _wait_for_kubelet(self) -> None:
        kubelet = [str(self._binaries["kubectl"]), "get", "--raw", f"/api/v1/nodes/{self.node_name}/proxy/healthz"]
        wait_until(
            "the kubelet being healthy",
            lambda: self.run_in(*kubelet).stdout.strip() == "ok",
            60.0,
            give_up=self.process("kubelet").death,
        )

    def _wait_for_controllers(self) -> None:
        """Pods cannot be created in a namespace until the controller manager has made its service account."""
        wait_until(
            "the controller manager making service accounts",
            lambda: self.kubectl("get", "serviceaccount", "default", "-o", "name"),
            60.0,
            interval_s=0.2,
            give_up=self.process("kube-controller-manager").death,
        )

    def _node_death(self) -> str | None:
        deaths = (self.process(name).death() for name in node.PROCESSES)
        return next((death for death in deaths if death), None)

    def _write_commands(self) -> None:
        """`bin/kubectl` and `bin/helm` in the run directory: for people, from any shell and directory."""
        directory = self.run_dir / "bin"
        directory.mkdir(exist_ok=True)
        helm = {key: value for key, value in self.environment().items() if key.startswith(("HELM_", "KUBE"))}
        settings = " ".join(f"{key}={shlex.quote(value)}" for key, value in sorted(helm.items()))
        for name in ("kubectl", "helm"):
            script = directory / name
            enter = shlex.join([*self._namespace.enter, "env"])
            script.write_text(
                "#!/bin/sh\n"
                '[ "$(id -u)" = 0 ] || exec sudo "$0" "$@"\n'
                f'exec {enter} {settings} {shlex.quote(str(self._binaries[name]))} "$@"\n'
            )
            script.chmod(0o755)

    # -- ending with the process that started it ---------------------------------------------------------------

    def _end_on_termination(self) -> None:
        """Make SIGTERM and SIGHUP an exception, so that the teardown of a `with` block or of `up` happens."""
        if threading.current_thread() is not threading.main_thread():
            return

        def end(number: int, _frame: FrameType | None) -> None:
            raise SystemExit(128 + number)

        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                self._handlers[number] = signal.signal(number, end)

    def _restore_signals(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}


def clean_up_after(name: str, run_dir: Path, progress: Progress) -> None:
    """Remove a cluster of which the state file is lost (somebody deleted the run directory)."""
    state = _new_state(name, node=True, binaries={})
    supervisor = Supervisor(StateFile(run_dir / "state.json"), run_dir / "logs", (), ())
    teardown.tear_down(run_dir, state, supervisor, progress)


def _claim(name: str, run_dir: Path, real_node: bool, binaries: Mapping[str, Path], progress: Progress) -> None:
    """Write the first state and the claim, unless a living cluster is in the way; clean up after dead ones."""
    with claims.exclusive():
        for claim in claims.claims():
            if claim.name == name or (claim.node and real_node):
                _refuse_or_clean(claim, progress)
        paths = node.NodePaths(run_dir)
        if real_node:
            paths.check()
        state = _new_state(name, real_node, binaries)
        if CgroupTree.on_this_machine(state.cgroup_root).exists() or NetworkNamespace(state.netns).exists():
            clean_up_after(name, run_dir, progress)
        shutil.rmtree(run_dir / "logs", ignore_errors=True)
        run_dir.mkdir(parents=True, exist_ok=True)
        StateFile(run_dir / "state.json").write(state)
        claims.add(Claim(name, run_dir, real_node))


def _refuse_or_clean(claim: Claim, progress: Progress) -> None:
    file = StateFile(claim.run_dir / "state.json")
    if file.exists() and not file.read().stale:
        raise RigError(
            f"the cluster {claim.name} is up in {claim.run_dir}, and this machine can have one at a time; "
            f"stop it with: PYTHONPATH=tests python -m rigs down --name {claim.name}"
        )
    progress(f"cleaning up what the cluster {claim.name} left")
    if file.exists():
        state, logs = file.read(), claim.run_dir / "logs"
        teardown.tear_down(claim.run_dir, state, Supervisor(file, logs, (), ()), progress)
    else:
        clean_up_after(claim.name, claim.run_dir, progress)
    claims.drop(claim.name)


def _new_state(name: str, node: bool, binaries: Mapping[str, Path]) -> State:
    return State(
        name=name,
        node=node,
        owner=current_process(),
        cgroup_root=f"/slackwater-{name}",
        netns=f"slackwater-{name}",
        binaries={program: str(path) for program, path in binaries.items()},
    )
