"""The import of lines of an export: they are staged first, then a job merges them, as in the pipeline.

The lines go into a private temporary database, which sorts them by topic and keeps the newest line of each topic. It
also keeps the number of each line: a merge knows only the topics of the messages that it rejects.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import IO
from uuid import uuid4

from attrs import define, field

from holdfast.commands.access import MergeFailed, merge_staged
from holdfast.commands.common import progress
from holdfast.commands.interfaces import Access, Inaccessible
from holdfast.retained.fields import BadRecord
from holdfast.retained.import_jobs import REJECTED
from holdfast.retained.staging import StagingUnusable, file_insert, file_schema, row_in, staging_area_for
from holdfast.retained.store.rows import COLUMNS, Row

# Built from constants alone: values are always bound.
# ruff: noqa: S608

#: MQTT's longest message has 256 MB, which are 342 MB in base64. A longer line is no message of any broker.
_LONGEST_LINE = 400 << 20
_PIECE = 1 << 20
#: The characters of a rejected line that are kept if the line is too long.
_EXCERPT = 200
_MOST_REASONS = 10


@define
class Import:
    """One import. ``counts`` has a number for each verdict; ``reasons`` are those of the first rejected lines.

    ``url`` is that of the database, ``merge`` the rule, and ``rejects`` the file for rejected lines.
    """

    access: Access
    url: str
    merge: str
    rejects: IO[str] | None
    counts: Counter[str] = field(factory=Counter)
    rejected: int = 0
    reasons: list[str] = field(factory=list)

    def run(self, source: IO[bytes], size: int | None) -> None:
        """Import all lines; ``size`` is the number of bytes of the source, None if it is not known.

        Raises :class:`holdfast.commands.interfaces.Inaccessible`.
        """
        # Everything that grows with the source is in temporary files, none of it in memory.
        with closing(_SortedLines(with_text=self.rejects is not None)) as lines:
            self._read(source, size, lines)
            try:
                self._merge(lines)
            finally:
                self._tell(lines)

    def _read(self, source: IO[bytes], size: int | None, lines: _SortedLines) -> None:
        now = time.time_ns() // 1_000_000
        done = 0
        with progress("reading", size, in_bytes=True) as report:
            for number, (line, length, is_too_long) in enumerate(_lines(source), 1):
                done += length
                if is_too_long:
                    lines.reject(number, "BAD_REQUEST", "this line is too long", line)
                elif stripped := line.strip():
                    try:
                        lines.add(row_in(stripped, now), number, line)
                    except BadRecord as error:
                        lines.reject(number, "BAD_REQUEST", str(error), line)
                report(done)

    def _merge(self, lines: _SortedLines) -> None:
        job = uuid4().hex
        area = staging_area_for(self.url, job)
        try:
            area.open()
            try:
                area.put(1, lines.rows())
                merging = merge_staged(
                    self.access, job=job, merge=self.merge, rejected=lines.rejected, staged=area.prepare_merge([1])
                )
                with progress("importing", lines.count) as report:
                    for step in merging:
                        for reject in step["rejects"]:
                            lines.reject_topic(reject["topic"], "EXCEED_LIMIT", reject["reason"])
                        self.counts = Counter({name: n for name, n in step["counts"].items() if name != REJECTED})
                        report(self.counts.total())
            finally:
                area.drop()
        except (StagingUnusable, MergeFailed) as error:
            raise Inaccessible(f"the import is not complete: {error}; run it again") from error

    def _tell(self, lines: _SortedLines) -> None:
        """Write the rejected lines, in their order."""
        self.rejected = lines.rejected
        for number, code, message, line in lines.rejects():
            if len(self.reasons) < _MOST_REASONS:
                self.reasons.append(f"line {number}: {message}")
            if self.rejects is None:
                continue
            text = line.rstrip(b"\n").decode(errors="backslashreplace")
            json.dump({"line": number, "code": code, "message": message, "text": text}, self.rejects)
            self.rejects.write("\n")


class _SortedLines:
    """The newest line of each topic as a row, and all rejected lines, in a temporary database.

    Without ``with_text`` the text of lines is not kept.
    """

    def __init__(self, with_text: bool) -> None:
        self._with_text = with_text
        self._connection = sqlite3.connect("", isolation_level=None)  # a file that SQLite removes at the end
        self._connection.execute(file_schema("line", "text"))
        self._connection.execute("CREATE TABLE rejected (line INTEGER PRIMARY KEY, code, message, text)")
        self._connection.execute("BEGIN")
        self._insert = file_insert("line", "text")
        self.rejected = 0

    def add(self, row: Row, number: int, line: bytes) -> None:
        self._connection.execute(self._insert, (*row, number, self._kept(line)))

    def reject(self, number: int, code: str, message: str, line: bytes) -> None:
        self._connection.execute("INSERT INTO rejected VALUES (?, ?, ?, ?)", (number, code, message, self._kept(line)))
        self.rejected += 1

    def reject_topic(self, topic: str, code: str, message: str) -> None:
        found = self._connection.execute("SELECT line, text FROM staged WHERE topic = ?", (topic,)).fetchone()
        number, line = found
        self.reject(number, code, message, line)

    @property
    def count(self) -> int:
        return int(self._connection.execute("SELECT count(*) FROM staged").fetchone()[0])

    def rows(self) -> Iterator[Row]:
        return map(Row._make, self._connection.execute(f"SELECT {', '.join(COLUMNS)} FROM staged ORDER BY topic"))

    def rejects(self) -> Iterator[tuple[int, str, str, bytes]]:
        return iter(self._connection.execute("SELECT line, code, message, text FROM rejected ORDER BY line"))

    def close(self) -> None:
        self._connection.close()

    def _kept(self, line: bytes) -> bytes:
        return line if self._with_text else b""


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
