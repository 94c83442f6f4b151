"""Reading ``format("retained")`` with the option ``since``: the topics that have changed after a token or a time.

How it works. The broker stores which topics change, in turns (``changes/log.py``). A token names the turn
up to which a reader knows all changes. The rows are the present messages of the topics that have changed after it, and
a row ``clear`` for each topic that has none any more. A change may come twice, and every change comes in the end. Some
changes are not in the table yet: their transaction has not ended, or the broker gathers them. They are above the next
token.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from holdfast.changes.api import (
    TOKEN_LENGTHS,
    BadToken,
    Token,
    is_good,
    read_kept,
    time_of,
    token_of,
    turn_before,
    turns_of,
)
from holdfast.core.topics import EVERY_TOPIC
from holdfast_pipeline.database.connection import ReadTransaction, Source, check
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.sources.arrow_batches import MatchingRows, batches_of
from holdfast_pipeline.sources.columns import Column
from holdfast_pipeline.sources.one_message import OneMessage
from holdfast_pipeline.sources.options import Options

# SQL is built from constants and the names of columns: values are always bound.
# ruff: noqa: S608

_MOST = 2**31 - 1
_EVERYTHING = "read all messages once, without this option, and go on from the token of their snapshot"
#: messages that have expired and wait for the sweep have changed too
_CHANGED = (
    "SELECT topic AS changed_topic, max(at) AS changed_at FROM (SELECT topic, changed_at AS at FROM retained_changes "
    "WHERE turn > ? UNION ALL SELECT topic, expires_at FROM retained WHERE expires_at > ? AND expires_at <= ? "
    "AND tombstone = 0) AS both_kinds GROUP BY topic"
)
_IS_SET = "(topic IS NOT NULL AND tombstone = 0 AND (expires_at IS NULL OR expires_at > {now}))"
_BLOB = {"sqlite": "BLOB", "postgresql": "bytea"}


class ChangesAfter(InputPartition):
    """The changes after a turn, and the messages that have expired since a time (milliseconds)."""

    def __init__(self, turn: int, since: int) -> None:
        super().__init__((turn, since))
        self.turn = turn
        self.since = since


class ChangesReader(OneMessage, DataSourceReader):
    """Reads the changes since the token or the time of the option ``since``, in one task."""

    def __init__(self, options: Options, columns: tuple[Column, ...]) -> None:
        self._columns = columns
        self.source = Source(options.url(), options.text("copy"), options.text("exported"))
        self._filter = options.topic_filter()
        options.partitions()  # one task reads them: they are few
        now = time.time_ns() // 1_000_000
        expired_at = options.moment("expired_at", now)
        self._now = now if expired_at is None else expired_at
        self._known = _known(options, now)

    def partitions(self) -> Sequence[InputPartition]:
        """Find the turn. Raises :class:`PipelineError` if not every change after it is stored."""
        check(self.source.url)
        with self.source.transaction() as transaction:
            turn = self._turn(transaction)
            return [ChangesAfter(turn, time_of(transaction.connection.cursor(), turn))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the changes."""
        assert isinstance(partition, ChangesAfter)
        with self.source.transaction() as transaction:
            columns = ", ".join(self._sql(column, transaction.dialect) for column in self._columns)
            checked = self._filter != EVERY_TOPIC
            statement = (
                f"SELECT {columns}{', changed_topic' if checked else ''} FROM ({_CHANGED}) AS changed "
                "LEFT JOIN retained ON retained.topic = changed_topic"
            )
            values = (partition.turn, partition.since, self._now)
            with transaction.streamed(statement, values) as cursor:
                yield from batches_of(MatchingRows(cursor, self._filter) if checked else cursor, self._columns)
            kept = read_kept(transaction.connection.cursor())
            if kept is None or kept.turn > partition.turn:
                raise PipelineError(f"format retained: since: changes were pruned while they were read; {_EVERYTHING}")

    def _turn(self, transaction: ReadTransaction) -> int:
        cursor, known = transaction.connection.cursor(), self._known
        if isinstance(known, int):
            turn = turn_before(cursor, known, _MOST)
            if turn is None:
                raise PipelineError(f"format retained: since: not all changes since then are kept; {_EVERYTHING}")
            return turn
        if not is_good(cursor, turns_of(transaction.dialect), known):
            raise PipelineError(
                "format retained: since: the changes after this token are not all here: it is of another database, is "
                "newer than this one (a restored backup), is older than what is kept, was made before a broker was "
                f"killed, or a broker does not store changes (retainer.changes.enable); {_EVERYTHING}"
            )
        return known.turn

    def _sql(self, column: Column, dialect: str) -> str:
        """Return a column's expression: of a cleared topic there is no message."""
        is_set = _IS_SET.format(now=self._now)
        match column.name:
            case "op":
                return f"CASE WHEN {is_set} THEN 'set' ELSE 'clear' END"
            case "topic":
                return "changed_topic"
            case "changed_at":
                return column.sql
            case "payload":
                return f"CASE WHEN {is_set} THEN payload ELSE CAST('' AS {_BLOB[dialect]}) END"
        return f"CASE WHEN {is_set} THEN {column.sql} END"


def _known(options: Options, now: int) -> Token | int:
    """Return the token, or the time in milliseconds since the epoch, that the option names."""
    text = options.text("since") or ""
    if len(text) in TOKEN_LENGTHS:
        try:
            return token_of(text)
        except BadToken:
            pass  # a time may be as long
    try:
        at = options.moment("since", now)
    except PipelineError as error:
        raise PipelineError(f"{error}; or give a token: of a marker, or of a snapshot") from error
    assert at is not None
    return at
