"""Rules judged by Spark on both databases, and the command."""

from __future__ import annotations

import json
import os
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from attrs import evolve
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast_pipeline import snapshot_of
from holdfast_pipeline.checks.json_schema import parsed_schema
from holdfast_pipeline.checks.rule_findings import CheckFinding
from holdfast_pipeline.checks.rules import read_rules
from holdfast_pipeline.cli.root import main
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.jobs.check import CheckResult, check
from holdfast_pipeline.judging import rules as judged_figures
from holdfast_pipeline.judging.schema_columns import allows
from tests.hostile_strings import NAMES, TEXTS
from tests.pipeline.stores import NOW, Filled, database, fill, message

pytestmark = pytest.mark.spark
_DAY = 86_400_000

_RULES = """
[rules.temperature]
type = "range"
shape = "hq/{floor}/{room}/climate"
path = "$.t"
at_least = 5
at_most = 40
by = "floor"

[rules.plain]
type = "range"
filter = "hq/+/power"
at_most = 100
optional = true

[rules.climate]
type = "schema"
filter = "hq/+/+/climate"
schema = '{"type": "object", "required": ["t"], "properties": {"t": {"type": "number"}}}'

[rules.kind]
type = "schema"
filter = "hq/+/power"
kind = "number"

[rules.state]
type = "enumeration"
filter = "hq/+/light/+"
values = ["on", "off", 1, true]

[rules.stale]
type = "stale"
filter = "hq/#"
at_most = "12h"
severity = "warning"

[rules.serial]
type = "unique"
filter = "hq/+/+/info"
path = "$.serial"

[rules.beside]
type = "siblings"
filter = "hq/+/+/climate"
siblings = ["info", "../power"]

[rules.expiring]
type = "expires"
filter = "hq/+/power"
at_most = "1h"

[rules.owner]
type = "publisher"
shape = "hq/{floor}/light/{lamp}"
client_id = "gw-{floor}-*"

[rules.one-owner]
type = "publisher"
filter = "hq/+/light/+"
window = "1h"

[rules.busy]
type = "rate"
filter = "hq/+/light/+"
at_most = "2/h"

[rules.nothing]
type = "unique"
filter = "elsewhere/#"
"""


def _fill(filled: Filled) -> None:
    """A building of two floors, with a fault for each rule. Its messages are of a day ago, but for lamps and power."""
    old = NOW - _DAY
    filled.put(
        message("hq/1/a/climate", b'{"t": 21}'),
        message("hq/1/b/climate", b'{"t": 41}'),
        message("hq/1/c/climate", b'{"t": "21"}'),
        message("hq/2/a/climate", b"broken"),
        message("hq/2/b/climate", b'{"t": 5}'),
        message("hq/1/a/info", b'{"serial": "x1"}'),
        message("hq/1/b/info", b'{"serial": "x1"}'),
        message("hq/2/b/info", b'{"serial": 1}'),
        message("hq/2/c/info", b"{}"),
        at=old,
    )
    filled.put(
        message("hq/1/power", b"99", expires_at=NOW + 3_600_000),
        message("hq/2/power", b"101", expires_at=NOW + 7_200_000),
        message("hq/3/power", b"text"),
        message("hq/1/light/1", b"on", client_id="gw-1-x"),
        message("hq/1/light/2", b'"off"', client_id="gw-2-x"),
        message("hq/1/light/3", b"dim"),
        message("hq/2/light/1", b"true", client_id="gw-2-a"),
        message("hq/2/light/1", b"1", client_id="gw-2-b"),
        message("hq/2/light/1", b"1.0", client_id="gw-2-b"),
        at=NOW,
    )


def _checked(
    spark: SparkSession, filled: Filled, folder: Path, text: str = _RULES, since: str | None = None
) -> CheckResult:
    (folder / "rules.toml").write_text(text, encoding="utf-8")
    with snapshot_of(filled.url) as snapshot:
        return check(spark, evolve(snapshot, taken_at=NOW + 1000), read_rules(folder / "rules.toml"), since)


def _told(result: CheckResult) -> dict[str, list[tuple[str, str, int, int, dict[str, str]]]]:
    found: dict[str, list[tuple[str, str, int, int, dict[str, str]]]] = {}
    for each in result.findings:
        shown = {one.topic: one.value for one in each.examples}
        found.setdefault(each.rule, []).append(
            (each.finding.kind, each.finding.subject, each.failed, each.checked, shown)
        )
    return found


