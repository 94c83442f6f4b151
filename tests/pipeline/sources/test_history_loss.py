"""A stream of the history notices entries that were pruned before it read them, and never reads uncommitted ones."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import create_engine, text

from holdfast.changes.recording import HistoryRecorder
from holdfast.core.messages import ChangeOrigin
from holdfast.storage.database import Durability
from holdfast.storage.maintenance import database_at
from holdfast.storage.postgres_values import PostgresBulk
from holdfast_pipeline.database import Source, history_range
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.sources.columns import HISTORY
from holdfast_pipeline.sources.history import STREAM_OPTIONS, HistoryStreamReader
from holdfast_pipeline.sources.options import Options
from tests.pipeline.stores import NOW, Filled, database, message


def reader_of(filled: Filled, **options: str) -> HistoryStreamReader:
    """Return a stream's reader with options, as Spark makes it."""
    return HistoryStreamReader(Options("retained_history", {"storage": filled.url, **options}, STREAM_OPTIONS), HISTORY)


def numbers(reader: HistoryStreamReader, start: dict[str, int], end: dict[str, int]) -> list[int]:
    """Read a batch, and return the ``seq`` of its entries."""
    parts = reader.partitions(start, end)
    return [seq for part in parts for batch in reader.read(part) for seq in batch.column(0).to_pylist()]


def change(filled: Filled, *statements: str) -> None:
    """Change the database by hand."""
    engine = create_engine(filled.url)
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()


@pytest.fixture
def ten(recorded: Filled) -> Filled:
    """Ten entries with ``seq`` 2 to 11: the period itself takes the first number."""
    recorded.put(*(message(f"t/{number}") for number in range(10)))
    return recorded


def test_a_loss_is_reported_with_its_first_entry(ten: Filled) -> None:
    """Before a batch or during it; without fail_on_data_loss the stream continues."""
    reader = reader_of(ten, partitions="2")
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert numbers(reader, start, end) == list(range(2, 12))
    planned = reader.partitions(start, end)
    change(ten, "DELETE FROM retained_history WHERE seq IN (8, 10)")
    with pytest.raises(PipelineError, match="has lost 2 entries from seq 8 on"):
        [list(reader.read(part)) for part in planned]
    with pytest.raises(PipelineError, match="has lost 2 entries from seq 8 on"):
        reader.partitions({"seq": 5, "pruned": 1}, end)
    tolerant = reader_of(ten, fail_on_data_loss="false")
    assert numbers(tolerant, {"seq": 5, "pruned": 1}, end) == [6, 7, 9, 11]


def test_entries_pruned_before_the_stream_began_are_not_a_loss(ten: Filled) -> None:
    """The stream reads the remaining entries, and notices later losses."""
    change(
        ten,
        "DELETE FROM retained_history WHERE seq IN (2, 3, 5)",
        "UPDATE retained_history_periods SET pruned_to = 5",
    )
    reader = reader_of(ten)
    start = reader.initialOffset()
    assert start == {"seq": 3, "pruned": 5}
    assert numbers(reader, start, {"seq": 11, "pruned": 5}) == [4, 6, 7, 8, 9, 10, 11]
    change(ten, "DELETE FROM retained_history WHERE seq = 6")
    with pytest.raises(PipelineError, match="has lost 1 entries from seq 6 on"):
        reader.partitions(start, {"seq": 11, "pruned": 5})


def test_a_stream_begins_at_the_given_entry(ten: Filled) -> None:
    """With the next entry or a given one; a pruned one is refused."""
    latest = reader_of(ten, starting_seq="latest")
    start = latest.initialOffset()
    assert start == {"seq": 11, "pruned": 11}
    assert latest.partitions(start, latest.latestOffset(start, latest.getDefaultReadLimit())) == []
    ten.put(message("new"))
    assert numbers(latest, start, latest.latestOffset(start, latest.getDefaultReadLimit())) == [12]
    numbered = reader_of(ten, starting_seq="9", max_rows_per_trigger="3")
    start = numbered.initialOffset()
    assert numbers(numbered, start, numbered.latestOffset(start, numbered.getDefaultReadLimit())) == [9, 10, 11]
    change(ten, "DELETE FROM retained_history WHERE seq <= 9")
    with pytest.raises(PipelineError, match="from seq 9 on"):
        numbered.partitions(start, {"seq": 12, "pruned": 8})
    with pytest.raises(PipelineError, match="starting_seq is a number from 1"):
        reader_of(ten, starting_seq="first")


def test_a_run_over_existing_entries_ends_at_the_last_one_of_its_start(ten: Filled) -> None:
    """Even if the history grows faster than the run reads."""
    reader = reader_of(ten, max_rows_per_trigger="6")
    reader.prepareForTriggerAvailableNow()
    ten.put(*(message(f"more/{number}") for number in range(5)))
    offset = reader.initialOffset()
    ends = []
    for _ in range(3):
        offset = reader.latestOffset(offset, reader.getDefaultReadLimit())
        ends.append(offset["seq"])
    assert ends == [7, 11, 11]


def test_the_number_of_a_period_is_not_a_loss(ten: Filled) -> None:
    """Recording was off and is on again: a second period."""
    Filled(ten.url).put(message("unrecorded"))
    change(ten, "UPDATE retained_history_periods SET ended_at = 1")
    ten.put(message("again"))
    reader = reader_of(ten)
    start = reader.initialOffset()
    found = numbers(reader, start, reader.latestOffset(start, reader.getDefaultReadLimit()))
    assert 12 not in found
    assert found == [*range(2, 12), *range(13, found[-1] + 1)]


def test_on_postgres_an_uncommitted_change_blocks_later_ones(tmp_path: Path) -> None:
    """So ``seq`` is in the order of commits: a reader that sees an entry has seen all earlier ones."""
    with database("postgresql", tmp_path, recorded=True) as filled:
        filled.put(message("a"))
        source, writable = Source(filled.url), database_at(filled.url, Durability.FULL, 0, 5.0)

        def last() -> int:
            with source.transaction() as transaction:
                return history_range(transaction).last

        before = last()
        with closing(writable.connect()) as first, closing(writable.connect()) as second:
            first.cursor().execute("BEGIN")
            HistoryRecorder(PostgresBulk()).record_stored(first.cursor(), ["a"], NOW, ChangeOrigin.PUBLISH)
            second.cursor().execute("SET lock_timeout = '20ms'")
            second.cursor().execute("BEGIN")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                HistoryRecorder(PostgresBulk()).record_stored(second.cursor(), ["a"], NOW, ChangeOrigin.PUBLISH)
            second.rollback()
            assert last() == before
            first.commit()
            second.cursor().execute("BEGIN")
            HistoryRecorder(PostgresBulk()).record_stored(second.cursor(), ["a"], NOW, ChangeOrigin.PUBLISH)
            assert last() == before + 1
            second.rollback()
