"""The staging area: rows of ``retained`` that have been made ready elsewhere and wait to be merged, in topic order.

It is a set of SQLite files or a table of Postgres, written by tasks that may fail and be tried again: what counts is
named by those who merge. A staged row's ``revision`` is the one it had where it comes from, 0 for none.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from holdfast.retained.store.rows import COLUMNS, Row
from holdfast.storage.driver import Cursor

# Built from constants, counts and checked names alone: values are always bound.
# ruff: noqa: S608

_COLUMNS = ", ".join(COLUMNS)
_TABLE_NAME = re.compile(r"holdfast_staging_[0-9a-f]{8,32}")

#: What makes the table in a staging file. Of a topic that is staged twice, the newest is kept.
FILE_SCHEMA = f"CREATE TABLE staged ({_COLUMNS}, PRIMARY KEY (topic)) WITHOUT ROWID"
FILE_INSERT = (
    f"INSERT INTO staged ({_COLUMNS}) VALUES ({', '.join('?' * len(COLUMNS))}) ON CONFLICT (topic) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in COLUMNS[1:])
    + " WHERE (excluded.stored_at, excluded.revision, excluded.payload) > (stored_at, revision, payload)"
)
_FILE_READ = f"SELECT {_COLUMNS} FROM staged WHERE topic > ? ORDER BY topic"

#: What makes a staging table, for ``.format(table)``.
TABLE_SCHEMA = (
    "CREATE UNLOGGED TABLE {0} (attempt BIGINT NOT NULL, "
    'topic TEXT COLLATE "C" NOT NULL, revision BIGINT NOT NULL, levels INTEGER NOT NULL, qos SMALLINT NOT NULL, '
    "size BIGINT NOT NULL, stored_at BIGINT NOT NULL, expires_at BIGINT, tombstone SMALLINT NOT NULL, client_id TEXT, "
    "username TEXT, prefix3 BYTEA NOT NULL, prefix5 BYTEA NOT NULL, properties5 BYTEA NOT NULL, properties_json TEXT, "
    "payload BYTEA NOT NULL)"
)
TABLE_COPY = "COPY {0} (attempt, " + _COLUMNS + ") FROM STDIN (FORMAT BINARY)"
#: The types of its columns, for a binary COPY.
TABLE_TYPES = (
    "int8", "text", "int8", "int4", "int2", "int8", "int8", "int8", "int2", "text", "text", "bytea", "bytea", "bytea",
    "text", "bytea",
)  # fmt: skip
TABLE_INDEX = "CREATE INDEX {0}_topics ON {0} (topic)"


class NotStaged(ValueError):
    """There is no such staging area; the text says what is wrong with it."""


class Staging(Protocol):
    """Staged rows."""

    def take(self, cursor: Cursor, after: str, rows: int, max_bytes: int) -> Sequence[Row]:
        """Return the next rows after a topic, the newest of each, none at the end. In the writer's thread.

        They have ``max_bytes`` of payload together, or are one.
        """

    def close(self) -> None:
        """Take no more."""


class StagedFiles:
    """Files in which tasks have staged rows. Raises :class:`NotStaged`."""

    def __init__(self, paths: Sequence[str]) -> None:
        for path in paths:
            if not Path(path).is_absolute():
                raise NotStaged(f"{path}: a staging file is named by its absolute path")
            if not Path(path).is_file():
                raise NotStaged(f"{path}: there is no such staging file, or this user may not see it")
        self._paths = paths
        self._position: str | None = None
        self._connections: list[sqlite3.Connection] = []
        self._rows: Iterator[Row] = iter(())
        self._held: Row | None = None
        self._closed = False

    def take(self, _cursor: Cursor, after: str, rows: int, max_bytes: int) -> Sequence[Row]:
        """Go on where the last rows ended, or wherever else is asked for. Raises :class:`NotStaged`."""
        try:
            found = self._take(after, rows, max_bytes)
        except sqlite3.Error as error:
            self._position = None
            raise NotStaged(f"{', '.join(self._paths)}: cannot be read as staging files ({error})") from error
        if self._closed:  # meanwhile: what was found may lack a newer message, and finding nothing is not the end
            self._let_go()
            raise NotStaged("the staging area was closed before its end was reached")
        return found

    def _take(self, after: str, rows: int, max_bytes: int) -> Sequence[Row]:
        if after != self._position:
            self._go_to(after)
        found: list[Row] = []
        size = 0
        while self._held is not None:
            best = self._held
            for row in self._rows:
                if row.topic != best.topic:
                    break
                best = max(best, row, key=_age)
            else:
                row = None
            if found and (len(found) == rows or size + best.size > max_bytes):
                self._position = None  # what has been looked at is read again
                return found
            found.append(best)
            size += best.size
            self._held = row
            if len(found) == rows or size >= max_bytes:
                break
        self._position = found[-1].topic if found else after
        return found

    def close(self) -> None:
        """Close the files, also while another thread takes from them."""
        self._closed = True
        self._let_go()

    def _let_go(self) -> None:
        for connection in self._connections:
            connection.close()
        self._connections, self._rows, self._held, self._position = [], iter(()), None, None

    def _go_to(self, after: str) -> None:
        self._let_go()
        streams = []
        for path in self._paths:
            connection = sqlite3.connect(
                f"file:{quote(path)}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
            )
            self._connections.append(connection)
            streams.append(map(Row._make, connection.execute(_FILE_READ, (after,))))
        self._rows = merge(*streams, key=itemgetter(0))
        self._held = next(self._rows, None)


class StagedTable:
    """A table of Postgres in which tasks have staged rows, each under its ``attempt``. Raises :class:`NotStaged`."""

    def __init__(self, table: str, attempts: Sequence[int]) -> None:
        if not _TABLE_NAME.fullmatch(table):
            raise NotStaged(f"{table[:80]!a}: is no name of a staging table")
        self._attempts = list(attempts)
        staged = f"SELECT {_COLUMNS} FROM {table} WHERE attempt = ANY(CAST(? AS bigint[])) AND topic"
        self._next = (
            f"SELECT {_COLUMNS}, following FROM (SELECT {_COLUMNS}, lead(topic) OVER run AS following, "
            "row_number() OVER run AS number, sum(size) OVER run AS total "
            f"FROM ({staged} > ? ORDER BY topic LIMIT ?) AS found "
            "WINDOW run AS (ORDER BY topic ROWS UNBOUNDED PRECEDING)) AS summed "
            "WHERE number <= ? AND (total <= ? OR number = 1) ORDER BY number"
        )
        self._one = f"{staged} = ?"

    def take(self, cursor: Cursor, after: str, rows: int, max_bytes: int) -> Sequence[Row]:
        """Ask once; of a topic that is staged again behind what was found, nothing is taken yet."""
        cursor.execute(self._next, (self._attempts, after, rows + 1, rows, max_bytes))
        answer = cursor.fetchall()
        if not answer:
            return []
        staged = [Row._make(columns[:-1]) for columns in answer]
        last = staged[-1].topic
        if answer[-1][-1] != last:
            return _newest(staged)
        if staged[0].topic != last:
            return _newest([row for row in staged if row.topic != last])
        cursor.execute(self._one, (self._attempts, last))
        return _newest(map(Row._make, cursor.fetchall()))

    def close(self) -> None:
        """There is nothing to close."""


def _newest(staged: Iterable[Row]) -> list[Row]:
    """Return the newest of each topic, in the order in which they come."""
    newest: dict[str, Row] = {}
    for row in staged:
        before = newest.get(row.topic)
        newest[row.topic] = row if before is None else max(before, row, key=_age)
    return list(newest.values())


def _age(row: Row) -> Any:
    return row.stored_at, row.revision, row.payload
