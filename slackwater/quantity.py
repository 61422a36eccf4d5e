"""Kubernetes quantities: parse and print amounts of bytes exactly as the API server understands them.

The grammar is that of apimachinery's ``resource.ParseQuantity`` (signed decimal, then a binary suffix ``Ki..Ei``,
a decimal suffix ``n u m "" k M G T P E``, or a decimal exponent). Arithmetic is exact; ``parse_bytes`` rounds up to
whole bytes, as ``Quantity.Value()`` does.
"""

import re
from fractions import Fraction
from math import ceil

_SUFFIXES: dict[str, Fraction] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{letter: Fraction(1000**power) for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", start=1)},
}
# ASCII digits only: Python's \d also takes other scripts, which the API server refuses.
_FORM = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))"
    r"(?:[eE](?P<exponent>[+-]?[0-9]+)|(?P<suffix>[numkMGTPE]|[KMGTPE]i)?)"
)
_MAX_BYTES = 2**63 - 1
_NANO = Fraction(1, 10**9)


class QuantityError(ValueError):
    """A text is not a quantity that the API server would accept."""


def parse_quantity(value: str | int | float) -> Fraction:
    """The exact value of a quantity such as ``"1.5Gi"``, ``"500m"``, ``"1e3"`` or ``2``.

    Finer than a nano is rounded up, larger than 2⁶³−1 is capped, as apimachinery does.

    Raises:
        QuantityError: the text is not a quantity; the message shows it and gives an example.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise QuantityError(f"{value!r} is not a quantity; write a number with a unit, such as 512Mi")
    text = str(value)
    match = _FORM.fullmatch(text)
    if match is None:
        raise QuantityError(f"{text[:64]!r} is not a quantity; write a number with a unit, such as 512Mi")
    exponent = int(match["exponent"] or 0)
    if abs(exponent) > 999:
        raise QuantityError(f"{text[:64]!r} has an exponent out of range; write it with a unit, such as 512Mi")
    scale = Fraction(10) ** exponent * _SUFFIXES[match["suffix"] or ""]
    exact = Fraction(match["number"]) * scale
    magnitude = min(Fraction(ceil(abs(exact) / _NANO)) * _NANO, Fraction(_MAX_BYTES))
    return -magnitude if exact < 0 else magnitude


def parse_bytes(value: str | int | float) -> int:
    """A quantity as whole bytes, rounded away from zero (``Quantity.Value()``).

    Raises:
        QuantityError: as :func:`parse_quantity`.
    """
    exact = parse_quantity(value)
    return -ceil(-exact) if exact < 0 else ceil(exact)


def format_bytes(count: int) -> str:
    """Bytes for people, in the largest binary unit, at most two decimals: ``1.5Gi``, ``512Mi``, ``17``."""
    magnitude = abs(count)
    sign = "-" if count < 0 else ""
    for power, letter in reversed(list(enumerate("KMGTPE", start=1))):
        unit = 1024**power
        if magnitude >= unit:
            return f"{sign}{magnitude / unit:.2f}".rstrip("0").rstrip(".") + f"{letter}i"
    return f"{sign}{magnitude}"


def format_quantity(count: int) -> str:
    """Bytes as a quantity that loses nothing: the largest binary unit that divides them, else the plain number."""
    for power, letter in reversed(list(enumerate("KMGTPE", start=1))):
        unit = 1024**power
        if count and count % unit == 0:
            return f"{count // unit}{letter}i"
    return str(count)
