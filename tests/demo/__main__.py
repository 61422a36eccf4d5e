"""``make demo``: Slackwater's main job, for real, on this machine.

Brings up a single-node Kubernetes, installs the chart, and tells the story with real objects: a best-effort pod borrows
slack memory, is held to its blocks, and gives way when the online pod needs the memory; an idle notebook is suspended.
Every number printed was read from the cluster. Everything is removed at the end, also after a failure or Ctrl-C.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import click
from rigs.cluster import Cluster
from rigs.installation import BLOCK, NAMESPACE, REPOSITORY, RESOURCE, Installation, install
from rigs.progress import Console
from rigs.requirements import MachineUnsuitable
from rigs.rootfs import RigError
from rigs.workloads import hold_memory, memory_limit_of, node_memory_used
from tabulate import tabulate

EXAMPLES = REPOSITORY / "examples"
CRDS = REPOSITORY / "tests" / "rigs" / "manifests" / "tensorstack-crds.yaml"


@dataclass
class Story:
    """What happened, for the table at the end."""

    rows: list[tuple[str, str, str]] = field(default_factory=list)

    @contextmanager
    def chapter(self, title: str) -> Iterator[None]:
        click.echo()
        click.secho(f"== {title}", bold=True)
        yield

    def say(self, line: str) -> None:
        click.echo(f"   {line}")

    def record(self, what: str, evidence: str, seconds: float | None = None) -> None:
        took = "" if seconds is None else f"{seconds:.1f} s"
        self.rows.append((what, evidence, took))
        click.secho(f"   ✓ {what}: {evidence}" + (f"  ({took})" if took else ""), fg="green")


def gib(count: float) -> str:
    return f"{count / 1024**3:.2f} GiB"


@dataclass
class Demo:
    """The story on one installed cluster."""

    story: Story
    slackwater: Installation

    @property
    def cluster(self) -> Cluster:
        return self.slackwater.cluster

    def tell(self) -> None:
        self.online_service()
        self.best_effort_pod()
        self.held_at_its_limit()
        self.memory_taken_back()
        self.idle_notebook()

    def apply(self, name: str) -> None:
        self.cluster.kubectl("apply", "-f", str(EXAMPLES / name))

    def seconds_until(self, condition: Callable[[], Any], timeout_s: float, what: str) -> float:
        started = time.monotonic()
        self.cluster.wait(condition, timeout_s, what)
        return time.monotonic() - started

    def ready_pod(self, selector: str) -> dict[str, Any] | None:
        for pod in self.slackwater.pods(selector, "shop"):
            conditions = {c["type"]: c["status"] for c in pod["status"].get("conditions", [])}
            if conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]:
                return pod
        return None

    # -- chapters -----------------------------------------------------------------------------------------

    def online_service(self) -> None:
        with self.story.chapter("An online service runs; the node lends what it leaves unused"):
            for name in ("namespace.yaml", "colocation-profile.yaml", "online.yaml"):
                self.apply(name)
            took = self.seconds_until(lambda: self.ready_pod("app=web"), 60, "the online pod to run")
            self.story.record("online Deployment runs", "examples/online.yaml", took)
            status = self.slackwater.nodeslack()
            memory, blocks = status["memory"], status["blocks"]
            self.story.say(self.cluster.kubectl("get", "nodeslacks").rstrip().replace("\n", "\n   "))
            self.story.record(
                "the node lends",
                f"{blocks['lendable']} blocks of {gib(status['blockSize'])}: capacity {gib(memory['capacity'])}, "
                f"online {gib(memory['online'])}, system {gib(memory['system'])}, margin {gib(memory['margin'])}",
            )

    def best_effort_pod(self) -> None:
        with self.story.chapter("A best-effort Deployment is applied as a plain manifest"):
            self.apply("best-effort.yaml")
            took = self.seconds_until(lambda: self.ready_pod("app=report"), 90, "the best-effort pod to run")
            pod = self.ready_pod("app=report")
            assert pod is not None
            resources = pod["spec"]["containers"][0]["resources"]
            self.story.record(
                "webhook: label, priority, blocks",
                f"slackwater.io/qos={pod['metadata']['labels']['slackwater.io/qos']}, "
                f"{pod['spec']['priorityClassName']} {pod['spec']['priority']} {pod['spec']['preemptionPolicy']}, "
                f"{RESOURCE}={resources['limits'][RESOURCE]}, memory limit {resources['limits']['memory']}",
            )
            asked = self.extender_requests()
            self.story.record(
                "scheduled through the extender",
                f"{pod['spec']['schedulerName']} chose {pod['spec']['nodeName']}; filter was asked {asked:.0f} times",
                took,
            )
            limit = memory_limit_of(self.cluster, pod["metadata"]["uid"])
            self.story.record("its cgroup's limit", f"{gib(limit)} = {limit // BLOCK} blocks")
            self.cluster.wait(lambda: self.slackwater.nodeslack()["blocks"]["lent"] == 2, 30, "two blocks to be lent")
            self.story.say(self.cluster.kubectl("get", "nodeslacks").rstrip().replace("\n", "\n   "))

    def extender_requests(self) -> float:
        text = self.slackwater.metrics("extender")
        lines = [line for line in text.splitlines() if line.startswith("slackwater_filter_requests_total")]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    def held_at_its_limit(self) -> None:
        with self.story.chapter("A pod that tries to take more than its block is held at its limit"):
            self.apply("greedy.yaml")

            def end() -> Any:
                pod = self.cluster.kubectl_json("get", "pod", "-n", "shop", "greedy")
                statuses = pod["status"].get("containerStatuses") or [{}]
                return statuses[0].get("state", {}).get("terminated")

            took = self.seconds_until(end, 90, "the greedy container to be stopped by its limit")
            memory = self.slackwater.nodeslack()["memory"]
            self.story.record(
                "held at 1 block",
                f"{end()['reason']} by its own cgroup while the node used {gib(memory['used'])} "
                f"of {gib(memory['capacity'])}",
                took,
            )
            self.cluster.kubectl("delete", "pod", "-n", "shop", "greedy", "--wait=true")

    def memory_taken_back(self) -> None:
        with self.story.chapter("Online use grows; the memory is taken back"):
            before = self.slackwater.nodeslack()
            web, report = self.ready_pod("app=web"), self.ready_pod("app=report")
            assert web is not None
            assert report is not None
            memory = before["memory"]
            growth = int(memory["capacity"] * 0.97) - memory["used"]
            self.story.say(f"the online pod takes {gib(growth)} more")
            started = time.monotonic()
            self.cluster.kubectl("exec", "-n", "shop", web["metadata"]["name"], "--", "sh", "-c", hold_memory(growth))

            def shrunk() -> bool:
                return bool(self.slackwater.nodeslack()["blocks"]["free"] < before["blocks"]["free"])

            self.cluster.wait(shrunk, 60, "the offer to shrink")
            free = self.slackwater.nodeslack()["blocks"]["free"]
            self.story.record(
                "the offer shrinks", f"{before['blocks']['free']} → {free} free blocks", time.monotonic() - started
            )

            def evicted() -> list[dict[str, Any]]:
                return [
                    event
                    for event in self.slackwater.events("shop", "evictPodSuccess")
                    if event["involvedObject"]["uid"] == report["metadata"]["uid"]
                ]

            threshold = memory["capacity"] * 95 // 100
            self.cluster.wait(
                lambda: node_memory_used(self.cluster) >= threshold, 60, "the node to cross 95 %", interval_s=0.05
            )
            took = self.seconds_until(evicted, 60, "the best-effort pod to be evicted")
            self.story.record("evicted after crossing 95 %", evicted()[0]["message"], took)
            after = self.ready_pod("app=web")
            restarts = after["status"]["containerStatuses"][0]["restartCount"] if after else -1
            if after is None or after["metadata"]["uid"] != web["metadata"]["uid"] or restarts != 0:
                raise RigError("the online pod did not survive undisturbed; this must not happen")
            self.story.record("the online pod never noticed", "same pod, Ready, 0 restarts")

            self.cluster.wait(
                lambda: self.slackwater.events("shop", "InsufficientColocationMemory"), 60,
                "the replacement to be refused with the numbers",
            )  # fmt: skip
            waiting = self.slackwater.events("shop", "InsufficientColocationMemory")[-1]
            self.story.record("its replacement waits", waiting["message"])

    def idle_notebook(self) -> None:
        with self.story.chapter("An idle notebook is suspended by the policy, and an edit takes effect at once"):
            self.cluster.kubectl("apply", "-f", str(CRDS))
            self.cluster.kubectl("wait", "--for=condition=Established", "-f", str(CRDS), "--timeout=30s")
            self.apply("idle-notebook.yaml")
            since = (datetime.now(UTC) - timedelta(hours=2)).strftime("%Y-%m-%dT%H:%M:%SZ")
            idle = {"type": "Idle", "status": "True", "lastTransitionTime": since}
            for kind, name in (("notebook", "forgotten"), ("tensorboard", "curves")):
                if kind == "tensorboard":
                    self.apply("idle-tensorboard.yaml")
                self.cluster.kubectl(
                    "patch", kind, "-n", "shop", name, "--subresource=status", "--type=merge", "-p",
                    json.dumps({"status": {"conditions": [idle]}}),
                )  # fmt: skip
            self.apply("idle-policy.yaml")
            took = self.seconds_until(lambda: self.suspended("notebook", "forgotten"), 60, "the notebook's suspension")
            events = self.slackwater.events("shop", "Suspended")
            self.story.record("idle Notebook suspended", events[0]["message"] if events else "spec.suspend: true", took)
            self.story.say("the policy gets a second type: TensorBoards idle for more than 60 s")
            edited = (EXAMPLES / "idle-policy.yaml").read_text(encoding="utf-8").rstrip()
            edited += "\n      tensorboard:\n        scanInterval: 300\n        idleTimeout: 60\n"
            self.cluster.kubectl("apply", "-f", "-", input=edited)
            took = self.seconds_until(
                lambda: self.suspended("tensorboard", "curves"), 60, "the TensorBoard's suspension"
            )
            self.story.record("policy edit took effect", "TensorBoard shop/curves suspended", took)

    def suspended(self, kind: str, name: str) -> bool:
        return self.cluster.kubectl_json("get", kind, "-n", "shop", name)["spec"].get("suspend") is True


@click.command()
@click.option("--keep", is_flag=True, help="Leave the cluster up at the end, and say how to use and stop it.")
def main(keep: bool) -> None:
    """Bring up Kubernetes, lend memory on it, take it back."""
    started = time.monotonic()
    progress = Console()
    story = Story()
    try:
        with Cluster.up(name="demo", progress=progress) as cluster:
            slackwater = install(cluster, progress)
            story.record("cluster up, chart installed", "Kubernetes 1.36.3, one node", time.monotonic() - started)
            Demo(story, slackwater).tell()
            click.echo()
            click.echo(tabulate(story.rows, headers=("what happened", "evidence", "took"), maxcolwidths=[32, 90, 8]))
            if keep:
                cluster.keep()
                click.echo(f"\nThe cluster stays up. Use it:\n  {cluster.run_dir}/bin/kubectl get pods -A")
                click.echo(f"  {cluster.run_dir}/bin/kubectl get nodeslacks,events -n {NAMESPACE}")
                click.echo("Stop it:\n  make down")
    except RigError as error:
        click.secho(f"demo: {error}", fg="red", err=True)
        sys.exit(2 if isinstance(error, MachineUnsuitable) else 1)
    except KeyboardInterrupt:
        click.secho("demo: interrupted; everything was removed", fg="red", err=True)
        sys.exit(130)
    click.echo(f"\nAll of it took {time.monotonic() - started:.0f} s.")


if __name__ == "__main__":
    main()
