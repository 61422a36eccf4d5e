"""Quantities: the grammar and rounding of apimachinery's ``resource.Quantity``."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.quantity import QuantityError, format_bytes, format_quantity, parse_bytes, parse_quantity


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("0", 0, id="zero"),
        pytest.param("512Mi", 512 * 1024**2, id="binary"),
        pytest.param("120G", 120 * 10**9, id="decimal"),
        pytest.param("1k", 1000, id="kilo-is-lower-case"),
        pytest.param("1Ki", 1024, id="kibi"),
        pytest.param("1.5Gi", 3 * 512 * 1024**2, id="fraction"),
        pytest.param(".5Ki", 512, id="no-digit-before-the-point"),
        pytest.param("5.", 5, id="no-digit-after-the-point"),
        pytest.param("1e3", 1000, id="exponent"),
        pytest.param("1E3", 1000, id="exponent-upper-case"),
        pytest.param("1E", 10**18, id="exa"),
        pytest.param("12e-1", 2, id="negative-exponent-rounds-up"),
        pytest.param("100m", 1, id="milli-rounds-up"),
        pytest.param("1500m", 2, id="milli"),
        pytest.param("-100m", -1, id="rounds-away-from-zero"),
        pytest.param("+5", 5, id="plus"),
        pytest.param("0.1n", 1, id="finer-than-nano-is-not-lost"),
        pytest.param("9223372036854775807", 2**63 - 1, id="largest"),
        pytest.param("99E", 2**63 - 1, id="capped"),
        pytest.param("-99E", -(2**63 - 1), id="capped-below"),
        pytest.param(17, 17, id="integer"),
        pytest.param(1.5, 2, id="float"),
    ],
)
def test_reads_what_the_api_server_reads(text: str | int | float, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "1 Gi",
        " 1Gi",
        "1GI",
        "1K",
        "1mi",
        "Gi",
        "1GiB",
        "1e",
        "1e1.5",
        "1e3Gi",
        "0x10",
        "1_000",
        "--1",
        "1,5",
        "NaN",
        "inf",
        "٣Gi",
        "1" + "e9999",
        float("nan"),
        float("inf"),
        True,
        None,
        ["1Gi"],
    ],
)
def test_refuses_what_the_api_server_refuses(text: Any) -> None:
    with pytest.raises(QuantityError, match=r"quantity|exponent"):
        parse_bytes(text)


def test_a_refusal_does_not_repeat_a_huge_text() -> None:
    with pytest.raises(QuantityError) as refusal:
        parse_bytes("x" * 10_000)
    assert len(str(refusal.value)) < 200


@given(st.integers(min_value=-(2**63) + 1, max_value=2**63 - 1))
def test_format_quantity_loses_nothing(count: int) -> None:
    assert parse_bytes(format_quantity(count)) == count


@given(st.integers(min_value=0, max_value=10**12), st.sampled_from(["", "m", "k", "M", "Ki", "Mi"]))
def test_bytes_are_the_exact_value_rounded_up(number: int, suffix: str) -> None:
    exact = parse_quantity(f"{number}{suffix}")
    assert parse_bytes(f"{number}{suffix}") - Fraction(1) < exact <= parse_bytes(f"{number}{suffix}")


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (17, "17"), (1024, "1Ki"), (1536, "1.5Ki"), (512 * 1024**2, "512Mi"), (-3 * 1024**3, "-3Gi")],
)
def test_formats_for_people(count: int, text: str) -> None:
    assert format_bytes(count) == text