def test_each_rule_finds_its_fault_and_nothing_else(spark: SparkSession, recorded: Filled, tmp_path: Path) -> None:
    """With counts, and with what the topics have. On both databases."""
    _fill(recorded)
    result = _checked(spark, recorded, tmp_path)
    assert (result.messages, result.rules, result.left_out) == (16, 13, ())
    told = _told(result)
    assert told.pop("temperature") == [
        ("range", "hq/1/{room}/climate", 2, 3, {"hq/1/b/climate": "41", "hq/1/c/climate": "21"}),
        ("range", "hq/2/{room}/climate", 1, 2, {"hq/2/a/climate": "no JSON: broken"}),
    ]
    assert told.pop("plain") == [("range", "hq/+/power", 1, 3, {"hq/2/power": "101"})]
    assert told.pop("climate") == [
        ("schema", "hq/+/+/climate", 2, 5, {"hq/1/c/climate": '{"t": "21"}', "hq/2/a/climate": "broken"})
    ]
    assert told.pop("kind") == [("schema", "hq/+/power", 1, 3, {"hq/3/power": "text"})]
    assert told.pop("state") == [("enumeration", "hq/+/light/+", 1, 4, {"hq/1/light/3": "dim"})]
    ((kind, _, failed, checked, shown),) = told.pop("stale")
    assert (kind, failed, checked, set(shown.values())) == ("stale", 9, 16, {"stale: 1 d old"})
    assert told.pop("serial") == [("unique", "hq/+/+/info", 2, 4, {"hq/1/a/info": "x1", "hq/1/b/info": "x1"})]
    ((_, _, failed, checked, shown),) = told.pop("beside")
    assert (failed, checked) == (2, 5)
    assert shown == {"hq/1/c/climate": "without info", "hq/2/a/climate": "without info"}
    assert told.pop("expiring") == [
        ("expires", "hq/+/power", 2, 3, {"hq/2/power": "expires after 2 h", "hq/3/power": "never expires"})
    ]
    owner = {"hq/1/light/2": "gw-2-x", "hq/1/light/3": "(none)"}
    assert told.pop("owner") == [("publisher", "hq/{floor}/light/{lamp}", 2, 4, owner)]
    several = {"hq/2/light/1": "gw-2-a, gw-2-b"}
    assert told["one-owner"][0][0::4] == ("publisher", several)
    assert told["busy"][0][0::4] == ("rate", {"hq/2/light/1": "3 changes"})
    assert told.pop("nothing") == [("matches nothing", "elsewhere/#", 0, 0, {})]
    # The history has begun just now: what is not a failure yet may be one in the rest of the window.
    assert [each[0] for each in told.pop("one-owner")] == ["publisher", "not judged"]
    assert [each[0] for each in told.pop("busy")] == ["rate", "not judged"]
    assert not told


_STUCK = """
[rules.climate]
type = "stuck"
shape = "hq/{floor}/{room}/climate"
path = "$.t"
at_most = "1h"
by = "floor"

[rules.plain]
type = "stuck"
filter = "pump/+"
at_most = "1h"

[rules.alone]
type = "stuck"
filter = "tank"
at_most = "1h"
severity = "warning"

[rules.night]
type = "stuck"
filter = "night/+"
at_most = "1h"
"""


def test_a_value_is_stuck_if_it_is_the_same_for_long_while_siblings_change(
    spark: SparkSession, recorded: Filled, tmp_path: Path
) -> None:
    """An equal payload that is published again is the same value, a clear is not. Where all are the same, none is.

    The history begins with the messages of before, and their times. On both databases.
    """
    before = evolve(recorded, recorded=False, since=NOW - 5 * 3_600_000)
    before.put(message("pump/old", b"7"), message("pump/new", b"7"), at=before.since)
    recorded = evolve(recorded, since=NOW - 4 * 3_600_000)
    hours = [NOW - hour * 3_600_000 for hour in (4, 3, 2, 1, 0)]
    for turn, at in enumerate(hours):
        climates = [(1, "a", turn), (1, "b", turn), (1, "c", 20), (1, "d", None), (2, "a", 20), (2, "b", 20)]
        recorded.put(
            *(
                message(
                    f"hq/{floor}/{room}/climate", json.dumps({"turn": turn} | ({} if t is None else {"t": t})).encode()
                )
                for floor, room, t in climates
            ),
            message("pump/old", b"7"),
            message("pump/new", b"%d" % turn),
            message("pump/cleared", b"7"),
            message("tank", b"\xff"),
            message("night/a", b"on"),
            message("night/b", b"on"),
            at=at,
        )
        if turn == 3:
            recorded.put(message("pump/cleared", b""), at=at + 1)
    told = _told(_checked(spark, recorded, tmp_path, _STUCK))
    assert told.pop("climate") == [("stuck", "hq/1/{room}/climate", 1, 4, {"hq/1/c/climate": "20 for 4 h"})]
    assert told.pop("plain") == [("stuck", "pump/+", 1, 3, {"pump/old": "7 for 5 h"})]
    assert told.pop("alone") == [("stuck", "tank", 1, 1, {"tank": "(binary) for 4 h"})]
    assert not told


