"""``sync``: two Delta tables that are equal to the broker's history and its retained messages, each change once."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from attrs import evolve
from click.testing import CliRunner
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from holdfast_pipeline import Source, read_delta
from holdfast_pipeline.cli.root import main
from holdfast_pipeline.cli.running import EndedBySignal, EndSignals
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.jobs import sync as sync_job
from holdfast_pipeline.jobs.sync import Sync, Synced
from holdfast_pipeline.lake.growing_table import GrowingTable
from holdfast_pipeline.lake.upkeep import CHANGES_LAYOUT, Upkeep
from holdfast_pipeline.output.folder import Folder
from tests.pipeline.lake.changing import end_period, prune
from tests.pipeline.lake.reading import expected, in_tables, plain
from tests.pipeline.stores import NOW, Filled, database, message

DAY = 86_400_000
SQLITE = pytest.mark.parametrize("recorded", ["sqlite"], indirect=True)


class Killed(BaseException):
    """Stands for the end of the process."""


def synced(filled: Filled, out: Path, **options: Any) -> Synced:
    """Bring the tables up to date."""
    return Sync(Source(filled.url), Folder(str(out)), **options).run()


def require_equal(filled: Filled, out: Path, but: str | None = None) -> None:
    """Compare both tables with the database, to the last value, ``but`` for a column of ``current``."""
    changes, current = in_tables(out)
    history, retained = expected(filled)
    if but is not None:
        for row in (*current, *retained):
            del row[but]
    assert changes == history
    assert current == retained


def test_both_tables_are_equal_to_the_broker(recorded: Filled, tmp_path: Path) -> None:
    """Sets, replacements, clears and all columns, in batches of any size; a run without changes adds nothing."""
    out = tmp_path / "lake"
    recorded.put(message("a", b"\x00\xff", qos=1, client_id="c", username="u"), message("b"), at=NOW)
    first = synced(recorded, out)
    require_equal(recorded, out)
    recorded.put(message("a", b"2"), message("b", b""), message("c"), message("d", b""), at=NOW + DAY)
    second = synced(recorded, out, rows=3)
    require_equal(recorded, out)
    third = synced(recorded, out)
    assert (first.before, first.added, first.messages) == (0, 2, 2)
    assert (second.before, second.added, second.messages) == (first.last_seq, 4, 2)
    assert (third.added, third.last_seq, third.current_seq) == (0, second.last_seq, second.last_seq)
    assert sorted(path.name for path in (out / "changes").glob("date=*")) == ["date=2023-11-14", "date=2023-11-15"]


@pytest.mark.spark
@SQLITE
def test_spark_and_duckdb_read_the_tables(spark: SparkSession, recorded: Filled, tmp_path: Path) -> None:
    """Both give the rows of the broker, after merges and with joined files."""
    out = tmp_path / "lake"
    for step in range(3):
        recorded.put(message("a", b"%d" % step), message(f"b/{step}", "é".encode()), at=NOW + step)
        synced(recorded, out, upkeep=Upkeep(most_small=2))
    changes, current = expected(recorded)
    for name, order, extra, rows in (("changes", "seq", "date", changes), ("current", "topic", "seq", current)):
        frame = read_delta(spark, str(out / name))
        assert plain(frame.drop(extra).toArrow(), order) == rows
        with duckdb.connect() as connection:
            files = DeltaTable(str(out / name)).file_uris()
            table = connection.read_parquet(files, hive_partitioning=True, union_by_name=True)
            found = table.project(f"* EXCLUDE ({extra})").to_arrow_table()
        assert plain(found, order) == rows
    assert read_delta(spark, str(out / "changes")).where("date = '2023-11-14'").count() == 6


_POINTS = st.lists(st.tuples(st.sampled_from(["append", "merge", "replace"]), st.booleans()), max_size=6)
_BATCHES = st.lists(
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from([b"", b"1", b"2"])), max_size=6), max_size=3
)


@settings(max_examples=8, deadline=None)
@given(batches=_BATCHES, points=_POINTS, rows=st.integers(1, 4), period=st.integers(0, 3))
def test_wherever_it_is_killed_each_change_is_there_once(
    batches: list[list[tuple[str, bytes]]], points: list[tuple[str, bool]], rows: int, period: int
) -> None:
    """Before or after any commit of either table. A new period of the history begins before one of the batches.

    A baseline tells the time of a message by its revision, which here differs from the time of its store.
    """
    kills = iter(points)
    pending = [next(kills, None)]

    def killing(name: str, commit: Callable[..., None]) -> Callable[..., None]:
        def run(*arguments: Any) -> None:
            due = pending[0] if pending[0] is not None and pending[0][0] == name else None
            if due is not None:
                pending[0] = next(kills, None)
                if due[1]:
                    commit(*arguments)
                raise Killed
            commit(*arguments)

        return run

    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        for name in ("append", "merge", "replace"):
            patched.setattr(GrowingTable, name, killing(name, getattr(GrowingTable, name)))
        out = Path(folder) / "lake"
        with database("sqlite", Path(folder), recorded=True) as filled:
            for number, batch in enumerate(batches):
                if number == period:
                    end_period(filled)
                    evolve(filled, recorded=False).put(message("a", b""), message("b", b"unrecorded"))
                filled.put(*(message(topic, payload) for topic, payload in batch))
                try:
                    synced(filled, out, rows=rows)
                except Killed:
                    continue
                require_equal(filled, out, "stored_at")
            pending[0] = None
            filled.put(message("last"))
            synced(filled, out, rows=rows)
            require_equal(filled, out, "stored_at")


def test_pruned_changes_are_an_error_until_the_gap_is_allowed(recorded: Filled, tmp_path: Path) -> None:
    """One line and status 1, and nothing is written. Then the other changes follow, and ``current`` is right."""
    out = tmp_path / "lake"
    recorded.put(message("gone"), message("kept"))
    synced(recorded, out)
    before = in_tables(out)
    recorded.put(message("gone", b""), message("kept", b"2"), message("kept", b"3"), at=NOW + 1)
    recorded.put(message("new"), at=NOW + 3)
    prune(recorded, NOW + 2)
    arguments = ["sync", "--storage", recorded.url, "--to", str(out)]
    refused = CliRunner().invoke(main, arguments)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "the history has lost 2 entries from seq 4 on" in refused.stderr
    assert "--allow-gap" in refused.stderr
    assert in_tables(out) == before
    allowed = CliRunner().invoke(main, [*arguments, "--allow-gap", "--json"])
    assert allowed.exit_code == 0, allowed.stderr
    told = json.loads(allowed.stdout)
    assert (told["lost"], told["added"], told["messages"]) == (2, 2, 2)
    history, retained = expected(recorded)
    changes, current = in_tables(out)
    assert current == retained
    assert changes == [*before[0], *(row for row in history if row["seq"] > before[0][-1]["seq"])]
    assert synced(recorded, out).lost == 0


def test_changes_pruned_before_the_first_run_are_not_lost(recorded: Filled, tmp_path: Path) -> None:
    """The tables begin with what the database has, also if the first run is killed after a batch."""
    recorded.put(message("a", b"1"), message("a", b"2"), message("b"), at=NOW)
    recorded.put(message("a", b"3"), message("c"), at=NOW + 2)
    prune(recorded, NOW + 1)
    job = Sync(Source(recorded.url), Folder(str(tmp_path / "lake")), rows=1)
    assert job.step()
    assert synced(recorded, tmp_path / "lake").lost == 0
    require_equal(recorded, tmp_path / "lake")


@SQLITE
def test_later_columns_are_added_and_unknown_ones_stay(
    recorded: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that an earlier release made gets the column; rows of then have no value in it."""
    out = tmp_path / "lake"
    columns = CHANGES_LAYOUT.columns
    earlier = columns.remove(columns.get_field_index("username")).append(pa.field("theirs", pa.string()))
    with monkeypatch.context() as patched:
        patched.setattr(sync_job, "CHANGES_LAYOUT", evolve(CHANGES_LAYOUT, columns=earlier))
        recorded.put(message("a", username="alice"))
        synced(recorded, out)
    recorded.put(message("b", username="bob"))
    synced(recorded, out)
    rows = DeltaTable(str(out / "changes")).to_pyarrow_table().sort_by("seq").to_pylist()
    assert [(row["username"], row["theirs"]) for row in rows] == [(None, None), ("bob", None)]
    other = evolve(CHANGES_LAYOUT, columns=pa.schema([("seq", pa.string()), ("date", pa.date32())]))
    monkeypatch.setattr(sync_job, "CHANGES_LAYOUT", other)
    with pytest.raises(PipelineError, match="the column seq has the type"):
        synced(recorded, out)


