"""The driver reads an SQLite database at one moment, and hands the rows over as a Parquet file."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast_pipeline import read_history, read_retained, snapshot_of
from holdfast_pipeline.database import HeldTransaction, Source
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.sources import columns as arrow_batches
from holdfast_pipeline.sources import snapshot as snapshot_module
from holdfast_pipeline.sources import tables as driver_reads
from holdfast_pipeline.sources.columns import RETAINED
from holdfast_pipeline.sources.retained import RetainedSource
from holdfast_pipeline.sources.tables import read_here
from tests.pipeline.commands import PATIENCE
from tests.pipeline.stores import NOW, database, fill, message

pytestmark = pytest.mark.spark


@pytest.fixture(name="nothing_small")
def _nothing_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every result go to a file, in batches and row groups of few rows."""
    for reading in (arrow_batches.batches_of, arrow_batches.packed_batches):
        monkeypatch.setattr(reading, "__defaults__", (7, arrow_batches.BYTES))
    monkeypatch.setattr(driver_reads.read_here, "__defaults__", (None, None, 0, 0, lambda _: None))
    monkeypatch.setattr(driver_reads, "_GROUP_ROWS", 2)


@pytest.mark.usefixtures("nothing_small")
def test_rows_in_a_file_are_those_of_the_database(spark: SparkSession, tmp_path: Path) -> None:
    """Blobs, NULL, U+0000 and letters beyond ASCII, in the order of the columns; also with a number of tasks."""
    with database("sqlite", tmp_path) as filled:
        filled.put(
            message("a/b", b"\x00\xff\x00", qos=2, client_id="c", username="u", expires_at=2**41),
            message("grün/日本/𝄞", b"nul \x00 inside".ljust(60), client_id="x"),
            *(message(f"many/{number}") for number in range(7)),
        )
        path = filled.url.removeprefix("sqlite:///")
        with sqlite3.connect(path) as connection:  # MQTT has no U+0000 in texts, but a column might
            connection.execute("UPDATE retained SET client_id = 'a' || char(0) || 'b' WHERE topic = 'many/3'")
        connection.close()
        names = [column.name for column in RETAINED]
        with sqlite3.connect(path) as connection:
            expected = {row[0]: row for row in connection.execute(f"SELECT {', '.join(names)} FROM retained")}
        connection.close()
        with snapshot_of(filled.url) as snapshot:
            frame = read_retained(spark, snapshot)
            assert "Scan parquet" in frame._jdf.queryExecution().toString()
            rows = frame.selectExpr("*", "unix_millis(stored_at) s", "unix_millis(expires_at) e").collect()
            assert read_retained(spark, snapshot, "many/+", ["topic"], 3).rdd.getNumPartitions() == 3
    found = {
        row.topic: (
            row.topic, bytes(row.payload), row.qos, row.client_id, row.username, row.s, row.e, row["size"],
            row.revision, row.properties_json,
        )
        for row in rows
    }  # fmt: skip
    assert found == expected


@pytest.mark.usefixtures("nothing_small")
def test_the_files_may_be_in_a_folder_of_any_name(spark: SparkSession, tmp_path: Path) -> None:
    """Spark takes the characters of URIs and patterns as they are."""
    folder = tmp_path / "grün # 50%20 [x]*{y}"
    folder.mkdir()
    with database("sqlite", tmp_path) as filled:
        filled.put(*(message(f"t/{number}") for number in range(9)))
        with snapshot_of(filled.url, folder=str(folder)) as snapshot:
            assert read_retained(spark, snapshot).count() == 9


