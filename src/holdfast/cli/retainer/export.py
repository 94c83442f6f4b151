"""``holdfast retainer export``: write retained messages to a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from holdfast.cli.progress import progress
from holdfast.cli.reporting import say
from holdfast.cli.retainer.access_option import with_access
from holdfast.cli.retainer.pages import say_left_out
from holdfast.cli.time_option import at_option
from holdfast.cli.topic_values import topic_filter

if TYPE_CHECKING:
    from holdfast.access.interfaces import Access

_NEWLINE = ord("\n")


@click.command()
@click.argument("file", type=click.Path(allow_dash=True, path_type=Path), default="-")
@click.option("--topic", "topic_filter", metavar="FILTER", callback=topic_filter, help="Export only topics that match.")
@at_option
@with_access
def export(access: Access, file: Path, topic_filter: str | None, at: int | None) -> None:
    """Export retained messages to FILE.

    Without FILE, the export goes to standard output. It has one JSON object on each line, sorted by topic. Each message
    is the one retained when the export reaches its topic. FILE appears under its name when it is complete.
    """
    count = 0
    arguments = selection(topic_filter, at)
    total = None if arguments else access.call("GET", "/info")["count"]
    with _replacing(file) as out, progress("exporting", total) as report:
        for piece in access.pieces("/export", arguments):
            out.write(piece)
            count += piece.count(_NEWLINE)
            report(count)
    if at is not None:
        say_left_out(access.call("GET", "/messages", {**arguments, "limit": "1"})["meta"]["left_out"])
    say(f"{count} exported")


@contextmanager
def _replacing(file: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing. It gets its name when it is complete."""
    if str(file) == "-":
        out = sys.stdout.buffer
        yield out
        out.flush()
        return
    unfinished = file.with_name(file.name + ".partial")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as writing:
            yield writing
            writing.flush()
            os.fsync(writing.fileno())
        unfinished.replace(file)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def selection(topic_filter: str | None, at: int | None) -> dict[str, str]:
    """Return the arguments of a call that select messages by topic and time."""
    arguments = {} if topic_filter is None else {"topic": topic_filter}
    return arguments if at is None else {**arguments, "at": str(at)}
