"""What commands print: facts on standard output, as text or as JSON, and everything else on standard error."""

from __future__ import annotations

import click

from holdfast.terminal_text import printable, printable_json

#: for commands that report one thing
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
#: for commands that list things
json_lines_option = click.option("--json", "as_json", is_flag=True, help="Print lines of JSON, an object for each.")


def show(text: str) -> None:
    """Print one line on standard output."""
    click.echo(printable(text))


def show_json(value: object) -> None:
    """Print a line of JSON on standard output."""
    click.echo(printable_json(value))


def say(text: str) -> None:
    """Print a message on standard error, in one line."""
    click.echo(printable(text), err=True)
