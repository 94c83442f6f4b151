"""The command ``holdfast``: its version and its subcommands."""

from __future__ import annotations

import io
import sys
from importlib.metadata import PackageNotFoundError, version

import click

from holdfast.cli.backup import backup, verify
from holdfast.cli.check_config import check_config
from holdfast.cli.database import db
from holdfast.cli.history import history, restore
from holdfast.cli.reference import config
from holdfast.cli.replays import replays, settings
from holdfast.cli.retainer import retainer
from holdfast.cli.scram import scram


def _print_version(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    try:
        number = version("holdfast")
    except PackageNotFoundError:  # run from a source tree
        number = "(not installed)"
    click.echo(f"holdfast {number}")
    context.exit()


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
def main() -> None:
    """Look after a Holdfast broker. The broker itself is started by: twistd holdfast."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # whatever a file is called, a terminal must not stop the message
            stream.reconfigure(errors="backslashreplace")


main.add_command(check_config)
main.add_command(config)
db.add_command(backup)
db.add_command(verify)
main.add_command(db)
for command in (history, restore, replays, settings):
    retainer.add_command(command)
main.add_command(retainer)
main.add_command(scram)