def test_stuck_values_need_the_history(spark: SparkSession, tmp_path: Path) -> None:
    with database("sqlite", tmp_path) as filled:
        filled.put(message("tank", b"1"), at=NOW - _DAY)
        told = _told(_checked(spark, filled, tmp_path, _STUCK))
    assert {rule: [each[0] for each in found] for rule, found in told.items()} == {
        "climate": ["matches nothing"], "plain": ["matches nothing"], "alone": ["not judged"],
        "night": ["matches nothing"],
    }  # fmt: skip


_CHILDREN = """
[rules.listed]
type = "children"
shape = "hq/{floor}/{room}"
children = ["climate/temperature", "window"]
by = "floor"

[rules.usual]
type = "children"
filter = "hq/+/+"
severity = "warning"

[rules.few]
type = "children"
filter = "hall/+"
"""


def test_devices_must_have_the_listed_children_or_those_of_nearly_all(
    spark: SparkSession, recorded: Filled, tmp_path: Path
) -> None:
    """On both databases. Lamps with names of their own are not required, and few devices tell nothing."""
    rooms = [(floor, room) for floor in (1, 2) for room in range(10)]
    lacking = {"hq/1/3/window", "hq/2/4/climate/temperature", "hq/2/4/light"}
    topics = [
        f"hq/{floor}/{room}/{child}"
        for floor, room in rooms
        for child in ("climate/temperature", "window", "light", f"lamp-{floor}-{room}/state")
    ]
    halls = [message(f"hall/{number}/light") for number in range(9)]
    recorded.put(*(message(topic) for topic in topics if topic not in lacking), message("hq/1/3"), *halls)
    told = _told(_checked(spark, recorded, tmp_path, _CHILDREN))
    assert told.pop("listed") == [
        ("children", "hq/1/{room}", 1, 10, {"hq/1/3": "without window"}),
        ("children", "hq/2/{room}", 1, 10, {"hq/2/4": "without climate/temperature"}),
    ]
    ((kind, subject, failed, checked, shown),) = told.pop("usual")
    assert (kind, subject, failed, checked) == ("children", "hq/+/+", 2, 20)
    assert shown == {"hq/1/3": "without window", "hq/2/4": "without climate/temperature, light"}
    assert told.pop("few") == [("not judged", "hall/+", 0, 0, {})]
    assert not told


_REFERRING = """
[rules.commands]
type = "absent"
filter = "z/+/set"

[rules.no-commands]
type = "absent"
filter = "cmnd/#"

[rules.state]
type = "refers"
shape = "ha/{kind}/{device}/config"
path = "$.state_topic"

[rules.pointer]
type = "refers"
filter = "now"

[rules.clock]
type = "time"
filter = "c/+"
path = "$.at"
at_most = "10s"

[rules.beside]
type = "siblings"
shape = "ha/{kind}/{device}/config"
siblings = ["../../../z/{device}", "{kind}-{device}"]

[rules.odd]
type = "siblings"
shape = "odd/{a}/{b}/x"
siblings = ["../{b}{a}"]
"""


