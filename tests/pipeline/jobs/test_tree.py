"""The tree of topics: the messages below each prefix, their ages, and their expiry."""

from __future__ import annotations

import json

import pytest
from attrs import asdict, evolve
from click.testing import CliRunner
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast_pipeline import snapshot_of
from holdfast_pipeline.analysis.messages import branches, prefixes
from holdfast_pipeline.choices import TREE_ORDERS
from holdfast_pipeline.cli.root import main
from holdfast_pipeline.jobs.report import tree
from holdfast_pipeline.report.figures import PrefixTotals
from holdfast_pipeline.sources.tables import retained_table
from tests.pipeline.stores import NOW, Filled, message

pytestmark = pytest.mark.spark

LATER = 2**41


def test_a_topic_has_a_prefix_for_each_of_its_levels(spark: SparkSession) -> None:
    """Empty levels are levels."""
    topics = ["a/b/c/d", "a", "/a", "a//b", "/"]
    frame = spark.createDataFrame([(topic,) for topic in topics], "topic string")
    found = {row[0]: row[1] for row in frame.select("topic", prefixes(F.col("topic"), 3)).collect()}
    assert found == {
        "a/b/c/d": ["a", "a/b", "a/b/c"], "a": ["a"], "/a": ["", "/a"], "a//b": ["a", "a/", "a//b"], "/": ["", "/"],
    }  # fmt: skip


def test_each_prefix_has_its_count_bytes_ages_and_expiry(spark: SparkSession, filled: Filled) -> None:
    """Ages are whole seconds, and never negative, even if a clock was ahead."""
    filled.put(message("a/b", b"12", stored_at=NOW - 60_000), at=NOW - 60_000)
    filled.put(message("a/c", b"345", stored_at=NOW, expires_at=LATER))
    filled.put(message("a/c/d", b"6", stored_at=NOW + 5000, expires_at=LATER + 1), at=NOW + 5000)
    with snapshot_of(filled.url) as snapshot:
        read = retained_table(spark, evolve(snapshot, taken_at=NOW + 1999))
        rows = branches(read.frame, 2).orderBy("prefix").collect()
    assert [PrefixTotals(**row.asDict()) for row in rows] == [
        PrefixTotals(1, "a", 3, 6, 61, 1, 0, 2, LATER),
        PrefixTotals(2, "a/b", 1, 2, 61, 61, 61, 0, None),
        PrefixTotals(2, "a/c", 2, 4, 1, 0, 0, 2, LATER),
    ]


def test_the_first_prefixes_are_returned(spark: SparkSession, filled: Filled) -> None:
    """In the order that is asked for; all of them are counted."""
    filled.put(message("a/b"), message("a/c"), message("b/x", b"x" * 100))
    with snapshot_of(filled.url) as snapshot:
        found = tree(spark, snapshot, 2, 1, "bytes")
    assert (found.messages, found.bytes, found.prefixes, [one.prefix for one in found.branches]) == (3, 102, 5, ["b"])


@pytest.mark.parametrize("filled", ["sqlite"], indirect=True)
@pytest.mark.parametrize("order", TREE_ORDERS)
def test_an_sqlite_database_needs_no_spark(
    spark: SparkSession, filled: Filled, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command prints what Spark counts. A Topic Name may be a prefix of another one."""
    filled.put(*(message(f"{place}/{number}", b"x" * number) for place in ("a", "a!", "b") for number in range(9)))
    filled.put(message("a", expires_at=LATER), at=NOW + 7000)
    with snapshot_of(filled.url) as snapshot:
        found = tree(spark, snapshot, 2, 6, order)
    monkeypatch.setattr("holdfast_pipeline.spark.SparkProcess.start", lambda *_: pytest.fail("Spark starts"))
    command = ["report", "--only", "tree", "--storage", filled.url, "--depth", "2", "--top", "6", "--by", order]
    told = json.loads(CliRunner().invoke(main, [*command, "--json"]).stdout)
    ages = ("oldest_age", "median_age", "newest_age")  # of another moment
    expected = [{name: value for name, value in asdict(one).items() if name not in ages} for one in found.branches]
    assert [{name: value for name, value in one.items() if name not in ages} for one in told["branches"]] == expected
    assert (told["messages"], told["bytes"], told["prefixes"]) == (found.messages, found.bytes, found.prefixes)


def test_the_command_shows_a_table_or_a_line_of_json(spark: SparkSession, filled: Filled) -> None:
    """Also for a database without retained messages."""
    command = ["report", "--only", "tree", "--storage", filled.url, "--depth", "1"]
    assert "0 messages, 0 bytes, below 0 prefixes" in CliRunner().invoke(main, command).stdout
    filled.put(message("grün\u202e/x", b"xy"))
    people = CliRunner().invoke(main, command)
    assert people.exit_code == 0
    header, row, _ = people.stdout.splitlines()
    assert header.split()[:4] == ["prefix", "messages", "share", "bytes"]
    assert row.split()[:6] == ["grün\\u202e", "1", "100", "%", "2", "bytes"]
    told = json.loads(CliRunner().invoke(main, [*command, "--json"]).stdout)
    assert told["branches"][0]["prefix"] == "grün\u202e"
