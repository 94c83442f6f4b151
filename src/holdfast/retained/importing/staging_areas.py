"""Writing a staging area: a folder of files beside an SQLite database, or a table of Postgres.

Each attempt at a job has an area of its own, such as ``holdfast_staging_5f2c9a1e018f3b2c4d5e9c01``: 8 digits for the
job, 12 for the time in milliseconds, 4 at random. So an import recognises the areas that killed attempts at its job
have left, and areas older than a day, and removes them.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from hashlib import blake2s
from pathlib import Path
from socket import gethostname
from typing import Any, Protocol

from attrs import frozen

from holdfast.retained.importing.staging import (
    FILE_INSERT,
    FILE_SCHEMA,
    TABLE_COPY,
    TABLE_INDEX,
    TABLE_SCHEMA,
    TABLE_TYPES,
)
from holdfast.retained.store.rows import Row
from holdfast.storage.url import shown

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
