"""``format("retained")`` with ``since``: a copy that is kept by changes alone equals the retained messages."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from holdfast_pipeline import read_retained, snapshot_of
from holdfast_pipeline.sources.columns import CHANGED
from tests.pipeline.stores import MAKES, NOW, Filled, database, message

pytestmark = pytest.mark.spark


@pytest.fixture(params=MAKES)
def marked(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Filled]:
    """An empty database whose broker stores which topics change."""
    with database(request.param, tmp_path, marked=True) as found:
        yield found


def token_of(marked: Filled) -> str:
    """Return the token of the present moment."""
    with snapshot_of(marked.url) as snapshot:
        assert snapshot.token is not None
        return snapshot.token


def changes(spark: SparkSession, marked: Filled, since: object, **options: str) -> DataFrame:
    """Read what has changed."""
    read = spark.read.format("retained").option("storage", marked.url).option("since", str(since))
    return read.options(**options).load()


def test_a_copy_kept_by_changes_equals_the_retained_messages(spark: SparkSession, marked: Filled) -> None:
    """After each snapshot: sets, repeated sets, clears and sets after a clear."""
    dice = random.Random(1)
    copy: dict[str, tuple[bytes, int]] = {}
    token: str | None = None
    marked.put(*(message(f"t/{number}") for number in range(20)))
    for step in range(3):
        topics = dice.choices(range(20), k=8)
        marked.put(*(message(f"t/{number}", b"" if dice.random() < 0.4 else b"%d" % step) for number in topics))
        with snapshot_of(marked.url) as snapshot:
            full = {row.topic: (bytes(row.payload), row.revision) for row in read_retained(spark, snapshot).collect()}
            rows = read_retained(spark, snapshot, since=token).collect() if token else ()
            token = snapshot.token
        for row in rows:
            if row.op == "clear":
                copy.pop(row.topic, None)
            else:
                copy[row.topic] = bytes(row.payload), row.revision
        if not step:
            copy = full
        assert len(rows) <= len(set(topics))
        assert copy == full


def test_a_change_has_the_message_and_a_clear_has_none(spark: SparkSession, marked: Filled) -> None:
    """An expired message is cleared too, and so is one whose time comes later for the reader."""
    marked.put(message("a/1"), message("a/2"), message("b"), message("e", expires_at=NOW + 1000))
    since = token_of(marked)
    marked.put(message("a/1", b"new", qos=1, client_id="c"), message("a/2", b""), message("b", b"2"), at=NOW + 20)
    found = changes(spark, marked, since, filter="a/+", expired_at=str(NOW + 30))
    assert found.columns == [column.name for column in CHANGED]
    one, two = found.orderBy("topic").collect()
    assert (one.op, one.topic, bytes(one.payload), one.qos, one.client_id) == ("set", "a/1", b"new", 1, "c")
    assert (two.op, two.topic, bytes(two.payload), two.qos, two.size, two.stored_at) == (
        "clear", "a/2", b"", None, None, None,
    )  # fmt: skip
    assert int(one.changed_at.timestamp() * 1000) == NOW + 20
    later = changes(spark, marked, since, columns="topic, op", expired_at=str(NOW + 1000))
    assert sorted(map(tuple, later.collect())) == [("a/1", "set"), ("a/2", "clear"), ("b", "set"), ("e", "clear")]
    assert changes(spark, marked, token_of(marked), expired_at=str(NOW + 30)).count() == 0
    by_time = changes(spark, marked, NOW + 10, columns="topic", expired_at=str(NOW + 30))
    assert by_time.columns == ["op", "topic"]  # a clear does not look like a message
    assert sorted(map(tuple, by_time.collect())) == [("clear", "a/2"), ("set", "a/1"), ("set", "b")]


def test_a_token_after_the_end_of_the_broker_stays_good(spark: SparkSession, marked: Filled) -> None:
    """Changes come again rather than not at all."""
    marked.put(message("a"))
    since = token_of(marked)
    marked.put(message("b"))
    marked.put(message("c"))
    assert sorted(row.topic for row in changes(spark, marked, since, columns="topic").collect()) == ["b", "c"]


def refused(spark: SparkSession, filled: Filled, words: str, **options: object) -> None:
    """Require one message with these words."""
    read = spark.read.format("retained").option("storage", filled.url)
    with pytest.raises(PySparkException, match=words) as caught:
        read.options(**{name: str(value) for name, value in options.items()}).load().collect()
    assert "Traceback" not in str(caught.value)


def test_a_token_that_is_not_good_is_refused_with_what_to_do(spark: SparkSession, tmp_path: Path) -> None:
    """Of another database, or of one that does not store which topics change."""
    (tmp_path / "other").mkdir()
    with (
        database("sqlite", tmp_path, marked=True) as marked,
        database("sqlite", tmp_path / "other", marked=True) as other,
    ):
        marked.put(message("a"))
        other.put(message("a"), message("b"))
        refused(spark, marked, "of another database.*read all messages once", since=token_of(other))
        refused(spark, marked, "not all changes since then are kept; read all", since=NOW - 10**9)
        refused(spark, marked, "since: 'noon' is not a time;.* or give a token", since="noon")
        refused(spark, marked, "as_of and since exclude each other", since="1m", as_of="1m")


def test_without_stored_changes_a_snapshot_has_no_token(tmp_path: Path) -> None:
    """So a job reads everything each time."""
    with database("sqlite", tmp_path) as filled:
        filled.put(message("a"))
        with snapshot_of(filled.url) as snapshot:
            assert snapshot.token is None
