"""Groups of commands that import a command's module only when that command runs or is listed.

These modules describe options and print results. They import what the work needs within the functions, so that
``--help`` imports neither Twisted nor SQLAlchemy, and a call to a running broker imports only a client.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from holdfast.cli.failures import explained


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
