"""RFC 3339 times as Kubernetes writes them. Times inside Slackwater are aware datetimes in UTC."""

import re
from datetime import UTC, datetime

_FORM = re.compile(r"(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?([Zz]|[+-]\d{2}:\d{2})", re.ASCII)


def parse_time(text: object) -> datetime:
    """An RFC 3339 time, any offset, as an aware UTC datetime; nanoseconds are cut to microseconds.

    Raises:
        ValueError: not an RFC 3339 time; the message shows the text and an example.
    """
    match = _FORM.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"{text!r} is not an RFC 3339 time; write it like 2026-01-01T00:00:00Z")
    date, clock, fraction, offset = match.groups()
    zone = "+00:00" if offset in "Zz" else offset
    try:
        return datetime.fromisoformat(f"{date}T{clock}.{(fraction or '0')[:6]:0<6}{zone}").astimezone(UTC)
    except (ValueError, OverflowError) as error:  # an offset can lead out of the years 1 to 9999
        raise ValueError(f"{text!r} is not an RFC 3339 time: {error}") from error


def format_time(moment: datetime, *, micros: bool = False) -> str:
    """``metav1.Time`` form (seconds), or ``metav1.MicroTime`` form with ``micros``."""
    naive = moment.astimezone(UTC).replace(tzinfo=None)
    return naive.isoformat(timespec="microseconds" if micros else "seconds") + "Z"
