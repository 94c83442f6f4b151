"""``format("retained")`` gives all retained messages, with their types."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from holdfast.pipeline import read_retained, snapshot_of
from holdfast.topics import matches
from tests.pipeline.stores import NOW, Filled, message

pytestmark = pytest.mark.spark

AWKWARD = ("a", "a/", "/a", "a//b", "$SYS/x", "a*b?[c]/d", "100%_\\x/y", "grün/日本/𝄞", "'; --/x", "a!", "a/b/c", "a/b")


def test_all_columns_keep_their_values_and_types(spark: SparkSession, filled: Filled) -> None:
    """Binary payloads, 64-bit numbers and milliseconds in UTC arrive unchanged."""
    filled.put(
        message("a/b", b"\x00\xff", qos=2, client_id="c", username="u", expires_at=2**41),
        message("plain"),
    )
    read = spark.read.format("retained").option("storage", filled.url)
    full, plain = read.load().orderBy("topic").collect()
    assert (full.topic, bytes(full.payload), full.qos, full.client_id, full.username, full["size"]) == (
        "a/b", b"\x00\xff", 2, "c", "u", 2,
    )  # fmt: skip
    assert full.stored_at.astimezone(UTC) == datetime.fromtimestamp(NOW / 1000, UTC)
    assert full.expires_at.astimezone(UTC) == datetime.fromtimestamp(2**41 / 1000, UTC)
    assert plain.revision > full.revision > 2**53
    assert (plain.client_id, plain.expires_at, plain.properties_json) == (None, None, None)


def test_only_the_named_columns_are_read(spark: SparkSession, filled: Filled) -> None:
    """The option ``columns`` sets their order too; unknown names are refused."""
    filled.put(message("a/b", qos=1))
    read = spark.read.format("retained").option("storage", filled.url)
    frame = read.option("columns", "qos, topic").load()
    assert frame.columns == ["qos", "topic"]
    assert [tuple(row) for row in frame.collect()] == [(1, "a/b")]
    with pytest.raises(PySparkException, match="no column 'colour'; the columns are: topic, payload"):
        read.option("columns", "topic,colour").load()
    with pytest.raises(PySparkException, match="topic is named twice"):
        read.option("columns", "topic,topic").load()


def test_cleared_and_expired_messages_are_left_out(spark: SparkSession, filled: Filled) -> None:
    """The table still has their rows: tombstones, and messages before the next sweep."""
    filled.put(message("stays"), message("goes"), message("goes", b""), message("old", expires_at=NOW + 1))
    assert [row.topic for row in spark.read.format("retained").option("storage", filled.url).load().collect()] == [
        "stays"
    ]


@pytest.mark.parametrize(
    "topic_filter", ["", "#", "+", "a/#", "a/+", "+/a", "a/b", "$SYS/#", "+/b/#", "100%_\\x/+", "a*b?[c]/+"]
)
def test_a_topic_filter_selects_the_same_topics_as_in_the_broker(
    spark: SparkSession, filled: Filled, topic_filter: str
) -> None:
    """The option ``filter`` selects the topics that SUBSCRIBE selects, with any number of partitions."""
    filled.put(*(message(topic) for topic in AWKWARD))
    expected = sorted(topic for topic in AWKWARD if not topic_filter or matches(topic_filter, topic))
    with snapshot_of(filled.url) as snapshot:
        found = read_retained(spark, snapshot, topic_filter, ["topic"], 3).collect()
    assert sorted(row.topic for row in found) == expected


def test_a_snapshot_does_not_change_while_the_broker_writes(spark: SparkSession, filled: Filled) -> None:
    """All partitions read the same state."""
    filled.put(*(message(f"t/{number:04}", b"before") for number in range(500)))
    with snapshot_of(filled.url) as snapshot:
        frame = read_retained(spark, snapshot, partitions=4)
        assert frame.rdd.getNumPartitions() == 4
        filled.put(*(message(f"t/{number:04}", b"after") for number in range(500)), message("t/new"))
        found = frame.collect()
    assert len(found) == 500
    assert {bytes(row.payload) for row in found} == {b"before"}
