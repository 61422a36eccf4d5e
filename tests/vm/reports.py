"""Carries test results out of the VM: written inside as a pytest plugin, read outside.

Who calls it: the pytest inside the VM loads it with `-p vm.reports`; the host's conftest reads the file
with `read_outcomes` and repeats each outcome under the same test id.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

#: Where the plugin writes, inside the VM: one line of JSON for each phase of each test.
PATH = "/run/reports.jsonl"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one test went inside. `result` is passed, failed or skipped; `text` is the failure or the reason."""

    result: str
    text: str
    sections: tuple[tuple[str, str], ...]
    seconds: float


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Append one phase of one test to the file."""
    line = {
        "test": report.nodeid,
        "outcome": report.outcome,
        "text": _reason(report) if report.skipped else report.longreprtext,
        "sections": report.sections,
        "seconds": report.duration,
    }
    with Path(PATH).open("a") as output:
        output.write(json.dumps(line) + "\n")


def _reason(report: pytest.TestReport) -> str:
    # A skip is described as (file, line, reason); an expected failure has its reason in wasxfail.
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2]
    return str(getattr(report, "wasxfail", "") or report.longreprtext)


def read_outcomes(lines: Iterable[str]) -> Mapping[str, Outcome]:
    """Sum up the phases of each test: failed if one phase failed, else skipped if one was, else passed."""
    outcomes: dict[str, Outcome] = {}
    for line in lines:
        phase = json.loads(line)
        before = outcomes.get(phase["test"], Outcome("passed", "", (), 0.0))
        worst = "failed" if "failed" in (before.result, phase["outcome"]) else before.result
        if worst == "passed" and phase["outcome"] == "skipped":
            worst = "skipped"
        texts = [text for text in (before.text, phase["text"]) if text]
        sections = tuple((str(title), str(content)) for title, content in phase["sections"])
        outcomes[phase["test"]] = Outcome(worst, "\n".join(texts), sections, before.seconds + phase["seconds"])
    return outcomes
