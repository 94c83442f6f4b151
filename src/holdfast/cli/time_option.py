"""Times on the command line."""

from __future__ import annotations

import time

import click


def moment(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    """Read the value of an option as milliseconds since the epoch.

    A relative time such as ``90m`` becomes a fixed one here, so that it does not shift during a long command.
    """
    if value is None:
        return None
    from holdfast.times import BadTime, moment_of

    try:
        return moment_of(value, time.time_ns() // 1_000_000)
    except BadTime as error:
        raise click.BadParameter(str(error)) from None


def age_ago(age: str) -> int:
    """Return the time, in milliseconds since the epoch, that was so long ago: ``30d``."""
    from holdfast.times import moment_of

    return moment_of(age, time.time_ns() // 1_000_000)


#: for commands that show retained messages
at_option = click.option(
    "--at",
    metavar="TIME",
    callback=moment,
    help="Show the messages retained at this time: 2026-11-21T10:00:00Z, or an age such as 90m.",
)
