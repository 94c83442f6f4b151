"""Imports of exports, and of the files of other brokers."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import Row, SparkSession

from holdfast.retained.records import line_of
from holdfast.wire.properties import Properties
from holdfast_pipeline import snapshot_of
from holdfast_pipeline.choices import DATA
from holdfast_pipeline.cli.root import main
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.jobs.asof import Destination, write_present
from holdfast_pipeline.jobs.imports import import_messages, read_messages
from holdfast_pipeline.output.folder import Folder
from holdfast_pipeline.output.table_files import checksum
from holdfast_pipeline.sink import Target
from holdfast_pipeline.sources.columns import RETAINED
from tests.pipeline.formats.test_mosquitto_formats import DUMP, KEPT, written
from tests.pipeline.sink.test_sink import MESSAGES, contents
from tests.pipeline.stores import NOW, Filled, database, message

pytestmark = pytest.mark.spark

PROPERTIES = Properties(
    payload_format_indicator=1, content_type="t", response_topic="r/s", correlation_data=b"\x00\xff",
    user_properties=(("k", "v"), ("k", "")),
)  # fmt: skip
REAL = Path(__file__).parents[1] / "files" / "mosquitto-2.0.11.db"


def test_an_import_restores_an_export_of_the_pipeline(spark: SparkSession, filled: Filled, tmp_path: Path) -> None:
    """Into an empty database of either make. A second import changes nothing."""
    (tmp_path / "source").mkdir()
    with database("sqlite", tmp_path / "source") as source:
        source.put(*MESSAGES)
        with snapshot_of(source.url) as snapshot:
            write_present(spark, snapshot, Destination(Folder(str(tmp_path / "out"))), partitions=2)
        done = import_messages(spark, str(tmp_path / "out"), "parquet", Target(filled.url, None))
        assert (done.imported, done.rejected) == (len(MESSAGES), 0)
        assert contents(spark, filled) == contents(spark, source)
    again = import_messages(spark, str(tmp_path / "out"), "parquet", Target(filled.url, None))
    assert (again.imported, again.unchanged) == (0, len(MESSAGES))


def test_the_checksum_stays_from_sqlite_to_postgres_and_back(spark: SparkSession, tmp_path: Path) -> None:
    """The checksum covers all columns but the revision, which is new."""
    sums: list[Row] = []
    names = [column.name for column in RETAINED if column.name != "revision"]
    full = message("p/q", b"\xff" * 1000, properties=PROPERTIES, stored_at=NOW - 1)
    with (
        database("sqlite", _made(tmp_path / "a")) as first,
        database("postgresql", tmp_path) as second,
        database("sqlite", _made(tmp_path / "b")) as third,
    ):
        first.put(full, *MESSAGES)
        for number, store in enumerate((first, second, third)):
            if sums:
                before = str(tmp_path / f"out{number - 1}")
                import_messages(spark, before, "parquet", Target(store.url, None))
            with snapshot_of(store.url) as snapshot:
                manifest = write_present(
                    spark, snapshot, Destination(Folder(str(tmp_path / f"out{number}"))), partitions=2
                )
            assert manifest.rows == len(MESSAGES) + 1
            sums += spark.read.parquet(str(tmp_path / f"out{number}" / DATA)).agg(checksum(names)).collect()
    assert sums == [sums[0]] * 3


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_the_command_imports_lines_and_reports_rejects(spark: SparkSession, filled: Filled, tmp_path: Path) -> None:
    """It prints one line of JSON; the exit status is 3 with rejects; each reject has its file and position."""
    source = tmp_path / "in.ndjson"
    source.write_bytes(b"nonsense\n" + b"".join(line_of(message) for message in MESSAGES))
    arguments = [
        "import", str(source), "--format", "ndjson", "--storage", filled.url, "--json",
        "--rejects", str(tmp_path / "rejects"),
    ]  # fmt: skip
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 3, result.output
    told = json.loads(result.stdout.splitlines()[-1])
    assert (told["imported"], told["rejected"]) == (len(MESSAGES), 1)
    assert len(contents(spark, filled)) == len(MESSAGES)
    (reject,) = [json.loads(line) for line in (tmp_path / "rejects" / "rejects.jsonl").read_text().splitlines()]
    assert reject["source"] == f"{source}, byte 0"
    assert reject["reason"].startswith("this is not JSON")


@pytest.mark.parametrize("filled", ["sqlite"], indirect=True)
def test_the_command_says_that_a_job_was_done_before(spark: SparkSession, filled: Filled, tmp_path: Path) -> None:
    """Other messages under its name are not imported."""
    told = []
    for number, form in enumerate((["--json"], ["--json"], [])):
        source = tmp_path / f"{number}.ndjson"
        source.write_bytes(line_of(message(f"t/{number}")))
        arguments = ["import", str(source), "--format", "ndjson", "--storage", filled.url, "--job", "nightly", *form]
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0, result.output
        told.append(result.stdout.splitlines()[-1])
    assert [json.loads(line)["done_before"] for line in told[:2]] == [False, True]
    assert told[2].endswith("the job nightly was complete before: nothing was read")
    assert [row[0] for row in contents(spark, filled)] == ["t/0"]


def test_mosquitto_db_is_imported(spark: SparkSession, filled: Filled) -> None:
    """The file is one that mosquitto wrote; only the expiry of a message is moved to the year 2100."""
    done = import_messages(spark, str(REAL), "mosquitto", Target(filled.url, None))
    assert (done.imported, done.rejected) == (3, 0)
    assert [row[:3] for row in contents(spark, filled)] == [
        ("a/b", b"hello", 1), ("bin", b"\x00\xff\xfe", 0), ("grün/日本", b"plain x", 0),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["mosquitto-dump", "mosquitto-sqlite"])
def test_files_of_mosquitto_2_1_are_imported(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """With properties and expiry. Expired messages are left out, and incomplete ones are rejected."""
    source = tmp_path / "source"
    if kind == "mosquitto-dump":
        later = DUMP.replace(b"1769799786", b"4102444800").replace(b'3,\n\t\t\t"expiry-time":\t0', b'3,"expiry-time":1')
        source.write_bytes(later.replace(b'"retained-messages":\t[', b'"retained-messages":\t[{"storeid":99},'))
    else:
        with closing(written(source)) as plugin:
            plugin.execute("UPDATE base_msgs SET expiry_time = 4102444800 WHERE qos = 2")
            plugin.execute("UPDATE base_msgs SET expiry_time = 1 WHERE store_id IN (3, 4)")
            plugin.execute("INSERT INTO retains VALUES ('gone', 99)")
    with database("sqlite", tmp_path) as target:
        done = import_messages(spark, str(source), kind, Target(target.url, None))
        ((topic, payload, qos, client_id, username, *rest),) = contents(spark, target)
    assert (done.imported, done.rejected) == (1, 1)
    assert done.expired == (1 if kind == "mosquitto-dump" else 2)
    assert (topic, payload, qos, client_id, username) == ('grün/"quoted"/𝄞', b"\x00\xff", 2, "clientid", "user")
    assert json.loads(rest[-1]) == KEPT


def test_a_file_of_another_format_is_refused_in_one_line(spark: SparkSession, filled: Filled) -> None:
    """Nothing is merged."""
    arguments = ["import", __file__, "--format", "mosquitto", "--storage", filled.url]
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, result.stderr) == (1, f"{__file__}: this is not a mosquitto.db; nothing was merged\n")


def test_a_job_that_is_done_reads_nothing_and_says_so(spark: SparkSession, filled: Filled, tmp_path: Path) -> None:
    """Even with another source: a name stands for one import."""
    source = tmp_path / "lines"
    source.write_bytes(b'{"topic": "a", "payload": "eA=="}\n')
    arguments = ["import", str(source), "--format", "ndjson", "--storage", filled.url, "--job", "once"]
    assert CliRunner().invoke(main, arguments).stdout.startswith("imported 1, unchanged 0, ")
    source.write_bytes(b"not a line\n")
    again = CliRunner().invoke(main, arguments)
    assert again.exit_code == 0
    assert again.stdout.endswith("rejected 0; the job once was complete before: nothing was read\n")
    assert json.loads(CliRunner().invoke(main, [*arguments, "--json"]).stdout)["done_before"] is True
    other = CliRunner().invoke(main, [*arguments, "--merge", "replace"])
    assert "the job 'once' was begun with merge = newer" in other.stderr


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (["empty"], "holds no table of Parquet files"),
        (["changes/date=2026-11-21/part-0.parquet", "coverage.json"], "is a lake; first write the state"),
    ],
)
def test_a_source_without_a_table_is_refused_in_one_line(
    spark: SparkSession, tmp_path: Path, files: list[str], told: str
) -> None:
    """The message names the source, not Spark's classes."""
    for name in files:
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).touch()
    with pytest.raises(PipelineError, match=told):
        read_messages(spark, str(tmp_path / "in"), "parquet")
