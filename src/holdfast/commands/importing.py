"""The import of retained messages from a file: they are staged first, then a job merges them, as in the pipeline.

The messages go into a private temporary database, which sorts them by topic and keeps the newest message of each topic.
It also keeps the place of each message in the file: a merge knows only the topics of the messages that it rejects.

Lines of JSON are read from a stream, with the text of each line. Files of other programs are read by the readers in
:mod:`holdfast.retained.formats`. Most of these have no time of storing, so their messages get the time at which the
file was written. A second import of the same file has the same times then, and changes nothing. Messages that were
published here since the file was written are newer, and stay.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import IO
from uuid import uuid4

from attrs import define, field

from holdfast.commands.access import MergeFailed, merge_staged
from holdfast.commands.common import progress
from holdfast.commands.interfaces import Access, Inaccessible
from holdfast.retained.fields import BadRecord
from holdfast.retained.formats.file_entry import FileEntry
from holdfast.retained.formats.recognition import foreign_entries
from holdfast.retained.import_jobs import REJECTED
from holdfast.retained.staging import (
    StagingUnusable,
    file_insert,
    file_schema,
    row_in,
    row_of_fields,
    staging_area_for,
)
from holdfast.retained.store.rows import COLUMNS, Row

# Built from constants alone: values are always bound.
# ruff: noqa: S608

#: MQTT's longest message has 256 MB, which are 342 MB in base64. A longer line is no message of any broker.
_LONGEST_LINE = 400 << 20
_PIECE = 1 << 20
#: The characters of a rejected line that are kept if the line is too long.
_EXCERPT = 200
_MOST_REASONS = 10
#: The column of ``_SortedMessages`` between a row's own columns and the message's text.
_EXTRA = ("number", "place", "text")


@define
class Import:
    """One import. ``counts`` has a number for each verdict; ``reasons`` are those of the first rejected messages.

    ``url`` is that of the database, ``merge`` the rule, and ``rejects`` the file for rejected messages. A ``dry``
    import merges nothing, and ``found`` has the number of messages that it would merge.
    """

    access: Access
    url: str
    merge: str
    rejects: IO[str] | None
    dry: bool = False
    counts: Counter[str] = field(factory=Counter)
    found: int = 0
    rejected: int = 0
    reasons: list[str] = field(factory=list)

    def run(self, source: IO[bytes], size: int | None) -> None:
        """Import all lines; ``size`` is the number of bytes of the source, None if it is not known.

        Raises :class:`holdfast.commands.interfaces.Inaccessible`.
        """
        self._run(lambda messages: self._read(source, size, messages))

    def run_entries(self, entries: Iterable[FileEntry], stored_at: int) -> None:
        """Import the messages of a file; those without a time get ``stored_at``, in milliseconds since the epoch.

        Raises :class:`holdfast.commands.interfaces.Inaccessible`, or
        :class:`holdfast.retained.formats.file_entry.UnreadableFile` before any message is merged.
        """

        def read(messages: _SortedMessages) -> None:
            with progress("reading", None) as report:
                for number, entry in enumerate(entries, 1):
                    messages.add_entry(entry, stored_at, number, _topic_of(entry))
                    report(number)

        self._run(read)

    def _run(self, read: Callable[[_SortedMessages], None]) -> None:
        # Everything that grows with the source is in temporary files, none of it in memory.
        with closing(_SortedMessages(with_text=self.rejects is not None)) as messages:
            read(messages)
            self.found = messages.count
            try:
                if not self.dry:
                    self._merge(messages)
            finally:
                self._tell(messages)

    def _read(self, source: IO[bytes], size: int | None, messages: _SortedMessages) -> None:
        now = time.time_ns() // 1_000_000
        done = 0
        with progress("reading", size, in_bytes=True) as report:
            for number, (line, length, is_too_long) in enumerate(_lines(source), 1):
                done += length
                place = f"line {number}"
                if is_too_long:
                    messages.reject(number, place, "BAD_REQUEST", "this line is too long", line)
                elif stripped := line.strip():
                    if (foreign := foreign_entries(place, stripped)) is not None:
                        for entry in foreign:
                            messages.add_entry(entry, now, number, line)
                        continue
                    try:
                        messages.add(row_in(stripped, now), number, place, line)
                    except BadRecord as error:
                        messages.reject(number, place, "BAD_REQUEST", str(error), line)
                report(done)

    def _merge(self, messages: _SortedMessages) -> None:
        job = uuid4().hex
        area = staging_area_for(self.url, job)
        try:
            area.open()
            try:
                area.put(1, messages.rows())
                merging = merge_staged(
                    self.access, job=job, merge=self.merge, rejected=messages.rejected, staged=area.prepare_merge([1])
                )
                with progress("importing", messages.count) as report:
                    for step in merging:
                        for reject in step["rejects"]:
                            messages.reject_topic(reject["topic"], "EXCEED_LIMIT", reject["reason"])
                        self.counts = Counter({name: n for name, n in step["counts"].items() if name != REJECTED})
                        report(self.counts.total())
            finally:
                area.drop()
        except (StagingUnusable, MergeFailed) as error:
            raise Inaccessible(f"the import is not complete: {error}; run it again") from error

    def _tell(self, messages: _SortedMessages) -> None:
        """Write the rejected messages, in their order."""
        self.rejected = messages.rejected
        for number, place, code, message, text in messages.rejects():
            if len(self.reasons) < _MOST_REASONS:
                self.reasons.append(f"{place}: {message}")
            if self.rejects is None:
                continue
            shown = text.rstrip(b"\n").decode(errors="backslashreplace")
            where = {"line": number} if place.startswith("line ") else {"place": place}
            json.dump({**where, "code": code, "message": message, "text": shown}, self.rejects)
            self.rejects.write("\n")


class _SortedMessages:
    """The newest message of each topic as a row, and all rejected messages, in a temporary database.

    Each has its number in the file, its place for people, and its text: the line, or the topic if there are no lines.
    Without ``with_text`` the text is not kept.
    """

    def __init__(self, with_text: bool) -> None:
        self._with_text = with_text
        self._connection = sqlite3.connect("", isolation_level=None)  # a file that SQLite removes at the end
        self._connection.execute(file_schema(*_EXTRA))
        self._connection.execute("CREATE TABLE rejected (number INTEGER, place, code, message, text)")
        self._connection.execute("BEGIN")
        self._insert = file_insert(*_EXTRA)
        self.rejected = 0

    def add(self, row: Row, number: int, place: str, text: bytes) -> None:
        self._connection.execute(self._insert, (*row, number, place, self._kept(text)))

    def add_entry(self, entry: FileEntry, stored_at: int, number: int, text: bytes) -> None:
        """Add the message of a reader's entry, or reject it."""
        try:
            if entry.problem is not None or entry.fields is None:
                raise BadRecord(entry.problem or "there is no message")
            self.add(row_of_fields(entry.fields, stored_at), number, entry.place, text)
        except BadRecord as error:
            self.reject(number, entry.place, "BAD_REQUEST", str(error), text)

    def reject(self, number: int, place: str, code: str, message: str, text: bytes) -> None:
        self._connection.execute(
            "INSERT INTO rejected VALUES (?, ?, ?, ?, ?)", (number, place, code, message, self._kept(text))
        )
        self.rejected += 1

    def reject_topic(self, topic: str, code: str, message: str) -> None:
        found = self._connection.execute("SELECT number, place, text FROM staged WHERE topic = ?", (topic,)).fetchone()
        number, place, text = found
        self.reject(number, place, code, message, text)

    @property
    def count(self) -> int:
        return int(self._connection.execute("SELECT count(*) FROM staged").fetchone()[0])

    def rows(self) -> Iterator[Row]:
        return map(Row._make, self._connection.execute(f"SELECT {', '.join(COLUMNS)} FROM staged ORDER BY topic"))

    def rejects(self) -> Iterator[tuple[int, str, str, str, bytes]]:
        return iter(
            self._connection.execute("SELECT number, place, code, message, text FROM rejected ORDER BY number, rowid")
        )

    def close(self) -> None:
        self._connection.close()

    def _kept(self, text: bytes) -> bytes:
        return text if self._with_text else b""


def _topic_of(entry: FileEntry) -> bytes:
    return str((entry.fields or {}).get("topic") or "").encode(errors="surrogatepass")


def _lines(source: IO[bytes]) -> Iterator[tuple[bytes, int, bool]]:
    """Yield each line, its length in bytes, and whether it is too long: then the line is cut."""
    while line := source.readline(_LONGEST_LINE):
        if len(line) < _LONGEST_LINE or line.endswith(b"\n"):
            yield line, len(line), False
            continue
        length = len(line)
        while piece := source.readline(_PIECE):
            length += len(piece)
            if piece.endswith(b"\n"):
                break
        yield line[:_EXCERPT], length, True
