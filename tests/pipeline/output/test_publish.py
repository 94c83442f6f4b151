"""``publish`` makes Delta tables; other readers' package reads them back."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession

from holdfast_pipeline import Source, snapshot_of
from holdfast_pipeline.cli.root import main
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.jobs.archive import archive
from holdfast_pipeline.jobs.compact import compact
from holdfast_pipeline.jobs.export import export
from holdfast_pipeline.output.delta import Table
from holdfast_pipeline.output.folder import Folder
from tests.pipeline.stores import NOW, Filled, fill, message

DAY = 86_400_000
LATER = 4_000_000_000_000
WHEN = datetime.fromtimestamp(NOW / 1000, UTC)


def publish(*arguments: object, status: int = 0) -> dict[str, Any]:
    """Run the command; return its result, or its error."""
    result = CliRunner().invoke(main, ["publish", *map(str, arguments), "--delta", "--json"])
    assert result.exit_code == status, result.output + result.stderr
    assert result.stderr.count("\n") == status
    return dict(json.loads(result.stdout)) if status == 0 else {"error": result.stderr}


def rows(table: Path, columns: str = "*") -> list[tuple[Any, ...]]:
    """Return the rows of a Delta table, read by Delta's own engine."""
    read = QueryBuilder().register("t", DeltaTable(str(table))).execute(f"SELECT {columns} FROM t")
    return sorted(tuple(row.values()) for row in pa.table(read.read_all()).to_pylist())


@pytest.mark.spark
@pytest.mark.parametrize("filled", ["sqlite"], indirect=True)
def test_an_export_becomes_a_delta_table(spark: SparkSession, filled: Filled, tmp_path: Path) -> None:
    """In place; repeating it changes nothing; a new export becomes a new version."""
    filled.put(message("a", b"\x00\xff"), message("b", b"2", expires_at=LATER))
    out = Folder(str(tmp_path / "out"))
    expected = [("a", b"\x00\xff", WHEN, None), ("b", b"2", WHEN, datetime.fromtimestamp(LATER / 1000, UTC))]

    def exported() -> None:
        with snapshot_of(filled.url) as snapshot:
            export(spark, snapshot, out, overwrite=True)

    exported()
    first = publish(out.uri)
    assert (first["rows"], first["rows_added"]) == (2, 2)
    assert rows(tmp_path / "out/data", "topic, payload, stored_at, expires_at") == expected
    assert publish(out.uri) == first | {"rows_added": 0, "files_added": 0}
    assert spark.read.parquet(out.below("data")).count() == 2
    filled.put(message("c"))
    exported()
    assert publish(out.uri)["rows"] == 3
    assert [row[0] for row in rows(tmp_path / "out/data", "topic")] == ["a", "b", "c"]


@pytest.mark.spark
@pytest.mark.parametrize("filled", ["sqlite"], indirect=True)
def test_exports_are_added_to_a_table_once_each(spark: SparkSession, filled: Filled, tmp_path: Path) -> None:
    """The column with the time of the export tells them apart."""
    out, table = Folder(str(tmp_path / "out")), tmp_path / "lake"
    times = []
    for topic in ("a", "b"):
        filled.put(message(topic))
        with snapshot_of(filled.url) as snapshot:
            export(spark, snapshot, out, overwrite=True)
            times.append(datetime.fromtimestamp(snapshot.taken_at / 1000, UTC))
        added = publish(out.uri, "--to", table)
        assert publish(out.uri, "--to", table) == added | {"rows_added": 0}
    assert rows(table, "taken_at, topic") == [(times[0], "a"), (times[1], "a"), (times[1], "b")]


@pytest.mark.spark
@pytest.mark.parametrize("recorded", ["sqlite"], indirect=True)
def test_a_compacted_archive_is_published_as_it_grows(spark: SparkSession, recorded: Filled, tmp_path: Path) -> None:
    """In place and elsewhere: each change once, by date, also if the last day was incomplete at first."""
    bronze, silver, lake = (Folder(str(tmp_path / name)) for name in ("bronze", "silver", "lake"))
    places = tmp_path / "silver/data", tmp_path / "lake"
    with recorded.store() as store:
        fill(store, [message("a"), message("b")], NOW)
        fill(store, [message("a", b"2")], NOW + DAY)

    def grown(unfinished: bool) -> None:
        archive(spark, Source(recorded.url), bronze, lambda _seq: None)
        compact(spark, bronze, silver, unfinished)

    grown(unfinished=True)
    assert "is an archive that still grows" in publish(bronze.uri, status=1)["error"]
    added = publish(silver.uri)["rows_added"], publish(silver.uri, "--to", lake.uri)["rows_added"]
    assert added == (3, 3)
    shutil.copytree(tmp_path / "silver", tmp_path / "older")
    with recorded.store() as store:
        fill(store, [message("c")], NOW + DAY)
        fill(store, [message("d")], NOW + 2 * DAY)
    grown(unfinished=False)
    in_place, elsewhere = publish(silver.uri), publish(silver.uri, "--to", lake.uri)
    assert (in_place["files_added"], in_place["files_removed"]) == (1, 1)
    assert (in_place["rows"], elsewhere["rows"]) == (4, 4)
    expected = [row[:4] for row in rows(places[0], "seq, topic, payload, date")]
    assert [seq for seq, *_ in expected] == [2, 3, 4, 5]
    assert [str(day) for *_, day in expected] == ["2023-11-14"] * 2 + ["2023-11-15"] * 2
    assert rows(places[1], "seq, topic, payload, date") == expected
    assert [publish(silver.uri)["version"], publish(silver.uri, "--to", lake.uri)["version"]] == [
        in_place["version"],
        elsewhere["version"],
    ]
    older = publish(tmp_path / "older", "--to", lake.uri, status=1)["error"]  # or one that begins anew after a backup
    assert "has the changes of this database up to 5" in older
    told = json.loads((tmp_path / "silver/archive.json").read_text())
    (tmp_path / "silver/archive.json").write_text(json.dumps(told | {"last_seq": 3}))
    assert "let compact finish first" in publish(silver.uri, status=1)["error"]


