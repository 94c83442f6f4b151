"""Salvage: copies all readable data of a damaged database into a new one.

Retained messages are copied one by one, if they are sound. Session State is copied as a whole or not at all. A Session
without some of its messages would break its promises; a Client without a Session subscribes again. Users are copied
as a whole or not at all, and so are rules: a broker that uses the rules of its database does not start without them.
Neither the history nor the telemetry may have gaps, so they are not copied.

How it works
============

SQLite reads the table ``retained`` in the order of topics, until it comes to a damaged page. Then the salvage reads
from the other end, in descending order. Between both ends a gap is left. Inside the gap, pages can be sound although no
path leads to them from either end. So the salvage looks for topics in the raw pages, and
the salvage goes on from the topic in the middle of the gap, in both directions. Each gap is divided in this way until
no known topic is left in it:

    all topics         a b c d e f g h i k l m n o p q t    the pages with d..g and l..o are damaged
    known topics       a   c     f   h   k           p   t
    a..t ascending     a b c                                the gap begins after c
    a..t descending                                  p q t  the gap ends before p; the known topic in its middle is h
    h..p ascending                   h i k                  no known topic is between k and p: this gap stays
    c..h, both ways                                         nothing; the known topic in the middle is f
    c..f and f..h                                           nothing: this gap stays, too

Invariants: SQLite itself reads every row, so a row that is no longer in the table never comes back, although its bytes
may still be in a page. A row is copied only if its columns agree with each other, because pages have no checksums.

A topic with a damaged letter can look sound and be far from its place in the order. If the position of a walk were the
topic of the last row, one such row would hide all rows up to its false place. So the position advances one row later,
and only by topics in order (:class:`_WalkPosition`).

Left out: reading rows from the raw pages. That would bring back deleted rows, as SQLite's own ``.recover`` does.
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
from typing import Any, BinaryIO

from attrs import frozen

from holdfast.core.messages import STORED_ENTRY
from holdfast.core.terminal import counted
from holdfast.storage import layouts
from holdfast.storage.checkpoints import page_size
from holdfast.storage.database import Durability
from holdfast.storage.layout import Layout
from holdfast.storage.schema import prepare
from holdfast.storage.sqlite import SQLiteDatabase, discard, replacement
from holdfast.wire.datatypes import encode_variable_byte_integer

# Built from table definitions alone: values are always bound.
# ruff: noqa: S608

_COLUMNS = tuple(layouts.retained.columns)
_SESSION_STATE = (
    layouts.sessions, layouts.session_subscriptions, layouts.session_messages, layouts.session_deliveries,
    layouts.session_received, layouts.wills, layouts.retained_leases,
)  # fmt: skip
_ACCESS = (layouts.users, layouts.authorization_rules, layouts.access_state)
_PUBLISH_RETAINED = b"\x31"
#: No UTF-8 text begins with this byte.
_BEYOND = b"\xff"
_UNREADABLE = (sqlite3.Error, ValueError, OverflowError)

Row = tuple[Any, ...]


@frozen
class Salvaged:
    """The result: numbers of retained messages, of unsound rows that were left out, and of Sessions.

    ``gaps`` tells whether a part of the retained messages could not be read. ``sessions`` is None if a part of Session
    State could not be read.
    """

    messages: int
    gaps: bool
    unsound: int
    sessions: int | None

    def __str__(self) -> str:
        gaps = "parts of the file could not be read" if self.gaps else "all messages could be read"
        unsound = f", {counted(self.unsound, 'inconsistent row')} left out" if self.unsound else ""
        sessions = "no Session, because not all Session State could be read"
        if self.sessions is not None:
            sessions = counted(self.sessions, "Session")
        return f"{counted(self.messages, 'retained message')} ({gaps}{unsound}) and {sessions}"


def salvage(damaged: SQLiteDatabase, node: int) -> Salvaged:
    """Make the replacement of a damaged database, complete and synced to disk. Raises StoreUnusable, or OSError."""
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
    """Yield the file, or a copy without the incomplete page at its end.

    SQLite reads the missing bytes of that page as zeros, which could become the end of a payload.
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
    target.execute("UPDATE access_state SET rules_version = -1")  # until they are copied
    if not path.stat().st_size:  # SQLite would delete the log beside it as a leftover
        _count(target, node, 0)
        return Salvaged(0, True, 0, None)
    try:
        source = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)
        source.text_factory = lambda text: text.decode(errors="surrogateescape")
        source.execute("PRAGMA cell_size_check=ON")
        source.execute("PRAGMA writable_schema=ON")  # else SQLite reads nothing of a file that is too short
        source.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error:  # nothing can be read
        _count(target, node, 0)
        return Salvaged(0, True, 0, None)
    with closing(source):
        reader = _GapReader(source, topics_in_pages(path))
        parameters = f"({', '.join('?' * len(_COLUMNS))})"
        for row in reader.rows():
            target.execute(f"INSERT OR IGNORE INTO retained ({', '.join(_COLUMNS)}) VALUES {parameters}", row)
        sessions = _copy_sessions(source, target)
        _copy_tables(_ACCESS, source, target)
        messages = _count(target, node, _mark(source))
    return Salvaged(messages, reader.gaps, reader.unsound, sessions)


