"""The shapes of the retained topics, their figures, and the command."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from click.testing import CliRunner
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast.changes.entries import FOREVER, NOT_RECORDED, Rule, Rules
from holdfast_pipeline import snapshot_of
from holdfast_pipeline.analysis import shapes as shaped
from holdfast_pipeline.analysis.history import history_of, topic_changes
from holdfast_pipeline.analysis.messages import KeptTable, kind_of
from holdfast_pipeline.analysis.shapes import learn
from holdfast_pipeline.cli.root import main
from holdfast_pipeline.jobs.report import shapes
from holdfast_pipeline.shapes import NO_SHAPE, Patterns, ShapeTotals
from tests.changes.history.past import Past
from tests.pipeline.stores import NOW, database, message

pytestmark = pytest.mark.spark
PAGE = Path(__file__).parents[3] / "docs" / "pipeline" / "shapes.md"


def test_each_payload_has_a_kind(spark: SparkSession) -> None:
    """That of its JSON value, else text or binary. An object that has a name twice is text."""
    payloads = {
        b"1": "number", b"-1.5e3": "number", b"1e400": "number", b"true": "boolean", b'"on"': "string", b"null": "null",
        b'{"a":1}': "object", b"[]": "array", b"ON": "text", b"": "text", b'{"a":1,"a":2}': "text", b"[" * 3000: "text",
        b"\xff\xfe": "binary",
    }  # fmt: skip
    frame = spark.createDataFrame([(bytearray(each),) for each in payloads], "payload binary")
    found = {bytes(row[0]): row[1] for row in frame.select("payload", kind_of(F.col("payload"))).collect()}
    assert found == payloads


@pytest.mark.parametrize("make", ["sqlite", "postgresql"])
def test_each_shape_has_its_figures(spark: SparkSession, tmp_path: Path, make: str) -> None:
    """The kind of most payloads, how many differ, the type of the JSON values, times, and changes in a day."""
    hour = 3_600_000
    with database(make, tmp_path, recorded=True) as filled:
        filled.put(*(message(f"site/lamp-{number}/state", b'{"on":true}') for number in range(1, 4)), at=NOW - 6 * hour)
        filled.put(message("site/lamp-1/state", b'{"on":true,"level":3}', client_id="c"), at=NOW)
        filled.put(
            message("site/lamp-4/state", b"broken", expires_at=NOW + 2**40), message("site/info", b"\xff"), at=NOW
        )
        with snapshot_of(filled.url) as snapshot:
            found = shapes(spark, snapshot, Patterns())
            early = shapes(spark, evolve(snapshot, taken_at=NOW - hour), Patterns())
    assert (found.messages, found.unshaped, found.learned) == (5, 0, 5)
    lamps, info = found.shapes
    assert lamps == ShapeTotals(
        "site/{lamp}/state", "site/+/state", (4,), 4, 49, "object", 1, "OBJECT<level: BIGINT, on: BOOLEAN>",
        NOW, NOW - 6 * hour, 1, 1, lamps.changes_a_day, "site/lamp-1/state",
    )  # fmt: skip
    assert {one.changes_a_day for one in early.shapes} == {None}  # five hours of history tell nothing about a day
    assert lamps.changes_a_day is not None
    assert info.changes_a_day is not None
    assert lamps.changes_a_day == pytest.approx(5 * info.changes_a_day)
    assert (info.shape, info.kind, info.schema, info.names) == ("site/info", "binary", None, ())


def test_no_shape_has_more_names_than_messages(spark: SparkSession, tmp_path: Path) -> None:
    """Also where many devices share a level, and only one of them has a topic."""
    with database("sqlite", tmp_path) as filled:
        filled.put(*(message(f"site/dev-{number}/{leaf}") for number in range(30) for leaf in ("t", "h", "v")))
        filled.put(message("site/dev-7/odd"))
        with snapshot_of(filled.url) as snapshot:
            found = shapes(spark, snapshot, Patterns())
    names = {each.shape: (each.messages, each.names) for each in found.shapes}
    assert names["site/{dev}/odd"] == (1, (1,))
    assert names["site/{dev}/t"] == (30, (30,))


@pytest.mark.parametrize("is_exact", [True, False])
def test_each_variable_has_the_number_of_its_names(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_exact: bool
) -> None:
    """Those that messages of this shape have, not those of its neighbours: never more than messages.

    They are counted one by one; or, where there are very many, about.
    """
    monkeypatch.setattr(shaped, "_MOST_COUNTED", 300_000 if is_exact else 0)
    topics = [f"hq/f{floor}/r{room}/temp" for floor in range(3) for room in range(floor + 4)]
    topics += [topic.replace("temp", "window") for topic in topics[:5]] + [
        f"plug-{number}/state" for number in range(7)
    ]
    with database("sqlite", tmp_path) as filled:
        filled.put(*map(message, topics))
        with snapshot_of(filled.url) as snapshot:
            found = shapes(spark, snapshot, Patterns(["hq/{floor}/{room}/+", "{plug}/state"]))
    rooms, plugs = found.shapes
    levels = [topic.split("/") for topic in topics if topic.startswith("hq")]
    assert rooms.names == tuple(len({level[place] for level in levels}) for place in (1, 2)) == (3, 6)
    assert (rooms.about, plugs.names, plugs.about) == (not is_exact, (7,), False)


def test_many_topics_are_learned_from_whole_branches(spark: SparkSession) -> None:
    """Each device that is taken is taken with all its topics, so that the shapes are those of all topics."""
    rows = [(f"fleet/d{number}/{name}", "number") for number in range(2000) for name in ("lat", "lon", "speed")]
    frame = spark.createDataFrame(rows, "topic string, kind string")
    learned, found = learn(KeptTable(frame), Patterns(), most=2000)
    assert 500 < learned.num_rows <= 4000
    assert [shape.text for shape in found.shapes] == [f"fleet/{{name}}/{name}" for name in ("lat", "lon", "speed")]
    assert all(found.number_of(topic) != NO_SHAPE for topic, _ in rows)


def test_the_command_shows_a_table_or_a_line_of_json(spark: SparkSession, tmp_path: Path) -> None:
    """Also for a database without retained messages; a pattern that is none is a wrong command line."""
    with database("sqlite", tmp_path) as filled:
        command = ["report", "--only", "shapes", "--storage", filled.url, "--pattern", "site/{room}/+"]
        assert "0 messages, 0 bytes, in 0 shapes" in CliRunner().invoke(main, command).stdout
        filled.put(*(message(f"site/r{number}/temp", b"21") for number in range(3)), message("x\x1b", b"?"))
        people = CliRunner().invoke(main, command)
        assert people.exit_code == 0, people.output
        _, first, second, total = people.stdout.splitlines()
        assert first.split()[:4] == ["site/{room}/+", "3", "number", "3"]
        assert second.split()[0] == "x\\x1b"
        assert total.startswith("4 messages, 7 bytes, in 2 shapes on ")
        told = json.loads(CliRunner().invoke(main, [*command, "--json", "--top", "1"]).stdout)
        assert [each["shape"] for each in told["shapes"]] == ["site/{room}/+"]
        wrong = CliRunner().invoke(main, [*command[:-1], "a{b}"])
        assert (wrong.exit_code, "is not a named level" in wrong.stderr) == (2, True)


def test_changes_a_day_are_unknown_for_topics_with_rules_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    """They were recorded for another time, or not at all; and they do not change the time of the others."""
    with database("sqlite", tmp_path) as filled:
        rules = Rules([Rule("noise/#", NOT_RECORDED), Rule("long/#", FOREVER)])
        past = Past(filled.url, rules=rules).open()
        for number in range(1, 4):
            for topic in (f"noise/{number}/a", f"long/{number}/a", f"plain/{number}/a"):
                past.set(topic)
        past.close()
        with snapshot_of(filled.url) as snapshot:
            found = shapes(spark, snapshot, Patterns([f"{name}/{{n}}/a" for name in ("noise", "long", "plain")]))
            with topic_changes(spark, snapshot) as changes:
                assert changes is not None
                history = history_of(snapshot, changes)
    rates = {each.topic_filter: each.changes_a_day for each in found.shapes}
    assert [name for name, rate in sorted(rates.items()) if rate is None] == ["long/+/a", "noise/+/a"]
    assert rates["plain/+/a"]
    assert (history.retained, history.untouched, history.apart) == (3, 3, ("long/#", "noise/#"))


def test_the_example_of_the_page_counts_the_messages_of_shapes(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A pattern comes first. A topic that was not learned has a shape too, or none."""
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert found
    with database("sqlite", tmp_path) as filled:
        filled.put(*(message(f"site/lamp-{number}/state", b'{"on":true}') for number in range(1, 4)))
        filled.put(message("log/today", b"x"), message("log/error/disk", b"full"))
        names: dict[str, Any] = {"spark": spark}
        exec(found[1].replace("sqlite:////var/lib/holdfast/holdfast.db", filled.url), names)
    rows = re.findall(r"\|(\S+) *\|(\d+) *\|", capfd.readouterr().out)
    assert rows == [("log/#", "2"), ("site/{lamp}/state", "3")]
    spark.udf.register("shape_of", names["shapes"].text_of)
    query = "SELECT shape_of('site/lamp-9/state') AS lamp, shape_of('other') AS other, shape_of(NULL) AS no"
    (row,) = spark.sql(query).collect()
    assert (row.lamp, row.other, row.no) == ("site/{lamp}/state", None, None)
