"""The command ``holdfast``: its version and its subcommands."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from holdfast.commands.common import explained

# Groups of commands that import a command's module only when that command runs or is listed.
#
# These modules describe options and print results. They import what the work needs within the functions, so that
# ``--help`` imports neither Twisted nor SQLAlchemy, and a call to a running broker imports only a client.


class LazyGroup(click.Group):
    """A group of commands. ``locations`` gives each command's place as ``module:attribute``, by its name."""

    def __init__(self, *arguments: Any, locations: Mapping[str, str], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._locations = locations

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in alphabetical order."""
        return sorted(self._locations)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in self._locations:
            return None
        module, _, attribute = self._locations[cmd_name].partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command, and explain its failure."""
        with explained():
            return super().invoke(ctx)


def _print_version(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    from holdfast.version import version

    click.echo(f"holdfast {version()}")
    context.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    locations={
        "acl": "holdfast.commands.acl:acl",
        "api-key": "holdfast.commands.api_key:api_key",
        "ban": "holdfast.commands.ban:ban",
        "bridge": "holdfast.commands.bridge:bridge",
        "check-config": "holdfast.commands.config:check_config",
        "config": "holdfast.commands.config:config",
        "dashboard": "holdfast.commands.running:dashboard",
        "db": "holdfast.commands.db:db",
        "hook": "holdfast.commands.hook:hook",
        "migrate": "holdfast.commands.migrate:migrate",
        "node": "holdfast.commands.node:node",
        "passwd": "holdfast.commands.passwd:passwd",
        "doctor": "holdfast.commands.doctor:doctor",
        "ping": "holdfast.commands.running:ping",
        "reload": "holdfast.commands.config:reload",
        "retainer": "holdfast.commands.retainer:retainer",
        "run": "holdfast.commands.running:run",
        "scram": "holdfast.commands.scram:scram",
        "trace": "holdfast.commands.running:trace",
        "user": "holdfast.commands.user:user",
    },
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
def main() -> None:
    """Run and manage a Holdfast broker."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a file name that the terminal cannot show must not stop a message
            stream.reconfigure(errors="backslashreplace")
