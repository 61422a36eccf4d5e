"""The exceptions of Slackwater, and the value that describes one mistake in an input.

::

    SlackwaterError
    ├── InputError        the caller's data cannot be used; says what, where and how to mend it (exit status 2)
    └── Unavailable       something we need is away; trying again later may help
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in an input.

    ``where`` is a file and field path (``policy.notebook.idleTimeout``), ``what`` a sentence with the value,
    ``remedy`` how to mend it.
    """

    where: str
    what: str
    remedy: str = ""

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}; {self.remedy}" if self.remedy else text

    def under(self, prefix: str) -> "Problem":
        """The same problem seen from one level further out."""
        if not prefix:
            return self
        joint = "" if not self.where or self.where.startswith("[") else "."
        return Problem(f"{prefix}{joint}{self.where}", self.what, self.remedy)


class SlackwaterError(Exception):
    """Base of every exception that Slackwater raises on purpose."""


class InputError(SlackwaterError):
    """An input cannot be used. Carries every problem that was found, not the first alone."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def under(self, prefix: str) -> "InputError":
        """The same error with every path prefixed by ``prefix``."""
        return InputError(problem.under(prefix) for problem in self.problems)


class Unavailable(SlackwaterError):
    """Something outside is away: the API server, the kubelet, a file of the kernel. Not the caller's fault."""
