"""Runs chosen tests of tests/vm/inside in one VM. Called by the host's conftest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rigs.vm import VmFailed, run_in_vm
from vm.reports import PATH, Outcome, read_outcomes


def run_inside_tests(test_ids: Sequence[str], progress: Callable[[str], None], log: Path) -> Mapping[str, Outcome]:
    """Boot the VM, run the tests with these pytest ids in it, and return the outcome of each that ran.

    Raises:
        VmFailed: the VM gave no result, or not one test ran.
    """
    argv = ["python3", "-m", "pytest", "-p", "no:cacheprovider", "-p", "vm.reports", "-v", *test_ids]
    result = run_in_vm(argv, progress, collect=[PATH], log=log)
    outcomes = read_outcomes(result.files.get(PATH, b"").decode().splitlines())
    if not outcomes:
        raise VmFailed(f"no test ran in the VM (status {result.returncode}, log {log}):\n{result.output}")
    return outcomes