@SQLITE
def test_small_files_are_joined_and_old_ones_deleted(recorded: Filled, tmp_path: Path) -> None:
    """A past day to one file; readers of old versions keep their files for the time of ``keep``."""
    out = tmp_path / "lake"

    def files(name: str) -> set[Path]:
        return set((out / name).rglob("*.parquet"))

    for step in range(4):
        recorded.put(message("a", b"%d" % step), at=NOW)
        synced(recorded, out)
    recorded.put(message("b"), at=NOW + DAY)
    old = DeltaTable(str(out / "changes"))
    orphan = out / "changes" / "date=2023-11-14" / "part-orphan.parquet"
    orphan.write_bytes(b"left by a killed writer")
    synced(recorded, out)
    assert len(files("changes")) == 7, "four small files, the joined one, the next day's, the orphan"
    assert len(old.to_pyarrow_table()) == 4
    synced(recorded, out, upkeep=Upkeep(most_small=2, keep=0))
    assert len(files("changes")) == 2
    assert len(files("current")) == 1
    require_equal(recorded, out)


@SQLITE
def test_a_folder_of_another_database_is_refused(recorded: Filled, tmp_path: Path) -> None:
    """So is a backup of the same one, and a folder with foreign files, which a vacuum would delete."""
    out = tmp_path / "lake"
    recorded.put(message("a"))
    (tmp_path / "other").mkdir()
    file = Path(recorded.url.removeprefix("sqlite:///"))
    backup = file.read_bytes()
    recorded.put(message("b"))
    synced(recorded, out)
    with (
        database("sqlite", tmp_path / "other", recorded=True) as other,
        pytest.raises(PipelineError, match=r"holds the changes of sqlite:.*, not of"),
    ):
        synced(other, out)
    file.write_bytes(backup)
    with pytest.raises(PipelineError, match="the database has been replaced, perhaps by a backup"):
        synced(recorded, out)
    recorded.put(message("c"), at=NOW + 1)
    with pytest.raises(PipelineError, match="this entry in the database is younger"):
        synced(recorded, out)
    shutil.rmtree(out)
    (out / "changes").mkdir(parents=True)
    (out / "changes" / "notes.txt").touch()
    with pytest.raises(PipelineError, match=r"contains notes\.txt, which is no part of a Delta table"):
        synced(recorded, out)


