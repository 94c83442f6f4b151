"""``rollup``: values of payloads, and their figures by minute, hour and day, equal to a plain computation."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pytest
from attrs import fields
from click.testing import CliRunner
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.storage.revisions import TIME_SHIFT
from holdfast_pipeline import Source
from holdfast_pipeline.cli.root import main
from holdfast_pipeline.decoding.catalog import read_catalog
from holdfast_pipeline.jobs.rollup import TIMES, Rollup
from holdfast_pipeline.jobs.sync import Sync
from holdfast_pipeline.lake.growing_table import GrowingTable
from holdfast_pipeline.output.folder import Folder
from holdfast_pipeline.rollup import LENGTHS
from tests.pipeline.lake.changing import end_period
from tests.pipeline.rollup.plain_figures import Figures, plain_figures
from tests.pipeline.stores import NOW, Filled, database, message

#: 2023-11-14T23:00:00Z: an hour before the end of a day, in milliseconds
EVENING = 1_700_002_800_000
CATALOG = """
version = 1

[values.temperature]
pattern = "hq/{room}/climate"
path = "$.t"
time = "$.at"
unit = "°C"
"""


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[tuple[Filled, Path]]:
    """An SQLite database with a history, and the folder for its tables."""
    with database("sqlite", tmp_path, recorded=True) as filled:
        yield filled, tmp_path / "lake"


def climate(room: str, minutes: float, value: Any) -> Any:
    """Return a message whose payload has its own time, in minutes after :data:`EVENING`."""
    payload = json.dumps({"t": value, "at": EVENING + round(minutes * 60_000)})
    return message(f"hq/{room}/climate", payload.encode())


def rolled_up(filled: Filled, lake: Path, catalog: str = CATALOG, **options: Any) -> Any:
    """Sync, and take in the new changes."""
    Sync(Source(filled.url), Folder(str(lake))).run()
    file = lake.with_suffix(".toml")
    file.write_text(catalog, encoding="utf-8")
    return Rollup(Folder(str(lake)), Folder(str(lake)), read_catalog(file), **options).run()


def command(lake: Path, catalog: str, *options: str) -> tuple[int, str, str]:
    """Run the command; return its status and output."""
    file = lake.with_suffix(".toml")
    file.write_text(catalog, encoding="utf-8")
    result = CliRunner().invoke(main, ["rollup", "--lake", str(lake), "--catalog", str(file), *options])
    return result.exit_code, result.stdout, result.stderr


def windows(lake: Path, table: str) -> dict[tuple[str, int], Figures]:
    """Return the figures in a table of windows, by topic and start."""
    rows = DeltaTable(str(lake / table)).to_pyarrow_table().to_pylist()
    found = {
        (row["topic"], round(row["start"].timestamp() * 1e6)): Figures(
            row["count"], row["first"], row["last"], row["min"], row["max"], row["mean"], row["time_mean"]
        )
        for row in rows
    }
    assert len(found) == len(rows)
    return found


def require_figures(lake: Path, events: dict[str, list[tuple[int, float | None]]]) -> None:
    """Compare all windows with the plain computation. ``events`` are those of each topic, in order."""
    for of in LENGTHS:
        expected = {
            (topic, start): figures
            for topic, listed in events.items()
            for start, figures in plain_figures(listed, of).items()
        }
        found = windows(lake, of.table)
        assert found.keys() == expected.keys()
        for key, figures in expected.items():
            for name in (each.name for each in fields(Figures)):
                assert getattr(found[key], name) == pytest.approx(getattr(figures, name), rel=1e-9), (
                    of.table,
                    key,
                    name,
                )


class Killed(BaseException):
    """Stands for the end of the process."""


_TIMES = st.one_of(st.integers(0, 3), st.integers(50, 70), st.integers(0, 4000)).map(lambda number: number / 2)
_MESSAGES = st.lists(
    st.tuples(st.sampled_from("ab"), _TIMES, st.integers(-50, 50).map(lambda number: number / 4)), max_size=8
)


def require_right_after_kills(
    batches: list[list[tuple[str, float, float]]], rows: int, points: list[tuple[str, int, bool]], restart: bool
) -> None:
    """Kill the job at these commits, before or after them; at the end all figures must be right."""
    left = list(points)

    def killing(name: str, commit: Callable[..., None]) -> Callable[..., None]:
        def run(table: GrowingTable, *arguments: Any) -> None:
            if left and table.uri.endswith(("rollup_1m", "rollup_1h", "rollup_1d", "values")) and left[0][0] == name:
                kind, wait, late = left.pop(0)
                if wait:
                    left.insert(0, (kind, wait - 1, late))
                else:
                    if late:
                        commit(table, *arguments)
                    raise Killed
            commit(table, *arguments)

        return run

    events: dict[str, list[tuple[int, int, float | None]]] = {}
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        for name in ("append", "merge"):
            patched.setattr(GrowingTable, name, killing(name, getattr(GrowingTable, name)))
        lake = Path(folder) / "lake"
        with database("sqlite", Path(folder), recorded=True) as filled:
            for batch in batches:
                filled.put(*(climate(*each) for each in batch))
                for room, minutes, value in batch:
                    listed = events.setdefault(f"hq/{room}/climate", [])
                    listed.append(((EVENING + round(minutes * 60_000)) * 1000, len(listed), value))
                if restart:
                    end_period(filled)
                try:
                    rolled_up(filled, lake, rows=rows)
                except Killed:
                    continue
            left.clear()
            filled.put(message("other"))
            rolled_up(filled, lake, rows=rows)
            require_figures(lake, {
                topic: [(at, value) for at, _, value in sorted(listed)] for topic, listed in events.items()
            })  # fmt: skip


_RUNS = {
    "batches": st.lists(_MESSAGES, min_size=1, max_size=2),
    "rows": st.integers(3, 12),
    "points": st.lists(st.tuples(st.sampled_from(["append", "merge"]), st.integers(0, 3), st.booleans()), max_size=3),
    "restart": st.booleans(),
}


@settings(max_examples=3, deadline=None)
@given(**_RUNS)
def test_late_values_and_kills_change_no_figure(**runs: Any) -> None:
    """Values come in any order of their times, and the job is killed before or after any commit.

    A new period of the history repeats the present messages; they count once.
    """
    require_right_after_kills(**runs)


@pytest.mark.nightly
@settings(max_examples=60, deadline=None)
@given(**_RUNS)
def test_late_values_and_kills_change_no_figure_for_long(**runs: Any) -> None:
    """The same, more often."""
    require_right_after_kills(**runs)


def test_a_clear_ends_a_value(lake: tuple[Filled, Path]) -> None:
    """The time after it does not count for the mean by time; the next value begins anew."""
    filled, folder = lake
    plain = '[values.power]\npattern = "p"\nformat = "number"\nunit = "W"\n'
    filled.put(message("p", b"10"), message("p", b"30"), message("p", b""))
    rolled_up(filled, folder, f"version = 1\n{plain}")
    rows = DeltaTable(str(folder / "values")).to_pyarrow_table().sort_by("seq").to_pylist()
    assert [(row["name"], row["unit"], row["value"]) for row in rows] == [
        ("power", "W", 10.0), ("power", "W", 30.0), ("power", "W", None)
    ]  # fmt: skip
    require_figures(folder, {"p": [(round(row["at"].timestamp() * 1e6), row["value"]) for row in rows]})
    (day,) = windows(folder, "rollup_1d").values()
    assert (day.count, day.last, day.mean) == (2, 30.0, 20.0)


PLAIN = """
[values.power]
pattern = "p/{device}"
format = "number"
"""


def history_of(filled: Filled) -> list[tuple[Any, ...]]:
    """Return seq, topic, op, origin, changed_at, revision and payload of each entry, from the database itself."""
    with closing(sqlite3.connect(filled.url.removeprefix("sqlite:///"))) as connection:
        return connection.execute(
            "SELECT seq, topic, op, origin, changed_at, revision, payload FROM retained_history ORDER BY seq"
        ).fetchall()


def test_times_are_those_of_the_history(lake: tuple[Filled, Path]) -> None:
    """Computed anew from the table of the history by plain Python, and joined by DuckDB: each time is ``changed_at``.

    Revisions are some milliseconds off, also across the end of a minute. A repeated message keeps the time of the first
    entry with its revision, also if the roll-up has seen that entry long before; without one, that of its revision.
    """
    filled, folder = lake
    Filled(filled.url).put(message("p/old", b"1"), message("p/gone", b"2"))
    off = [7, 12, 59_999, 60_001, 60_001, 3_600_013, 90_000_000]
    for number, each in enumerate(off):
        filled.put(message(f"p/{number % 3}", b"%d" % number), at=NOW + each)
    rolled_up(filled, folder, PLAIN)
    filled.put(message("p/gone", b""), at=NOW + 90_000_100)
    end_period(filled)
    filled.put(message("p/1", b"8"), at=NOW + 90_000_200)
    rolled_up(filled, folder, PLAIN)

    first: dict[tuple[str, int], int] = {}
    repeated = 0
    expected: list[tuple[int, str, int, float | None]] = []
    events: dict[str, dict[tuple[int, int], float | None]] = {}
    for seq, topic, op, origin, changed_at, revision, payload in history_of(filled):
        at = changed_at
        if origin == "baseline":
            repeated += (topic, revision) in first
            at = first.get((topic, revision), revision >> TIME_SHIFT)
        first.setdefault((topic, revision), at)
        value = float(payload) if op == "set" else None
        expected.append((seq, topic, at * 1000, value))
        events.setdefault(topic, {})[at * 1000, revision] = value
    assert repeated == 4
    rows = DeltaTable(str(folder / "values")).to_pyarrow_table().sort_by("seq").to_pylist()
    assert [(row["seq"], row["topic"], round(row["at"].timestamp() * 1e6), row["value"]) for row in rows] == expected
    require_figures(folder, {
        topic: [(at, value) for (at, _), value in sorted(found.items())] for topic, found in events.items()
    })  # fmt: skip
    with duckdb.connect() as connection:
        for name in ("values", "changes"):
            connection.register(f"{name}_", DeltaTable(str(folder / name)).to_pyarrow_table())
        joined = connection.execute(
            'SELECT count(*), count(*) FILTER (v."at" = c.changed_at) FROM values_ AS v '
            "JOIN changes_ AS c USING (seq, topic) WHERE c.origin <> 'baseline'"
        ).fetchall()
    assert joined == [(len(off) + 2, len(off) + 2)]


def test_tables_of_an_earlier_release_are_made_anew_once(
    lake: tuple[Filled, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their times were those of revisions. The run says so, also if it was killed between two tables before."""
    filled, folder = lake
    filled.put(message("p/1", b"1"), message("p/1", b"2"), at=NOW + 7)
    with monkeypatch.context() as earlier:
        marks = Rollup._marks
        earlier.setattr(
            Rollup,
            "_marks",
            lambda job, upto: {name: number for name, number in marks(job, upto).items() if name != TIMES},
        )
        rolled_up(filled, folder, PLAIN)
    replace, left = GrowingTable.replace, [1, 1]

    def killed(table: GrowingTable, *arguments: Any) -> None:
        replace(table, *arguments)
        if left and left.pop():
            raise Killed

    monkeypatch.setattr(GrowingTable, "replace", killed)
    for _ in range(2):
        with pytest.raises(Killed):
            rolled_up(filled, folder, PLAIN)
    status, told, _ = command(folder, PLAIN)
    assert (status, told.partition(":")[0]) == (
        0,
        "the tables were made anew, because their times were up to some milliseconds off those of the history",
    )
    require_figures(folder, {"p/1": [((NOW + 7) * 1000, 1.0), ((NOW + 7) * 1000, 2.0)]})
    assert "anew" not in command(folder, PLAIN)[1]


