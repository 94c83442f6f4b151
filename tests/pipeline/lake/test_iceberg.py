"""``sync --format iceberg``: the same tables in Iceberg, read back by PyIceberg, DuckDB and the other commands."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attrs import evolve
from click.testing import CliRunner
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import StringType
from pyspark.sql import SparkSession

from holdfast_pipeline import Source
from holdfast_pipeline.cli.root import main
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.jobs.asof import Destination, write_past
from holdfast_pipeline.jobs.sync import Sync, Synced
from holdfast_pipeline.lake.growing_table import TableReader
from holdfast_pipeline.lake.iceberg_table import IcebergCatalog, IcebergTable
from holdfast_pipeline.lake.upkeep import CHANGES_LAYOUT, CURRENT_LAYOUT, Upkeep
from holdfast_pipeline.output.folder import Folder
from holdfast_pipeline.sources.lake import CHANGES, CURRENT, TELEMETRY, Lake
from tests.pipeline.lake.reading import expected, in_iceberg
from tests.pipeline.stores import NOW, Filled, database, message

DAY = 86_400_000
SQLITE = pytest.mark.parametrize("recorded", ["sqlite"], indirect=True)


class Killed(BaseException):
    """Stands for the end of the process."""


def job(filled: Filled, out: Path, *, catalog: str | None = None, **options: Any) -> Sync:
    """Return a sync into Iceberg tables."""
    folder = Folder(str(out))
    return Sync(Source(filled.url), folder, table=IcebergCatalog(folder, catalog, "holdfast").table, **options)


def synced(filled: Filled, out: Path, **options: Any) -> Synced:
    """Bring the tables up to date."""
    return job(filled, out, **options).run()


def grow(filled: Filled, rounds: int, day: int = 0) -> None:
    """Record changes of which some replace, and some clear."""
    for number in range(rounds):
        filled.put(message(f"t/{number % 7}", b"" if number % 5 == 4 else b"%d" % number), at=NOW + DAY * day)


@SQLITE
def test_the_telemetry_is_a_table_too_and_stays_known(recorded: Filled, tmp_path: Path) -> None:
    """A run that ends before it comes to the telemetry leaves the version that readers find."""
    out = tmp_path / "lake"
    recorded.put(message("a"), at=NOW)
    recorded.record(*(message("t", b"%d" % number) for number in range(3)))
    assert synced(recorded, out).recorded == 3
    recorded.put(message("b"), at=NOW)
    job(recorded, out).step()
    assert Lake(str(out)).rows(TELEMETRY) == 3


def test_both_tables_are_equal_to_the_broker(recorded: Filled, tmp_path: Path) -> None:
    """Sets, replacements, clears and all columns, in batches of any size; a run without changes adds nothing."""
    out = tmp_path / "lake"
    recorded.put(message("a", b"\x00\xff", qos=1, client_id="c", username="u"), message("b"), at=NOW)
    first = synced(recorded, out)
    assert in_iceberg(out) == expected(recorded)
    recorded.put(message("a", b"2"), message("b", b""), message("c"), message("d", b""), at=NOW + DAY)
    second = synced(recorded, out, rows=3)
    assert in_iceberg(out) == expected(recorded)
    third = synced(recorded, out)
    assert (first.before, first.added, first.messages) == (0, 2, 2)
    assert (second.before, second.added, second.messages) == (first.last_seq, 4, 2)
    assert (third.added, third.last_seq, third.current_seq) == (0, second.last_seq, second.last_seq)
    assert sorted(path.name for path in (out / "changes" / "data").iterdir()) == ["date=2023-11-14", "date=2023-11-15"]


@pytest.mark.parametrize("left", range(8))
def test_a_job_that_ends_at_any_commit_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    """Before or after the catalogue has taken a change: the next job goes on."""
    out, real = tmp_path / "lake", SqlCatalog.commit_table
    with database("sqlite", tmp_path, recorded=True) as filled:
        grow(filled, 6)
        commits = 0

        def commit(*given: Any) -> Any:
            nonlocal commits
            if commits == left // 2 and left % 2:
                real(*given)
            if commits == left // 2:
                raise Killed
            commits += 1
            return real(*given)

        with monkeypatch.context() as patched:
            patched.setattr(SqlCatalog, "commit_table", commit)
            with pytest.raises(Killed):
                synced(filled, out, rows=2)
        grow(filled, 3)
        synced(filled, out, rows=2)
        assert in_iceberg(out) == expected(filled)


@SQLITE
def test_of_two_jobs_at_once_one_fails(recorded: Filled, tmp_path: Path) -> None:
    """PyIceberg would repeat its append, with the rows of the other job once more."""
    out = tmp_path / "lake"
    grow(recorded, 4)
    slow = job(recorded, out)
    append = slow.changes.append

    def late(rows: pa.Table, marks: dict[str, int]) -> None:
        synced(recorded, out)
        append(rows, marks)

    slow.changes.append = late  # type: ignore[method-assign, assignment]
    with pytest.raises(PipelineError, match="another job has changed the table at the same time"):
        slow.run()
    synced(recorded, out)
    assert in_iceberg(out) == expected(recorded)


@SQLITE
def test_a_change_of_marks_alone_meets_another_job_too(recorded: Filled, tmp_path: Path) -> None:
    """It could take a mark back."""
    grow(recorded, 2)
    synced(recorded, tmp_path / "lake")
    first, second = job(recorded, tmp_path / "lake"), job(recorded, tmp_path / "lake")
    first.changes.append(pa.table({}), {"holdfast.x": 2})
    with pytest.raises(PipelineError, match="another job has changed the table at the same time"):
        second.changes.append(pa.table({}), {"holdfast.x": 1})
    second.changes.refresh()
    assert second.changes.mark("holdfast.x") == 2


@SQLITE
def test_small_files_are_joined_and_old_ones_deleted(recorded: Filled, tmp_path: Path) -> None:
    """Nothing is left but what the newest version names, and a few metadata files; the rows stay the same."""
    out = tmp_path / "lake"
    for number in range(8):
        grow(recorded, 2, day=number // 4)
        synced(recorded, out)
    (out / "changes" / "data" / "killed.parquet").write_bytes(b"left by a killed job")
    before = len(list(out.rglob("*.parquet")))
    tending = job(recorded, out, upkeep=Upkeep(most_small=4, keep=0))
    tending.run()
    assert len(tending.changes.files) == 2
    assert len(tending.current.files) <= 4
    assert len(list(out.rglob("*.parquet"))) == len(tending.changes.files) + len(tending.current.files) < before
    assert len(list(out.rglob("*.metadata.json"))) <= 2 * 21
    assert in_iceberg(out) == expected(recorded)
    grow(recorded, 3, day=1)
    synced(recorded, out)
    assert in_iceberg(out) == expected(recorded)


@SQLITE
def test_a_version_stays_for_readers_that_began_before_it_was_replaced(
    recorded: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However old it is: a lake may be synced once a day, and its versions kept for an hour."""
    out = tmp_path / "lake"
    for _ in range(3):
        grow(recorded, 2)
        synced(recorded, out)
    table = job(recorded, out).changes
    assert isinstance(table, IcebergTable)
    oldest, before, last = sorted(table._table.metadata.snapshots, key=lambda one: one.timestamp_ms)
    monkeypatch.setattr("time.time", lambda: last.timestamp_ms / 1000 + 3600)
    table.vacuum(3600)
    assert {one.snapshot_id for one in table._table.metadata.snapshots} == {before.snapshot_id, last.snapshot_id}
    assert oldest not in table._table.metadata.snapshots
    assert table._table.scan(snapshot_id=before.snapshot_id).to_arrow().num_rows > 0


