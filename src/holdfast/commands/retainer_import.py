"""``holdfast retainer import``: read retained messages from a file."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from holdfast.commands.common import json_option, say, show_json
from holdfast.commands.retainer_access import with_access_and_config
from holdfast.core.terminal import ExitStatus, counted
from holdfast.retained.verdicts import Merge

if TYPE_CHECKING:
    from holdfast.commands.interfaces import Access
    from holdfast.config import Config


@click.command("import")
@click.argument("file", type=click.Path(allow_dash=True, path_type=Path))
@click.option(
    "--merge",
    type=click.Choice([one.value for one in Merge]),
    default=Merge.NEWER.value,
    show_default=True,
    help="For topics that the broker knows. newer: the later message or clear prevails. replace: the imported message "
    "prevails. keep: the retained message prevails.",
)
@click.option("--rejects", type=click.Path(path_type=Path), help="Write lines that were refused here.")
@json_option
@with_access_and_config
def import_lines(access: Access, config: Config, file: Path, merge: str, rejects: Path | None, as_json: bool) -> None:
    """Import retained messages from FILE.

    FILE has the lines of an export; - is standard input. Importing the same file again changes nothing. The exit status
    is 3 if lines were refused.
    """
    from holdfast.commands.importing import Import

    with _source(file) as source, _rejects(rejects) as refused:
        one = Import(access, config.storage.url, merge, refused)
        one.run(source, _size(source))
    if as_json:
        show_json({**one.counts, "rejected": one.rejected, "reasons": one.reasons})
    else:
        say(", ".join(f"{count} {verdict}" for verdict, count in one.counts.items()))
    if one.counts["cleared"] and merge == Merge.NEWER.value:
        say("cleared since they were exported: to bring these back, use --merge replace or keep")
    for reason in one.reasons:
        say(reason)
    if one.rejected:
        where = f"; see {click.format_filename(rejects)}" if rejects is not None else "; --rejects FILE keeps them"
        say(f"{counted(one.rejected, 'line')} refused{where}")
        raise SystemExit(ExitStatus.FOUND)


@contextmanager
def _source(path: Path) -> Iterator[IO[bytes]]:
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    with path.open("rb") as file:
        yield file


@contextmanager
def _rejects(path: Path | None) -> Iterator[IO[str] | None]:
    if path is None:
        yield None
        return
    with path.open("w", encoding="utf-8") as file:
        yield file


def _size(file: IO[bytes]) -> int | None:
    """Return the size of a file in bytes, None if it is not a regular file."""
    try:
        found = os.fstat(file.fileno())
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None