def test_each_kind_of_reason_has_an_example_and_a_payload_counts_once(lake: tuple[Filled, Path]) -> None:
    """Texts that differ only in their values are one kind; a payload that is bad for two values is one payload."""
    filled, folder = lake
    filled.put(*(climate("a", 0, text) for text in ("warm", "cold", "it's hot")), message("hq/c/climate", b"{"))
    Sync(Source(filled.url), Folder(str(folder))).run()
    both = CATALOG + CATALOG.replace("version = 1", "").replace("temperature", "other") + PLAIN + NO_VALUE
    status, told, _ = command(folder, both, "--json")
    done = json.loads(told)
    assert (status, done["bad"]) == (3, 4)
    assert [(reason.partition(": ")[0], count) for reason, count in done["reasons"].items()] == [
        ("other", 3), ("temperature", 3), ("other", 1), ("temperature", 1)
    ]  # fmt: skip
    assert "temperature: the value is 'warm', which is no number" in done["reasons"]
    assert command(folder, both)[1].endswith("; without a value, for decode only: lamps\n")


NO_VALUE = """
[values.lamps]
pattern = "lamp/+"
"""


def test_bad_payloads_are_kept_with_their_reasons(lake: tuple[Filled, Path]) -> None:
    """They end nothing, give status 3, and are in a table; a payload without the value is none of them."""
    filled, folder = lake
    filled.put(climate("a", 0, 20.5), climate("b", 0, "warm"), message("hq/c/climate", b"{"), climate("d", 0, None))
    filled.put(message("hq/e/climate", b'{"t": 1, "at": "soon"}'), climate("f", 0, True))
    Sync(Source(filled.url), Folder(str(folder))).run()
    status, told, _ = command(folder, CATALOG, "--json")
    done = json.loads(told)
    assert (status, done["values"], done["bad"]) == (3, 2, 3)
    assert "temperature: the value is 'warm', which is no number" in done["reasons"]
    bad = DeltaTable(str(folder / "bad")).to_pyarrow_table().sort_by("seq").to_pylist()
    assert [row["topic"] for row in bad] == ["hq/b/climate", "hq/c/climate", "hq/e/climate"]
    assert "the time is 'soon'" in bad[2]["reason"]
    assert command(folder, CATALOG)[0] == 0, "the next run finds no new ones"


