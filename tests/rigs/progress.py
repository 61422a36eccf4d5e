"""Progress lines for people: one line per step, with the seconds since the start.

Who calls it: the command line of the rigs, the demo and the cluster tests. The library itself only calls
a `Progress`, any function of one text, and never prints.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TextIO

Progress = Callable[[str], None]

_DIM, _RESET = "\033[2m", "\033[0m"


def silent(_text: str) -> None:
    """A `Progress` that says nothing."""


class Console:
    """A `Progress` that writes `[ 12.3 s] text` to a stream, the time dimmed on a terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._colour = self._stream.isatty() and not os.environ.get("NO_COLOR")
        self._started = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._started

    def __call__(self, text: str) -> None:
        stamp = f"[{self.elapsed_s:6.1f} s]"
        if self._colour:
            stamp = f"{_DIM}{stamp}{_RESET}"
        print(stamp, text, file=self._stream, flush=True)