@SQLITE
def test_columns_of_a_later_release_are_added_and_foreign_ones_stay(recorded: Filled, tmp_path: Path) -> None:
    """Older rows have no value there."""
    out = tmp_path / "lake"
    folder = Folder(str(out / "changes"))
    store = f"sqlite:///{recorded.url.removeprefix('sqlite:///')}"
    older = evolve(CHANGES_LAYOUT, columns=pa.schema([each for each in CHANGES_LAYOUT.columns if each.name != "qos"]))
    catalog = IcebergCatalog(Folder(str(out)), None, "holdfast")
    table = catalog.table(folder, older, store, 0)
    with table._table.update_schema() as update:
        update.add_column("mine", StringType())
    grow(recorded, 3)
    synced(recorded, out)
    found = SqlCatalog("holdfast", uri=f"sqlite:///{out}/catalog.db").load_table("holdfast.changes").scan().to_arrow()
    assert found["qos"].to_pylist() == [0, 0, 0]
    assert found["mine"].to_pylist() == [None, None, None]


@SQLITE
def test_folders_and_catalogues_that_do_not_fit_are_refused(recorded: Filled, tmp_path: Path) -> None:
    """One sentence each."""
    out = tmp_path / "lake"
    grow(recorded, 2)
    synced(recorded, out)
    (tmp_path / "other").mkdir()
    with (
        database("sqlite", tmp_path / "other", recorded=True) as other,
        pytest.raises(PipelineError, match="holds the"),
    ):
        synced(other, out)
    catalog = f"sqlite:///{out}/catalog.db"
    with pytest.raises(PipelineError, match=r"the catalogue has holdfast.changes in .*/lake/changes; choose another"):
        synced(recorded, tmp_path / "elsewhere", catalog=catalog)
    with pytest.raises(PipelineError, match="contains data, which is no part of a table in the catalogue"):
        synced(recorded, out, catalog=f"sqlite:///{tmp_path}/new.db")
    with pytest.raises(PipelineError, match=r"contains .*, which is no part of a Delta table"):
        Sync(Source(recorded.url), Folder(str(out)))
    with pytest.raises(PipelineError, match="unable to open database file"):
        synced(recorded, out, catalog=f"sqlite:///{tmp_path}/none/catalog.db")
    with pytest.raises(PipelineError, match="is an Iceberg table; roll-ups read Delta tables"):
        TableReader(Folder(str(out / "changes")))
    with pytest.raises(PipelineError, match="is not a database URL"):
        synced(recorded, out, catalog="polaris")
    away = Folder(str(out))
    away.uri = "s3://bucket/lake"
    with pytest.raises(PipelineError, match="need a catalogue; name it by --catalog"):
        IcebergCatalog(away, None, "holdfast")
    columns = pa.schema([pa.field(each.name, pa.string()) for each in CURRENT_LAYOUT.columns])
    with pytest.raises(PipelineError, match="the column payload has the type binary, not string"):
        IcebergCatalog(Folder(str(out)), None, "holdfast").table(
            Folder(str(out / "current")), evolve(CURRENT_LAYOUT, columns=columns), f"sqlite:///{recorded.url[10:]}", 0
        )


