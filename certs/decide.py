"""What to do about the certificates that are there: keep, renew the leaf, prepare or put in force another CA.

Called by ``certs.store`` with what it read. Pure: the certificates come as values.

A CA is replaced in two steps, far apart, so that nobody is cut off meanwhile: at two thirds of its life a successor is
made and put into the bundle beside it; at five sixths the successor signs. In the twenty months between, every client
that reads the bundle only at its start has been restarted. A CA that is missing or unusable is replaced at once.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

CA_LIFETIME = timedelta(days=3650)
"""Ten years, as most in-cluster CAs have: nobody outside the installation trusts it."""
LEAF_LIFETIME = timedelta(days=365)
RENEW_AFTER = 2 / 3
"""Of a life: what is left is time enough for somebody to notice that renewal fails."""
PROMOTE_AFTER = 5 / 6
"""Of a CA's life: the successor has long been in every bundle then."""
CLOCK_ALLOWANCE = timedelta(minutes=5)
"""Certificates begin a little in the past, for readers whose clock is late."""


class Action(StrEnum):
    """What the store has to do."""

    KEEP = "keep"
    RENEW = "renew"
    """A new leaf from the CA that is there."""
    PREPARE = "prepare"
    """A successor of the CA, in the bundle but signing nothing yet."""
    PROMOTE = "promote"
    """The successor becomes the CA and signs a new leaf; the old one stays in the bundle."""
    REPLACE = "replace"
    """A new CA and a new leaf at once; what is known of older CAs stays in the bundle."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """What matters of one certificate. ``names`` holds DNS names and IP addresses as text.

    For a CA ``names`` are the DNS names below which it may sign (name constraints); None = any.
    """

    not_before: datetime
    not_after: datetime
    names: frozenset[str] | None = None
    signed_by_ca: bool = True
    """For a leaf: its signature verifies with the CA at hand, and its key is the one beside it."""

    def has_spent(self, share: float, now: datetime) -> bool:
        """True past this share of its life."""
        return now >= self.not_before + (self.not_after - self.not_before) * share

    def is_in_force(self, now: datetime) -> bool:
        """False before and after its life; before, because a clock that jumped may have made it."""
        return self.not_before <= now < self.not_after

    def may_sign(self, wanted: Iterable[str]) -> bool:
        """Whether this CA's name constraints permit every DNS name of ``wanted``; addresses are not constrained."""
        allowed = self.names
        return allowed is None or all(
            any(name == base or name.endswith(f".{base}") for base in allowed)
            for name in wanted
            if not _is_address(name)
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """An action, and why, for the log."""

    action: Action
    reason: str


@dataclass(frozen=True, slots=True)
class Found:
    """The certificates that are there. None means missing or unreadable."""

    ca: Certificate | None
    leaf: Certificate | None
    successor: Certificate | None = None


def decide(found: Found, wanted: frozenset[str], now: datetime) -> Decision:
    """What to do so that the leaf serves the ``wanted`` names under the CA."""
    ca, leaf, successor = found.ca, found.leaf, found.successor
    if ca is None:
        return Decision(Action.REPLACE, "there is no usable CA")
    if not ca.is_in_force(now):
        return Decision(Action.REPLACE, f"the CA is valid from {ca.not_before:%Y-%m-%d} to {ca.not_after:%Y-%m-%d}")
    if not ca.may_sign(wanted):
        return Decision(Action.REPLACE, f"the CA may not sign for all of {', '.join(sorted(wanted))}")
    if ca.has_spent(RENEW_AFTER, now):
        if successor is None or not successor.is_in_force(now) or not successor.may_sign(wanted):
            return Decision(Action.PREPARE, f"the CA is valid until {ca.not_after:%Y-%m-%d} and needs a successor")
        if ca.has_spent(PROMOTE_AFTER, now):
            return Decision(Action.PROMOTE, f"the CA is valid until {ca.not_after:%Y-%m-%d}, its successor takes over")
    if leaf is None:
        return Decision(Action.RENEW, "there is no usable serving certificate")
    if not leaf.signed_by_ca:
        return Decision(Action.RENEW, "the serving certificate is not from this CA")
    missing = wanted - (leaf.names or frozenset())
    if missing:
        return Decision(Action.RENEW, f"the serving certificate lacks {', '.join(sorted(missing))}")
    if leaf.has_spent(RENEW_AFTER, now) or not leaf.is_in_force(now):
        return Decision(Action.RENEW, f"the serving certificate is valid until {leaf.not_after:%Y-%m-%d}")
    return Decision(Action.KEEP, f"valid until {leaf.not_after:%Y-%m-%d}")


def _is_address(name: str) -> bool:
    """An IP address, told from a DNS name as URLs do: a last label of digits, or a colon."""
    return ":" in name or name.rpartition(".")[2].isdigit()
