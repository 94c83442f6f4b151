"""Where tasks put rows until they are merged: files beside an SQLite database, or a table of Postgres.

Each run of a job has an area of its own. Its name tells the job and when it was made, so that what a killed run has
left is recognised and swept by the next one.
"""

from __future__ import annotations

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
from sqlalchemy.engine import make_url

from holdfast.pipeline.errors import PipelineError
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
#: Areas older than this (milliseconds) were left by runs that are long dead.
_STALE = 86_400_000
_JOB_DIGITS, _TIME_DIGITS = 8, 12


class Stage(Protocol):
    """An area."""

    def open(self) -> None:
        """Make it, and sweep what was left by runs of the same job, or long ago. Raises :class:`PipelineError`."""

    def put(self, attempt: int, rows: Iterable[Row]) -> None:
        """Put the rows of a task attempt, all or none."""

    def named(self, attempts: Sequence[int]) -> dict[str, Any]:
        """Return what the merge is told: only what these attempts have put counts."""

    def drop(self) -> None:
        """Remove it with all that is in it."""


def stage_for(url: str, job: str, folder: str | None) -> Stage:
    """Return a new area for a run of a job; ``folder`` is where files are put (beside the database by default)."""
    name = f"{_mark(job)}{time.time_ns() // 1_000_000:0{_TIME_DIGITS}x}{secrets.token_hex(2)}"
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        assert parsed.database is not None
        return FileStage(folder or str(Path(parsed.database).parent / "staging"), _PREFIX + name)
    return TableStage(parsed.set(drivername="postgresql").render_as_string(hide_password=False), _PREFIX + name)


def sweep(url: str, job: str, folder: str | None) -> None:
    """Remove what killed runs of a job have left. Raises :class:`PipelineError`."""
    area = stage_for(url, job, folder)
    area.open()
    area.drop()


@frozen
class FileStage:
    """A folder with a file for each task attempt that has put anything."""

    folder: str
    name: str

    def open(self) -> None:
        """Make the folder."""
        with self._explained():
            Path(self.folder).mkdir(mode=0o700, parents=True, exist_ok=True)
            for other in Path(self.folder).iterdir():
                if _is_stale(other.name, self.name):
                    shutil.rmtree(other, ignore_errors=True)
            self._path.mkdir(mode=0o700)

    def put(self, attempt: int, rows: Iterable[Row]) -> None:
        """Write a file; until it has its name, nobody takes it for whole."""
        if not self._path.is_dir():
            raise PipelineError(
                f"{self.folder}: has no staging area on {gethostname()}, where a task runs: another run of the same "
                "job has removed it, or it is another host: name a folder that executors and broker share (staging)"
            )
        unfinished = self._path / f"{attempt}.partial"
        with self._explained(), closing(sqlite3.connect(unfinished, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode=OFF")  # it is whole, or thrown away
            connection.execute("PRAGMA synchronous=OFF")
            connection.execute("PRAGMA cache_size=-65536")
            connection.execute(FILE_SCHEMA)
            connection.execute("BEGIN")
            connection.executemany(FILE_INSERT, rows)
            connection.execute("COMMIT")
        with self._explained():
            unfinished.rename(self._file(attempt))

    def named(self, attempts: Sequence[int]) -> dict[str, Any]:
        """Name the files."""
        return {"files": [str(self._file(attempt)) for attempt in attempts]}

    def drop(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._path, ignore_errors=True)

    @property
    def _path(self) -> Path:
        return Path(self.folder) / self.name

    def _file(self, attempt: int) -> Path:
        return self._path / f"{attempt}.db"

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            why = getattr(error, "strerror", None) or error
            raise PipelineError(f"{self.folder}: cannot be used for staging ({why})") from error


@frozen
class TableStage:
    """A table; ``url`` is libpq's."""

    url: str
    name: str

    def open(self) -> None:
        """Make the table."""

        def make(connection: Any) -> None:
            found = connection.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE %s", (f"{_PREFIX}%",))
            for (other,) in found.fetchall():
                if _is_stale(other, self.name):
                    connection.execute(f"DROP TABLE IF EXISTS {other}")
            connection.execute(TABLE_SCHEMA.format(self.name))

        self._run(make)

    def put(self, attempt: int, rows: Iterable[Row]) -> None:
        """Copy the rows in, in one transaction."""

        def copy(connection: Any) -> None:
            with connection.cursor() as cursor, cursor.copy(TABLE_COPY.format(self.name)) as into:
                into.set_types(TABLE_TYPES)
                for row in rows:
                    into.write_row((attempt, *row))

        self._run(copy)

    def named(self, attempts: Sequence[int]) -> dict[str, Any]:
        """Name the table and the attempts, and make the order in which it is read."""

        def order(connection: Any) -> None:
            connection.execute(TABLE_INDEX.format(self.name))
            connection.execute(f"ANALYZE {self.name}")

        self._run(order)
        return {"table": self.name, "attempts": list(attempts)}

    def drop(self) -> None:
        """Drop the table; what cannot be dropped now is swept later."""
        with suppress(PipelineError):
            self._run(lambda connection: connection.execute(f"DROP TABLE IF EXISTS {self.name}"))

    def _run(self, work: Callable[[Any], object]) -> None:
        import psycopg

        try:
            with psycopg.connect(self.url) as connection:
                work(connection)
        except psycopg.Error as error:
            raise PipelineError(
                f"{shown(self.url)}: cannot be used for staging ({str(error).splitlines()[0]})"
            ) from error


def _mark(job: str) -> str:
    return blake2s(job.encode(), digest_size=_JOB_DIGITS // 2).hexdigest()


def _is_stale(name: str, ours: str) -> bool:
    """Tell whether another area is of the same job, or from long ago."""
    if not name.startswith(_PREFIX) or len(name) != len(ours):
        return False
    own, other = ours.removeprefix(_PREFIX), name.removeprefix(_PREFIX)
    try:
        made, now = (int(each[_JOB_DIGITS : _JOB_DIGITS + _TIME_DIGITS], 16) for each in (other, own))
    except ValueError:
        return False
    return other[:_JOB_DIGITS] == own[:_JOB_DIGITS] or made < now - _STALE
