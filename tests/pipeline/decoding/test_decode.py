"""The results of ``decode``."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from deltalake import DeltaTable
from fastavro import schemaless_writer
from pyarrow.parquet import read_table
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from holdfast_pipeline import Source
from holdfast_pipeline.cli.root import main
from holdfast_pipeline.decoding.avro import avro_schema
from holdfast_pipeline.decoding.typed_rows import parsed, relaxed
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.jobs.sync import Sync
from holdfast_pipeline.output.folder import Folder
from tests.pipeline.decoding.tahu import metric, payload
from tests.pipeline.rollup.schemas import READING, write_schemas
from tests.pipeline.rollup.schemas import status as plant_status
from tests.pipeline.stores import NOW, Filled, message

pytestmark = pytest.mark.spark

WHEN = datetime.fromtimestamp(NOW / 1000, UTC)


def run(*arguments: object) -> Result:
    """Run the command."""
    return CliRunner().invoke(main, ["decode", *map(str, arguments)])


def told(result: Result, status: int) -> dict[str, Any]:
    """Return the JSON that a command printed; it must end with the given status."""
    assert result.exit_code == status, result.output + result.stderr
    return dict(json.loads(result.stdout.splitlines()[-1]))


def decoded(spark: SparkSession, out: Path, *columns: str) -> list[tuple[Any, ...]]:
    """Return the decoded rows."""
    return sorted(map(tuple, spark.read.parquet(str(out / "data")).select(*columns).collect()), key=str)


def bad(out: Path) -> dict[str, str]:
    """Return the reasons of the bad payloads by topic."""
    lines = [line for file in (out / "bad").glob("*.json") for line in file.read_text().splitlines()]
    return {line["topic"]: line["reason"] for line in map(json.loads, lines)}


def test_numbers_become_a_table_with_the_named_levels(spark: SparkSession, filled: Filled, tmp_path: Path) -> None:
    """Bad payloads are in a folder of their own, with the reason. --max-bad decides the exit status."""
    filled.put(
        message("site/a/dev/1/temp", b"21.5"), message("site/a/dev/2/temp", b"ON"),
        message("site/b/dev/1/temp", b"21,5"), message("site/b/dev/1/hum", b"50"), message("$site/b/dev/1/temp", b"1"),
    )  # fmt: skip
    out = tmp_path / "out"
    arguments = (
        "--storage", filled.url, "--format", "number", "--pattern", "{area}/{site}/dev/{device}/temp", "--out", out,
    )  # fmt: skip
    result = run(*arguments)
    assert (result.exit_code, result.stdout, result.stderr[:7]) == (
        3,
        f"decoded 2 messages to 2 rows in {out}; 1 could not be decoded, see {out}/bad\n",
        "1 bad: ",
    )
    rows = spark.read.parquet(str(out / "data")).drop("revision").collect()
    assert sorted(tuple(row) for row in rows) == [
        ("site/a/dev/1/temp", "site", "a", "1", WHEN.replace(tzinfo=None), 21.5, None),
        ("site/a/dev/2/temp", "site", "a", "2", WHEN.replace(tzinfo=None), 1.0, True),
    ]
    assert bad(out)["site/b/dev/1/temp"].startswith("'21,5' has a comma")
    (out / "manifest.json").unlink()  # as if killed before it was written
    (out / "data" / "part-of-another.parquet").write_bytes(b"")
    done = told(run(*arguments, "--json", "--max-bad", "1"), 0)
    assert (done["bad"], done["rows"], sorted(spark.read.parquet(str(out / "data")).drop("revision").collect())) == (
        1,
        2,
        sorted(rows),
    )
    refused = run(*arguments)
    assert (refused.exit_code, refused.stderr) == (
        1,
        f"{out}: holds a complete result; name another folder, or use --overwrite\n",
    )


JSON = {
    "d/1": b'{"t": 20, "unit": "C", "at": {"lat": 1, "names": ["x"]}, "topic": "mine", "a.b": null}',
    "d/2": b'{"t": 20.5, "unit": 7, "at": {"lat": 2.5}}',
    "d/3": b'{"t": 21',
    "d/4": b"\xff",
    "d/5": b'[{"t": 1}, {"t": 2}]',
    "d/6": b'"text"',
    "d/7": b'{"t": NaN}',
    "d/8": b'{"unit": "\\ud800"}',
}


@pytest.mark.parametrize("recorded", ["sqlite"], indirect=True)
def test_the_telemetry_is_decoded_from_the_database_and_from_the_lake(
    spark: SparkSession, recorded: Filled, tmp_path: Path
) -> None:
    """Each message is a row, with its time and position; retained messages are not among them."""
    recorded.record(*[message(f"{number % 2}/temp", b"%d" % number) for number in range(4)])
    recorded.put(message("0/temp", b"99"))
    Sync(Source(recorded.url), Folder(str(tmp_path / "lake"))).run()
    out = tmp_path / "out"
    common = (
        "--telemetry",
        "--format",
        "number",
        "--pattern",
        "{site}/temp",
        "--out",
        out,
        "--json",
        "--overwrite",
    )
    for place in (("--storage", recorded.url), ("--lake", tmp_path / "lake")):
        done = told(run(*place, *common), 0)
        assert (done["messages"], done["rows"], done["last_seq"]) == (4, 4, 4)
        assert decoded(spark, out, "seq", "site", "value") == [
            (1, "0", 0.0),
            (2, "1", 1.0),
            (3, "0", 2.0),
            (4, "1", 3.0),
        ]
    refused = run("--storage", recorded.url, "--history", *common)
    assert (refused.exit_code, "--history and --telemetry are two sources" in refused.stderr) == (2, True)


@pytest.mark.parametrize("filled", ["sqlite"], indirect=True)
def test_json_is_inferred(spark: SparkSession, filled: Filled, tmp_path: Path) -> None:
    """Numbers are widened, objects and arrays keep their shape, and values without a common type become text."""
    filled.put(*(message(topic, data) for topic, data in JSON.items()))
    out = tmp_path / "out"
    arguments = ("--storage", filled.url, "--format", "json", "--out", out, "--json", "--overwrite", "--pattern")
    done = told(run(*arguments, "d/{number}"), 3)
    assert (done["messages"], done["bad"], done["rows"]) == (8, 5, 4)
    assert done["schema"].split(", ", 4)[4] == (
        "`t` double, `unit` string, `at` struct<lat:double,names:array<string>>, `payload_topic` string, `a.b` string"
    )
    rows = decoded(spark, out, "number", "t", "unit", "at", "payload_topic", "`a.b`")
    assert rows == [
        ("1", 20.0, "C", (1.0, ["x"]), "mine", None),
        ("2", 20.5, "7", (2.5, None), None, None),
        ("5", 1.0, None, None, None, None),
        ("5", 2.0, None, None, None, None),
    ]
    assert {topic: reason.split(":")[0] for topic, reason in bad(out).items()} == {
        "d/3": "this is not JSON", "d/4": "this is not text in UTF-8",
        "d/6": "this is JSON, but neither an object nor an array of objects", "d/7": "this is not JSON", "d/8": "unit",
    }  # fmt: skip
    # A sample of one message cannot know the fields of the others: they are told, not lost.
    assert told(run(*arguments, "d/{number}", "--sample", "1"), 3)["bad"] > 5
    with_schema = (*arguments, "d/+", "--schema", "t double NOT NULL, at struct<lat: int>")
    assert (told(run(*with_schema), 3)["rows"], bad(out)["d/2"], bad(out)["d/8"]) == (
        3,
        "at.lat: 2.5 is not a whole number",
        "t: is missing",
    )
    for schema, complaint in (("t doble", "schema 't doble' is not understood"), ("t map<int,int>", "map<int,int>")):
        refused = run(*arguments, "d/+", "--schema", schema)
        assert refused.exit_code == 2
        assert complaint in refused.stderr
        assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize("filled", ["sqlite"], indirect=True)
def test_fields_keep_their_names(spark: SparkSession, filled: Filled, tmp_path: Path) -> None:
    """Any characters are allowed. A name that no column can have makes a payload bad."""
    names = ["a.b", "a`b", "x y", "\n,;{}()=\t", "é", "`", "select"]
    filled.put(message("odd/1", json.dumps(dict.fromkeys(names, 1)).encode()), message("odd/2", b'{"\\ud800": 1}'))
    out = tmp_path / "out"
    assert (
        told(run("--storage", filled.url, "--format", "json", "--pattern", "+/+", "--out", out, "--json"), 3)["bad"]
        == 1
    )
    assert spark.read.parquet(str(out / "data")).columns[3:] == names
    assert bad(out) == {"odd/2": "the field '\\ud800' has a name that no column can have"}


@pytest.mark.parametrize(
    "text",
    [
        "a tinyint, b SMALLINT, c int, d bigint, e float, f double, g decimal(9,2), h timestamp, i date, j boolean",
        "t double NOT NULL, at struct<lat: int, `l.m`: array<string>> ",
        "a: byte, b: decimal(  16 , 8   ), c dec, d numeric(5), e real, f long, g short, h binary, array int",
        "struct<a:int,b:string>",
        "a array<array<struct<`x``y`:int comment 'q'>>>, `select` string not null comment \"a, b\", 1a integer",
    ],
)
def test_a_schema_is_read_as_spark_reads_it(spark: SparkSession, text: str) -> None:
    """But without a session, which a roll-up has not, and a command only after its options are checked."""
    found, known = parsed(text), StructType.fromDDL(text)
    assert isinstance(known, StructType)
    assert relaxed(found).simpleString() == relaxed(known).simpleString()
    assert [field.nullable for field in found.fields] == [field.nullable for field in known.fields]
    assert spark is not None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("t doble", "'doble' is not one of tinyint"),
        ("t map<int,int>", "'map' is not one of tinyint"),
        ("t", "a type is missing at the end"),
        ("", "a name is missing at the end"),
        ("a int,", "a name is missing at the end"),
        ("a array<int", "> is missing at the end"),
        ("a int)", r"at '\)'"),
        ("a int b int", "at 'b'"),
        ("a-b int", "at '-b int'"),
        ("< int", "'<' is not a name"),
        ("a decimal(x)", "'x' is not a number"),
        ("a decimal(39,1)", "more than 38"),
    ],
)
def test_a_wrong_schema_is_told_with_its_place(text: str, complaint: str) -> None:
    with pytest.raises(PipelineError, match=complaint):
        parsed(text)


@pytest.mark.parametrize("filled", ["sqlite"], indirect=True)
def test_the_table_may_be_one_of_delta_or_iceberg(spark: SparkSession, filled: Filled, tmp_path: Path) -> None:
    """With all types, names with dots, and without rows; its own package reads it, and other programs the files."""
    schema = "a tinyint, b smallint, c int, d bigint, e float, f double, g decimal(9,2), h timestamp, i date, j boolean"
    schema += ", k struct<x: double, y: array<string>>, `l.m` string"
    values = {
        "a": 1, "b": 2, "c": 3, "d": 4, "e": 0.5, "f": 0.25, "g": 1.25, "h": "2026-11-21T10:00:00Z", "i": "2026-11-21",
        "j": True, "k": {"x": 1.5, "y": ["z"]}, "l.m": "n",
    }  # fmt: skip
    filled.put(message("d/1", json.dumps(values).encode()), message("d/2", b"{}"))
    for topic, wanted in (("d/+", 2), ("none", 0)):
        found = {}
        for form in ("delta", "iceberg"):
            out = tmp_path / form
            given = ("--storage", filled.url, "--format", "json", "--schema", schema, "--pattern", topic, "--out", out)
            assert told(run(*given, "--table", form, "--json", "--overwrite"), 0)["rows"] == wanted
        delta = DeltaTable(tmp_path / "delta" / "data").to_pyarrow_table()
        iceberg = StaticTable.from_metadata(str(tmp_path / "iceberg" / "data" / "_iceberg")).scan().to_arrow()
        for name, table in (("delta", delta), ("iceberg", iceberg)):
            found[name] = sorted(table.to_pylist(), key=lambda row: str(row["topic"]))
        assert found["iceberg"] == found["delta"]
        assert [row["k"] for row in found["iceberg"]] == [{"x": 1.5, "y": ["z"]}, None][:wanted]


@pytest.mark.parametrize("filled", ["sqlite"], indirect=True)
def test_without_messages_the_table_is_empty(spark: SparkSession, filled: Filled, tmp_path: Path) -> None:
    """Neither a given nor an inferred schema needs a message."""
    filled.put(message("a", b"nonsense"))
    for pattern, status in (("b", 0), ("a", 3)):
        out = tmp_path / pattern
        done = told(
            run("--storage", filled.url, "--format", "json", "--out", out, "--json", "--pattern", pattern), status
        )
        assert (done["rows"], done["bad"]) == (0, status // 3)
        assert spark.read.parquet(str(out / "data")).columns == ["topic", "stored_at", "revision"]


def test_sparkplug_names_come_from_the_last_birth_before(spark: SparkSession, recorded: Filled, tmp_path: Path) -> None:
    """From the history and from an archive: an alias has the name that the last birth gave it."""
    node, device = "spBv1.0/g/{}/n", "spBv1.0/g/{}/n/d"
    seconds = iter(range(100))

    def put(topic: str, *metrics: bytes) -> None:
        recorded.put(message(topic, payload(*metrics, timestamp=NOW)), at=NOW + next(seconds))

    put(device.format("DDATA"), metric(alias=1, integer=5))
    put(node.format("NBIRTH"), metric(name="bdSeq", datatype=8, integer=3))
    put(
        device.format("DBIRTH"),
        metric(name="temp", alias=1, datatype=3, integer=2**32 - 7),
        metric(name="on", alias=2, datatype=11, flag=True),
    )
    put(device.format("DDATA"), metric(alias=1, integer=2**32 - 9), metric(name="on", flag=False))
    put(device.format("DBIRTH"), metric(name="level", alias=1, datatype=9, number=1.5))
    put(device.format("DDATA"), metric(alias=1, number=2.5), metric(alias=2, flag=True))
    put(device.format("DDEATH"))
    recorded.put(message("spBv1.0/STATE/h", b'{"online": true, "timestamp": 5}'), at=NOW + next(seconds))
    recorded.put(message("spBv1.0/g/NDATA/n", b"\x0a"), at=NOW + next(seconds))
    expected = [
        ("DDATA", None, None, Decimal(5), 5.0, None), ("NBIRTH", "bdSeq", "UInt64", Decimal(3), 3.0, None),
        ("DBIRTH", "temp", "Int32", Decimal(-7), -7.0, None), ("DBIRTH", "on", "Boolean", None, None, True),
        ("DDATA", "temp", "Int32", Decimal(-9), -9.0, None), ("DDATA", "on", "Boolean", None, None, False),
        ("DBIRTH", "level", "Float", None, 1.5, None), ("DDATA", "level", "Float", None, 2.5, None),
        ("DDATA", None, None, None, None, True), ("DDEATH", None, None, None, None, None),
        ("STATE", None, None, None, None, True),
    ]  # fmt: skip
    folder = tmp_path / "lake"
    Sync(Source(recorded.url), Folder(str(folder))).run()
    for source in (("--storage", recorded.url, "--history"), ("--lake", folder, "--history")):
        out = tmp_path / source[0]
        assert told(run(*source, "--format", "sparkplug", "--out", out, "--json"), 3)["bad"] == 1
        assert bad(out)["spBv1.0/g/NDATA/n"].startswith("this protobuf is cut short")
        rows = spark.read.parquet(str(out / "data")).orderBy("seq", "alias")
        found = rows.select("type", "metric", "datatype", "integer", "number", "flag").collect()
        assert sorted(map(tuple, found), key=str) == sorted(expected, key=str)


@pytest.mark.parametrize("filled", ["sqlite"], indirect=True)
def test_sparkplug_integers_have_the_sign_of_their_datatype(
    spark: SparkSession, filled: Filled, tmp_path: Path
) -> None:
    """Negative numbers are sent in 8, 32 or 64 bits, with any datatype. The largest keep all digits."""
    sent = {
        "a": (1, 0xFF, -1), "b": (1, 2**32 - 1, -1), "c": (2, 2**16 - 300, -300), "d": (3, 2**64 - 7, -7),
        "e": (4, 2**64 - 5, -5), "f": (4, 2**63 - 1, 2**63 - 1), "g": (8, 2**64 - 1, 2**64 - 1), "h": (5, 255, 255),
        "i": (13, NOW, None), "j": (13, 2**60, None),
    }  # fmt: skip
    metrics = (metric(name=name, datatype=kind, integer=raw) for name, (kind, raw, _) in sent.items())
    filled.put(message("spBv1.0/g/NBIRTH/n", payload(*metrics)))
    out = tmp_path / "out"
    assert told(run("--storage", filled.url, "--format", "sparkplug", "--out", out, "--json"), 0)["rows"] == len(sent)
    rows = spark.read.parquet(str(out / "data")).selectExpr("metric", "integer", "unix_millis(time)").collect()
    assert {row[0]: row[1] for row in rows} == {name: meant for name, (_, _, meant) in sent.items()}
    assert {row[0]: row[2] for row in rows if row[2] is not None} == {"i": NOW}


CATALOG = """
[registry.status]
file = "plant.desc"
message = "plant.v1.Status"
id = 8

