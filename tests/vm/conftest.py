"""Runs the tests of tests/vm/inside in a virtual machine, and only there.

pytest collects those files here like any others, so that `-k`, test ids and parametrisation work as ever.
Each collected test is then replaced by one whose run is: boot the VM (once in a session, with all the
chosen tests), and repeat what came out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rigs.rootfs import RigError, cache_dir
from rigs.vm import DEFAULT_TIMEOUT_S
from vm.inside_run import run_inside_tests
from vm.reports import Outcome

if TYPE_CHECKING:
    from _pytest._code.code import TerminalRepr  # pytest names this type in a signature, but nowhere public

_INSIDE = Path(__file__).parent / "inside"

#: The first VM test of a session also makes what is not cached: root file system, kernel, images.
_FIRST_TEST_TIMEOUT_S = DEFAULT_TIMEOUT_S + 600

_run_key = pytest.StashKey[Mapping[str, Outcome] | RigError]()


class FailedInside(Exception):
    """A test failed in the VM; the text is pytest's own account from there."""


class InsideTest(pytest.Item):
    """One test of tests/vm/inside, as the host sees it."""

    def runtest(self) -> None:
        """Pass, skip or fail as the test did in the VM."""
        outcome = _outcomes(self.session).get(self.nodeid)
        if outcome is None:
            raise FailedInside("the VM reported no result for this test, so it did not run")
        self.user_properties.append(("seconds_in_vm", round(outcome.seconds, 2)))
        for title, content in outcome.sections:
            self.add_report_section("call", f"in the VM: {title}", content)
        if outcome.result == "skipped":
            pytest.skip(outcome.text)
        if outcome.result != "passed":
            raise FailedInside(outcome.text)

    def repr_failure(
        self, excinfo: pytest.ExceptionInfo[BaseException], style: str | None = None
    ) -> str | TerminalRepr:
        """Show the account from inside, not the host's stack."""
        if isinstance(excinfo.value, FailedInside | RigError):
            return str(excinfo.value)
        return super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where the test is written."""
        return self.path, None, self.name


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Replace the tests of `inside`, before options such as -m select among them."""
    for index, item in enumerate(items):
        if item.path.is_relative_to(_INSIDE) and item.parent is not None:
            inside = InsideTest.from_parent(item.parent, name=item.name, nodeid=item.nodeid)
            inside.add_marker(pytest.mark.vm)
            inside.add_marker(pytest.mark.timeout(_FIRST_TEST_TIMEOUT_S))
            items[index] = inside


def _outcomes(session: pytest.Session) -> Mapping[str, Outcome]:
    """What came out of the session's VM; the first caller boots it. A VM that failed fails every test."""
    if _run_key not in session.stash:
        chosen = [item.nodeid for item in session.items if isinstance(item, InsideTest)]
        try:
            log = cache_dir() / "logs" / "vm-tests.log"
            session.stash[_run_key] = run_inside_tests(chosen, _Progress(session.config), log)
        except RigError as failure:
            session.stash[_run_key] = failure
    found = session.stash[_run_key]
    if isinstance(found, RigError):
        raise found
    return found


class _Progress:
    """Writes to the terminal past pytest's capture of output."""

    def __init__(self, config: pytest.Config) -> None:
        self._capture = config.pluginmanager.getplugin("capturemanager")
        self._terminal = config.pluginmanager.getplugin("terminalreporter")

    def __call__(self, sentence: str) -> None:
        with self._capture.global_and_fixture_disabled():
            self._terminal.write_line(f"\n{sentence}")


@pytest.fixture
def progress(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Says what the rig is doing while it works."""
    return _Progress(pytestconfig)
