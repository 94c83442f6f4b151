"""Options that several commands share, and the values that people write for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import click

from holdfast.pipeline.errors import WrongUsage

#: The key of --verbose in Click's context.
VERBOSE = "holdfast.pipeline.verbose"

Command = Callable[..., Any]


def database(command: Command) -> Command:
    """Add the options that name the database."""
    command = click.option("--config", help="The broker's configuration file, which names its database.")(command)
    return click.option("--storage", help="The database: sqlite:////absolute/path or postgresql+psycopg://...")(command)


def console(command: Command) -> Command:
    """Add the options for the output on the console."""
    command = click.option(
        "--verbose", is_flag=True, expose_value=False, callback=_set_verbose,
        help="Show all output of Spark, and the stack trace of a failure.",
    )(command)  # fmt: skip
    return click.option("--json", "as_json", is_flag=True, help="Print the result as one line of JSON.")(command)


def flow_control(command: Command) -> Command:
    """Add the options that override settings of flow control."""
    for option in (
        click.option("--delivery-rate", help='Messages per time, such as "1000/s".  [default: --config, or no limit]'),
        click.option(
            "--batch-deliver-number",
            type=click.IntRange(0, 100_000),
            help="Messages delivered at once; 0: whole batch.",
        ),
        click.option("--batch-read-number", type=click.IntRange(1, 100_000), help="Messages per batch."),
    ):
        command = option(command)
    return command


topic_filter = click.option("--filter", "topic_filter", default="", help="Only topics that match this Topic Filter.")
partitions = click.option(
    "--partitions", type=click.IntRange(1, 10_000), help="Number of tasks that read.  [default: as many as run at once]"
)
snapshot_dir = click.option(
    "--snapshot-dir", help="The folder for the copy of an SQLite database.  [default: the system's temporary folder]"
)


def require_database(storage: str | None, config: str | None) -> None:
    """Raise :class:`PipelineError` unless the options name a database that can be read."""
    from holdfast.pipeline.database.connection import check
    from holdfast.pipeline.database.location import url_of

    check(url_of(storage, config))


def milliseconds(text: str) -> int:
    """Return a time in milliseconds since the epoch; without a zone it is UTC. Raises :class:`PipelineError`.

    ``holdfast retainer`` accepts the same times.
    """
    from holdfast.times import ALLOWED, BadTime, moment_of

    try:
        return moment_of(text, time.time_ns() // 1_000_000)
    except BadTime as error:
        raise WrongUsage(f"{text!r} is not a time; write it as {ALLOWED}") from error


def _set_verbose(context: click.Context, _option: click.Parameter, value: bool) -> None:
    context.meta[VERBOSE] = value
