"""A staging area: rows prepared for an import, in topic order. First: reading it.

A staging area is a list in memory, a set of SQLite files, or a table of Postgres. Tasks that may fail and be repeated
write it, so a merge names the task attempts that count. The ``revision`` of a staged row comes from its source, 0 for
none. If a topic is staged more than once, the newest row counts: the highest (``stored_at``, ``revision``,
``payload``).
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import sqlite3
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from hashlib import blake2s
from heapq import merge
from operator import itemgetter
from pathlib import Path
from socket import gethostname
from typing import Any, Protocol
from urllib.parse import quote

from attrs import frozen

from holdfast.core.messages import RetainedChange, RetainedMessage
from holdfast.retained.fields import FUTURE, HIGHEST_REVISION, BadRecord, Fields, check_payload
from holdfast.retained.records import message_of, properties_in
from holdfast.retained.store.rows import COLUMNS, Row, row_of
from holdfast.storage.driver import Cursor, on_conflict_replace
from holdfast.storage.location import shown
from holdfast.wire.properties import NO_PROPERTIES, Properties

# Built from constants, counts and checked names alone: values are always bound.
# ruff: noqa: S608

_COLUMNS = ", ".join(COLUMNS)
_TABLE_NAME = re.compile(r"holdfast_staging_[0-9a-f]{8,32}")


def file_schema(*extra: str) -> str:
    """Return the statement that creates the table of a staging file, with ``extra`` columns."""
    return f"CREATE TABLE staged ({', '.join((*COLUMNS, *extra))}, PRIMARY KEY (topic)) WITHOUT ROWID"


def file_insert(*extra: str) -> str:
    """Return the statement that stages a row in a file. If the topic is staged already, the newer row stays."""
    columns = (*COLUMNS, *extra)
    return (
        f"INSERT INTO staged ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))}) "
        f"{on_conflict_replace(columns, ('topic',))} "
        "WHERE (excluded.stored_at, excluded.revision, excluded.payload) > (stored_at, revision, payload)"
    )


FILE_SCHEMA, FILE_INSERT = file_schema(), file_insert()
_FILE_READ = f"SELECT {_COLUMNS} FROM staged WHERE topic > ? ORDER BY topic"

#: The statement that creates a staging table, for ``.format(table)``.
TABLE_SCHEMA = (
    "CREATE UNLOGGED TABLE IF NOT EXISTS {0} (attempt BIGINT NOT NULL, "
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


def staged_row(message: RetainedMessage) -> Row:
    """Return the row to stage for a message. Raises :class:`BadRecord` if it cannot be a PUBLISH packet."""
    try:
        return row_of(
            RetainedChange(
                message.topic, message.revision, message.stored_at, message, message.client_id, message.username
            )
        )
    except ValueError as error:
        raise BadRecord(f"topic: {error}", "topic") from error


def row_in(line: bytes, now: int) -> Row:
    """Return the row to stage for a line of an export; ``now`` is in milliseconds since the epoch.

    Raises :class:`BadRecord`.
    """
    return staged_row(message_of(line, now, now + FUTURE))


def row_of_fields(given: Mapping[str, Any], now: int) -> Row:
    """Return the row to stage for the fields that a reader of :mod:`holdfast.retained.formats` found.

    Times are in milliseconds since the epoch; a message without ``stored_at`` gets ``now``, one without ``revision`` 0.
    Raises :class:`BadRecord`.
    """
    fields = Fields(given)
    payload = given.get("payload")
    if isinstance(payload, str):
        payload = payload.encode(errors="surrogatepass")
    payload = bytes(payload) if isinstance(payload, (bytes, bytearray)) else b""
    topic = fields.topic()
    check_payload(payload)
    stored_at = fields.stored_at(now + FUTURE)
    return staged_row(
        RetainedMessage(
            topic,
            payload,
            fields.qos(),
            _properties(given.get("properties_json")),
            fields.text("client_id"),
            fields.text("username"),
            now if stored_at is None else stored_at,
            fields.expires_at(),
            fields.whole("revision", 0, HIGHEST_REVISION) or 0,
        )
    )


@lru_cache(maxsize=1024)  # devices of one kind send the same properties again and again
def _properties(text: str | None) -> Properties:
    if not text:
        return NO_PROPERTIES
    try:
        return properties_in(text)
    except BadRecord as error:
        raise BadRecord(str(error), "properties") from error


class NotStaged(ValueError):
    """A staging area cannot be read; the text says why."""


class Staging(Protocol):
    """The staged rows of one merge."""

    def take(self, cursor: Cursor, after: str, rows: int, max_bytes: int) -> Sequence[Row]:
        """Return the next rows after a topic, the newest of each topic; none at the end. Runs in the writer's thread.

        At most ``rows`` rows with ``max_bytes`` of payload together; a single larger row comes alone.
        """

    def close(self) -> None:
        """Close the staging area for this merge."""


class StagedRows:
    """Rows in memory, for an import that comes in one request."""

    def __init__(self) -> None:
        self._rows: dict[str, Row] = {}
        self._topics: list[str] = []

    def add(self, row: Row) -> bool:
        """Stage a row, unless a newer one of its topic is staged; tell whether the row was added."""
        before = self._rows.get(row.topic)
        if before is not None and _age(before) >= _age(row):
            return False
        self._rows[row.topic] = row
        return True

    def take(self, _cursor: Cursor, after: str, rows: int, max_bytes: int) -> Sequence[Row]:
        """Return the next rows. No row may be added after the first call."""
        if not self._topics:
            self._topics = sorted(self._rows)
        found: list[Row] = []
        start = bisect_right(self._topics, after)
        for topic in self._topics[start : start + rows]:
            row = self._rows[topic]
            size = _weight(row)
            if found and size > max_bytes:
                break
            found.append(row)
            max_bytes -= size
        return found

    def close(self) -> None:
        """Do nothing: the rows are in memory."""


def _weight(row: Row) -> int:
    return row.size + len(row.properties5)


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
        self._next_row: Row | None = None
        self._closed = False

    def take(self, _cursor: Cursor, after: str, rows: int, max_bytes: int) -> Sequence[Row]:
        """Continue after the last rows, or after any other topic. Raises :class:`NotStaged`."""
        try:
            found = self._take(after, rows, max_bytes)
        except sqlite3.Error as error:
            self._position = None
            raise NotStaged(f"{', '.join(self._paths)}: cannot be read as staging files ({error})") from error
        # close() may run in the reactor's thread while this thread reads. The rows found may then lack a newer row of
        # their topic, and an empty result is not the end: neither may be used.
        if self._closed:
            self._disconnect()
            raise NotStaged("the staging area was closed before its end was reached")
        return found

    def _take(self, after: str, rows: int, max_bytes: int) -> Sequence[Row]:
        if after != self._position:
            self._go_to(after)
        found: list[Row] = []
        size = 0
        while self._next_row is not None:
            best = self._next_row
            for row in self._rows:
                if row.topic != best.topic:
                    break
                best = max(best, row, key=_age)
            else:
                row = None
            if found and (len(found) == rows or size + _weight(best) > max_bytes):
                # The stream is past this topic's first row, so the next call must read the topic again.
                self._position = None
                return found
            found.append(best)
            size += _weight(best)
            self._next_row = row
            if len(found) == rows or size >= max_bytes:
                break
        self._position = found[-1].topic if found else after
        return found

    def close(self) -> None:
        """Close the files, also while another thread reads them."""
        self._closed = True
        self._disconnect()

    def _disconnect(self) -> None:
        for connection in self._connections:
            connection.close()
        self._connections, self._rows, self._next_row, self._position = [], iter(()), None, None

    def _go_to(self, after: str) -> None:
        self._disconnect()
        streams = []
        for path in self._paths:
            connection = sqlite3.connect(
                f"file:{quote(path)}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
            )
            self._connections.append(connection)
            streams.append(map(Row._make, connection.execute(_FILE_READ, (after,))))
        # SQLite orders topics by their bytes, Python by code points: for UTF-8 both are the same order.
        self._rows = merge(*streams, key=itemgetter(0))
        self._next_row = next(self._rows, None)


class StagedTable:
    """A table of Postgres in which tasks have staged rows, each under its ``attempt``. Raises :class:`NotStaged`."""

    def __init__(self, table: str, attempts: Sequence[int]) -> None:
        if not _TABLE_NAME.fullmatch(table):
            raise NotStaged(f"{table[:80]!a}: is no name of a staging table")
        self._attempts = list(attempts)
        staged = f"SELECT {_COLUMNS} FROM {table} WHERE attempt = ANY(CAST(? AS bigint[])) AND topic"
        self._next = (
            f"SELECT {_COLUMNS}, following FROM (SELECT {_COLUMNS}, lead(topic) OVER in_order AS following, "
            "row_number() OVER in_order AS number, sum(size + octet_length(properties5)) OVER in_order AS total "
            f"FROM ({staged} > ? ORDER BY topic LIMIT ?) AS found "
            "WINDOW in_order AS (ORDER BY topic ROWS UNBOUNDED PRECEDING)) AS summed "
            "WHERE number <= ? AND (total <= ? OR number = 1) ORDER BY number"
        )
        self._one = f"{staged} = ?"

    def take(self, cursor: Cursor, after: str, rows: int, max_bytes: int) -> Sequence[Row]:
        """Return the next rows with one statement, mostly."""
        cursor.execute(self._next, (self._attempts, after, rows + 1, rows, max_bytes))
        answer = cursor.fetchall()
        if not answer:
            return []
        staged = [Row._make(columns[:-1]) for columns in answer]
        last = staged[-1].topic
        if answer[-1][-1] != last:
            return _newest(staged)
        # More rows of the last topic follow, and one of them may be newer. So the next call takes that topic, or, if
        # all rows are of one topic, this call reads every row of it.
        if staged[0].topic != last:
            return _newest([row for row in staged if row.topic != last])
        cursor.execute(self._one, (self._attempts, last))
        return _newest(map(Row._make, cursor.fetchall()))

    def close(self) -> None:
        """Do nothing: the table is read through the writer's own connection."""