def test_a_new_version_of_the_catalogue_begins_again(lake: tuple[Filled, Path]) -> None:
    """A changed one with the old version, or an older one, is refused."""
    filled, folder = lake
    filled.put(climate("a", 0, 20.5))
    rolled_up(filled, folder)
    fahrenheit = CATALOG.replace("°C", "F")
    status, _, said = command(folder, fahrenheit)
    assert (status, said.count("\n")) == (1, 1)
    assert "write version = 2 into " in said
    second = fahrenheit.replace("version = 1", "version = 2").replace("{room}", "{floor}")
    assert command(folder, second)[0] == 0
    (row,) = DeltaTable(str(folder / "rollup_1h")).to_pyarrow_table().to_pylist()
    assert (row["unit"], row["floor"], row["room"], row["count"]) == ("F", "a", None, 1)
    status, _, said = command(folder, CATALOG)
    assert status == 1
    assert "made with version 2 of the catalogue" in said


def test_duckdb_reads_a_panel(lake: tuple[Filled, Path]) -> None:
    """As a dashboard asks: one room's temperature by the hour, from the named level, the unit and the start."""
    filled, folder = lake
    filled.put(climate("a", 0, 20.0), climate("a", 30, 21.0), climate("a", 61, 19.0), climate("b", 0, 5.0))
    rolled_up(filled, folder)
    with duckdb.connect() as connection:
        files = DeltaTable(str(folder / "rollup_1h")).file_uris()
        connection.read_parquet(files, hive_partitioning=True, union_by_name=True).create_view("rollup_1h")
        rows = connection.execute(
            "SELECT start AT TIME ZONE 'UTC', time_mean, unit FROM rollup_1h "
            "WHERE name = 'temperature' AND room = 'a' ORDER BY start"
        ).fetchall()
    late = datetime(2023, 11, 14, 23), datetime(2023, 11, 15)
    assert [row[0] for row in rows] == list(late)
    assert [row[1:] for row in rows] == [(20.5, "°C"), (pytest.approx((21 + 59 * 19) / 60), "°C")]
    assert datetime.fromtimestamp(EVENING / 1000, UTC).hour == 23