@pytest.fixture
def export_of(tmp_path: Path) -> Callable[..., Path]:
    """Make a folder like an export, with any columns."""

    def made(name: str, table: dict[str, list[Any]], **manifest: Any) -> Path:
        folder = tmp_path / name
        (folder / "data").mkdir(parents=True)
        written = pa.table(table)
        pa.parquet.write_table(written, folder / "data" / "part-0.parquet")
        about = {"rows": len(written), "checksum": name, "taken_at": NOW, **manifest}
        (folder / "manifest.json").write_text(json.dumps(about))
        return folder

    return made


def test_incomplete_output_is_not_published(export_of: Callable[..., Path], tmp_path: Path) -> None:
    """Nor a missing folder, nor columns that the table does not have; one line tells why."""
    assert "holds nothing to publish" in publish(tmp_path / "none", status=1)["error"]
    short = export_of("short", {"x": [1]}, rows=2)
    assert "has 1 rows in 1 files, but manifest.json counts 2" in publish(short, status=1)["error"]
    first, second, marked = export_of("a", {"x": [1]}), export_of("b", {"y": ["z"]}), export_of("c", {"taken_at": [1]})
    publish(first, "--to", tmp_path / "lake")
    other = publish(second, "--to", tmp_path / "lake", status=1)["error"]
    assert "the table has other columns (x long, taken_at timestamp) than the published data (y string" in other
    assert "has a column taken_at" in publish(marked, "--to", tmp_path / "lake2", status=1)["error"]
    torn = export_of("torn", {"x": [1]})
    (torn / "data" / "part-0.parquet").write_bytes(b"PAR1")
    assert "is not a complete Parquet file" in publish(torn, status=1)["error"]
    assert "Delta reports" in publish(first, "--to", "/proc/none/lake", status=1)["error"]


def test_all_decoded_columns_are_published(export_of: Callable[..., Path], tmp_path: Path) -> None:
    """Objects, arrays, and a field with the name ``date``, as an archive's subfolders have."""
    row = {"date": "today", "a b": {"at": WHEN, "x": [1.5, None]}, "d": Decimal("1.50"), "y": [{"z": b"1"}]}
    folder = export_of("nested", {name: [value] for name, value in row.items()})
    publish(folder)
    publish(folder, "--to", tmp_path / "lake")
    assert rows(folder / "data") == [tuple(row.values())]
    assert rows(tmp_path / "lake") == [(*row.values(), WHEN)]


def test_times_of_sparks_older_form_are_read_as_utc(export_of: Callable[..., Path], tmp_path: Path) -> None:
    """Parquet files of other programs may have them."""
    folder = export_of("old", {"at": [WHEN.replace(tzinfo=None)]})
    table = pa.table({"at": pa.array([WHEN.replace(tzinfo=None)], pa.timestamp("ns"))})
    pa.parquet.write_table(table, folder / "data" / "part-0.parquet", use_deprecated_int96_timestamps=True)
    publish(folder)
    publish(folder, "--to", tmp_path / "lake")
    assert rows(folder / "data") == [(WHEN,)]
    assert rows(tmp_path / "lake", "at") == [(WHEN,)]


def test_two_that_publish_at_once_do_not_add_rows_twice(tmp_path: Path) -> None:
    """The second one fails; its next run finds nothing to do."""
    lake = tmp_path / "lake"
    columns = pa.schema([("x", pa.int64())])
    DeltaTable.create(str(lake), columns)

    class Overtaken(Table):
        """Let another process add the same rows after the check."""

        def _check(self, table: DeltaTable, columns: pa.Schema) -> None:
            Table(str(lake)).add(pa.table({"x": [1]}).to_batches(), columns, [], "a", 1)

    with pytest.raises(PipelineError, match=r"Delta reports: .*Concurrent transaction failed"):
        Overtaken(str(lake)).add(pa.table({"x": [1]}).to_batches(), columns, [], "a", 1)
    assert (Table(str(lake)).added("a"), rows(lake)) == (1, [(1,)])


def test_the_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, export_of: Callable[..., Path], tmp_path: Path
) -> None:
    """With the command that installs it; without --delta the command refuses too."""
    folder = export_of("a", {"x": [1]})
    monkeypatch.setitem(sys.modules, "deltalake", None)
    assert "pip install 'holdfast[delta]'" in publish(folder, status=1)["error"]
    result = CliRunner().invoke(main, ["publish", str(folder)])
    assert (result.exit_code, "--delta" in result.stderr) == (2, True)
