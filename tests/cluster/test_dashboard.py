"""The dashboard's queries against a real Prometheus that scrapes the real components."""

import json
import subprocess
from collections.abc import Iterator
from functools import partial
from urllib.parse import quote

import pytest
import yaml
from rigs.installation import NAMESPACE, REPOSITORY, Installation
from rigs.progress import Console
from rigs.requirements import ensure_packages, program
from rigs.workloads import BE, Namespace, memory

DASHBOARD = REPOSITORY / "charts" / "slackwater" / "dashboards" / "overview.json"
COMPONENTS = ("webhook", "extender", "nodeagent", "controller")
PORT = 9465


def queries() -> list[str]:
    """Every PromQL expression of the dashboard, its template variables' matchers widened to everything."""
    found = []

    def collect(value: object) -> None:
        if isinstance(value, dict):
            if isinstance(value.get("expr"), str):
                found.append(value["expr"])
            for below in value.values():
                collect(below)
        elif isinstance(value, list):
            for below in value:
                collect(below)

    collect(json.loads(DASHBOARD.read_text(encoding="utf-8")))
    return found


@pytest.fixture(scope="module")
def prometheus(slackwater: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus inside the cluster's network namespace that scrapes every component's pods; its address."""
    ensure_packages(Console(), {"prometheus": "prometheus", "promtool": "prometheus", "curl": "curl"})
    folder = tmp_path_factory.mktemp("prometheus")
    targets = [
        {"targets": [f"{pod['status']['podIP']}:{PORT}"], "labels": {"component": component, "job": component}}
        for component in COMPONENTS
        for pod in slackwater.pods(f"app.kubernetes.io/component={component}", NAMESPACE)
    ]
    configuration = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": "slackwater", "static_configs": targets}],
    }
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(configuration), encoding="utf-8")
    address = "127.0.0.1:19090"
    process = slackwater.cluster.start_process(
        "prometheus",
        [
            program("prometheus"), f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={address}",
        ],
    )  # fmt: skip
    try:
        slackwater.cluster.wait(
            lambda: "Ready" in slackwater.cluster.run_in("curl", "-s", f"http://{address}/-/ready").stdout,
            30, "Prometheus to be ready",
        )  # fmt: skip
        yield address
    finally:
        process.stop()


def ask(slackwater: Installation, address: str, query: str) -> list[dict[str, object]]:
    text = slackwater.cluster.run_in("curl", "-s", f"http://{address}/api/v1/query?query={quote(query)}").stdout
    answer = json.loads(text)
    assert answer["status"] == "success", answer
    return list(answer["data"]["result"])


def test_every_query_of_the_dashboard_finds_series(
    slackwater: Installation, prometheus: str, namespace: Namespace
) -> None:
    namespace.pod("be", labels=BE, resources=memory("400Mi"))
    namespace.running("be")
    assert len(queries()) >= 8

    for query in queries():
        asked = query.replace("$__rate_interval", "1m").replace("$node", ".*")
        slackwater.cluster.wait(
            partial(ask, slackwater, prometheus, asked), 30, f"the dashboard's query to find series: {asked}"
        )


def test_every_component_is_scraped(slackwater: Installation, prometheus: str) -> None:
    slackwater.cluster.wait(
        lambda: len(ask(slackwater, prometheus, "up == 1")) >= len(COMPONENTS), 30, "every component to be up"
    )


def test_metrics_are_well_formed(slackwater: Installation) -> None:
    for component in COMPONENTS:
        lint = subprocess.run(
            ["promtool", "check", "metrics"],
            input=slackwater.metrics(component), text=True, capture_output=True, check=False,
        )  # fmt: skip
        ours = [line for line in (lint.stdout + lint.stderr).splitlines() if "slackwater_" in line]
        assert ours == [], component
