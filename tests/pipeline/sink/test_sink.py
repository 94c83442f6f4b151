"""``df.write.format("retained")``: rows that were read can be written again, exactly once despite failures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from holdfast_pipeline import read_retained, snapshot_of
from holdfast_pipeline.spark.process import failure_text
from tests.pipeline.stores import MAKES, NOW, Filled, database, message

pytestmark = pytest.mark.spark

MESSAGES = [
    message("a/b", b"\x00\xff", qos=2, client_id="c", username="u", expires_at=2**41),
    message("grün/日本/𝄞", b"plain"),
    *(message(f"t/{number}", b"%d" % number) for number in range(50)),
]


@pytest.fixture(params=MAKES)
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Filled]:
    """Another empty database, of either make."""
    (tmp_path / "other").mkdir()
    with database(request.param, tmp_path / "other") as found:
        yield found


def write(frame: DataFrame, target: Filled, **options: Any) -> None:
    """Write a table."""
    frame.write.format("retained").mode("append").options(**{"storage": target.url, **options}).save()


def contents(spark: SparkSession, source: Filled) -> list[Any]:
    """Return all retained messages without their revisions."""
    with snapshot_of(source.url) as snapshot:
        rows = read_retained(spark, snapshot, partitions=1).drop("revision").orderBy("topic").collect()
        return [tuple(row) for row in rows]


def test_messages_written_to_another_store_are_the_same(spark: SparkSession, filled: Filled, other: Filled) -> None:
    """All columns but the revision are the same, between all makes. No staging area is left."""
    filled.put(*MESSAGES)
    with snapshot_of(filled.url) as snapshot:
        write(read_retained(spark, snapshot, partitions=2), other)
    assert contents(spark, other) == contents(spark, filled)
    assert len(contents(spark, other)) == len(MESSAGES)
    if other.url.startswith("sqlite"):
        assert list((Path(other.url.removeprefix("sqlite:///")).parent / "staging").iterdir()) == []


def test_a_job_is_done_once(spark: SparkSession, filled: Filled) -> None:
    """A repeated job changes nothing; another job does."""
    frame = spark.createDataFrame([("t", bytearray(b"1"), NOW)], "topic string, payload binary, stored_at long")
    write(frame, filled, job="once", merge="replace")
    filled.put(message("t", b"2"))
    write(frame, filled, job="once", merge="replace")
    assert contents(spark, filled)[0][:2] == ("t", b"2")
    write(frame, filled, job="twice", merge="replace")
    assert contents(spark, filled)[0][:2] == ("t", b"1")


def test_bad_rows_are_reported_and_above_the_limit_nothing_is_merged(
    spark: SparkSession, tmp_path: Path, filled: Filled
) -> None:
    """Each has its reason. The other rows are merged if so many rejects are allowed."""
    frame = spark.createDataFrame(
        [("good", bytearray(b"1"), 0), ("bad/#", bytearray(b"1"), 0), ("bad", bytearray(b"1"), 3)],
        "topic string, payload binary, qos int",
    )
    with pytest.raises(Exception, match="rows are rejected") as caught:
        write(frame, filled, max_rejects=1)
    assert failure_text(caught.value).startswith("2 rows are rejected (qos 1, topic 1), 1 are allowed: nothing was")
    assert contents(spark, filled) == []
    write(frame, filled, max_rejects=2, rejects=str(tmp_path / "rejects"))
    assert [row[0] for row in contents(spark, filled)] == ["good"]
    told = [json.loads(line) for line in (tmp_path / "rejects" / "rejects.jsonl").read_text().splitlines()]
    assert sorted((each["topic"], each["kind"]) for each in told) == [("bad", "qos"), ("bad/#", "topic")]


@pytest.mark.parametrize(
    ("schema", "options", "words"),
    [
        ("topic string", {}, "the table has no column payload"),
        ("topic string, payload string", {}, "the column payload has the type string, not binary; cast it"),
        ("topic string, payload binary, extra int", {}, "there is no column 'extra'"),
        ("topic string, payload binary", {"merge": "some"}, "merge is one of newer, replace, keep"),
        ("topic string, payload binary", {"storage": "sqlite:////nowhere/x.db"}, "there is no such file"),
    ],
)
def test_invalid_options_and_columns_are_refused(
    spark: SparkSession, tmp_path: Path, schema: str, options: dict[str, str], words: str
) -> None:
    """Before any row is staged."""
    with database("sqlite", tmp_path) as target, pytest.raises(Exception, match="PipelineError") as caught:
        write(spark.createDataFrame([], schema), target, **options)
    assert words in failure_text(caught.value)
