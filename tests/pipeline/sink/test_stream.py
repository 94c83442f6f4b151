"""``stream.writeStream.format("retained")``: each batch is retained once."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from holdfast_pipeline import write_stream
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.spark.process import failure_text
from tests.pipeline.sink.test_sink import contents
from tests.pipeline.stores import Filled, database, message

pytestmark = pytest.mark.spark

SCHEMA = "topic string, payload string"


def written(spark: SparkSession, target: Filled, folder: Path, **options: Any) -> StreamingQuery:
    """Write all lines of JSON in a folder that are not yet written; start the query."""
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder / "rows"))
    messages = rows.selectExpr("topic", "encode(payload, 'utf-8') AS payload")
    stream = write_stream(
        messages, **{"storage": target.url, "checkpointLocation": str(folder / "checkpoint"), **options}
    )
    return stream.trigger(availableNow=True).start()


def lines(folder: Path, name: str, *rows: tuple[str, str]) -> None:
    """Add a file of rows."""
    (folder / "rows").mkdir(exist_ok=True)
    text = "".join(json.dumps({"topic": topic, "payload": payload}) + "\n" for topic, payload in rows)
    (folder / "rows" / name).write_text(text)


def kept(spark: SparkSession, target: Filled) -> dict[str, bytes]:
    """Return the retained messages."""
    return {row[0]: bytes(row[1]) for row in contents(spark, target)}


def test_each_batch_is_retained_once(spark: SparkSession, filled: Filled, tmp_path: Path) -> None:
    """A batch that Spark repeats changes nothing; new rows do. Messages need no column but topic and payload."""
    lines(tmp_path, "1.json", ("a", "1"), ("b", "1"))
    assert written(spark, filled, tmp_path, merge="replace").awaitTermination(120)
    filled.put(message("a", b"later"), message("b", b"later"))
    (tmp_path / "checkpoint" / "commits" / "0").unlink()  # as if Spark was killed before it noted the batch as done
    (tmp_path / "checkpoint" / "commits" / ".0.crc").unlink()
    lines(tmp_path, "2.json", ("b", "2"), ("c", "2"))
    assert written(spark, filled, tmp_path, merge="replace").awaitTermination(120)
    assert kept(spark, filled) == {"a": b"later", "b": b"2", "c": b"2"}
    if filled.url.startswith("sqlite"):
        assert list((Path(filled.url.removeprefix("sqlite:///")).parent / "staging").iterdir()) == []


def test_an_error_of_a_stream_is_one_message(spark: SparkSession, tmp_path: Path) -> None:
    """With no stack trace of a Python worker. Nothing of the batch is merged, and the staged rows are removed."""
    lines(tmp_path, "1.json", ("a", "1"), ("bad/#", "1"))
    with database("sqlite", tmp_path) as target:
        query = written(spark, target, tmp_path)
        with pytest.raises(StreamingQueryException) as caught:
            query.awaitTermination(120)
        assert failure_text(caught.value).startswith("1 rows are rejected (topic 1), 0 are allowed: nothing was merged")
        assert "Traceback" not in str(caught.value)
        assert kept(spark, target) == {}
        assert list((Path(target.url.removeprefix("sqlite:///")).parent / "staging").iterdir()) == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"storage": "sqlite:////nowhere/x.db"}, "/nowhere/x.db: there is no such file"),
        ({"storage": "postgresql://nobody@127.0.0.1:1/x"}, "127.0.0.1"),
        ({"storage": "sqlite:////nowhere/x.db", "jobs": "1"}, "there is no option 'jobs'"),
        ({}, "name the database"),
    ],
)
def test_a_stream_that_cannot_be_written_does_not_start(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], told: str
) -> None:
    """``write_stream`` says why; Spark would tell it in the first batch."""
    (tmp_path / "rows").mkdir()
    stream = spark.readStream.schema("topic string, payload binary").json(str(tmp_path / "rows"))
    with pytest.raises(PipelineError, match=re.escape(told)):
        write_stream(stream, checkpointLocation=str(tmp_path / "checkpoint"), **options)
    assert not (tmp_path / "checkpoint").exists()


def test_a_stream_has_no_option_job(spark: SparkSession, tmp_path: Path) -> None:
    """Its batches are jobs already: one name for all would leave out all but the first."""
    lines(tmp_path, "1.json", ("a", "1"))
    with database("sqlite", tmp_path) as target, pytest.raises(PipelineError, match="there is no option 'job'"):
        written(spark, target, tmp_path, job="mine")
