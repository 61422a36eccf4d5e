"""`PYTHONPATH=tests python -m rigs`: build, start, use and stop a cluster by hand.

Exit status: 0 done, 1 it failed, 2 this machine, this user or the command line is not suitable.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import click
from rigs import images
from rigs.binaries import ALL_MODULES, KUBERNETES_VERSION, TOOLS, programs
from rigs.cluster import DEFAULT_NAME, Cluster
from rigs.progress import Console
from rigs.requirements import (
    CLUSTER_PROGRAMS,
    IMAGE_PROGRAMS,
    VM_PROGRAMS,
    MachineUnsuitable,
    ensure_packages,
    require_linux_root,
)
from rigs.rootfs import RigError, cache_dir, debian_root

_REPOSITORY = Path(__file__).resolve().parents[2]

name_option = click.option("--name", default=DEFAULT_NAME, show_default=True, help="The cluster's name.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """A real single-node Kubernetes cluster on this machine, for the demo and the tests. Needs Linux and root."""


@main.command()
def build() -> None:
    """Install missing packages, build the programs into the cache, make the root file system."""
    progress = Console()
    require_linux_root("building the rigs")
    ensure_packages(progress, {**CLUSTER_PROGRAMS, **IMAGE_PROGRAMS, **VM_PROGRAMS})
    programs(ALL_MODULES, progress)
    debian_root(progress)
    progress(f"everything is in {cache_dir()}")


@main.command()
@name_option
@click.option("--fake-nodes", default=0, show_default=True, help="Nodes that kwok plays, besides the real one.")
@click.option("--node/--no-node", default=True, help="With --no-node: a control plane without kubelet and containerd.")
def up(name: str, fake_nodes: int, node: bool) -> None:
    """Start a cluster and leave it up."""
    with Cluster.up(name, Console(), fake_nodes=fake_nodes, node=node) as cluster:
        cluster.keep()
    _print_usage(cluster)


@main.command()
@name_option
def down(name: str) -> None:
    """Stop a cluster and remove everything of it but its logs, also after a crash."""
    progress = Console()
    require_linux_root("stopping a cluster")
    try:
        cluster = Cluster.attach(name, progress)
    except RigError as error:
        progress(f"nothing to do: {error}")
        return
    progress(f"stopping the cluster {name}")
    cluster.down()
    progress(f"stopped; its logs are in {cluster.run_dir / 'logs'}")


@main.command()
@name_option
def status(name: str) -> None:
    """Show the processes of a cluster and its nodes; exit status 1 if there is none or a process has ended."""
    require_linux_root("looking at a cluster")
    cluster = Cluster.attach(name)
    dead = 0
    for process, record in cluster.state_file.read().processes.items():
        dead += not record.running
        word = "running" if record.running else "ENDED"
        click.echo(f"{process:<24} {word:<8} pid {record.pid:<8} {cluster.process(process).log}")
    click.echo(cluster.kubectl("--request-timeout=5s", "get", "nodes", "-o", "wide", check=False).rstrip())
    _print_usage(cluster)
    sys.exit(1 if dead else 0)


@main.command(context_settings={"ignore_unknown_options": True})
@name_option
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def kubectl(name: str, arguments: tuple[str, ...]) -> None:
    """Run kubectl as the cluster's administrator: rigs kubectl -- get pods -A"""
    cluster = Cluster.attach(name)
    command = str(cluster.run_dir / "bin" / "kubectl")
    os.execv(command, [command, *arguments])  # noqa: S606 - a shell in between would read the arguments again


@main.command()
@name_option
def shell(name: str) -> None:
    """A shell in the cluster's network namespace, with kubectl and helm."""
    require_linux_root("entering a cluster's network")
    cluster = Cluster.attach(name)
    user_shell = os.environ.get("SHELL", "/bin/sh")
    argv = [*cluster.enter, user_shell]
    os.execve(argv[0], argv, cluster.environment())  # noqa: S606


@main.command()
@click.option("--tag", default="slackwater.io/slackwater:rig", show_default=True, help="The image's name.")
def image(tag: str) -> None:
    """Build the container image from the Containerfile and print the path of its archive."""
    click.echo(images.build_image(_REPOSITORY, tag, Console()))


@main.command()
def chart() -> None:
    """Check the Helm chart strictly and print what it renders to with its default values."""
    helm = str(programs((TOOLS,), Console())["helm"])
    directory = str(_REPOSITORY / "charts" / "slackwater")
    with tempfile.TemporaryDirectory(prefix="slackwater-helm-") as home:
        environment = {**os.environ, "HELM_CACHE_HOME": home, "HELM_CONFIG_HOME": home, "HELM_DATA_HOME": home}
        render = ["template", "slackwater", directory, "--namespace", "slackwater-system"]
        # A helm that was not built for a cluster's version takes Kubernetes 1.20 for granted.
        version = f"--kube-version={KUBERNETES_VERSION}"
        for arguments in (["lint", "--strict", directory], render):
            done = subprocess.run([helm, *arguments, version], env=environment, stdin=subprocess.DEVNULL, check=False)
            if done.returncode != 0:
                raise RigError(f"helm {arguments[0]} found a fault in the chart; it is described above")


def _print_usage(cluster: Cluster) -> None:
    click.echo(f"kubectl:    {cluster.run_dir / 'bin' / 'kubectl'} get pods -A")
    click.echo(f"helm:       {cluster.run_dir / 'bin' / 'helm'} list -A")
    click.echo(
        f"kubeconfig: {cluster.kubeconfig} (its address exists only inside: nsenter --net={cluster.enter[1][6:]})"
    )
    click.echo(f"logs:       {cluster.run_dir / 'logs'}")
    click.echo(f"stop it:    PYTHONPATH=tests python -m rigs down --name {cluster.name}")


def run(command: Callable[[], None]) -> int:
    """Run a command line and turn what a person can act on into one message and an exit status."""
    try:
        command()
    except MachineUnsuitable as error:
        click.echo(str(error), err=True)
        return 2
    except RigError as error:
        click.echo(f"error: {error}", err=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
