"""The VM rig itself: a VM that gives no result is a failure with a reason, and the inside tests do run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rigs.vm import VmFailed, run_in_vm
from vm.inside_run import run_inside_tests
from vm.reports import Outcome, read_outcomes

pytestmark = [pytest.mark.vm, pytest.mark.timeout(900)]

Progress = Callable[[str], None]


def test_status_output_and_files_of_a_command_come_back(progress: Progress, tmp_path: Path) -> None:
    program = "echo said; echo complained >&2; printf 'a\\000b' > /tmp/made; exit 7"

    result = run_in_vm(["sh", "-c", program], progress, collect=["/tmp/made", "/tmp/absent"], log=tmp_path / "log")

    assert result.returncode == 7
    assert result.output == "said\ncomplained\n"
    assert result.files == {"/tmp/made": b"a\0b"}
    assert "said" in result.log.read_text()


def test_a_kernel_panic_is_a_failure_that_shows_the_console(progress: Progress, tmp_path: Path) -> None:
    with pytest.raises(VmFailed, match=r"(?s)^.*Kernel panic.*sysrq triggered crash.*its last lines:"):
        run_in_vm(["sh", "-c", "echo c > /proc/sysrq-trigger"], progress, log=tmp_path / "log")


def test_a_hanging_command_is_ended_and_a_failure(progress: Progress, tmp_path: Path) -> None:
    with pytest.raises(VmFailed, match=r"(?s)^the VM did not finish within 15 s .*working on it"):
        run_in_vm(["sh", "-c", "echo working on it; sleep 1000"], progress, timeout_s=15, log=tmp_path / "log")

    running = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [line for line in running if b"qemu-system" in line and str(tmp_path).encode() in line]


def test_inside_tests_refuse_to_run_on_the_host(request: pytest.FixtureRequest) -> None:
    """Every test file of `inside` is stood in for; none of its functions is an ordinary test here."""
    inside = Path(__file__).parent / "inside"
    collected = [item for item in request.session.items if item.path.is_relative_to(inside)]

    assert list(inside.glob("test_*.py"))
    assert {type(item).__name__ for item in collected} <= {"InsideTest"}


def test_a_test_is_as_good_as_its_worst_phase() -> None:
    def phase(test: str, outcome: str, text: str = "") -> str:
        fields = {"test": test, "outcome": outcome, "text": text, "sections": [["out", "x"]], "seconds": 1}
        return json.dumps(fields)

    lines = [
        *(phase("good", "passed") for _ in range(3)),
        *(phase("late", "passed"), phase("late", "passed"), phase("late", "failed", "in teardown")),
        *(phase("absent", "skipped", "no swap"), phase("absent", "passed")),
    ]

    assert read_outcomes(lines) == {
        "good": Outcome("passed", "", (("out", "x"),), 3),
        "late": Outcome("failed", "in teardown", (("out", "x"),), 3),
        "absent": Outcome("skipped", "no swap", (("out", "x"),), 2),
    }


def test_a_run_without_a_single_inside_test_is_a_failure(progress: Progress, tmp_path: Path) -> None:
    with pytest.raises(VmFailed, match=r"(?s)^no test ran in the VM .*not found: .*test_kernel.py::absent"):
        run_inside_tests(["tests/vm/inside/test_kernel.py::absent"], progress, tmp_path / "log")