@SQLITE
def test_a_creation_that_was_interrupted_is_repeated(
    recorded: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first metadata file, and before the catalogue has the table."""
    grow(recorded, 2)

    def interrupted(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(SqlCatalog, "_create_table_row", interrupted)
        with pytest.raises(Killed):
            synced(recorded, tmp_path / "lake")
    assert os.listdir(tmp_path / "lake" / "changes" / "metadata")
    synced(recorded, tmp_path / "lake")
    assert in_iceberg(tmp_path / "lake") == expected(recorded)


@pytest.mark.parametrize("recorded", ["postgresql"], indirect=True)
def test_the_catalogue_may_be_in_postgres(recorded: Filled, tmp_path: Path) -> None:
    """Beside the tables of the broker too: it has two tables of its own. DuckDB reads the files of a version."""
    grow(recorded, 6)
    out = tmp_path / "lake"
    shown = recorded.url.replace("postgresql+psycopg://", "postgresql://")
    options = ("--format", "iceberg", "--catalog", shown, "--namespace", "plant.one", "--json", "--quiet")
    done = CliRunner().invoke(main, ["sync", "--storage", shown, "--to", str(out), *options])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["added"] == 6
    assert in_iceberg(out, recorded.url, "plant.one") == expected(recorded)
    table = SqlCatalog("holdfast", uri=recorded.url).load_table("plant.one.changes")
    files = [task.file.file_path for task in table.scan().plan_files()]
    assert duckdb.read_parquet(files).aggregate("count(*), max(seq)").fetchall() == [(6, 6 + 1)]


@pytest.mark.spark
@SQLITE
def test_other_commands_read_the_lake(spark: SparkSession, recorded: Filled, tmp_path: Path) -> None:
    """Without its catalogue: ``coverage.json`` names the version that it tells about."""
    out = tmp_path / "lake"
    grow(recorded, 9)
    recorded.put(message("t/0", b""), message("later"), message("t/1", b"later"), message("t/2", b""), at=NOW + DAY)
    synced(recorded, out)
    lake = Lake(str(out))
    changes, current = expected(recorded)
    (out / "catalog.db").rename(tmp_path / "away.db")
    assert (lake.rows(CHANGES), lake.rows(CURRENT)) == (len(changes), len(current))
    found = write_past(spark, lake, NOW, Destination(Folder(str(tmp_path / "past"))))
    newest = {row["topic"]: row for row in changes if row["changed_at"] <= NOW}
    assert found.rows == sum(row["op"] == "set" for row in newest.values()) != len(current)
    present = pq.read_table(tmp_path / "past" / "data").to_pylist()
    assert {row["topic"]: row["payload"] for row in present} == {
        topic: row["payload"] for topic, row in newest.items() if row["op"] == "set"
    }


@SQLITE
def test_a_copy_is_refused_and_a_link_is_not(recorded: Filled, tmp_path: Path) -> None:
    """The metadata of a copy name the files of the original, by their full paths. A URI of the same folder is none."""
    out = tmp_path / "my lake"
    grow(recorded, 3)
    synced(recorded, out)
    (tmp_path / "link").symlink_to(out)
    assert Lake(str(tmp_path / "link")).rows(CHANGES) == len(expected(recorded)[0])
    assert Lake(out.as_uri()).rows(CHANGES) == len(expected(recorded)[0])
    shutil.copytree(out, tmp_path / "copy")
    with pytest.raises(PipelineError, match="is a copy: its files are named as"):
        Lake(str(tmp_path / "copy"))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--catalog", "sqlite:////x"), "--catalog and --namespace are for --format iceberg"),
        (("--format", "iceberg", "--catalog", "x"), "is not a database URL"),
        (("--format", "hudi"), "'hudi' is not one of 'delta', 'iceberg'"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, options: tuple[str, ...], told: str) -> None:
    """With exit status 2; nothing is written."""
    with database("sqlite", tmp_path, recorded=True) as filled:
        given = ["sync", "--storage", filled.url, "--to", str(tmp_path / "lake"), *options]
        done = CliRunner().invoke(main, given)
    assert done.exit_code == 2
    assert told in done.output
    assert not (tmp_path / "lake" / "changes").exists()


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyIceberg is an extra."""
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog.sql", None)
    with pytest.raises(PipelineError, match=r"pyiceberg is not installed; .*pip install 'holdfast\[iceberg\]'"):
        IcebergCatalog(Folder(str(tmp_path)), None, "holdfast")
