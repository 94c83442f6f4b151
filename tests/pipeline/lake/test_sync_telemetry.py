"""``sync``: a Delta table with each recorded message without RETAIN, once; and the format ``telemetry``."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from holdfast.changes.telemetry_table import TelemetryLimits, prune_telemetry
from holdfast.wire.properties import Properties
from holdfast_pipeline import Source, read_delta, register
from holdfast_pipeline.cli.root import main
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.jobs.sync import Sync, Synced
from holdfast_pipeline.lake.growing_table import GrowingTable
from holdfast_pipeline.output.folder import Folder
from tests.pipeline.commands import COMMAND, run
from tests.pipeline.lake.reading import plain, recorded_in, telemetry_in
from tests.pipeline.lake.test_sync_killed import await_that, commits, sync
from tests.pipeline.stores import NOW, Filled, database, message
from tests.storage.doubles import fresh_file

DAY = 86_400_000
SQLITE = pytest.mark.parametrize("recorded", ["sqlite"], indirect=True)


def synced(filled: Filled, out: Path, **options: Any) -> Synced:
    """Bring the tables up to date."""
    return Sync(Source(filled.url), Folder(str(out)), **options).run()


def prune(filled: Filled, most: int) -> None:
    """Delete all recorded messages but so many."""
    with filled.store() as store:
        limits = TelemetryLimits(keep=None, max_messages=most, max_bytes=None)
        asked = store.ask_writer(lambda cursor: prune_telemetry(cursor, NOW, limits))
    assert asked.called


def test_the_table_is_equal_to_the_telemetry(recorded: Filled, tmp_path: Path) -> None:
    """All columns, in batches of any size, by day; a run without new messages adds nothing, and has no such table."""
    out = tmp_path / "lake"
    assert synced(recorded, out).telemetry_seq == 0
    assert not (out / "telemetry").exists()
    recorded.record(
        message("a", b"\0\xff", qos=1, client_id="c", username="u", expires_at=NOW + 5),
        message("b", b"", properties=Properties(content_type="text/plain")),
    )
    first = synced(recorded, out)
    recorded.record(*[message("c", b"%d" % number) for number in range(7)], at=NOW + DAY)
    second = synced(recorded, out, rows=3)
    third = synced(recorded, out)
    assert [(each.telemetry_seq, each.recorded, each.added) for each in (first, second, third)] == [
        (2, 2, 0), (9, 7, 0), (9, 0, 0),
    ]  # fmt: skip
    assert telemetry_in(out) == recorded_in(recorded)
    assert sorted(path.name for path in (out / "telemetry").glob("date=*")) == ["date=2023-11-14", "date=2023-11-15"]


@SQLITE
def test_messages_that_were_pruned_unread_are_told(recorded: Filled, tmp_path: Path) -> None:
    """A first run misses nothing. A later one stops, unless a gap is allowed, and then has all the others once."""
    out = tmp_path / "lake"
    recorded.record(*[message("t", b"%d" % number) for number in range(5)])
    prune(recorded, 3)
    assert synced(recorded, out).recorded == 3
    prune(recorded, 0)
    assert synced(recorded, out).recorded == 0
    recorded.record(*[message("t", b"%d" % number) for number in range(4)])
    prune(recorded, 1)
    with pytest.raises(PipelineError, match="the telemetry has lost 3 messages from seq 6 on"):
        synced(recorded, out)
    done = synced(recorded, out, allow_gap=True)
    assert (done.recorded, done.lost_recorded, done.telemetry_seq) == (1, 3, 9)
    assert [row["seq"] for row in telemetry_in(out)] == [3, 4, 5, 9]


@SQLITE
def test_a_database_that_was_replaced_is_refused(recorded: Filled, tmp_path: Path) -> None:
    """Its numbers end before those of the table, or have other times."""
    out = tmp_path / "lake"
    recorded.record(message("t"), message("t"))
    synced(recorded, out)
    place = Path(recorded.url.removeprefix("sqlite:///"))
    for more in (1, 2):
        for file in place.parent.glob(f"{place.name}*"):
            file.unlink()
        fresh_file(place.parent, place.name)
        recorded.record(*[message("t")] * more, at=NOW + 1)
        with pytest.raises(PipelineError, match="the database has been replaced"):
            synced(recorded, out)


class Killed(BaseException):
    """Stands for the end of the process."""


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.integers(0, 7), max_size=4), st.lists(st.booleans(), max_size=6), st.integers(1, 4))
def test_wherever_it_is_killed_each_message_is_there_once(batches: list[int], points: list[bool], rows: int) -> None:
    """Before or after any commit."""
    with (
        TemporaryDirectory() as made,
        database("sqlite", Path(made), recorded=True) as filled,
        pytest.MonkeyPatch.context() as patch,
    ):
        folder = Path(made)
        out, append, left = folder / "lake", GrowingTable.append, list(points)

        def killing(self: GrowingTable, *arguments: Any) -> None:
            if not self.uri.endswith("telemetry") or not left:
                append(self, *arguments)
                return
            if left.pop():
                append(self, *arguments)
            raise Killed

        patch.setattr(GrowingTable, "append", killing)
        for batch in batches:
            filled.record(*[message("t", b"%d" % number) for number in range(batch)])
            for _ in range(len(points) + 1):
                try:
                    synced(filled, out, rows=rows)
                    break
                except Killed:
                    continue
        found = recorded_in(filled)
        assert (telemetry_in(out) if (out / "telemetry").exists() else []) == found


@pytest.mark.slow
@SQLITE
def test_kill_9_loses_and_doubles_nothing(recorded: Filled, tmp_path: Path) -> None:
    """While the table grows. The last run ends by itself."""
    out, log = tmp_path / "lake", tmp_path / "log"
    recorded.record(*[message(f"t/{number % 7}", b"%d" % number) for number in range(300)])
    process = sync(recorded, out, log)
    try:
        await_that(lambda: commits(out, "telemetry") >= 4, process, log)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    done = run(COMMAND, "sync", "--storage", recorded.url, "--to", out, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["recorded"] > 0
    assert telemetry_in(out) == recorded_in(recorded)


@pytest.mark.spark
def test_spark_reads_the_telemetry_from_the_database_and_from_the_lake(
    spark: SparkSession, recorded: Filled, tmp_path: Path
) -> None:
    """By Topic Filter, range and columns, in several tasks; the history knows none of its messages."""
    recorded.record(*[message(f"t/{number % 2}", b"%d" % number, client_id="c") for number in range(20)])
    register(spark)

    def read(**options: Any) -> Any:
        return spark.read.format("telemetry").options(storage=recorded.url, **options).load()

    assert plain(read(partitions=3).toArrow(), "seq") == recorded_in(recorded)
    found = read(filter="+/1", from_seq=3, to_seq=9, columns="payload,seq").toArrow()
    assert found.column_names == ["payload", "seq"]
    assert sorted(found["seq"].to_pylist()) == [4, 6, 8]
    assert spark.read.format("retained_history").options(storage=recorded.url).load().count() == 0
    synced(recorded, tmp_path / "lake")
    lake = read_delta(spark, str(tmp_path / "lake" / "telemetry"))
    assert plain(lake.drop("date").toArrow(), "seq") == recorded_in(recorded)


@SQLITE
def test_the_command_tells_it(recorded: Filled, tmp_path: Path) -> None:
    """In its sentence, and with --json in its result."""
    recorded.record(message("t"), message("t"))
    command = ["sync", "--storage", recorded.url, "--to", str(tmp_path / "lake")]
    told: Callable[..., Any] = lambda *more: CliRunner().invoke(main, [*command, *more])  # noqa: E731
    assert "it has every recorded message without RETAIN up to 2 (2 are new)" in told().output
    assert json.loads(told("--json").stdout)["telemetry_seq"] == 2
