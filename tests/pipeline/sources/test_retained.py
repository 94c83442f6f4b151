"""``format("retained")`` gives all retained messages, with their types."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import EqualTo, Filter

from holdfast.core.topics import matches
from holdfast_pipeline import Source, read_retained, snapshot_of
from holdfast_pipeline.sources.retained import RetainedSource
from tests.pipeline.stores import NOW, Filled, database, message

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


def test_as_of_gives_the_messages_of_a_past_time(spark: SparkSession, recorded: Filled) -> None:
    """Cleared, replaced and expired ones are as they were then, with any number of partitions."""
    recorded.put(message("a/1", b"old", client_id="c"), message("b"), message("c", expires_at=NOW + 15), at=NOW)
    recorded.put(message("a/1", b"new"), message("b", b""), message("d"), at=NOW + 20)
    read = spark.read.format("retained").option("storage", recorded.url)

    def at(moment: str, **options: str) -> list[tuple[str, bytes]]:
        rows = read.options(**{"partitions": "2", "as_of": moment, **options}).load().orderBy("topic").collect()
        return [(row.topic, bytes(row.payload)) for row in rows]

    assert at(str(NOW + 10)) == [("a/1", b"old"), ("b", b"x"), ("c", b"x")]
    assert at("2023-11-14T22:13:20.016Z") == [("a/1", b"old"), ("b", b"x")]  # NOW + 16: c has expired
    assert at(str(NOW + 20), filter="a/+") == [("a/1", b"new")]
    (row,) = (
        read.option("as_of", NOW + 10)
        .option("columns", "stored_at, client_id")
        .option("filter", "a/1")
        .load()
        .collect()
    )
    assert (row.stored_at.astimezone(UTC), row.client_id) == (datetime.fromtimestamp(NOW / 1000, UTC), "c")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"as_of": NOW - 10**9}, "as_of: the history does not go back to"),
        ({"as_of": "noon"}, "as_of: 'noon' is not a time; write it as"),
        ({"as_of": NOW, "expired_at": NOW}, "as_of and expired_at exclude each other"),
    ],
)
def test_a_time_that_the_history_does_not_know_is_refused(
    spark: SparkSession, tmp_path: Path, options: dict[str, object], words: str
) -> None:
    """Instead of an answer about another time."""
    with database("sqlite", tmp_path, recorded=True) as recorded:
        recorded.put(message("a"))
        read = spark.read.format("retained").option("storage", recorded.url)
        with pytest.raises(PySparkException, match=words):
            read.options(**options).load().collect()  # type: ignore[arg-type]


def test_as_of_without_a_history_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """The message tells how to get one."""
    with database("sqlite", tmp_path) as filled:
        filled.put(message("a"))
        read = spark.read.format("retained").option("storage", filled.url).option("as_of", "1m")
        with pytest.raises(PySparkException, match=r"there is no history: .* retainer.history.enable = true") as caught:
            read.load().collect()
    assert "Traceback" not in str(caught.value)  # of a Python worker: the message says all


@pytest.mark.parametrize("filled", ["sqlite"], indirect=True)
def test_a_condition_is_a_search_and_no_walk(filled: Filled) -> None:
    """SQLite's own instructions are counted: those for one topic of 3,000, and those for all topics."""
    filled.put(*(message(f"t/{number:04}") for number in range(3000)))

    def instructions(*filters: Filter) -> tuple[int, int]:
        steps = 0

        def count() -> None:
            nonlocal steps
            steps += 1

        class Counted:
            @contextmanager
            def used(self) -> Iterator[Any]:
                with closing(sqlite3.connect(filled.url.removeprefix("sqlite:///"))) as connection:
                    connection.set_progress_handler(count, 1)
                    yield connection

        source = RetainedSource({"storage": filled.url})
        reader: Any = source.reader(source.schema())
        assert list(reader.pushFilters(list(filters))) == []
        (partition,) = reader.partitions()
        reader.source = Source(filled.url, held=cast("Any", Counted()))
        return sum(batch.num_rows for batch in reader.read(partition)), steps

    (rows, some), (every, all_steps) = instructions(EqualTo(("topic",), "t/0700")), instructions()
    assert (rows, every) == (1, 3000)
    assert some * 20 < all_steps
