"""How commands print: results as JSON, YAML or a table on standard output, everything else on standard error."""

import json
from collections.abc import Callable, Iterable
from typing import Any

import click
import yaml

from slackwater.errors import Problem


def print_result(value: Any, form: str, table: Callable[[Any], str]) -> None:
    """Print ``value`` in the form asked for; ``table`` makes the text for people."""
    if form == "json":
        click.echo(json.dumps(value, indent=2, ensure_ascii=False))
    elif form == "yaml":
        click.echo(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), nl=False)
    else:
        click.echo(table(value))


def print_warnings(warnings: Iterable[object]) -> None:
    """One line each on standard error; the same sentence only once."""
    for warning in dict.fromkeys(str(warning) for warning in warnings):
        click.echo(f"warning: {warning}", err=True)


def print_problems(problems: Iterable[Problem]) -> None:
    """Every mistake of an input on standard error."""
    for problem in dict.fromkeys(problems):
        click.echo(f"error: {problem}", err=True)