class _GapReader:
    """Reads the rows of ``retained`` around unreadable pages; ``known`` are topics that were found in raw pages,
    sorted.

    ``gaps`` tells whether any page could not be read; ``unsound`` counts rows whose columns contradict each other.
    """

    def __init__(self, source: sqlite3.Connection, known: list[bytes]) -> None:
        self.gaps = False
        self.unsound = 0
        self._source = source
        self._known = known

    def rows(self) -> Iterator[Row]:
        """Yield the sound rows; some of them more than once."""
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
            first, end = bisect_right(self._known, low_reached), bisect_left(self._known, high_reached)
            if first < end:
                middle = self._known[(first + end) // 2]
                waiting += ((low_reached, middle), (middle, high_reached))

    def _walk(self, low: bytes, high: bytes, direction: str) -> Generator[Row, None, bytes | None]:
        """Yield rows from one end; return the topic that was reached, None at the other end."""
        position = _WalkPosition(low, high) if direction == "ASC" else _WalkPosition(high, low)
        try:
            for row in self._read(low, high, direction, -1):
                if self._is_sound(row):
                    position.advance(row[0].encode())
                    yield row
        except _UNREADABLE:
            reached = position.confirmed
        else:
            return None
        # The driver reads one row ahead. If that fails, it drops the good row before: read the next rows one by one.
        while (single := self._next(low, high, direction, reached)) is not None and self._is_sound(single):
            reached = single[0].encode()
            yield single
        return reached

    def _next(self, low: bytes, high: bytes, direction: str, topic: bytes) -> Row | None:
        """Return the row next to a topic, None if there is none or it cannot be read."""
        low, high = (topic, high) if direction == "ASC" else (low, topic)
        try:
            return next(iter(self._read(low, high, direction, 1)), None)
        except _UNREADABLE:
            return None

    def _read(self, low: bytes, high: bytes, direction: str, limit: int) -> Iterator[Row]:
        """Read rows between two topics; a whole walk includes the lower topic."""
        above = ">" if limit == 1 else ">="
        # Without a condition, SQLite also returns rows that are far from their place in the order.
        where = f"WHERE topic {above} CAST(:low AS TEXT) AND topic < CAST(:high AS TEXT)"
        if (low, high) == (b"", _BEYOND):
            where = ""
        return self._source.execute(
            f"SELECT {', '.join(_COLUMNS)} FROM retained NOT INDEXED {where} ORDER BY topic {direction} LIMIT :limit",
            {"low": low, "high": high, "limit": limit},
        )

    def _is_sound(self, row: Row) -> bool:
        sound = _is_sound(row)
        self.unsound += not sound
        return sound


class _WalkPosition:
    """The position of a walk: ``confirmed`` is the topic before the last one, if both are in order.

    A topic with a damaged letter can look sound and be far from its place. The next topic shows that.
    """

    def __init__(self, start: bytes, end: bytes) -> None:
        self.confirmed = self._last = start
        self._descends = end < start

    def advance(self, topic: bytes) -> None:
        """Note the topic of the next row."""
        if self._is_after(topic, self._last):
            self.confirmed, self._last = self._last, topic
        elif self._is_after(topic, self.confirmed):
            self._last = topic  # the topic before was out of place

    def _is_after(self, topic: bytes, other: bytes) -> bool:
        return topic < other if self._descends else topic > other


def _is_sound(row: Row) -> bool:
    """Tell whether the columns of a row have the right types and agree with each other: pages have no checksums."""
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
    """Return the first bytes of a PUBLISH packet (see :mod:`holdfast.storage.tables`)."""
    remaining = encode_variable_byte_integer(2 + topic_length + rest)
    return _PUBLISH_RETAINED + remaining + topic_length.to_bytes(2, "big")


def _mark(source: sqlite3.Connection) -> int:
    try:
        (mark,) = source.execute("SELECT max(revision_mark) FROM nodes").fetchone()
    except sqlite3.Error:
        return 0
    return mark if isinstance(mark, int) else 0


def _copy_sessions(source: sqlite3.Connection, target: sqlite3.Connection) -> int | None:
    if not _copy_tables(_SESSION_STATE, source, target):
        return None
    (sessions,) = target.execute("SELECT count(*) FROM sessions").fetchone()
    return int(sessions)


def _copy_tables(tables: tuple[Layout, ...], source: sqlite3.Connection, target: sqlite3.Connection) -> bool:
    """Copy all rows of these tables, or none of them if one cannot be read. Return whether they are copied."""
    target.execute("SAVEPOINT tables")
    try:
        for table in tables:
            rows = source.execute(f"SELECT {table.names} FROM {table.name}")
            target.execute(f"DELETE FROM {table.name}")
            target.executemany(f"INSERT INTO {table.name} VALUES ({', '.join('?' * len(table.columns))})", rows)
    except _UNREADABLE:
        target.execute("ROLLBACK TO tables")
        copied = False
    else:
        copied = True
    target.execute("RELEASE tables")
    return copied


def _count(target: sqlite3.Connection, node: int, mark: int) -> int:
    """Write the level counts and the totals for the copied rows; return the number of messages."""
    target.execute("INSERT INTO retained_levels SELECT DISTINCT levels FROM retained")
    newest = "(SELECT coalesce(max(revision), 0) FROM retained)", "(SELECT coalesce(max(id), 0) FROM sessions)"
    target.execute(
        f"INSERT INTO nodes (node, revision_mark, retained_count, retained_bytes, largest_packet) "
        f"SELECT ?, max(?, {', '.join(newest)}), coalesce(sum(tombstone = 0), 0), "
        "coalesce(sum(CASE tombstone WHEN 0 THEN size + length(CAST(topic AS BLOB)) + length(properties5) + "
        f"{STORED_ENTRY} END), 0), "
        "coalesce(max(length(prefix5) + length(CAST(topic AS BLOB)) + length(properties5) + size), 0) FROM retained",
        (node, mark),
    )
    (messages,) = target.execute("SELECT count(*) FROM retained WHERE tombstone = 0").fetchone()
    return int(messages)


# Finds topics in the raw pages of a damaged SQLite file, also in pages that SQLite cannot reach any more.
#
# The topics are only starting points. SQLite itself reads the rows there,
# since only SQLite knows whether they still belong to the table.


#: for the two kinds of pages of a table without rowid: the length of the page header, and of the bytes before a record
_LEAF, _INTERIOR = 0x0A, 0x02
_SHAPES = {_LEAF: (8, 0), _INTERIOR: (12, 4)}
_LOG_HEADER = 32
_FRAME_HEADER = 24


def topics_in_pages(path: Path) -> list[bytes]:
    """Return topics in order: the first topic of each leaf page, and all topics of the other pages; also from the log.

    Long topics may be cut off. Raises OSError.
    """
    found: set[bytes] = set()
    with path.open("rb") as file:
        length = page_size(file.read(18))
        if not length:
            return []
        _collect(file, 0, 0, length, found)
    log = path.with_name(path.name + "-wal")
    if log.exists():
        with log.open("rb") as file:
            _collect(file, _LOG_HEADER, _FRAME_HEADER, length, found)
    return sorted(found)


def _collect(file: BinaryIO, start: int, skipped: int, length: int, found: set[bytes]) -> None:
    file.seek(start)
    while len(page := file.read(skipped + length)[skipped:]) == length:
        found.update(_topics(page))


def _topics(page: bytes) -> set[bytes]:
    shape = _SHAPES.get(page[0])
    if shape is None:
        return set()
    header, before = shape
    cells = 1 if page[0] == _LEAF else int.from_bytes(page[3:5], "big")
    offsets = (int.from_bytes(page[at : at + 2], "big") for at in range(header, header + 2 * cells, 2))
    return {topic for offset in offsets if (topic := _topic(page, offset + before))}


def _topic(page: bytes, position: int) -> bytes:
    """Return the first column of the record in a cell, b"" if it is not a text."""
    _, record = _varint(page, position)
    header_length, types = _varint(page, record)
    kind, _ = _varint(page, types)
    if kind < 13 or kind % 2 == 0:
        return b""
    begin = record + header_length
    return page[begin : begin + (kind - 13) // 2]


def _varint(page: bytes, position: int) -> tuple[int, int]:
    """Return an SQLite varint and the position after it: the highest bits come first, unlike in MQTT."""
    value = 0
    for byte in page[position : position + 9]:
        position += 1
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            break
    return value, position
