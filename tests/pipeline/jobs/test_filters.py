"""The deliveries of Topic Filters match the broker's, and have the cost of the replays."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from holdfast.core.topics import matches
from holdfast.core.units import Rate
from holdfast.retained.limits import FlowSettings
from holdfast_pipeline import snapshot_of
from holdfast_pipeline.cli.root import main
from holdfast_pipeline.filters import MOST_LEVELS, FilterDelivery, Replayed, matched, of_lines
from holdfast_pipeline.jobs.report import filters
from tests.pipeline.stores import Filled, message
from tests.strategies import topic_filters, topic_names

pytestmark = pytest.mark.spark

FILTERS = (
    "#",
    "+",
    "a/#",
    "a/+",
    "+/b",
    "a/b",
    "a//+",
    "$SYS/#",
    "$x/+",
    "$share/g/a/#",
    "nothing",
    "grün/+/𝄞",
    "a/+/#",
)
TOPICS = ("a", "a/", "a/b", "a//b", "/b", "$x/y", "grün/日本/𝄞")


def pairs(spark: SparkSession, asked: list[str], topics: list[str]) -> list[tuple[str, int]]:
    table = pa.table({"topic": pa.array(topics, pa.string()), "size": pa.array(range(len(topics)), pa.int64())})
    found = matched(spark.createDataFrame(table), asked).collect()
    return sorted((asked[row.place], row["size"]) for row in found)


# Each example is a query: few, and large ones.
@settings(max_examples=3)
@given(st.sets(topic_filters(), min_size=60, max_size=90), st.sets(topic_names(), min_size=60, max_size=90))
def test_a_filter_matches_the_same_topics_as_in_the_broker(
    spark: SparkSession, asked: set[str], topics: set[str]
) -> None:
    """With ``$``, empty levels, the level above ``#`` and any script."""
    names = sorted(topics)
    expected = sorted((one, at) for one in asked for at, name in enumerate(names) if matches(one, name))
    assert pairs(spark, sorted(asked), names) == expected


def test_filters_may_have_the_allowed_number_of_levels(spark: SparkSession) -> None:
    """Topics may have any number of levels."""
    deep = "/".join("a" * MOST_LEVELS)
    asked = ["/".join(["+"] * MOST_LEVELS), deep, deep[:-1] + "#", "#"]
    expected = [("#", 0), ("#", 1), *((one, 0) for one in asked[:3]), (asked[2], 1)]
    assert pairs(spark, asked, [deep, deep + "/a" * 1000]) == sorted(expected)


def test_every_filter_has_a_row_also_without_a_match(spark: SparkSession, filled: Filled) -> None:
    """The most bytes come first. A filter without a replay has the reason."""
    filled.put(*(message(topic, b"x" * len(topic)) for topic in TOPICS))
    with snapshot_of(filled.url) as snapshot:
        found = filters(spark, snapshot, of_lines([*FILTERS, "a/b"]), FlowSettings(2, 1, 1 << 20, Rate(2, 1.0)))
    assert found.taken_at == snapshot.taken_at
    told = {one.topic_filter: one for one in found.deliveries}
    assert set(told) == set(FILTERS)
    for text, one in told.items():
        expected = [topic for topic in TOPICS if one.replayed is Replayed.YES and matches(text, topic)]
        assert (one.messages, one.bytes) == (len(expected), sum(map(len, expected)))
    assert told["#"] == FilterDelivery("#", 1, Replayed.YES, 6, told["#"].bytes, 3, 6, 2.0)
    assert (told["a/b"].subscriptions, told["nothing"].messages) == (2, 0)
    assert (told["$share/g/a/#"].replayed, told["$SYS/#"].replayed) == (Replayed.SHARED, Replayed.SYS)
    assert found.deliveries[0].topic_filter == "#"
    assert found.messages == sum(one.messages * one.subscriptions for one in found.deliveries)


def test_the_command_lists_invalid_filters_and_ends_with_status_3(
    spark: SparkSession, filled: Filled, tmp_path: Path
) -> None:
    """It prints a table, or one line of JSON. The valid filters are still counted."""
    filled.put(message("a/b", b"xyz"), message("evil\x1b[2J/x"))
    file = tmp_path / "filters.txt"
    file.write_text("# mine\n#\na/#/b\nevil\x1b[2J/#\n")
    command = ["report", "--only", "filters", "--storage", filled.url, "--filters", str(file)]
    people = CliRunner().invoke(main, command)
    assert people.exit_code == 3
    assert f"{file}:3: 'a/#/b': '#' stands alone in the last level" in people.stderr
    assert "evil\\x1b[2J/#" in people.stdout
    assert "\x1b" not in people.output
    assert "2 Topic Filters, 2 subscriptions: 3 messages, 5 bytes" in people.stdout
    machines = CliRunner().invoke(main, [*command, "--json"])
    told = json.loads(machines.stdout)
    assert (machines.exit_code, len(told["deliveries"]), told["refused"][0]["line"]) == (3, 2, 3)


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        ([], 2, "name either the page (--out) or a part of it to print (--only)"),
        (["--only", "filters", "--delivery-rate", "x"], 1, "delivery-rate: found 'x'; allowed"),
        (["--only", "filters", "--filters", "/nowhere/x"], 1, "/nowhere/x: the Topic Filters cannot be read"),
    ],
)
def test_a_wrong_option_is_explained_in_one_line(
    spark: SparkSession, tmp_path: Path, options: list[str], status: int, said: str
) -> None:
    found = CliRunner().invoke(main, ["report", "--storage", f"sqlite:///{tmp_path}/none.db", *options])
    assert (found.exit_code, said in found.stderr, found.stderr.count("\n")) == (status, True, 1)
