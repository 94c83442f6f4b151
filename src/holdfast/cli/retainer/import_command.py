"""``holdfast retainer import``: read retained messages from a file."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import click

from holdfast.access.interfaces import Access, Inaccessible
from holdfast.cli.retainer.access_option import with_access_and_config
from holdfast.cli.retainer.importing import Import
from holdfast.config import Config
from holdfast.retained.importing.verdicts import Merge


@click.command("import")
@click.argument("file", type=click.File("rb"))
@click.option(
    "--merge",
    type=click.Choice([one.value for one in Merge]),
    default=Merge.NEWER.value,
    show_default=True,
    help="For topics that the broker knows. newer: the later message or clear prevails. replace: the imported message "
    "prevails. keep: the retained message prevails.",
)
@click.option("--rejects", type=click.Path(dir_okay=False, path_type=Path), help="Write lines that were refused here.")
@with_access_and_config
def import_lines(access: Access, config: Config, file: IO[bytes], merge: str, rejects: Path | None) -> None:
    """Import retained messages from FILE (- is standard input), lines as written by export.

    Importing the same file again changes nothing. The exit status is 1 if lines were refused.
    """
    with _rejects(rejects) as refused:
        one = Import(access, config.storage.url, merge, refused)
        one.run(file, _size(file))
    click.echo(", ".join(f"{count} {verdict}" for verdict, count in one.counts.items()), err=True)
    if one.counts["cleared"] and merge == Merge.NEWER.value:
        click.echo("cleared since they were exported: to bring these back, use --merge replace or keep", err=True)
    for reason in one.reasons:
        click.echo(reason, err=True)
    if one.rejected:
        where = f"; see {click.format_filename(rejects)}" if rejects is not None else "; --rejects FILE keeps them"
        raise Inaccessible(f"{one.rejected} lines were refused{where}")


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
