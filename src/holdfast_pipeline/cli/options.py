"""Options that several commands share, and the values that people write for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import click

from holdfast_pipeline.errors import WrongUsage

#: The key of --verbose in Click's context.
VERBOSE = "holdfast_pipeline.verbose"
#: The key of --no-server.
NO_SERVER = "holdfast_pipeline.no-server"
#: The key of the contexts with --quiet: those of a file of jobs share their keys.
QUIET = "holdfast_pipeline.quiet"
_LEAST_SIZE = 1 << 20

Command = Callable[..., Any]


def database(command: Command) -> Command:
    """Add the options that name the database."""
    command = click.option("--config", help="The broker's configuration file, which names its database.")(command)
    return click.option("--storage", help="The database: sqlite:////absolute/path or postgresql+psycopg://...")(command)


def lake(command: Command) -> Command:
    """Add the options that name the database, or a lake instead of it."""
    return click.option("--lake", help="Read the tables that sync keeps in this folder, or s3://..., instead.")(
        database(command)
    )


def console(command: Command) -> Command:
    """Add the options for the output on the console, and for the process that does the work."""
    command = click.option(
        "--no-server", is_flag=True, expose_value=False, callback=_set_no_server,
        help="Start Spark anew, even if a server runs.",
    )(command)  # fmt: skip
    command = click.option(
        "--verbose", is_flag=True, expose_value=False, callback=_set_verbose,
        help="Show all output of Spark, and the stack trace of a failure.",
    )(command)  # fmt: skip
    command = click.option(
        "--quiet", is_flag=True, expose_value=False, callback=_set_quiet, help="Show no progress.",
    )(command)  # fmt: skip
    return click.option(
        "--json", "as_json", is_flag=True, help="Print the result, and the progress, as lines of JSON."
    )(command)


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


def following(command: Command) -> Command:
    """Add the options of a job that keeps tables: how long it runs, and the upkeep of their files."""
    for option in (
        click.option("--keep", default="7d", show_default=True, help="Delete files that no version of this time has."),
        click.option(
            "--small-files", type=click.IntRange(2), default=16, show_default=True,
            help="Join the small files of a day, or of a whole table, once there are so many.",
        ),
        click.option("--file-size", default="128MB", show_default=True, help="Small files are joined up to this size."),
        click.option("--rows", type=click.IntRange(1), default=50_000, show_default=True, help="Most changes at once."),
        click.option("--every", help="Continue until SIGTERM or Ctrl-C, and look for changes so often, as in 30s."),
        click.option("--once", is_flag=True, help="End when the tables have all changes. This is the default."),
    ):  # fmt: skip
        command = option(command)
    return command


topic_filter = click.option("--filter", "topic_filter", default="", help="Only topics that match this Topic Filter.")
partitions = click.option(
    "--partitions", type=click.IntRange(1, 10_000), help="Number of tasks that read.  [default: as many as run at once]"
)
snapshot_dir = click.option(
    "--snapshot-dir",
    help="The folder for temporary files of an SQLite database.  [default: the system's temporary folder]",
)


def is_quiet(context: click.Context) -> bool:
    """Tell whether a command, or the one that runs it as a job, has --quiet."""
    quiet = context.meta.get(QUIET, [])
    found: click.Context | None = context
    while found is not None and found not in quiet:
        found = found.parent
    return found is not None


def require_readable(storage: str | None, config: str | None, lake: str | None = None, telemetry: bool = False) -> bool:
    """Tell whether the database or the lake that the options name is small.

    A job with ``telemetry`` reads that in place of the history. With ``lake``, the file ``config`` names no database.
    Raises :class:`PipelineError` if it cannot be read.
    """
    from holdfast_pipeline.database import MOST_SMALL, Source, check, is_small, url_of

    if lake is not None:
        from holdfast_pipeline.sources.lake import CHANGES, CURRENT, TELEMETRY, Lake

        if storage is not None:
            raise WrongUsage("--storage and --lake exclude each other")
        found = Lake(lake)
        return found.rows(TELEMETRY if telemetry else CHANGES) + found.rows(CURRENT) <= MOST_SMALL
    url = url_of(storage, config)
    check(url)
    return is_small(Source(url), telemetry)


def milliseconds(text: str) -> int:
    """Return a time in milliseconds since the epoch; without a zone it is UTC. Raises :class:`PipelineError`.

    ``holdfast retainer`` accepts the same times.
    """
    from holdfast.core.units import ALLOWED, BadTime, moment_of

    try:
        return moment_of(text, time.time_ns() // 1_000_000)
    except BadTime as error:
        raise WrongUsage(f"{text!r} is not a time; write it as {ALLOWED}") from error


def interval(once: bool, every: str | None) -> float | None:
    """Return the seconds of --every, None without it. Raises :class:`PipelineError`."""
    if once and every is not None:
        raise WrongUsage("--once and --every exclude each other")
    return None if every is None else seconds("--every", every, least=0.1)


def seconds(option: str, text: str, least: float = 0.0) -> float:
    """Return the seconds of a duration such as "30s" or "7d". Raises :class:`PipelineError`."""
    from holdfast.core.units import parse_duration

    try:
        found = parse_duration(text)
    except ValueError as error:
        raise WrongUsage(f"{option}: {text!r} is not a duration; write it as in 30s, 1h30m or 7d") from error
    if found < least:
        raise WrongUsage(f"{option}: {text} is too short; the shortest duration is {least:g}s")
    return found


def bytes_of(option: str, text: str) -> int:
    """Return the bytes of a size of at least 1MB, such as "128MB". Raises :class:`PipelineError`."""
    from holdfast.core.units import parse_size

    try:
        found = parse_size(text)
    except ValueError as error:
        raise WrongUsage(f"{option}: {text!r} is not a size; write it as in 64MB or 1GB") from error
    if found < _LEAST_SIZE:
        raise WrongUsage(f"{option}: {text} is too small; the smallest size is 1MB")
    return found


def _set_no_server(context: click.Context, _option: click.Parameter, value: bool) -> None:
    context.meta[NO_SERVER] = value


def _set_quiet(context: click.Context, _option: click.Parameter, value: bool) -> None:
    if value:
        context.meta.setdefault(QUIET, []).append(context)


def _set_verbose(context: click.Context, _option: click.Parameter, value: bool) -> None:
    context.meta[VERBOSE] = value