def test_rules_about_other_topics_and_times(spark: SparkSession, recorded: Filled, tmp_path: Path) -> None:
    """What may not be retained, what payloads name, what belongs to a device elsewhere, and clocks that are wrong."""
    recorded.put(
        message("z/lamp", b"on"),
        message("z/lamp/set", b"off"),
        message("ha/light/lamp/config", b'{"state_topic": "z/lamp"}'),
        message("ha/light/lamp/light-lamp", b""" """),
        message("ha/light/gone/config", b'{"state_topic": "z/gone"}'),
        message("ha/light/bare/config", b"{}"),
        message("now", b"z/lamp"),
        message("c/right", b'{"at": %d}' % (NOW - 9_000)),
        message("c/text", b'{"at": "2026-01-01T00:00:00Z"}'),
        message("c/late", b'{"at": %d}' % (NOW - 3_600_000)),
        message("c/early", b'{"at": %d}' % (NOW + 7_200_000)),
        message("c/none", b"{}"),
        message("c/no", b'{"at": "soon"}'),
        # The name of a level is text, also if it looks like another level.
        message("odd/{b}/1/x", b"1"),
        message("odd/{b}/1{b}", b"1"),
        at=NOW,
    )
    told = {rule: found[0][2:] for rule, found in _told(_checked(spark, recorded, tmp_path, _REFERRING)).items()}
    ((failed, checked, shown),) = [told.pop("clock")]
    assert (failed, checked) == (5, 6)
    assert {topic: text for topic, text in shown.items() if topic != "c/text"}.items() <= {
        "c/late": "1 h before storing", "c/early": "2 h after storing", "c/none": "no value there",
        "c/no": "no time: soon",
    }.items()  # fmt: skip
    assert told == {
        "commands": (1, 1, {"z/lamp/set": "off"}),
        "state": (2, 3, {"ha/light/bare/config": "no value there", "ha/light/gone/config": "z/gone"}),
        "beside": (
            2, 3, {f"ha/light/{one}/config": "without ../../../z/{device}, {kind}-{device}" for one in ("bare", "gone")}
        ),
    }  # fmt: skip


_TIMES = """
[rules.ms]
type = "time"
shape = "ms/{name}"
by = "name"
path = "$.at"
at_most = "10s"

[rules.s]
type = "time"
filter = "s/+"
path = "$.at"
at_most = "10s"
time_unit = "s"
optional = true

[rules.us]
type = "time"
filter = "us/+"
at_most = "10s"
time_unit = "us"
"""


