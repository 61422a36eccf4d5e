"""What to do about the certificates that are there: keep, renew the leaf, or replace the CA as well.

Called by ``certs.store`` with what it read. Pure: the certificates come as values.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

CA_LIFETIME = timedelta(days=3650)
"""Ten years, as most in-cluster CAs have: nobody outside the installation trusts it."""
LEAF_LIFETIME = timedelta(days=365)
RENEW_AFTER = 2 / 3
"""Of a life: what is left is time enough for somebody to notice that renewal fails."""
CLOCK_ALLOWANCE = timedelta(minutes=5)
"""Certificates begin a little in the past, for readers whose clock is late."""


class Action(StrEnum):
    """What the store has to do, smallest first."""

    KEEP = "keep"
    RENEW = "renew"
    """A new leaf from the CA that is there."""
    REPLACE = "replace"
    """A new CA and a new leaf; the old CA stays in the bundle, so that nobody is cut off meanwhile."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """What matters of one certificate. ``names`` holds DNS names and IP addresses as text."""

    not_before: datetime
    not_after: datetime
    names: frozenset[str] = frozenset()
    signed_by_ca: bool = True
    """For a leaf: its signature verifies with the CA at hand, and its key is the one beside it."""

    def is_due(self, now: datetime) -> bool:
        """Past two thirds of its life, or not yet valid: a clock that jumped back must not serve it."""
        return now >= self.not_before + (self.not_after - self.not_before) * RENEW_AFTER or now < self.not_before


@dataclass(frozen=True, slots=True)
class Decision:
    """An action, and why, for the log and the Event."""

    action: Action
    reason: str


def decide(ca: Certificate | None, leaf: Certificate | None, wanted: frozenset[str], now: datetime) -> Decision:
    """What to do so that ``leaf`` serves the ``wanted`` names under ``ca``. None means missing or unreadable."""
    if ca is None:
        return Decision(Action.REPLACE, "there is no usable CA")
    if ca.is_due(now):
        return Decision(Action.REPLACE, f"the CA is valid until {ca.not_after:%Y-%m-%d} and due for replacement")
    if leaf is None:
        return Decision(Action.RENEW, "there is no usable serving certificate")
    if not leaf.signed_by_ca:
        return Decision(Action.RENEW, "the serving certificate is not from this CA")
    missing = wanted - leaf.names
    if missing:
        return Decision(Action.RENEW, f"the serving certificate lacks {', '.join(sorted(missing))}")
    if leaf.is_due(now):
        return Decision(Action.RENEW, f"the serving certificate is valid until {leaf.not_after:%Y-%m-%d}")
    return Decision(Action.KEEP, f"valid until {leaf.not_after:%Y-%m-%d}")