@pytest.mark.usefixtures("nothing_small")
def test_a_writer_during_the_read_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Messages and history are those of one moment, before and after the transaction goes on in a copy.

    While it is open, the log grows by what is written.
    """
    with database("sqlite", tmp_path, recorded=True) as filled:
        filled.put(*(message(f"t/{number:03}", b"before") for number in range(50)), at=NOW)
        log = Path(f"{filled.url.removeprefix('sqlite:///')}-wal")
        with snapshot_of(filled.url) as snapshot, filled.store() as store:
            held = snapshot.source.held  # type: ignore[union-attr]
            assert held is not None

            def contents() -> tuple[set[bytes], int, int]:
                payloads = [bytes(row.payload) for row in read_retained(spark, snapshot).collect()]
                entries = read_history(spark, snapshot.source, to_seq=snapshot.last_seq, columns=["seq"]).count()
                return set(payloads), len(payloads), entries

            format_ = RetainedSource({"storage": filled.url})
            reader: Any = format_.reader(format_.schema())
            reader.source = snapshot.source
            sizes = []

            def write(_rows: int) -> None:  # between two row groups
                fill(store, [message(f"t/{number:03}", b"after" * 50) for number in range(60)])
                sizes.append(log.stat().st_size)

            file = read_here(reader, RETAINED, folder=held.folder, added=write)
            assert {bytes(row.payload) for row in spark.read.parquet(str(file)).collect()} == {b"before"}
            assert len(sizes) == 8
            assert sizes == sorted(sizes)
            assert sizes[-1] > sizes[0]
            before = contents()
            assert before == ({b"before"}, 50, 50)
            copy = snapshot.options["copy"]
            assert Path(copy).stat().st_mode & 0o777 == 0o600
            write(0)
            assert contents() == before
            read = spark.read.format("retained").options(**snapshot.options).option("partitions", "2").load()
            assert read.where("payload = 'before'").count() == 50
        assert not Path(copy).exists()


def test_a_snapshot_that_has_ended_is_refused(tmp_path: Path) -> None:
    """In one sentence."""
    with database("sqlite", tmp_path) as filled:
        with snapshot_of(filled.url) as snapshot:
            source = snapshot.source
        assert isinstance(source, Source)
        with pytest.raises(PipelineError, match="this snapshot has ended; take a new one"), source.transaction():
            pass


def test_the_end_of_a_snapshot_ends_a_read_of_another_thread(tmp_path: Path) -> None:
    """A command that is interrupted does not wait for it."""
    begun = Event()
    failures: list[BaseException] = []

    def read(held: HeldTransaction) -> None:
        try:
            with held.used() as connection:
                connection.create_function("begun", 1, lambda _: begun.set())
                long = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 30000000)"
                connection.execute(f"{long} SELECT count(begun(x)) FROM c").fetchall()
        except sqlite3.OperationalError as error:
            failures.append(error)

    with database("sqlite", tmp_path) as filled:
        with snapshot_of(filled.url) as snapshot:
            assert isinstance(snapshot.source, Source)
            held = snapshot.source.held
            assert held is not None
            thread = Thread(target=read, args=(held,))
            thread.start()
            assert begun.wait(PATIENCE)
        thread.join(PATIENCE)
        assert [str(error) for error in failures] == ["interrupted"]


def test_the_end_of_a_snapshot_ends_its_copy(tmp_path: Path) -> None:
    """Between two parts of it."""
    with database("sqlite", tmp_path) as filled:
        filled.put(message("a"))
        with snapshot_of(filled.url) as snapshot:
            assert isinstance(snapshot.source, Source)
            held = snapshot.source.held
            assert held is not None
            held._is_ending = True
            with pytest.raises(PipelineError, match="this snapshot has ended"):
                held.copy()


def test_the_time_of_a_snapshot_is_that_before_its_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy of a large database takes minutes, and messages expire meanwhile."""
    now = time.time_ns()
    times = iter([now, now + 120 * 10**9])
    monkeypatch.setattr(snapshot_module, "_MOST_HELD", 0)
    monkeypatch.setattr(snapshot_module, "_now", lambda: next(times) // 1_000_000)
    with database("sqlite", tmp_path) as filled:
        filled.put(message("a"))
        with snapshot_of(filled.url) as snapshot:
            assert snapshot.taken_at == now // 1_000_000
            assert isinstance(snapshot.source, Source)
            assert snapshot.source.held is not None
            assert snapshot.source.held.target.exists()


def test_a_copy_without_space_fails_when_it_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read before counts; what would need the copy tells the folder and the option."""
    with database("sqlite", tmp_path) as filled, snapshot_of(filled.url) as snapshot:
        held = snapshot.source.held  # type: ignore[union-attr]
        assert held is not None
        held.target.mkdir()
        held._go_on()  # as after half a minute
        with pytest.raises(PipelineError, match=r"the copy of .* failed .*--snapshot-dir"), held.used():
            pass
        held.target.rmdir()