def test_only_times_are_times(spark: SparkSession, tmp_path: Path) -> None:
    """NOW is 22:13:20 UTC on 14 November 2023. Extreme numbers, and texts that Spark would take, are none."""
    wrong = {
        "null": b"null", "huge": b"1e300", "infinite": b"1e400", "low": b"-1e400", "hour": b'"22:13:20"',
        "year": b'"2023"', "text": b'"1700000000000"', "object": b"{}", "true": b"true", "day": b'"2023-11-14"',
    }  # fmt: skip
    right = {
        "number": b"1700000000000", "utc": b'"2023-11-14T22:13:20Z"', "none": b'"2023-11-14 22:13:20"',
        "zone": b'"2023-11-14T23:13:21.5+01:00"',
    }  # fmt: skip
    with database("sqlite", tmp_path) as filled:
        filled.put(
            *(message(f"ms/{name}", b'{"at": %s}' % value) for name, value in (wrong | right).items()),
            message("ms/broken", b"{"),
            message("s/right", b'{"at": %d}' % (NOW // 1000)),
            message("s/wrong", b'{"at": %d}' % NOW),
            message("s/absent", b"{}"),
            message("us/right", b"%d" % (NOW * 1000)),
            message("us/written", b"2023-11-14T22:13:25"),
            message("us/null", b"null"),
            at=NOW,
        )
        result = _checked(spark, filled, tmp_path, _TIMES)
    told = _told(result)
    values = {topic: value for *_, shown in told["ms"] for topic, value in shown.items()}
    assert set(values) == {f"ms/{name}" for name in (*wrong, "broken")}
    assert all(value.startswith("no ") for value in values.values()), values
    assert values["ms/hour"] == "no time: 22:13:20"
    assert [set(each[4]) for each in told["s"]] == [{"s/wrong"}]
    assert [each[4] for each in told["us"]] == [{"us/null": "no time: null"}]


def test_a_rate_is_judged_only_where_the_history_reaches(spark: SparkSession, tmp_path: Path) -> None:
    """Too few changes need the whole window. Without a history, nothing is known."""
    text = "[rules.slow]\ntype = 'rate'\nfilter = 'a'\nat_least = '2/h'\nwindow = '{}'\n"
    with database("sqlite", tmp_path, recorded=True) as filled:
        filled.put(message("a"), at=NOW)
        long = _told(_checked(spark, filled, tmp_path, text.format("2h")))
    assert [each[0] for each in long["slow"]] == ["not judged"]
    (tmp_path / "none").mkdir()
    with database("sqlite", tmp_path / "none") as filled:
        filled.put(message("a"), at=NOW)
        assert [each[0] for each in _told(_checked(spark, filled, tmp_path, text.format("1h")))["slow"]] == [
            "not judged"
        ]


def test_changes_alone_leave_out_rules_that_need_everything(spark: SparkSession, tmp_path: Path) -> None:
    """Only what was set since the token is judged, and no rule is said to match nothing."""
    with database("sqlite", tmp_path, marked=True) as filled:
        with filled.store() as store:
            fill(store, [message("hq/1/power", b"999"), message("hq/2/power", b"1")])
        with snapshot_of(filled.url) as snapshot:
            token = snapshot.token
        assert token is not None
        with filled.store() as store:
            fill(store, [message("hq/2/power", b"500"), message("hq/1/power", b"")])
        result = _checked(spark, filled, tmp_path, since=token)
    assert result.messages == 1
    assert result.left_out == ("stale", "serial", "beside", "one-owner", "busy", "nothing")
    told = _told(result)
    assert told.pop("plain") == [("range", "hq/+/power", 1, 1, {"hq/2/power": "500"})]
    assert set(told) == {"expiring"}


def test_hostile_topics_payloads_and_names_are_only_text(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    r"""Also in the middle of a publisher's pattern, where \E would end the quotation. Two rules share a pass here."""
    monkeypatch.setattr(judged_figures, "_AT_ONCE", 2)
    with database("sqlite", tmp_path) as filled:
        names = [*(name for name in NAMES if "/" not in name), r"\E.*\Q", "[", "(?s:"]
        filled.put(*(message(f"x/{name}", name.encode(), client_id=f"c-{name}") for name in names))
        payloads = [text.encode("utf-8", "surrogatepass") for text in TEXTS if text]
        filled.put(*(message(f"y/{place}", payload) for place, payload in enumerate(payloads)))
        filled.put(message("y/deep", b"[" * 5000), message("y/big", b"1e400"), message("y/bin", b"\xff" * 100_000))
        text = (
            "[rules.owner]\ntype = 'publisher'\nshape = 'x/{name}'\nclient_id = 'c-{name}'\n"
            "[rules.other]\ntype = 'publisher'\nshape = 'x/{name}'\nclient_id = '.*{name}x*'\nby = 'name'\n"
            "[rules.value]\ntype = 'range'\nfilter = 'y/#'\npath = '$.a[0].b'\nat_least = 1\n"
            "[rules.high]\ntype = 'range'\nfilter = 'y/big'\nat_most = 1\n"
            "[rules.unique]\ntype = 'unique'\nfilter = '#'\n"
            "[rules.schema]\ntype = 'schema'\nfilter = 'y/#'\nschema = '{\"type\": \"object\"}'\n"
        )
        told = _told(_checked(spark, filled, tmp_path, text))
    assert "owner" not in told
    assert {subject for _, subject, *_ in told["other"]} == {f"x/{name}" for name in names}
    assert [each[2:4] for each in told["value"]] == [each[2:4] for each in told["schema"]]
    assert told["high"][0][2:4] == (1, 1)


_PLAIN = (
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.floats(-9, 9).map(lambda at: round(at, 1))
    | st.text("ab", max_size=3)
)
_DOCUMENTS = st.recursive(
    _PLAIN, lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from("abc"), below, max_size=3)
)  # fmt: skip


def _schemas(below: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    few, names = st.integers(0, 3), st.sampled_from("abc")
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.lists(
                st.sampled_from(("object", "array", "string", "number", "integer", "boolean", "null")), min_size=1
            ).map(lambda each: sorted(set(each))),
            "enum": st.lists(_PLAIN, min_size=1, max_size=3),
            "minimum": st.integers(-5, 5),
            "exclusiveMaximum": st.integers(-5, 5),
            "maxLength": few,
            "pattern": st.sampled_from(("^a", "b")),
            "properties": st.dictionaries(names, below, max_size=2),
            "required": st.lists(names, unique=True, max_size=2),
            "additionalProperties": below,
            "maxProperties": few,
            "items": below,
            "minItems": few,
            "anyOf": st.lists(below, min_size=1, max_size=2),
            "oneOf": st.lists(below, min_size=1, max_size=2),
            "allOf": st.lists(below, min_size=1, max_size=2),
            "not": below,
        },
    )


_SCHEMAS: st.SearchStrategy[Any] = st.recursive(st.booleans() | st.just({}), _schemas, max_leaves=6)


@settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.lists(_SCHEMAS, min_size=3, max_size=5), st.lists(_DOCUMENTS, min_size=10, max_size=30))
def test_a_schema_allows_what_the_standard_s_checker_allows(
    spark: SparkSession, schemas: list[Any], documents: list[Any]
) -> None:
    frame = spark.createDataFrame([(json.dumps(each),) for each in documents], "text string")
    columns = [
        allows(parsed_schema(json.dumps(each)), F.col("value")).alias(f"s{place}") for place, each in enumerate(schemas)
    ]
    rows = frame.withColumn("value", F.parse_json("text")).select("text", *columns).collect()
    for row in rows:
        document = json.loads(row.text)
        for place, schema in enumerate(schemas):
            validator: Callable[[Any], bool] = jsonschema_rs.validator_for(schema).is_valid
            assert row[f"s{place}"] == validator(document), (schema, document)