@SQLITE
def test_two_at_once_add_nothing_twice(recorded: Filled, tmp_path: Path) -> None:
    """The one that commits later fails, and its next run goes on."""
    out = tmp_path / "lake"
    recorded.put(message("a"))
    synced(recorded, out)
    recorded.put(message("b"))
    slow = Sync(Source(recorded.url), Folder(str(out)))
    append = slow.changes.append

    def late(rows: pa.Table, marks: Mapping[str, int]) -> None:
        synced(recorded, out)
        append(rows, marks)

    slow.changes.append = late  # type: ignore[method-assign]
    with pytest.raises(PipelineError, match="another job has changed the table at the same time"):
        slow.run()
    require_equal(recorded, out)
    synced(recorded, out)
    require_equal(recorded, out)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--once", "--every", "1s"], "exclude each other"),
        (["--every", "soon"], "'soon' is not a duration"),
        (["--every", "1ms"], "too short"),
        (["--keep", "forever"], "--keep: 'forever' is not a duration"),
        (["--file-size", "1KB"], "smallest size is 1MB"),
    ],
)
def test_a_wrong_option_is_named(tmp_path: Path, options: list[str], said: str) -> None:
    """In one line, before anything is written."""
    out = tmp_path / "lake"
    result = CliRunner().invoke(main, ["sync", "--storage", "sqlite:///nowhere.db", "--to", str(out), *options])
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert said in result.stderr
    assert not out.exists()


@SQLITE
def test_a_signal_during_a_commit_ends_the_command_as_a_signal(
    recorded: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta's package turns the exception into an error of its own; the next run goes on."""
    recorded.put(message("a"))
    signals = EndSignals()
    align = GrowingTable._aligned

    def interrupted(table: GrowingTable, batch: pa.RecordBatch) -> pa.RecordBatch:
        os.kill(os.getpid(), signal.SIGTERM)
        return align(table, batch)

    def interrupted_sync() -> None:
        with monkeypatch.context() as patched, signals.handled():
            patched.setattr(GrowingTable, "_aligned", interrupted)
            arguments = ["sync", "--storage", recorded.url, "--to", str(tmp_path / "lake")]
            with pytest.raises(EndedBySignal):
                CliRunner().invoke(main, arguments, obj=signals, catch_exceptions=False)

    with pytest.raises(EndedBySignal):  # the end of the signals' handling tells it again
        interrupted_sync()
    assert signals.status == 143
    synced(recorded, tmp_path / "lake")
    require_equal(recorded, tmp_path / "lake")
