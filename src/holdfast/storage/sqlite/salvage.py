"""Salvage: a new database with what can still be read of a damaged one.

Retained messages are taken one by one, as far as they are sound. Session State is taken as a whole or not at all: a
Session that has lost some of its messages would break its promises, while a Client that is told that there is no
Session begins anew. The history, which must not have gaps, stays behind.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from attrs import frozen

from holdfast.storage import tables
from holdfast.storage.database import Durability
from holdfast.storage.schema import prepare
from holdfast.storage.sqlite.database import SQLiteDatabase
from holdfast.storage.sqlite.page_counts import page_size
from holdfast.storage.sqlite.page_topics import topics_in_pages
from holdfast.storage.sqlite.quarantine import discard, replacement
from holdfast.wire.datatypes import encode_variable_byte_integer

# Built from table definitions alone: values are always bound.
# ruff: noqa: S608

_COLUMNS = tuple(column.name for column in tables.retained.columns)
_SESSION_STATE = (
    tables.sessions, tables.session_subscriptions, tables.session_messages, tables.session_deliveries,
    tables.session_received, tables.wills,
)  # fmt: skip
_PUBLISH_RETAINED = b"\x31"
#: No topic's UTF-8 begins so.
_BEYOND = b"\xff"
_UNREADABLE = (sqlite3.Error, ValueError, OverflowError)

Row = tuple[Any, ...]


@frozen
class Salvaged:
    """What was saved.

    Retained messages; whether there were places that could not be read; messages found, but not sound; Sessions, None
    where Session State was not to be read in full.
    """

    messages: int
    gaps: bool
    unsound: int
    sessions: int | None

    def __str__(self) -> str:
        gaps = "some places could not be read" if self.gaps else "all there are"
        unsound = f", without {self.unsound} that make no sense" if self.unsound else ""
        sessions = "none, since not all of their state could be read" if self.sessions is None else self.sessions
        return f"{self.messages} retained messages ({gaps}{unsound}), and of Sessions: {sessions}"


def salvage(damaged: SQLiteDatabase, node: int) -> Salvaged:
    """Make the replacement of a damaged database, complete and on disk. Raises StoreUnusable, or OSError."""
    new = replacement(damaged.path)
    discard(new)
    target = SQLiteDatabase(new, Durability.FULL)
    target.check()
    prepare(target)
    with target.explaining_errors(), closing(target.connect()) as connection, _whole_pages(damaged.path) as source:
        connection.execute("BEGIN IMMEDIATE")
        salvaged = _copy(source, connection, node)
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return salvaged


@contextmanager
def _whole_pages(path: Path) -> Iterator[Path]:
    """Yield a file without the torn page at its end, if there is one: the file itself, or a copy of it.

    SQLite takes what is missing of that page for zeros, and those for the end of somebody's payload.
    """
    torn = path.stat().st_size % _page_size(path)
    if not torn:
        yield path
        return
    copy = replacement(path).with_suffix(".source")
    discard(copy)
    try:
        for companion in ("", "-wal"):
            file = path.with_name(path.name + companion)
            if file.exists():
                shutil.copyfile(file, copy.with_name(copy.name + companion))
        os.truncate(copy, path.stat().st_size - torn)
        yield copy
    finally:
        discard(copy)


def _page_size(path: Path) -> int:
    with path.open("rb") as file:
        return page_size(file.read(18)) or 1


def _copy(path: Path, target: sqlite3.Connection, node: int) -> Salvaged:
    if not path.stat().st_size:  # SQLite would take the log beside it for a leftover, and delete it
        _count(target, node, 0)
        return Salvaged(0, True, 0, None)
    try:
        source = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)
        source.text_factory = lambda text: text.decode(errors="surrogateescape")
        source.execute("PRAGMA cell_size_check=ON")
        source.execute("PRAGMA writable_schema=ON")  # a file that is too short is read as far as it goes
        source.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error:  # there is nothing to be read
        _count(target, node, 0)
        return Salvaged(0, True, 0, None)
    with closing(source):
        reading = _Reading(source, topics_in_pages(path))
        places = f"({', '.join('?' * len(_COLUMNS))})"
        for row in reading.rows():
            target.execute(f"INSERT OR IGNORE INTO retained ({', '.join(_COLUMNS)}) VALUES {places}", row)
        sessions = _copy_sessions(source, target)
        messages = _count(target, node, _mark(source))
    return Salvaged(messages, reading.gaps, reading.unsound, sessions)


class _Reading:
    """Reads the rows of ``retained`` around what cannot be read.

    From both ends of a gap inwards, as far as it goes; then from a signpost within it, in both directions, and so on.
    ``gaps`` tells whether anything could not be read; ``unsound`` counts rows that make no sense.
    """

    def __init__(self, source: sqlite3.Connection, posts: list[bytes]) -> None:
        self.gaps = False
        self.unsound = 0
        self._source = source
        self._posts = posts

    def rows(self) -> Iterator[Row]:
        """Yield the sound rows; some come more than once."""
        waiting: deque[tuple[bytes, bytes]] = deque([(b"", _BEYOND)])
        while waiting:
            low, high = waiting.popleft()
            low_reached = yield from self._walk(low, high, "ASC")
            if low_reached is None:
                continue
            self.gaps = True
            high_reached = yield from self._walk(low_reached, high, "DESC")
            if high_reached is None:
                continue
            first, end = bisect_right(self._posts, low_reached), bisect_left(self._posts, high_reached)
            if first < end:
                post = self._posts[(first + end) // 2]
                waiting += ((low_reached, post), (post, high_reached))

    def _walk(self, low: bytes, high: bytes, direction: str) -> Generator[Row, None, bytes | None]:
        """Yield rows from one end; return how far that went, None if it was as far as the other end."""
        order = _Order(low, high) if direction == "ASC" else _Order(high, low)
        try:
            for row in self._read(low, high, direction, -1):
                if self._makes_sense(row):
                    order.take(row[0].encode())
                    yield row
        except _UNREADABLE:
            place = order.sure
        else:
            return None
        # The driver reads one row ahead, and drops the one before when that fails: look for it.
        while (single := self._next(low, high, direction, place)) is not None and self._makes_sense(single):
            place = single[0].encode()
            yield single
        return place

    def _next(self, low: bytes, high: bytes, direction: str, place: bytes) -> Row | None:
        """Return the row next to a place, None where there is none to be read."""
        low, high = (place, high) if direction == "ASC" else (low, place)
        try:
            return next(iter(self._read(low, high, direction, 1)), None)
        except _UNREADABLE:
            return None

    def _read(self, low: bytes, high: bytes, direction: str, limit: int) -> Iterator[Row]:
        """Read rows between two topics; those of a whole walk from the lower one on."""
        above = ">" if limit == 1 else ">="
        # Without a condition nothing is passed over, be it ever so far from its place.
        where = f"WHERE topic {above} CAST(:low AS TEXT) AND topic < CAST(:high AS TEXT)"
        if (low, high) == (b"", _BEYOND):
            where = ""
        return self._source.execute(
            f"SELECT {', '.join(_COLUMNS)} FROM retained NOT INDEXED {where} ORDER BY topic {direction} LIMIT :limit",
            {"low": low, "high": high, "limit": limit},
        )

    def _makes_sense(self, row: Row) -> bool:
        sense = _is_sound(row)
        self.unsound += not sense
        return sense


class _Order:
    """How far a walk has come: ``sure`` is the topic before the last one, as long as they are in order.

    A topic with a wrong letter may look sound and be far from its place.
    """

    def __init__(self, start: bytes, end: bytes) -> None:
        self.sure = self._last = start
        self._descends = end < start

    def take(self, topic: bytes) -> None:
        """Take note of a topic."""
        if self._is_after(topic, self._last):
            self.sure, self._last = self._last, topic
        elif self._is_after(topic, self.sure):
            self._last = topic  # it was the one before that was out of place

    def _is_after(self, topic: bytes, other: bytes) -> bool:
        return topic < other if self._descends else topic > other


def _is_sound(row: Row) -> bool:
    """Tell whether a row says of itself what it is: pages have no checksums."""
    found = dict(zip(_COLUMNS, row, strict=True))
    topic, payload, size = found["topic"], found["payload"], found["size"]
    parts = (payload, found["prefix3"], found["prefix5"], found["properties5"])
    numbers = (found["revision"], found["levels"], found["qos"], size, found["stored_at"], found["tombstone"])
    texts = (topic, found["client_id"], found["username"], found["properties_json"])
    if not (
        isinstance(topic, str)
        and all(isinstance(part, bytes) for part in parts)
        and all(isinstance(number, int) and number >= 0 for number in numbers)
        and all(text is None or (isinstance(text, str) and _is_unicode(text)) for text in texts)
        and isinstance(found["expires_at"], (int, type(None)))
        and found["levels"] == topic.count("/") + 1
        and size == len(payload)
        and found["qos"] <= 2
    ):
        return False
    if found["tombstone"]:
        return not any(parts)
    length = len(topic.encode())
    prefixes = _prefix(length, size), _prefix(length, len(found["properties5"]) + size)
    return (found["prefix3"], found["prefix5"]) == prefixes


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _prefix(topic_length: int, rest: int) -> bytes:
    """Return what a PUBLISH packet begins with (see :mod:`holdfast.storage.tables`)."""
    remaining = encode_variable_byte_integer(2 + topic_length + rest)
    return _PUBLISH_RETAINED + remaining + topic_length.to_bytes(2, "big")


def _mark(source: sqlite3.Connection) -> int:
    try:
        (mark,) = source.execute("SELECT max(revision_mark) FROM nodes").fetchone()
    except sqlite3.Error:
        return 0
    return mark if isinstance(mark, int) else 0


def _copy_sessions(source: sqlite3.Connection, target: sqlite3.Connection) -> int | None:
    target.execute("SAVEPOINT sessions")
    try:
        for table in _SESSION_STATE:
            columns = [column.name for column in table.columns]
            rows = source.execute(f"SELECT {', '.join(columns)} FROM {table.name}")
            target.executemany(f"INSERT INTO {table.name} VALUES ({', '.join('?' * len(columns))})", rows)
        (sessions,) = target.execute("SELECT count(*) FROM sessions").fetchone()
    except _UNREADABLE:
        target.execute("ROLLBACK TO sessions")
        sessions = None
    target.execute("RELEASE sessions")
    return None if sessions is None else int(sessions)


def _count(target: sqlite3.Connection, node: int, mark: int) -> int:
    """Write what is kept beside the rows, in step with them; return how many messages there are."""
    target.execute("INSERT INTO retained_levels SELECT DISTINCT levels FROM retained")
    newest = "(SELECT coalesce(max(revision), 0) FROM retained)", "(SELECT coalesce(max(id), 0) FROM sessions)"
    target.execute(
        f"INSERT INTO nodes (node, revision_mark, retained_count, retained_bytes, largest_packet) "
        f"SELECT ?, max(?, {', '.join(newest)}), coalesce(sum(tombstone = 0), 0), coalesce(sum(size), 0), "
        "coalesce(max(length(prefix5) + length(CAST(topic AS BLOB)) + length(properties5) + size), 0) FROM retained",
        (node, mark),
    )
    (messages,) = target.execute("SELECT count(*) FROM retained WHERE tombstone = 0").fetchone()
    return int(messages)
