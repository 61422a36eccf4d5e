"""Waiting for something to become true, with a sentence that says what was waited for when it does not.

Who calls it: every module of the rigs, and tests through `Cluster.wait`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from rigs.rootfs import RigError

T = TypeVar("T")

#: Never set: waiting on it is an interruptible sleep.
_NEVER = threading.Event()


class NotInTime(RigError):
    """A condition did not become true within its time."""


def pause(seconds: float) -> None:
    _NEVER.wait(seconds)


def wait_until(
    what: str,
    condition: Callable[[], T | None],
    timeout_s: float,
    *,
    interval_s: float = 0.1,
    give_up: Callable[[], str | None] | None = None,
) -> T:
    """Call `condition` until it returns something truthy, and return that.

    A `RigError` in the condition counts as "not yet" and is quoted if time runs out. `give_up` is asked
    between attempts; a sentence from it ends the waiting at once (a process that died will not become ready).

    Raises:
        NotInTime: `what` did not happen within `timeout_s` seconds, or `give_up` said why it never will.
    """
    deadline = time.monotonic() + timeout_s
    last = ""
    while True:
        try:
            value = condition()
        except RigError as error:
            last = str(error)
        else:
            if value:
                return value
            last = ""
        reason = give_up() if give_up is not None else None
        if reason:
            raise NotInTime(f"{what}: {reason}")
        if time.monotonic() >= deadline:
            raise NotInTime(f"{what}: not within {timeout_s:g} s" + (f"; last answer: {last}" if last else ""))
        pause(interval_s)