@pytest.mark.parametrize(
    ("catalog", "said"),
    [
        ("version = 0\n[values.a]\n", ":1: version: found 0; allowed: an integer from 1 to"),
        ("version = 1\n", "values: found 0 entries; allowed: 1 to"),
        ("version = 1\nvalue = 2\n", ":2: value: unknown key; did you mean values?"),
        ('[values.a]\npath = "$.t"\n', ":1: values.a.pattern: say which topics to decode by a pattern"),
        ('[values.a]\npattern = "x"\n', "no entry has a value to roll up; name its place"),
        ('[values.a]\npattern = "x"\npath = "t"\n', ":3: values.a.path: 't' is not a path; write it as in"),
        ('[values.a]\npattern = "x/{topic}"\npath = "$.t"\n', "{topic} has the name of another column"),
        ('[values.a]\npattern = "x/{y"\npath = "$.t"\n', "values.a.pattern: pattern 'x/{y': '{y' is not a named level"),
        ('[values.a]\npattern = "x"\npath = "$.t"\nunits = "C"\n', ":4: values.a.units: unknown key; did you mean"),
        ('[values.a]\npattern = "x"\npath = "$.t"\nunit = 1\n', ":4: values.a.unit: found 1; allowed: a text"),
        ('[values.a]\npattern = "x"\nunit = "C"\n', ":3: values.a.unit: is that of a value; name the place"),
        (
            '[values.a]\npattern = "x"\nformat = "xml"\npath = "$.t"\n',
            ":3: values.a.format: there is no format 'xml'; the formats are: avro, json, number, protobuf, sparkplug",
        ),
        ('[values.a]\npattern = "x"\npath = "$.t"\ntime_unit = "h"\n', 'allowed: "s", "ms" or "us"'),
        ('[values.a]\npattern = "x"\nformat = "sparkplug"\npath = "$.v"', ":4: values.a.path: a message of sparkplug"),
        ('[values.a]\npattern = "x"\npath = "$.t"\nmetric = "m"\n', "values.a.metric: the format json has no metrics"),
        (
            '[values.a]\npattern = "x"\nformat = "number"\nschema = "x int"',
            "values.a.schema: the format number has a schema of its own; only json takes one",
        ),
        ('[values.a]\npattern = "x"\nformat = "number"\ntime = "$.at"', ":4: values.a.time: a payload of the format"),
        ('[values.a]\npattern = "x"\nschema = "x doble"', "values.a.schema: schema 'x doble' is not understood"),
        ("version =", ":1: not TOML: no value follows"),
    ],
)
def test_a_wrong_catalogue_is_told_by_its_key(tmp_path: Path, catalog: str, said: str) -> None:
    """In one line with the file, before a table is opened."""
    status, printed, text = command(tmp_path / "lake", catalog)
    assert (status, printed, text.count("\n")) == (1, "", 1)
    assert text.startswith(str(tmp_path / "lake.toml"))
    assert said in text


