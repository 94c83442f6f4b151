"""``holdfast retainer import``: read retained messages from a file."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from holdfast.commands.common import Failed, json_option, say, show_json
from holdfast.commands.retainer_access import with_access_and_config
from holdfast.core.terminal import ExitStatus, counted
from holdfast.retained.verdicts import Merge

if TYPE_CHECKING:
    from holdfast.commands.importing import Import
    from holdfast.commands.interfaces import Access
    from holdfast.config import Config
    from holdfast.retained.formats.recognition import FileKind


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
@click.option("--rejects", type=click.Path(path_type=Path), help="Write messages that were refused here.")
@click.option("--dry-run", is_flag=True, help="Read FILE and tell what is in it, and import nothing.")
@json_option
@with_access_and_config
def import_file(
    access: Access, config: Config, file: Path, merge: str, rejects: Path | None, dry_run: bool, as_json: bool
) -> None:
    """Import retained messages from FILE.

    FILE is recognised by its content: the lines of an export, of mosquitto_sub -F %j or of EMQX's API; mosquitto's
    mosquitto.db, the database of its persist-sqlite plugin, or the output of mosquitto_db_dump --json; the archive of
    emqx ctl data export. If FILE is -, lines are read from standard input.

    Importing the same file again changes nothing. Messages without a time of storing get the time at which FILE was
    written, and lines that of the import. The exit status is 3 if messages were refused.
    """
    from holdfast.commands.importing import Import
    from holdfast.retained.formats.file_entry import UnreadableFile
    from holdfast.retained.formats.recognition import ENOUGH, FileKind, kind_of, messages

    kind = FileKind.LINES
    with _source(file) as source, _rejects(rejects) as refused:
        one = Import(access, config.storage.url, merge, refused, dry_run)
        try:
            if str(file) != "-" and _size(source) is not None:
                kind = kind_of(source.read(ENOUGH))
                source.seek(0)
            if kind is FileKind.LINES:
                one.run(source, _size(source))
            else:
                one.run_entries(messages(file, kind), _written_at(file))
        except UnreadableFile as error:
            raise Failed(f"{click.format_filename(file)}: {error}; nothing was imported") from None
    _report(one, kind, merge, rejects, as_json)


def _report(one: Import, kind: FileKind, merge: str, rejects: Path | None, as_json: bool) -> None:
    if as_json:
        show_json(
            {
                **({"found": one.found} if one.dry else one.counts), "format": kind.name.lower(),
                "rejected": one.rejected, "reasons": one.reasons,
            }
        )  # fmt: skip
    elif one.dry:
        say(f"{kind.value}: {counted(one.found, 'message')} would be merged; nothing was imported")
    else:
        say(", ".join(f"{count} {verdict}" for verdict, count in one.counts.items()))
    if one.counts["cleared"] and merge == Merge.NEWER.value:
        say("cleared since they were exported: to bring these back, use --merge replace or keep")
    for reason in one.reasons:
        say(reason)
    if one.rejected:
        where = f"; see {click.format_filename(rejects)}" if rejects is not None else "; --rejects FILE keeps them"
        noun = "line" if kind.name == "LINES" else "message"
        say(f"{counted(one.rejected, noun)} refused{where}")
        raise SystemExit(ExitStatus.FOUND)


def _written_at(path: Path) -> int:
    """Return the time at which a file was written, in milliseconds since the epoch; with a WAL, that of the WAL."""
    log = path.with_name(f"{path.name}-wal")
    newest = max(each.stat().st_mtime_ns for each in (path, log) if each.exists())
    return min(newest, time.time_ns()) // 1_000_000


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
