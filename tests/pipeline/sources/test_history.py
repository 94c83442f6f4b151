"""``format("retained_history")`` gives every entry once, in order, as a table and as a stream."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.pipeline.stores import NOW, Filled, message

pytestmark = pytest.mark.spark


def archived(spark: SparkSession, filled: Filled, folder: Path, **options: object) -> StreamingQuery:
    """Stream the existing entries to Parquet files, and wait for the end."""
    reader = spark.readStream.format("retained_history").option("storage", filled.url)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    writer = reader.load().writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(folder / "data"))
    assert query.awaitTermination(120)
    return query


def test_the_table_has_every_change_in_the_order_of_commits(spark: SparkSession, recorded: Filled) -> None:
    """Sets and clears have their clients and full values; several partitions give the same entries."""
    recorded.put(message("a", b"\x00\xff", client_id="c", username="u"), message("b"), message("a", b""), at=NOW + 5)
    table = spark.read.format("retained_history").option("storage", recorded.url)
    rows = table.load().orderBy("seq").collect()
    assert [(row.op, row.topic, bytes(row.payload), row.client_id, row.origin) for row in rows] == [
        ("set", "a", b"\x00\xff", "c", "publish"),
        ("set", "b", b"x", None, "publish"),
        ("clear", "a", b"", None, "publish"),
    ]
    parted = table.option("partitions", 3).load()
    assert parted.rdd.getNumPartitions() == 3
    assert sorted(parted.collect()) == sorted(rows)
    assert [row.topic for row in table.option("filter", "+").option("from_seq", rows[1].seq).load().collect()] == [
        "b",
        "a",
    ]


@pytest.mark.parametrize("partitions", [1, 3])
def test_newest_gives_the_last_entry_of_each_topic(spark: SparkSession, recorded: Filled, partitions: int) -> None:
    """Also if a topic's entries are in different partitions, or its newest entry is a clear."""
    changes = ["a", "b", "a", "c", "b", "a"]
    recorded.put(*(message(topic, b"%d" % number) for number, topic in enumerate(changes)), message("c", b""))
    table = spark.read.format("retained_history").option("storage", recorded.url).option("partitions", partitions)
    numbers = [row.seq for row in table.load().orderBy("seq").collect()]
    for end in range(len(numbers)):
        newest = table.option("newest", "true").option("to_seq", numbers[end]).load().collect()
        found = {row.topic: numbers.index(row.seq) for row in newest}
        assert len(found) == len(newest)
        assert found == {topic: number for number, topic in enumerate([*changes, "c"][: end + 1])}


def test_a_stream_continues_after_its_last_batch(spark: SparkSession, recorded: Filled, tmp_path: Path) -> None:
    """Three runs with small batches write each entry once."""
    for run in range(3):
        recorded.put(*(message(f"t/{run}/{number}") for number in range(50)))
        archived(spark, recorded, tmp_path, max_rows_per_trigger=20, partitions=2)
        topics = [row.topic for row in spark.read.parquet(str(tmp_path / "data")).orderBy("seq").collect()]
        assert topics == [f"t/{earlier}/{number}" for earlier in range(run + 1) for number in range(50)]


def test_an_empty_history_is_an_empty_table(spark: SparkSession, filled: Filled) -> None:
    """Also if the broker never recorded anything."""
    assert spark.read.format("retained_history").option("storage", filled.url).load().count() == 0
