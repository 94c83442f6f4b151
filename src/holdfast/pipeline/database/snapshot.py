"""Snapshots: the database as it was at one time, however many tasks read it and however long they take."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from attrs import frozen

from holdfast.pipeline.database.connection import Source, check
from holdfast.pipeline.errors import PipelineError
from holdfast.pipeline.sources.options import url_of
from holdfast.pipeline.spark.temporary_folders import owned_folder

#: Steps of SQLite's virtual machine between two looks at signals: some milliseconds.
_STEPS = 100_000


@frozen
class Snapshot:
    """A database as it was at ``taken_at`` (milliseconds since the epoch), with the history up to ``last_seq``."""

    source: Source
    taken_at: int
    last_seq: int

    @property
    def options(self) -> dict[str, str]:
        """What a reader is told, so that it reads this snapshot."""
        return self.source.options


@contextmanager
def snapshot_of(storage: str | None = None, config: str | None = None, folder: str | None = None) -> Iterator[Snapshot]:
    """Take a snapshot of the database at a URL, or of a broker's file, and keep it as long as the block runs.

    That of an SQLite database is a copy in a temporary folder of ``folder`` (the system's one by default), which
    executors on other hosts must be able to read; a broker that runs goes on writing. That of Postgres is a
    transaction kept open. Raises :class:`PipelineError`.
    """
    url = url_of(storage, config)
    check(url)
    source = Source(url)
    with _copied(source, folder) if source.is_sqlite else _exported(source) as kept:
        with kept.reading() as reading:
            (last_seq,) = reading.rows("SELECT last_seq FROM retained_history_state")[0]
        yield Snapshot(kept, time.time_ns() // 1_000_000, last_seq)


@contextmanager
def _copied(source: Source, folder: str | None) -> Iterator[Source]:
    with ExitStack() as kept:
        try:
            place = kept.enter_context(owned_folder(folder))
            target = place / "retained.db"
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT, 0o600))
        except OSError as error:
            raise PipelineError(
                f"{folder or tempfile.gettempdir()}: no copy can be made there ({error.strerror or error})"
            ) from error
        with source.reading() as reading:
            reading.connection.execute("COMMIT")  # VACUUM has a transaction of its own
            # Python sees to signals only where its own code runs; one that raises here interrupts the copy.
            reading.connection.set_progress_handler(lambda: 0, _STEPS)
            try:
                reading.connection.execute("VACUUM INTO ?", (str(target),))
            except sqlite3.OperationalError as error:
                raise PipelineError(
                    f"{target}: the copy of {source.url} failed ({error}); it takes as much space as the database: "
                    "name a folder that has it (--snapshot-dir)"
                ) from error
        yield Source(source.url, copy=str(target))


@contextmanager
def _exported(source: Source) -> Iterator[Source]:
    with source.reading() as reading:
        ((name,),) = reading.rows("SELECT pg_export_snapshot()")
        yield Source(source.url, exported=name)
