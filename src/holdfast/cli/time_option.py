"""Times on the command line."""

from __future__ import annotations

import time

import click

from holdfast.times import BadTime, moment_of


def moment(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    """Read an option that is a moment, as milliseconds since the epoch.

    What is given in relation to now is fixed here, so that long work does not shift it.
    """
    if value is None:
        return None
    try:
        return moment_of(value, time.time_ns() // 1_000_000)
    except BadTime as error:
        raise click.BadParameter(str(error)) from None


#: for commands that show what is retained
at_option = click.option(
    "--at",
    metavar="TIME",
    callback=moment,
    help="What was retained then instead of now: 2026-11-21T10:00:00Z, or 90m: that long ago.",
)
