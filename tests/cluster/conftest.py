"""One real cluster with the chart installed, for all cluster tests; each test gets a namespace of its own."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rigs.cluster import Cluster
from rigs.installation import Installation, install
from rigs.progress import Console
from rigs.workloads import Namespace


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.cluster)
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def slackwater() -> Iterator[Installation]:
    """The chart, installed in mode ``lend`` on a fresh single-node cluster."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("the real cluster needs root on Linux")
    progress = Console()
    with Cluster.up(name="test", progress=progress) as cluster:
        yield install(cluster, progress)


@pytest.fixture
def cluster(slackwater: Installation) -> Cluster:
    """The cluster below the installation."""
    return slackwater.cluster


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """A fresh namespace, labelled for colocation, removed afterwards with all its pods."""
    slug = "".join(letter if letter.isalnum() else "-" for letter in request.node.name.removeprefix("test_"))
    name = f"t-{slug}"[:50].strip("-")
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"colocation": "on"}}})
    cluster.wait(
        lambda: cluster.kubectl("get", "serviceaccount", "-n", name, "default", "--ignore-not-found"),
        30, "the namespace's service account",
    )  # fmt: skip
    yield Namespace(cluster, name)
    cluster.kubectl("delete", "pods", "-n", name, "--all", "--grace-period=1", "--wait=true")
    cluster.kubectl("delete", "namespace", name, "--wait=false")