def _run(arguments: str, *more: str) -> Any:
    return CliRunner().invoke(main, [*arguments.split(), *more])


def test_the_command_tells_findings_and_keeps_known_ones_quiet(spark: SparkSession, tmp_path: Path) -> None:
    """Status 3 for new failures only; JUnit and JSON say the same; a finding that is gone is told."""
    rules, known, report = tmp_path / "rules.toml", tmp_path / "known.json", tmp_path / "out.xml"
    rules.write_text(
        "[rules.power]\ntype = 'range'\nfilter = 'hq/+/power'\nat_most = 100\n"
        "[rules.mild]\ntype = 'schema'\nfilter = 'hq/#'\nkind = 'object'\nseverity = 'note'\n"
    )
    with database("sqlite", tmp_path) as filled:
        filled.put(message("hq/1/power", b"101"), message("hq/2/power", b"1"))
        call = f"check --storage {filled.url} --rules {rules} --snapshot-dir {tmp_path}"
        first = _run(call)
        assert first.exit_code == 3, first.output
        assert "1 of 2 messages (50 %) fails. Required: a number of at most 100." in first.stdout
        assert "hq/1/power: 101" in first.stdout
        assert "2 findings (1 error, 1 note) in 2 messages by 2 rules" in first.stdout
        written = _run(f"{call} --baseline {known} --write-baseline")
        assert written.exit_code == 0, written.output
        quiet = _run(f"{call} --baseline {known} --fail-on note --junit {report} --json")
        assert quiet.exit_code == 0, quiet.output
        result = json.loads(quiet.stdout)
        assert [(each["rule"], each["known"]) for each in result["findings"]] == [("power", True), ("mild", True)]
        assert (result["failed"], result["gone"], result["messages"]) == (False, [], 2)
        assert ET.parse(report).getroot()[0].attrib["failures"] == "0"
        filled.put(message("hq/1/power", b"1"))
        gone = _run(f"{call} --baseline {known}")
        assert gone.exit_code == 0, gone.output
        assert "gone     power  hq/+/power" in gone.stdout


@pytest.mark.parametrize(
    ("more", "status", "told"),
    [
        ("--write-baseline", 2, "--write-baseline needs --baseline"),
        ("--baseline x --write-baseline --since 1h", 2, "exclude each other"),
        ("--baseline none.json", 1, "none.json: there is no such baseline"),
        ("--baseline .", 1, "cannot be read"),
        ("--junit .", 1, "is a folder"),
    ],
)
def test_mistakes_are_told_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str, status: int, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("r.toml").write_text("[rules.a]\ntype = 'unique'\nfilter = 'a'")
    result = _run(f"check --storage sqlite:///nowhere.db --rules r.toml {more}")
    assert (result.exit_code, result.stdout) == (status, ""), result.output
    assert told in result.stderr
    assert os.listdir() == ["r.toml"]


def test_an_empty_database_has_only_rules_without_topics(spark: SparkSession, recorded: Filled, tmp_path: Path) -> None:
    found: tuple[CheckFinding, ...] = _checked(spark, recorded, tmp_path).findings
    assert {each.finding.kind for each in found} == {"matches nothing"}
    assert len(found) == 13


def test_a_pattern_that_java_does_not_understand_is_told_with_its_rule(spark: SparkSession, tmp_path: Path) -> None:
    text = "[rules.r]\ntype = 'schema'\nfilter = 'a'\nschema = '{\"items\": {\"pattern\": \"(?P<a>x)\"}}'\n"
    with database("sqlite", tmp_path) as filled, pytest.raises(PipelineError, match=r"rules\.r: a pattern"):
        _checked(spark, filled, tmp_path, text)
