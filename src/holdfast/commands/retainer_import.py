"""``holdfast retainer import``: read retained messages from a file."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
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

_TAKEN = ("sessions_taken", "sessions_left_out")
_MOST_REASONS = 20


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
@click.option(
    "--sessions",
    is_flag=True,
    help="Also take over Sessions, Subscriptions and queued messages; the broker is stopped.",
)
@click.option("--dry-run", is_flag=True, help="Read FILE and tell what is in it, and import nothing.")
@json_option
@with_access_and_config
def import_file(
    access: Access, config: Config, file: Path, merge: str, rejects: Path | None, sessions: bool, dry_run: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Import retained messages from FILE.

    FILE is recognised by its content: the lines of an export, of mosquitto_sub -F %j or of EMQX's API; mosquitto's
    mosquitto.db, the database of its persist-sqlite plugin, or the output of mosquitto_db_dump --json; the archive of
    emqx ctl data export. If FILE is -, lines are read from standard input.

    With --sessions, the clients find their Sessions of mosquitto here, with all queued messages. A client that has a
    Session here keeps that one.

    Importing the same file again changes nothing. Messages without a time of storing get the time at which FILE was
    written, and lines that of the import. The exit status is 3 if messages were refused.
    """
    from holdfast.commands.importing import Import
    from holdfast.retained.formats.file_entry import UnreadableFile
    from holdfast.retained.formats.recognition import ENOUGH, FileKind, kind_of, messages

    kind = FileKind.LINES
    taken: dict[str, Counter[str]] = {}
    with _source(file) as source, _rejects(rejects) as refused:
        one = Import(access, config.storage.url, merge, refused, dry_run)
        try:
            if str(file) != "-" and _size(source) is not None:
                kind = kind_of(source.read(ENOUGH))
                source.seek(0)
            if sessions:
                from holdfast.commands.session_import import check_sessions, import_sessions

                stand_in = check_sessions(access, kind)
                import_sessions(stand_in, config, file, kind, dry=True)  # a file that cannot be read changes nothing
            if kind is FileKind.LINES:
                one.run(source, _size(source))
            else:
                one.run_entries(messages(file, kind), _written_at(file))
            if sessions:
                taken = dict(zip(_TAKEN, import_sessions(stand_in, config, file, kind, dry_run), strict=True))
        except UnreadableFile as error:
            raise Failed(f"{click.format_filename(file)}: {error}; nothing was imported") from None
    _report(one, kind, merge, rejects, taken, as_json)


def _report(
    one: Import, kind: FileKind, merge: str, rejects: Path | None, taken: Mapping[str, Counter[str]], as_json: bool
) -> None:
    if as_json:
        show_json(
            {
                **({"found": one.found} if one.dry else one.counts), "format": kind.name.lower(),
                "rejected": one.rejected, "reasons": one.reasons, **taken,
            }
        )  # fmt: skip
    elif one.dry:
        say(f"{kind.value}: {counted(one.found, 'message')} would be merged; nothing was imported")
    else:
        say(", ".join(f"{count} {verdict}" for verdict, count in one.counts.items()))
    if taken and not as_json:
        told = ", ".join(f"{count} {kind}" for kind, count in taken["sessions_taken"].items())
        say(f"of clients: {told}{' would be taken over' if one.dry else ' taken over'}")
        for reason, count in taken["sessions_left_out"].most_common(_MOST_REASONS):
            say(f"of clients, {count} left out: {reason}")
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