def test_a_step_takes_a_bounded_number_of_bytes(lake: tuple[Filled, Path]) -> None:
    """At least one change, whatever its size."""
    filled, folder = lake
    filled.put(*(climate("a", number, number) for number in range(6)))
    Sync(Source(filled.url), Folder(str(folder))).run()
    (size,) = {
        row["size"] for row in DeltaTable(str(folder / "changes")).to_pyarrow_table().to_pylist() if row["topic"]
    }
    file = folder.with_suffix(".toml")
    file.write_text(CATALOG, encoding="utf-8")
    for most, steps in ((2 * size, 3), (1, 6)):
        out = Folder(str(folder.with_name(f"out{most}")))
        job = Rollup(Folder(str(folder)), out, read_catalog(file), size=most)
        count = 1
        while job.step():
            count += 1
        assert count == steps
        assert job.run().values == 6


def test_the_telemetry_has_figures_of_its_own(lake: tuple[Filled, Path], tmp_path: Path) -> None:
    """Equal to a plain computation of all messages, also those of one millisecond; it needs a folder of its own."""
    filled, folder = lake
    catalog = 'version = 1\n[values.flow]\npattern = "t/{pump}"\nformat = "number"\n'
    events: dict[str, list[tuple[int, float | None]]] = {}
    for step in range(12):
        at = EVENING + 31_000 * (step // 3)
        filled.record(*[message(f"t/{name}", b"%d" % (step * step)) for name in "ab"], at=at)
        for name in "ab":
            events.setdefault(f"t/{name}", []).append((1000 * at, float(step * step)))
    filled.record(message("t/a", b"no number"), at=EVENING + 31_000 * 4)
    filled.put(message("t/a", b"1000"), at=EVENING)
    Sync(Source(filled.url), Folder(str(folder))).run()
    out = tmp_path / "flows"
    status, _, told = command(folder, catalog, "--telemetry")
    assert (status, "--telemetry needs --to" in told) == (2, True)
    status, told, _ = command(
        folder, catalog, "--telemetry", "--to", str(out), "--rows", "5", "--max-bad", "1", "--json"
    )
    assert status == 0
    assert {key: json.loads(told)[key] for key in ("values", "bad", "last_seq")} == {
        "values": 24, "bad": 1, "last_seq": 25,
    }  # fmt: skip
    require_figures(out, events)
    status, _, told = command(folder, catalog, "--to", str(out))
    assert (status, "name another folder" in told) == (1, True)
