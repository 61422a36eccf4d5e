"""``slackwater``: explains and rehearses what the components decide, on files and without a cluster.

A subcommand's module is loaded when it is asked for, so that ``lend`` does not wait for what ``admit`` imports.

Exit status: 0 decided; 1 ``admit`` denied an object; 2 an input or a configuration cannot be used (standard error names
file, field, value and remedy; standard output stays empty). Warnings go to standard error and do not change it.
"""

import importlib
import importlib.util
from typing import Any

import click

from cli.output import print_problems
from slackwater.errors import InputError

_UNUSABLE_INPUT = 2
_COMMANDS = {
    "admit": "cli.admit",
    "evict": "cli.evict",
    "filter": "cli.filter",
    "idle": "cli.idle",
    "lend": "cli.lend",
}
"""Subcommand → the module whose ``command`` it is."""


class _Commands(click.Group):
    """Finds subcommands in their modules and turns an unusable input into exit status 2."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  the signature is click's
        return [name for name, module in _COMMANDS.items() if importlib.util.find_spec(module) is not None]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = importlib.import_module(_COMMANDS[cmd_name]).command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except InputError as error:
            print_problems(error.problems)
            ctx.exit(_UNUSABLE_INPUT)


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="slackwater", message="%(version)s")
def main() -> None:
    """Show what Slackwater would do: admit, lend, place, evict and suspend, with its reasons.

    The commands read Kubernetes objects (YAML or JSON, also Lists and streams) from files, folders or "-", and need no
    cluster. They run the very functions that production runs.
    """
