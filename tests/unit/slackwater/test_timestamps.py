"""RFC 3339 times in and out."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.timestamps import format_time, parse_time


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("2026-01-01T00:00:00Z", datetime(2026, 1, 1, tzinfo=UTC), id="utc"),
        pytest.param("2026-01-01T01:30:00+01:30", datetime(2026, 1, 1, tzinfo=UTC), id="offset"),
        pytest.param("2026-01-01T00:00:00.25Z", datetime(2026, 1, 1, 0, 0, 0, 250_000, UTC), id="fraction"),
        pytest.param(
            "2026-01-01T00:00:00.123456789Z", datetime(2026, 1, 1, 0, 0, 0, 123_456, UTC), id="nanoseconds-cut"
        ),
    ],
)
def test_reads_rfc_3339(text: str, expected: datetime) -> None:
    assert parse_time(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "", "2026-01-01", "2026-01-01T00:00:00", "2026-13-01T00:00:00Z", "2026-01-01T24:01:00Z", "1767225600",
        "٢٠٢٦-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-10:00", None, 5, ["x"],
    ],
)  # fmt: skip
def test_refuses_everything_else_with_an_example(text: object) -> None:
    with pytest.raises(ValueError, match="RFC 3339"):
        parse_time(text)


@given(st.datetimes(timezones=st.just(UTC)))
def test_what_is_written_is_read_back(moment: datetime) -> None:
    assert parse_time(format_time(moment, micros=True)) == moment
    assert parse_time(format_time(moment)) == moment.replace(microsecond=0)
