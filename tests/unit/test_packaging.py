"""The packages' names and layers: guards that hold for the whole tree."""

import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
CONTRACTS = {contract["name"]: contract for contract in PROJECT["tool"]["importlinter"]["contracts"]}
PURE = CONTRACTS["decisions do no I/O"]["source_modules"]


def is_pure(module: str) -> bool:
    """Named by the contract, or inside a package that is."""
    return any(module == named or module.startswith(f"{named}.") for named in PURE)


def test_no_other_distribution_claims_our_top_level_names() -> None:
    claimed = packages_distributions()
    assert {name: set(claimed.get(name, [])) - {"slackwater"} for name in PACKAGES} == {
        name: set() for name in PACKAGES
    }


def test_every_module_of_the_kernel_outside_its_adapters_is_under_the_contract() -> None:
    modules = {
        ".".join(file.relative_to(ROOT).with_suffix("").parts)
        for file in (ROOT / "slackwater").rglob("*.py")
        if "adapters" not in file.parts and file.name != "__init__.py"
    }
    assert {module for module in modules if not is_pure(module)} == set()


def test_every_decide_and_wire_module_is_under_the_contract() -> None:
    found = {
        ".".join(file.relative_to(ROOT).with_suffix("").parts)
        for package in PACKAGES
        for file in (ROOT / package).rglob("*.py")
        if file.stem in ("decide", "wire") or (file.parent.name == "decide" and file.name != "__init__.py")
    }
    assert {module for module in found if not is_pure(module)} == set()


@pytest.mark.parametrize("module", ["slackwater/headroom.py", "webhook/decide.py", "controller/decide.py"])
def test_input_and_output_in_a_decision_breaks_the_build(module: str, tmp_path: Path) -> None:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / module).open("a", encoding="utf-8") as file:
        file.write("\nimport socket\n")
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    broken = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert broken.returncode != 0
    assert "decisions do no I/O BROKEN" in broken.stdout
