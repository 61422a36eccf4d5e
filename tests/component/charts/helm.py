"""Renders the chart with the helm binary that ``make test`` builds; skips with the reason where there is none."""

import json
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from rigs.binaries import TOOLS

from slackwater.adapters.documents import load_yaml_text

CHART = Path(__file__).resolve().parents[3] / "charts" / "slackwater"
NAMESPACE = "slackwater-system"


@cache
def helm() -> str:
    """Path of a helm 3 binary: the rigs' own if it is built, else one on PATH."""
    built = TOOLS.cache / "helm"
    found = str(built) if built.is_file() else shutil.which("helm")
    if found is None:
        pytest.skip("no helm: `make test` builds one first; otherwise put helm 3 on PATH")
    return found


def run(*arguments: str, values: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    command = [helm(), *arguments]
    if values is not None:
        command += ["--values", "-"]
    return subprocess.run(command, input=json.dumps(values or {}), capture_output=True, text=True, check=False)


def template(values: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    return run(
        "template", "slackwater", str(CHART), f"--namespace={NAMESPACE}", "--kube-version=1.36.3", values=values or {}
    )


def render(values: dict[str, Any] | None = None) -> dict[tuple[str, str], dict[str, Any]]:
    """The chart's objects by kind and name."""
    done = template(values)
    assert done.returncode == 0, done.stderr
    objects = load_yaml_text(done.stdout, "helm template")
    found = {(raw["kind"], raw["metadata"]["name"]): raw for raw in objects}
    assert len(found) == len(objects)
    return found