[values.temperature]
pattern = "hq/{room}/climate"
path = "$.t"
time = "$.at"
unit = "°C"

[values.climate]
pattern = "hq/{room}/climate"

[values.power]
pattern = ["p/{device}", "q/{device}"]
format = "number"
unit = "W"

[values.readings]
pattern = "avro/{room}"
format = "avro"
schema_file = "reading.avsc"

[values.status]
pattern = "protobuf/{room}"
format = "protobuf"
schema = "status"
frame = "confluent"
"""


@pytest.mark.parametrize("recorded", ["sqlite"], indirect=True)
def test_a_catalogue_makes_a_table_of_each_entry(spark: SparkSession, recorded: Filled, tmp_path: Path) -> None:
    """With the value at its path, or all fields; by the schemas of Avro and Protobuf. Roll-ups find the same values."""
    write_schemas(tmp_path)
    file, out, lake = tmp_path / "values.toml", tmp_path / "out", tmp_path / "lake"
    file.write_text(CATALOG, encoding="utf-8")
    moment = datetime(2026, 11, 22, 12, tzinfo=UTC)
    sent = plant_status(volts=229.5, codes=[1], limits={"high": 9})
    sent.at.FromDatetime(moment)
    stream = BytesIO()
    schemaless_writer(stream, avro_schema(json.dumps(READING).encode()), {"at": moment, "temperature": 21.5})
    for number in range(20):
        climate = {"t": number + 0.5, "at": NOW + number, "place": "hall"}
        recorded.put(message(f"hq/{number % 2}/climate", json.dumps(climate).encode()), at=NOW + number)
    recorded.put(
        message("hq/9/climate", b'{"t": "unavailable", "at": 0}'), message("p/1", b"5"), message("q/1", b"7"),
        message("q/2", b"7 W"), message("avro/a", stream.getvalue()), message("avro/b", b"\xff"),
        message("protobuf/a", b"\0\0\0\0\x08\x02\x02" + sent.SerializeToString()), at=NOW + 50,
    )  # fmt: skip
    Sync(Source(recorded.url), Folder(str(lake))).run()
    result = run("--lake", lake, "--history", "--catalog", file, "--out", out)
    assert (result.exit_code, result.stdout) == (
        3, f"decoded 44 messages to 44 rows in 5 tables in {out}; 4 could not be decoded, see {out}/NAME/bad\n"
    )  # fmt: skip
    assert sorted(line.partition(" bad")[0] for line in result.stderr.splitlines()) == [
        "climate: 1", "power: 1", "readings: 1", "temperature: 1",
    ]  # fmt: skip
    assert bad(out / "climate") == {"hq/9/climate": 't: "unavailable" is not a number'}
    assert bad(out / "temperature") == {"hq/9/climate": "the value is 'unavailable', which is no number"}
    names = ["temperature", "climate", "power", "readings", "status"]
    tables = {name: read_table(out / name / "data") for name in names}
    assert tables["climate"].column_names == ["topic", "room", "changed_at", "seq", "t", "at", "place"]
    assert [tuple(row.values())[4:] for row in tables["readings"].to_pylist()] == [(moment, 21.5)]
    (found,) = tables["status"].select(["room", "volts", "at", "codes", "limits", "spare"]).to_pylist()
    assert tuple(found.values()) == ("a", 229.5, moment, [1], '{"high": 9}', None)
    manifest = json.loads((out / "manifest.json").read_text())
    assert (manifest["messages"], manifest["bad"], manifest["rows"]) == (48, 4, 44)
    assert list(manifest["tables"]) == names

    rolled = CliRunner().invoke(main, ["rollup", "--lake", str(lake), "--catalog", str(file), "--json"])
    assert rolled.exit_code == 3, rolled.output
    values = DeltaTable(str(lake / "values")).to_pyarrow_table().to_pylist()
    for name, time in (("temperature", "at"), ("power", "changed_at")):
        decoded_rows = tables[name].rename_columns({time: "at"} if time != "at" else {}).to_pylist()
        columns = ("topic", "unit", "at", "value", "seq")
        assert sorted(tuple(row[column] for column in columns) for row in decoded_rows) == sorted(
            tuple(row[column] for column in columns) for row in values if row["name"] == name
        )


@pytest.mark.parametrize("filled", ["sqlite"], indirect=True)
def test_the_tables_of_a_catalogue_are_replaced_together(spark: SparkSession, filled: Filled, tmp_path: Path) -> None:
    """An incomplete result is; a complete one, or one of another command in a table's folder, with --overwrite."""
    file, out = tmp_path / "values.toml", tmp_path / "out"
    file.write_text('[values.a]\npattern = "a/{x}"\nformat = "number"\n[values.b]\npattern = "b/{x}"\n')
    filled.put(message("a/1", b"1"), message("b/1", b'{"t": 2}'))
    arguments = ("--storage", filled.url, "--catalog", file, "--out", out)
    assert told(run(*arguments, "--json"), 0)["rows"] == 2
    assert "complete result" in run(*arguments).stderr
    (out / "manifest.json").unlink()  # as if killed
    assert told(run(*arguments, "--json"), 0)["rows"] == 2
    (out / "manifest.json").unlink()
    one = ("--storage", filled.url, "--format", "number", "--pattern", "a/+", "--out", out / "a", "--overwrite")
    assert run(*one).exit_code == 0
    refused = run(*arguments)
    assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1)
    assert f"{out}/a: holds a complete result" in refused.stderr
    assert told(run(*arguments, "--json", "--overwrite"), 0)["rows"] == 2
    assert not (out / "a" / "manifest.json").exists()
    file.write_text('[values.a]\npattern = "a/{x}"\n[values.b]\npattern = "b/{Topic}"\n')
    refused = run(*arguments, "--overwrite")
    assert refused.exit_code == 1
    assert "Topic is the name of another column" in refused.stderr
    assert (out / "manifest.json").exists(), "nothing is replaced by a catalogue that cannot be used"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--format", "json", "--catalog", "values.toml"), "leave out --format, --pattern and --schema"),
        ((), "say how payloads are read: by --format NAME, or by --catalog FILE"),
        (("--format", "avro", "--pattern", "a"), "the format avro needs a schema; write schema_file, or schema with"),
    ],
)
def test_either_a_format_or_a_catalogue_is_needed(arguments: tuple[str, ...], complaint: str) -> None:
    result = run("--storage", "sqlite:///nowhere.db", "--out", "x", *arguments)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert complaint in result.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "complaint"),
    [
        (
            ("--format", "numbr"),
            2,
            "there is no format 'numbr'; the formats are: avro, json, number, protobuf, sparkplug",
        ),
        (("--format", "number"), 2, "say which topics to decode by a pattern"),
        (("--format", "number", "--pattern", "a/{x}/b{y}"), 2, "'b{y}' is not a named level; a named level is {name}"),
        (("--format", "number", "--pattern", "{Value}"), 1, "{Value} in the pattern has the name of a field"),
        (("--format", "number", "--pattern", "{Topic}"), 1, "Topic is the name of another column; choose another name"),
        (("--format", "number", "--schema", "x int"), 2, "only json takes one"),
        (("--format", "number", "--pattern", "a", "--lake", "a"), 2, "--storage and --lake exclude each other"),
    ],
)
@pytest.mark.parametrize("filled", ["sqlite"], indirect=True)
def test_a_wrong_option_is_explained_in_one_line(
    spark: SparkSession, filled: Filled, tmp_path: Path, arguments: tuple[str, ...], status: int, complaint: str
) -> None:
    """Nothing is written."""
    result = run("--storage", filled.url, "--out", tmp_path / "out", *arguments)
    assert result.exit_code == status
    assert complaint in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
