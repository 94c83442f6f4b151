"""What commands share: their output, failures, progress, and the options and values of several commands."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, NoReturn, Protocol

import click

from holdfast.core.terminal import ExitStatus, printable, printable_json
from holdfast.core.topics import MOST_LEVELS, InvalidTopicFilter, InvalidTopicName, check_topic_filter, check_topic_name

if TYPE_CHECKING:
    from holdfast.config import Config


# What commands print: facts on standard output, as text or as JSON, and everything else on standard error.


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


# Failures of commands: one message on standard error and an exit status, never a traceback.


class Failed(Exception):
    """The command cannot do its work. The message tells the reason and the remedy."""


@contextmanager
def explained() -> Iterator[None]:
    """Print a failure of the command, and end it with the status of a failure."""
    try:
        yield
    except (click.Abort, click.ClickException, click.exceptions.Exit):
        raise  # Click's own business, such as the end after --help
    except _told() as error:
        # Only a configuration has several problems, and a line for each.
        _fail(*map(str, getattr(error, "problems", (error,))))
    except BrokenPipeError:  # the reader of standard output, such as head, has closed it
        sys.stdout = None  # else Python complains when it flushes stdout at its end
        raise SystemExit(ExitStatus.FAILED) from None
    except UnicodeEncodeError as error:  # Python keeps the bytes of such arguments as surrogates
        if error.reason != "surrogates not allowed":
            raise
        _fail(f"an argument has bytes that are not UTF-8: {os.fsencode(error.object[error.start : error.end])!r}")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        name = error.filename
        _fail(f"{os.fsdecode(name)}: {reason}" if isinstance(name, str | bytes | os.PathLike) else reason)


def _told() -> tuple[type[Exception], ...]:
    """Return the errors whose text is the message. Python asks only after an error, so a command imports none of them
    without need.
    """
    from holdfast.commands.interfaces import Inaccessible
    from holdfast.config import ConfigError
    from holdfast.storage.location import DirectoryUnusable, StoreUnusable

    return (ConfigError, DirectoryUnusable, Failed, Inaccessible, StoreUnusable)


def _fail(*messages: str) -> NoReturn:
    for message in messages:
        say(message)
    raise SystemExit(ExitStatus.FAILED)


# Progress on standard error: a bar on a terminal, elsewhere a line now and then.


#: seconds between two lines
_INTERVAL = 10.0


class Report(Protocol):
    """Receives the progress of a long task: the amount done, and the total if it has become known."""

    def __call__(self, done: int, total: int | None = None, /) -> None:
        """Show the progress."""


@contextmanager
def progress(description: str, total: int | None, in_bytes: bool = False) -> Iterator[Report]:
    """Show a bar during a long task, or lines in a log. ``total`` is None if it is not known yet."""
    if not sys.stderr.isatty():
        yield _Lines(description, total, in_bytes)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    count = DownloadColumn() if in_bytes else MofNCompleteColumn()
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), count, TimeElapsedColumn(),
        console=Console(stderr=True), transient=True,
    )  # fmt: skip
    with bar:
        task = bar.add_task(description, total=total)

        def report(done: int, total: int | None = None, /) -> None:
            bar.update(task, completed=done, total=total)

        yield report


class _Lines:
    """Prints how much is done every ``_INTERVAL`` seconds: nothing during a short task."""

    def __init__(self, description: str, total: int | None, in_bytes: bool) -> None:
        self._description = description
        self._total = total
        self._in_bytes = in_bytes
        self._began = monotonic()
        self._next = self._began + _INTERVAL

    def __call__(self, done: int, total: int | None = None, /) -> None:
        """Print a line, if it is time."""
        self._total = self._total if total is None else total
        now = monotonic()
        if now < self._next:
            return
        self._next = now + _INTERVAL
        of = f" of {self._shown(self._total)} ({100 * done // self._total} %)" if self._total else ""
        say(f"{self._description}: {self._shown(done)}{of} after {now - self._began:.0f} s")

    def _shown(self, number: int) -> str:
        return f"{number / 1_000_000:,.0f} MB" if self._in_bytes else f"{number:,}"


# The options that name a broker's database: the same for every command, and the broker's own.


def broker_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options ``--config``, ``--data-dir`` and ``--storage`` to a command."""
    for add in (
        click.option("--storage", help="The database, sqlite:////absolute/path; overrides storage.url."),
        click.option("--data-dir", help="The folder of the database and its lock; overrides node.data_dir."),
        click.option("--config", type=click.Path(path_type=Path), help="The broker's configuration file."),
    ):
        command = add(command)
    return command


def load_config(config: Path | None, data_dir: str | None, storage: str | None, allow_anonymous: bool = True) -> Config:
    """Return the configuration of a broker that is started with these options. Raises ConfigError.

    Most commands do not know whether the broker runs with ``--allow-anonymous``, so they take its configuration as if
    it did. Without ``allow_anonymous``, the listeners are as the file has them.
    """
    from holdfast.config import default, load

    loaded = default() if config is None else load(config, allow_anonymous=allow_anonymous)
    return loaded.override([], data_dir, storage, allow_anonymous=allow_anonymous, cwd=Path.cwd())


# Topic Names and Topic Filters on the command line. A wrong one is a wrong command line.


def topic_filter(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Return the value of an argument or an option, if it is a Topic Filter."""
    return _checked(value, check_topic_filter)


def topic_name(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Return the value of an argument or an option, if it is a Topic Name."""
    return _checked(value, check_topic_name)


def _checked(value: str | None, check: Callable[[str, int], None]) -> str | None:
    if value is None:
        return None
    try:
        value.encode()
        check(value, MOST_LEVELS)
    except UnicodeEncodeError:
        raise click.BadParameter("this is not UTF-8") from None
    except (InvalidTopicFilter, InvalidTopicName) as error:
        raise click.BadParameter(str(error)) from None
    return value


# Times on the command line.


def moment(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    """Read the value of an option as milliseconds since the epoch.

    A relative time such as ``90m`` becomes a fixed one here, so that it does not shift during a long command.
    """
    if value is None:
        return None
    from holdfast.core.units import BadTime, moment_of

    try:
        return moment_of(value, time.time_ns() // 1_000_000)
    except BadTime as error:
        raise click.BadParameter(str(error)) from None


def age_ago(age: str) -> int:
    """Return the time, in milliseconds since the epoch, that was so long ago: ``30d``."""
    from holdfast.core.units import moment_of

    return moment_of(age, time.time_ns() // 1_000_000)


#: for commands that show retained messages
at_option = click.option(
    "--at",
    metavar="TIME",
    callback=moment,
    help="Show the messages retained at this time: 2026-11-21T10:00:00Z, or an age such as 90m.",
)