def _newest(staged: Iterable[Row]) -> list[Row]:
    """Return the newest row of each topic, in the given order of topics."""
    newest: dict[str, Row] = {}
    for row in staged:
        before = newest.get(row.topic)
        newest[row.topic] = row if before is None else max(before, row, key=_age)
    return list(newest.values())


def _age(row: Row) -> Any:
    return row.stored_at, row.revision, row.payload


# Writing a staging area: a folder of files beside an SQLite database, or a table of Postgres.
#
# Each attempt at a job has an area of its own, such as ``holdfast_staging_5f2c9a1e018f3b2c4d5e9c01``: 8 digits for the
# job, 12 for the time in milliseconds, 4 at random. So an import recognises the areas that killed attempts at its job
# have left, and areas older than a day, and removes them.


_PREFIX = "holdfast_staging_"
#: Older areas (milliseconds) were left by imports that were killed.
_STALE_AFTER = 86_400_000
_JOB_DIGITS, _TIME_DIGITS = 8, 12


class StagingUnusable(Exception):
    """The staging area cannot be made or written; the text says why."""


class StagingArea(Protocol):
    """A place for the rows of one attempt at a job. Methods raise :class:`StagingUnusable`."""

    def open(self) -> None:
        """Make the area, and remove areas that killed attempts at the same job, or any job a day ago, have left.

        Several tasks may open the same area at once.
        """

    def put(self, attempt: int, rows: Iterable[Row]) -> None:
        """Write all rows of a task attempt, or none."""

    def prepare_merge(self, attempts: Sequence[int]) -> dict[str, Any]:
        """Return the body of the API's call ``/merge``. Only the rows of these attempts count."""

    def drop(self) -> None:
        """Remove the area with all its rows."""


