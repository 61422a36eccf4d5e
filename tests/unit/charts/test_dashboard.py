"""The dashboard against the code: every metric that it asks for is one that a component defines, with its labels."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[3]
DASHBOARD = REPOSITORY / "charts" / "slackwater" / "dashboards" / "overview.json"
COMPONENTS = ("slackwater", "webhook", "extender", "nodeagent", "controller", "certs")
SERIES = {
    "Counter": ("_total",),
    "Gauge": ("",),
    "Histogram": ("_bucket", "_sum", "_count"),
}
DEFINITION = re.compile(r'(Counter|Gauge|Histogram)\(\s*"(slackwater_\w+)"')


def queries(value: Any) -> Iterator[str]:
    """Every PromQL expression of a dashboard."""
    if isinstance(value, dict):
        if isinstance(value.get("expr"), str):
            yield value["expr"]
        for below in value.values():
            yield from queries(below)
    elif isinstance(value, list):
        for below in value:
            yield from queries(below)


def defined_series() -> set[str]:
    found = set()
    for component in COMPONENTS:
        for file in sorted((REPOSITORY / component).rglob("*.py")):
            for kind, name in DEFINITION.findall(file.read_text(encoding="utf-8")):
                found |= {name.removesuffix("_total") + suffix for suffix in SERIES[kind]}
    return found


def dashboard() -> dict[str, Any]:
    return dict(json.loads(DASHBOARD.read_text(encoding="utf-8")))


def test_every_metric_of_the_dashboard_is_defined_in_code() -> None:
    asked = {name for query in queries(dashboard()) for name in re.findall(r"slackwater_\w+", query)}
    assert len(asked) >= 20
    assert asked - defined_series() == set()


def test_every_panel_says_what_it_shows_and_asks_something() -> None:
    panels = [panel for panel in dashboard()["panels"] if panel["type"] != "row"]
    assert len(panels) >= 15
    for panel in panels:
        assert panel["description"], panel["title"]
        letters = [target["refId"] for target in panel["targets"]]
        assert letters, panel["title"]
        assert len(set(letters)) == len(letters), panel["title"]


def test_queries_use_only_the_variables_that_the_dashboard_has() -> None:
    known = {variable["name"] for variable in dashboard()["templating"]["list"]} | {"__rate_interval"}
    used = {name for query in queries(dashboard()) for name in re.findall(r"\$\{?(\w+)", query)}
    assert used <= known
