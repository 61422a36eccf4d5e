"""One node: its kernel's files, its kubelet, its API server, and the agent as a real process among them."""

import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from builders import NODE, PodBuilder, node, pod
from component.https_process import free_port
from component.nodeagent.api_server import NODES, PODS, ApiServer
from component.nodeagent.fake_kubelet import FakeKubelet
from component.nodeagent.host_files import GIB, HostFiles

CAPACITY = 8 * GIB


def eventually(condition: Callable[[], bool], what: str, timeout_s: float = 10) -> None:
    """Wait until ``condition()`` holds; a key or an element that is not there yet is "not yet"."""

    def holds() -> bool:
        try:
            return condition()
        except (KeyError, IndexError):
            return False

    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s} s"
        threading.Event().wait(0.02)


def colocated(name: str, blocks: int) -> PodBuilder:
    """A running best-effort pod with blocks, of a ReplicaSet, whose container has an id made from its name."""
    runtime_id = name.encode().hex().ljust(64, "0")
    statuses = [{"name": "app", "containerID": f"containerd://{runtime_id}"}]
    built = pod(name).be().blocks(blocks).priority(5000).owned_by("ReplicaSet", f"rs-{name}")
    return built.set("status.containerStatuses", statuses)


@dataclass
class NodeRig:
    """Everything around one agent. Starting, stopping and killing it is up to the test."""

    directory: Path
    files: HostFiles
    kubelet: FakeKubelet
    api: ApiServer
    port: int
    agents: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def add_pod(self, builder: PodBuilder, used: int, *, qos: str = "BestEffort") -> Path:
        """A pod in the API server and its cgroup; gives the cgroup's directory."""
        self.api.put(PODS, builder.raw)
        return self.files.pod(builder.raw["metadata"]["uid"], used=used, qos=qos)

    def start_agent(self, *flags: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "nodeagent", "--node-name", NODE]
        command += ["--host-root", str(self.files.root), "--kubelet-cgroup-root", self.files.kubelet_root]
        command += ["--device-plugin-dir", str(self.kubelet.plugin_dir)]
        command += ["--pod-resources-socket", str(self.kubelet.pod_resources_socket)]
        command += ["--kubeconfig", str(self.api.kubeconfig), "--log-format", "text"]
        command += ["--metrics-port", str(self.port), "--refresh-interval", "500ms", "--grow-interval", "0s"]
        log = (self.directory / "agent.log").open("ab")
        agent = subprocess.Popen([*command, *flags], stdout=log, stderr=log)
        log.close()
        self.agents.append(agent)
        return agent

    def offering_agent(self, *flags: str) -> subprocess.Popen[bytes]:
        """Start an agent and wait until the kubelet could give its blocks away."""
        agent = self.start_agent(*flags)
        self.kubelet.wait_for(lambda kubelet: kubelet.allocatable > 0, "an offer")
        return agent

    def stop_agent(self, agent: subprocess.Popen[bytes], number: int = signal.SIGTERM) -> int:
        agent.send_signal(number)
        return agent.wait(15)

    @property
    def log(self) -> str:
        return (self.directory / "agent.log").read_text()

    def unready(self) -> str:
        """What /readyz complains about; empty = ready, "down" = no answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=2):
                return ""
        except urllib.error.HTTPError as error:
            with error:
                return error.read().decode()
        except OSError:
            return "down"

    def metric(self, name: str) -> float:
        """The value of one series, labels written as Prometheus does; 0 where there is none."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=2) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith(f"{name} "):
                    return float(line.rpartition(" ")[2])
        return 0.0

    def close(self) -> None:
        for agent in self.agents:
            if agent.poll() is None:
                agent.kill()
            agent.wait(10)
        self.kubelet.stop()
        self.api.close()


@pytest.fixture
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeRig]:
    """An 8 GiB node of which 1 GiB is in use, without pods. No agent runs yet."""
    directory = tmp_path_factory.mktemp("n")  # short: a socket's path has 107 characters at most
    files = HostFiles(directory / "host")
    files.machine(CAPACITY, GIB)
    kubelet = FakeKubelet(directory)
    kubelet.start()
    api = ApiServer(directory)
    api.put(NODES, node().capacity("8Gi").set("metadata.uid", "uid-of-node-1").raw)
    rig = NodeRig(directory, files, kubelet, api, free_port())
    try:
        yield rig
    except BaseException:
        sys.stderr.write(rig.log)
        raise
    finally:
        rig.close()
        if os.environ.get("SLACKWATER_SHOW_LOGS"):
            sys.stderr.write(rig.log)