def staging_area_for(url: str, job: str, folder: str | None = None) -> StagingArea:
    """Return a new area for a job. Files are put in ``folder``; the default is a folder beside the database."""
    name = f"{_mark(job)}{time.time_ns() // 1_000_000:0{_TIME_DIGITS}x}{secrets.token_hex(2)}"
    from sqlalchemy.engine import make_url

    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        assert parsed.database is not None
        return StagingFolder(folder or str(Path(parsed.database).absolute().parent / "staging"), _PREFIX + name)
    return StagingTable(parsed.set(drivername="postgresql").render_as_string(hide_password=False), _PREFIX + name)


def sweep(url: str, job: str, folder: str | None) -> None:
    """Remove the areas that killed attempts at a job have left. Raises :class:`StagingUnusable`."""
    area = staging_area_for(url, job, folder)
    area.open()
    area.drop()


@frozen
class StagingFolder:
    """A folder with a file for each task attempt that has rows."""

    folder: str
    name: str

    def open(self) -> None:
        """Make the folder."""
        with self._explained():
            Path(self.folder).mkdir(mode=0o700, parents=True, exist_ok=True)
            for other in Path(self.folder).iterdir():
                if _is_stale(other.name, self.name):
                    shutil.rmtree(other, ignore_errors=True)
            self._path.mkdir(mode=0o700, exist_ok=True)
            self._give_away(Path(self.folder))
            self._give_away(self._path)

    def put(self, attempt: int, rows: Iterable[Row]) -> None:
        """Write a file. It gets its name when it is complete."""
        if not self._path.is_dir():
            raise StagingUnusable(
                f"{self.folder}: has no staging area on {gethostname()}, where a task runs: another run of the same "
                "job has removed it, or this host does not see it: name a folder that executors and broker share "
                "(staging)"
            )
        unfinished = self._path / f"{attempt}.partial"
        with self._explained(), closing(sqlite3.connect(unfinished, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode=OFF")  # an incomplete file is never read
            connection.execute("PRAGMA synchronous=OFF")
            connection.execute("PRAGMA cache_size=-65536")
            connection.execute(FILE_SCHEMA)
            connection.execute("BEGIN")
            connection.executemany(FILE_INSERT, rows)
            connection.execute("COMMIT")
        with self._explained():
            self._give_away(unfinished)
            unfinished.rename(self._file(attempt))

    def prepare_merge(self, attempts: Sequence[int]) -> dict[str, Any]:
        """Return the body with the names of the files."""
        return {"files": [str(self._file(attempt)) for attempt in attempts]}

    def drop(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._path, ignore_errors=True)

    @property
    def _path(self) -> Path:
        return Path(self.folder) / self.name

    def _file(self, attempt: int) -> Path:
        return self._path / f"{attempt}.db"

    def _give_away(self, path: Path) -> None:
        """Give a file that root made to the owner of the folder around the staging folder: the user of the broker.

        Root may use the control socket of any broker, but the broker reads the files as its own user.
        """
        if os.geteuid() == 0:
            around = Path(self.folder).parent.stat()
            os.chown(path, around.st_uid, around.st_gid)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            why = getattr(error, "strerror", None) or error
            raise StagingUnusable(f"{self.folder}: cannot be used for staging ({why})") from error


@frozen
class StagingTable:
    """A table of Postgres; ``url`` has libpq's form."""

    url: str
    name: str

    def open(self) -> None:
        """Make the table."""

        def make(connection: Any) -> None:
            # Two tasks that create one table at once would both find that it is missing.
            connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (self.name,))
            found = connection.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE %s", (f"{_PREFIX}%",))
            for (other,) in found.fetchall():
                if _is_stale(other, self.name):
                    connection.execute(f"DROP TABLE IF EXISTS {other}")
            connection.execute(TABLE_SCHEMA.format(self.name))

        self._run(make)

    def put(self, attempt: int, rows: Iterable[Row]) -> None:
        """Copy the rows into the table, in one transaction."""

        def copy(connection: Any) -> None:
            with connection.cursor() as cursor, cursor.copy(TABLE_COPY.format(self.name)) as into:
                into.set_types(TABLE_TYPES)
                for row in rows:
                    into.write_row((attempt, *row))

        self._run(copy)

    def prepare_merge(self, attempts: Sequence[int]) -> dict[str, Any]:
        """Return the body with table and attempts, after creating the index by which the merge reads the table."""

        def order(connection: Any) -> None:
            connection.execute(TABLE_INDEX.format(self.name))
            connection.execute(f"ANALYZE {self.name}")

        self._run(order)
        return {"table": self.name, "attempts": list(attempts)}

    def drop(self) -> None:
        """Drop the table. If that fails, a later import removes it."""
        with suppress(StagingUnusable):
            self._run(lambda connection: connection.execute(f"DROP TABLE IF EXISTS {self.name}"))

    def _run(self, work: Callable[[Any], object]) -> None:
        import psycopg  # psycopg is an extra, which users of SQLite need not install

        try:
            with psycopg.connect(self.url) as connection:
                work(connection)
        except psycopg.Error as error:
            raise StagingUnusable(
                f"{shown(self.url)}: cannot be used for staging ({str(error).splitlines()[0]})"
            ) from error


def _mark(job: str) -> str:
    """Return the digits that identify a job in the names of its areas."""
    return blake2s(job.encode(), digest_size=_JOB_DIGITS // 2).hexdigest()


def _is_stale(name: str, ours: str) -> bool:
    """Tell whether another area is of the same job, or older than a day."""
    if not name.startswith(_PREFIX) or len(name) != len(ours) or name == ours:
        return False
    own, other = ours.removeprefix(_PREFIX), name.removeprefix(_PREFIX)
    try:
        made, now = (int(each[_JOB_DIGITS : _JOB_DIGITS + _TIME_DIGITS], 16) for each in (other, own))
    except ValueError:
        return False
    return other[:_JOB_DIGITS] == own[:_JOB_DIGITS] or made < now - _STALE_AFTER
