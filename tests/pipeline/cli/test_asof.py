"""``asof``: its formats, its results from a database and from a lake, and its refusals."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner, Result
from deltalake import DeltaTable
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

from holdfast.core.messages import RetainedMessage
from holdfast.retained.records import COLUMNS, line_of
from holdfast_pipeline import Source
from holdfast_pipeline.choices import STATE_FORMS
from holdfast_pipeline.cli.options import milliseconds
from holdfast_pipeline.cli.root import main
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.jobs.asof import moment_at
from holdfast_pipeline.sources.lake import Lake
from tests.pipeline.lake.reading import expected, plain
from tests.pipeline.stores import NOW, Filled, message
from tests.storage.doubles import result_of

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]
SQLITE = pytest.mark.parametrize("recorded", ["sqlite"], indirect=True)

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(main, arguments)


def refused(result: Result) -> str:
    """Run a command that is refused; return its line."""
    assert result.exit_code == 1
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return str(line)


def filled_with_all_kinds(recorded: Filled, odd: str) -> None:
    """Retain payloads that are text, binary, large and a formula, an odd topic, and an expired message."""
    recorded.put(
        message("a", b"21.5", qos=1, client_id="c", username="u"), message("b", b"\x00\xff"),
        message(odd, b"=1+1"), message("e", "é".encode() * 20_000, expires_at=NOW * 2),
        message("expired", expires_at=NOW + 1),
    )  # fmt: skip


@SQLITE
def test_all_formats_have_all_messages(run: Run, recorded: Filled, spark: SparkSession) -> None:
    """From the database and from a lake, read back by other programs. The lines are those of the broker's exports."""
    filled_with_all_kinds(recorded, "c\nd")
    assert run("sync", "--storage", recorded.url, "--to", "lake").exit_code == 0
    wanted = [row for row in expected(recorded)[1] if row["topic"] != "expired"]
    for place in (("--storage", recorded.url), ("--lake", "lake")):
        told = {}
        for form in STATE_FORMS:
            result = run("asof", *place, "--out", form, "--format", form, "--overwrite", "--json")
            assert result.exit_code == 0, result.output
            told[form] = json.loads(result.stdout)
            assert (told[form]["form"], told[form]["rows"]) == (form, 4)
        assert told["parquet"]["checksum"] == told["delta"]["checksum"] == told["iceberg"]["checksum"]
        with duckdb.connect() as connection:
            rows = connection.read_parquet("parquet/data/*.parquet").to_arrow_table()
        assert plain(rows, "topic") == wanted
        assert plain(DeltaTable("delta/data").to_pyarrow_table(), "topic") == wanted
        known = StaticTable.from_metadata("iceberg/data/_iceberg")
        assert plain(known.scan().to_arrow(), "topic") == wanted
        lines = sorted(line for file in Path("ndjson/data").glob("*.ndjson") for line in file.read_bytes().splitlines())
        kept = _of_broker(recorded)
        assert lines == sorted(line_of(one).rstrip(b"\n") for one in kept)
        cells = []
        for file in Path("csv/data").glob("*.csv"):
            with file.open(newline="") as opened:
                names, *more = csv.reader(opened)
            assert tuple(names) == COLUMNS
            cells += more
        assert sorted(cell[0] for cell in cells) == ["a", "b", "c\\nd", "e"]
        assert {cell[1] for cell in cells} >= {"21.5", "AP8=", "'=1+1"}
        for form in ("csv", "ndjson"):
            assert not [name for name in Path(form, "data").iterdir() if name.suffix in (".txt", ".crc")]
    assert spark.range(1).count() == 1


def _of_broker(recorded: Filled) -> list[RetainedMessage]:
    with recorded.store() as store:
        found = [result_of(store.get(topic)) for topic in ("a", "b", "c\nd", "e")]
    return [one for one in found if one is not None]


@SQLITE
def test_a_result_is_imported_again(run: Run, recorded: Filled, tmp_path: Path) -> None:
    """As Parquet and as lines of JSON."""
    filled_with_all_kinds(recorded, 'c,"d')
    before = [row for row in expected(recorded)[1] if row["topic"] != "expired"]
    for form in ("parquet", "ndjson"):
        assert run("asof", "--storage", recorded.url, "--out", form, "--format", form).exit_code == 0
        url = f"sqlite:///{tmp_path}/{form}.db"
        source = form if form == "parquet" else f"{form}/data"
        result = run("import", source, "--format", form, "--storage", url)
        assert result.exit_code == 0, result.output
        after = expected(Filled(url))[1]
        for row in (*before, *after):
            row.pop("revision", None)  # an import gives its own
        assert after == before


@SQLITE
def test_a_time_that_is_not_covered_is_refused_with_the_covered_times(run: Run, recorded: Filled) -> None:
    """Also times far in the past or the future, for a database and for a lake; nothing is written."""
    recorded.put(message("a"))
    recorded.put(message("b"), at=NOW + 1000)
    run("sync", "--storage", recorded.url, "--to", "lake")
    source, coverage = Source(recorded.url), Lake("lake").coverage
    earliest, end = "2023-11-14T22:13:20.000Z", "2023-11-14T22:13:21.000Z"
    covered = f"it covers the time from {earliest} to before {end}"
    for early in ("0001-01-01", "1969-12-31T23:59:59-14:00", "2023-11-14T22:13:19.999Z", "9999d"):
        with pytest.raises(PipelineError, match=f"the earliest possible time is {earliest}$"):
            moment_at(source, milliseconds(early))
        with pytest.raises(PipelineError, match=f"{covered}$"):
            coverage.moment(milliseconds(early))
    for late in ("9999-12-31T23:59:59-14:00", "999999999999999", "2100-02-28"):
        with pytest.raises(PipelineError, match="is still to come"):
            moment_at(source, milliseconds(late))
        with pytest.raises(PipelineError, match=covered):
            coverage.moment(milliseconds(late))
    for nonsense in ("2023-02-30", "10000-01-01", "1e3", "", "now()"):
        with pytest.raises(PipelineError, match="is not a time; write it as"):
            milliseconds(nonsense)
    assert refused(run("asof", "2000-01-01", "--lake", "lake", "--out", "then")).endswith(covered)
    assert not Path("then", "data").exists()


@SQLITE
def test_a_wrong_lake_is_named(run: Run, recorded: Filled) -> None:
    """A missing folder, one without a lake, a file, or a lake and a database at once."""
    recorded.put(message("a"))
    run("sync", "--storage", recorded.url, "--to", "lake")
    Path("file").write_text("no folder")
    for folder, content in (("torn", '{"last_seq": 1'), ("other", '{"columns": []}')):
        Path(folder).mkdir()
        Path(folder, "coverage.json").write_text(content)
    for place, reason in (
        ("nowhere", "nowhere: is no lake: it has no coverage.json; make one"),
        ("lake/changes", "lake/changes: is no lake"),
        ("torn", "torn/coverage.json: cannot be read"),
        ("other", "other/coverage.json: is not the coverage of a lake"),
        ("file", "file: is a file; name a folder"),
    ):
        assert reason in refused(run("asof", "--lake", place, "--out", "then"))
    wrong = run("asof", "1m", "--lake", "lake", "--storage", recorded.url, "--out", "then")
    assert (wrong.exit_code, wrong.stderr.rstrip()) == (2, "--storage and --lake exclude each other")
    Path("lake/changes").rename("elsewhere")
    assert "lake/changes: is not a Delta table" in refused(run("asof", "--lake", "lake", "--out", "then"))
