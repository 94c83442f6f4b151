"""Snapshots: a database at one moment, or a lake, for any number of tasks and for as long as they read.

SQLite cannot share a transaction among processes. So this process reads an SQLite database itself, in one transaction,
and hands rows over to Spark's tasks as Parquet files (:mod:`.tables`). A database that takes long to read is
copied first, and so is one whose snapshot is kept for longer than half a minute. Postgres shares: a transaction that is
kept open exports its snapshot, and other transactions import it by name.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from attrs import frozen

from holdfast.changes.api import Period, last_token, read_periods, turns_of
from holdfast.storage.api import shown
from holdfast_pipeline.database import Source, check, history_range, message_count, temporary_folder, url_of
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.progress import BYTES, phase
from holdfast_pipeline.sources.lake import CHANGES, CURRENT, Lake

#: About 60 MB of a database with small rows are read in a second: a larger one is copied first.
_MOST_HELD = 30 * 60 << 20
_SIZE = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
_LAST_SEQ = "SELECT last_seq FROM retained_history_state"


@frozen
class Snapshot:
    """A database or a lake at ``taken_at`` (milliseconds since the epoch).

    It has about so many retained ``messages``: expired ones may be among them. Its history has the entries later than
    ``before``, up to ``last_seq``, and the ``periods`` in which changes were recorded.

    ``token`` is for the option ``since`` of a later read, which then brings everything that is not in this snapshot. It
    is None if the broker does not store which topics change, and for a lake.
    """

    source: Source | Lake
    taken_at: int
    last_seq: int
    token: str | None
    messages: int
    before: int
    periods: tuple[Period, ...]

    @property
    def name(self) -> str:
        """The database's URL without a password, or the lake's folder."""
        return self.source.name if isinstance(self.source, Lake) else shown(self.source.url)

    @property
    def options(self) -> dict[str, str]:
        """The options of a Spark reader that make it read this snapshot of a database."""
        assert isinstance(self.source, Source)
        return self.source.options


@contextmanager
def snapshot_of(
    storage: str | None = None, config: str | None = None, folder: str | None = None, lake: str | None = None
) -> Iterator[Snapshot]:
    """Take a snapshot of the database at a URL or in a broker's file, and keep it while the block runs.

    With ``lake``, a folder of tables that ``sync`` keeps, it is their state when ``sync`` read the database last.

    What is read from an SQLite database is in a temporary folder of ``folder`` (by default of the system's temporary
    folder). Executors on other hosts must be able to read it. The broker goes on writing meanwhile. Raises
    :class:`PipelineError`.
    """
    if lake is not None:
        yield _of_lake(Lake(lake))
        return
    url = url_of(storage, config)
    check(url)
    source = Source(url)
    with _held(source, folder) if source.is_sqlite else _exported(source) as (kept, taken_at):
        with kept.transaction() as transaction:
            ((last_seq,),) = transaction.rows(_LAST_SEQ)
            messages = message_count(transaction)
            known = last_token(transaction.connection.cursor(), turns_of(transaction.dialect))
            before = history_range(transaction).before
            periods = read_periods(transaction.connection.cursor())
        token = None if known is None else known.text
        yield Snapshot(kept, taken_at, last_seq, token, messages, before, tuple(periods))


def _of_lake(lake: Lake) -> Snapshot:
    known = lake.coverage
    known.present  # noqa: B018 - raises an error if it is not known
    before = 0 if lake.rows(CHANGES) else known.last_seq
    last_seq = min(known.last_seq, lake.current_seq)
    return Snapshot(lake, known.read_at, last_seq, None, lake.rows(CURRENT), before, tuple(known.periods))


@contextmanager
def _held(source: Source, parent: str | None) -> Iterator[tuple[Source, int]]:
    with ExitStack() as kept:
        try:
            folder = kept.enter_context(temporary_folder(parent))
        except OSError as error:
            raise PipelineError(
                f"{parent or tempfile.gettempdir()}: no folder can be made there ({error.strerror or error})"
            ) from error
        held = kept.enter_context(source.holding(folder))
        taken_at = _now()  # a copy may take minutes, and has what was there before
        with held.used() as connection:
            ((size,),) = connection.execute(_SIZE).fetchall()
        if size > _MOST_HELD:
            with phase("copying the database", size, BYTES, lambda: (held.target.stat().st_size, size)):
                held.copy()
        yield Source(source.url, held=held), taken_at


@contextmanager
def _exported(source: Source) -> Iterator[tuple[Source, int]]:
    with source.transaction() as transaction:
        ((name,),) = transaction.rows("SELECT pg_export_snapshot()")
        yield Source(source.url, exported=name), _now()


def _now() -> int:
    return time.time_ns() // 1_000_000
