"""Options that several commands share."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click

from slackwater import names
from slackwater.quantity import QuantityError, format_quantity, parse_bytes
from slackwater.timestamps import parse_time

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])


def files_option(meaning: str) -> Callable[[_Decorated], _Decorated]:
    """``-f``, repeatable: files, folders or ``-`` for standard input; parameter ``paths``."""
    return click.option(
        "-f",
        "--filename",
        "paths",
        multiple=True,
        required=True,
        metavar="PATH",
        help=f"{meaning}: a file, a folder or -.",
    )


def output_option(*forms: str, default: str = "table") -> Callable[[_Decorated], _Decorated]:
    """``-o``: the form of the output; parameter ``form``."""
    choice = click.Choice(forms or ("json", "yaml", "table"))
    return click.option("-o", "--output", "form", type=choice, default=default, show_default=True)


def now_option(default: str) -> Callable[[_Decorated], _Decorated]:
    """``--now``: an RFC 3339 time, as an aware datetime; ``default`` says in words what holds without it."""
    return click.option(
        "--now", metavar="TIME", callback=_time, help=f"Decide as of this RFC 3339 time; default: {default}."
    )


def block_size_option() -> Callable[[_Decorated], _Decorated]:
    """``--block-size``: a quantity above 0, as bytes."""
    return click.option(
        "--block-size",
        metavar="QUANTITY",
        callback=_block_size,
        default=format_quantity(names.DEFAULT_BLOCK_SIZE),
        show_default=True,
        help="Bytes of one block in this installation.",
    )


def _time(_context: click.Context, _option: click.Parameter, value: str | None) -> datetime | None:
    if value is None:
        return None
    try:
        return parse_time(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _block_size(_context: click.Context, _option: click.Parameter, value: str) -> int:
    try:
        size = parse_bytes(value)
    except QuantityError as error:
        raise click.BadParameter(str(error)) from error
    if size <= 0:
        raise click.BadParameter(f"{value} is not above 0")
    return size
