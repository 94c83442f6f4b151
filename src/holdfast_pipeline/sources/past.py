"""Reading ``format("retained")`` with the option ``as_of``: the messages that were retained at a past time.

How it works. The history finds the time's moment: a range of entries, whose newest entry of each topic tells what was
retained then. The rules are those of ``changes/moments.py``: topics that the history does not know then are
left out, and a Topic Filter of such topics alone is refused. Each task checks its part in the transaction that
reads it, so pruning cannot make topics disappear from the answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from pyspark.sql.datasource import DataSourceReader, InputPartition

from holdfast.changes.api import (
    HistoryUnavailable,
    Moment,
    check_moment,
    check_recorded,
    find_moment,
    retained_sql,
)
from holdfast_pipeline.database.connection import ReadTransaction, check
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.sources.columns import STORED_AT_OF_ENTRY, Column
from holdfast_pipeline.sources.history import EntryRange, EntryReader
from holdfast_pipeline.sources.options import Options
from holdfast_pipeline.sources.ranges import Condition


class PastRange(EntryRange):
    """The entries of one task, for a moment."""

    def __init__(self, after: int, upto: int, moment: Moment) -> None:
        super().__init__(after, upto, newest_upto=moment.last_seq)
        self.moment = moment


class PastReader(EntryReader, DataSourceReader):
    """Reads the messages that were retained at ``at``, in milliseconds since the epoch, from the history."""

    def __init__(self, options: Options, columns: tuple[Column, ...], at: int) -> None:
        # The history has no column stored_at: it follows from the entry.
        found = [STORED_AT_OF_ENTRY if column.name == STORED_AT_OF_ENTRY.name else column for column in columns]
        super().__init__(options, tuple(found), Condition(retained_sql("?"), (at,)))
        self._at = at

    def partitions(self) -> Sequence[InputPartition]:
        """Find the moment, and divide its entries. Raises :class:`PipelineError` if the history cannot answer."""
        check(self.source.url)
        with self.source.transaction() as transaction:
            try:
                cursor = transaction.connection.cursor()
                moment = find_moment(cursor, self._at, time.time_ns() // 1_000_000)
                check_recorded(check_moment(cursor, moment), self._at, self._filter)
            except HistoryUnavailable as error:
                raise PipelineError(f"format retained: as_of: {error}") from error
        parts = [PastRange(low, high, moment) for low, high in self._edges(moment.first_seq, moment.last_seq)]
        return parts or [PastRange(moment.last_seq, moment.last_seq, moment)]  # Spark needs at least one partition

    def _knows(self, partition: EntryRange) -> Callable[[str], bool] | None:
        """Leave out the topics that the history does not know then."""
        assert isinstance(partition, PastRange)
        return partition.moment.knows if partition.moment.hides_entries else None

    def _verify(self, transaction: ReadTransaction, partition: EntryRange) -> None:
        assert isinstance(partition, PastRange)
        try:
            check_moment(transaction.connection.cursor(), partition.moment)
        except HistoryUnavailable as error:
            raise PipelineError(f"format retained: as_of: the history was pruned while it was read: {error}") from error
