"""A lake answers for a past time as it was, or refuses: also after pruning, gaps, kills and interrupted runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from attrs import evolve
from deltalake import DeltaTable
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from holdfast.changes.periods import Period
from holdfast_pipeline import Source
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.jobs.sync import Sync
from holdfast_pipeline.output.folder import Folder
from holdfast_pipeline.sources import lake as coverage
from holdfast_pipeline.sources.lake import Coverage, Lake
from tests.pipeline.lake.changing import prune
from tests.pipeline.stores import NOW, Filled, database, message

State = dict[str, bytes]
_SECOND = 1000


class Killed(BaseException):
    """Stands for the end of the process."""


def state_in(lake: Lake, rows: Sequence[dict[str, Any]], at: int) -> State | None:
    """Return the messages of a time that a lake tells, None if it refuses."""
    try:
        moment = lake.coverage.moment(at)
    except PipelineError:
        return None
    newest: dict[str, dict[str, Any]] = {}
    for row in rows:
        inside = moment.first_seq < row["seq"] <= moment.last_seq
        if inside and row["changed_at"].timestamp() * 1000 <= at:
            newest[row["topic"]] = row
    return {topic: row["payload"] for topic, row in newest.items() if row["op"] == "set"}


def rows_of(out: Folder) -> list[dict[str, Any]]:
    """Return the rows of the table of changes, by ``seq``."""
    rows: list[dict[str, Any]] = DeltaTable(out.below("changes")).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: row["seq"])


def run(filled: Filled, out: Folder, rows: int, how: str) -> None:
    """Sync: to the end, one step only, or killed when the coverage is written for the first or the second time."""
    with pytest.MonkeyPatch.context() as patched:
        left = ["killed", "killed later"].index(how) if how.startswith("killed") else -1

        def write(*arguments: Any) -> None:
            nonlocal left
            if left == 0:
                raise Killed
            left -= 1
            real(*arguments)

        real = coverage.write_coverage
        patched.setattr("holdfast_pipeline.jobs.sync.write_coverage", write)
        job = Sync(Source(filled.url), out, rows, allow_gap=True)
        try:
            if how == "step":
                job.step()
            else:
                job.run()
        except Killed:
            pass


_CHANGE = st.tuples(st.just("change"), st.sampled_from("abc"), st.sampled_from([b"", b"1", b"2"]))
_PRUNE = st.tuples(st.just("prune"), st.integers(0, 3))
_SYNC = st.tuples(st.just("sync"), st.integers(1, 4), st.sampled_from(["run", "step", "killed", "killed later"]))
_RESURRECTED = [
    ("change", "a", b"1"), ("change", "b", b"1"), ("sync", 4, "run"), ("change", "b", b""), ("change", "a", b"2"),
    ("prune", 0), ("change", "c", b"1"),
]  # fmt: skip
_INTERRUPTED = [
    ("change", "a", b"1"), ("change", "a", b"2"), ("change", "b", b"1"), ("prune", 0), ("sync", 1, "step"),
    ("change", "b", b""), ("change", "a", b"1"), ("prune", 0), ("change", "c", b"1"),
]  # fmt: skip


@settings(max_examples=12, deadline=None)
@given(st.lists(st.one_of(_CHANGE, _CHANGE, _PRUNE, _SYNC), min_size=3, max_size=14))
@example(_RESURRECTED)
@example(_INTERRUPTED)
@example([*_RESURRECTED[:-1], ("sync", 4, "killed"), ("change", "c", b"1")])
@example([*_RESURRECTED[:-1], ("sync", 4, "killed later"), ("change", "c", b"1")])
def test_a_lake_tells_the_truth_or_refuses(steps: list[Any]) -> None:
    """The truth is a dictionary of the changes. The database prunes before, between and while the lake reads."""
    truth: dict[int, State] = {}
    state: State = {}
    with TemporaryDirectory() as folder, database("sqlite", Path(folder), recorded=True) as filled:
        out, at = Folder(f"{folder}/lake"), NOW
        filled.put(message("a", b"0"), at=at)
        truth[at], state = {"a": b"0"}, {"a": b"0"}
        for step in steps:
            if step[0] == "change":
                at += _SECOND
                filled.put(message(step[1], step[2]), at=at)
                state = {topic: payload for topic, payload in {**state, step[1]: step[2]}.items() if payload}
                truth[at] = state
            elif step[0] == "prune":
                prune(filled, at - step[1] * _SECOND)
            else:
                run(filled, out, *step[1:])
        at += _SECOND
        filled.put(message("end"), at=at)
        run(filled, out, 3, "run")
        lake, rows = Lake(out.uri), rows_of(out)
        for moment, expected in truth.items():
            for after in (0, _SECOND - 1):
                assert state_in(lake, rows, moment + after) in (expected, None)
        if not any(step[0] == "prune" for step in steps):
            assert state_in(lake, rows, at - 1) == state  # without pruning nothing is refused


def test_a_lake_that_reads_in_time_answers_also_when_the_database_has_forgotten(tmp_path: Path) -> None:
    with database("sqlite", tmp_path, recorded=True) as filled:
        out = Folder(str(tmp_path / "lake"))
        for number in range(5):
            filled.put(
                message("a", b"%d" % number), message("b", b"" if number % 2 else b"x"), at=NOW + number * _SECOND
            )
            run(filled, out, 2, "run")
            prune(filled, NOW + number * _SECOND)
        filled.put(message("end"), at=NOW + 9 * _SECOND)
        run(filled, out, 2, "run")
        lake, rows = Lake(out.uri), rows_of(out)
        for number in range(5):
            expected = {"a": b"%d" % number} | ({} if number % 2 else {"b": b"x"})
            assert state_in(lake, rows, NOW + number * _SECOND) == expected


def test_a_sync_that_finds_nothing_writes_once_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On S3 each write costs. At its end, it tells when it read the database last."""
    written: list[Coverage] = []
    monkeypatch.setattr("holdfast_pipeline.jobs.sync.write_coverage", lambda _out, known: written.append(known))
    with database("sqlite", tmp_path, recorded=True) as filled:
        filled.put(message("a"))
        job = Sync(Source(filled.url), Folder(str(tmp_path / "lake")))
        for _ in range(5):
            job.step()
        assert len(written) == 1
        filled.put(message("b"))
        job.step()
        assert len(written) == 2
        job.run()
        assert len(written) == 3
        assert evolve(written[2], read_at=written[1].read_at) == written[1]
        monkeypatch.setattr("holdfast_pipeline.jobs.sync._UNCHANGED", 0)
        job.step()
        job.step()
        assert len(written) == 5


def test_new_tables_do_not_take_the_coverage_of_former_ones(tmp_path: Path) -> None:
    """Nor do tables without the file claim what they may lack."""
    with database("sqlite", tmp_path, recorded=True) as filled:
        out = Folder(str(tmp_path / "lake"))
        filled.put(message("a", b"1"), at=NOW)
        run(filled, out, 9, "run")
        filled.put(message("a", b"2"), at=NOW + _SECOND)
        prune(filled, NOW + _SECOND)
        for table in ("changes", "current"):
            out.remove(table)
        filled.put(message("end"), at=NOW + 2 * _SECOND)
        run(filled, out, 9, "run")
        assert state_in(Lake(out.uri), rows_of(out), NOW) is None
        assert state_in(Lake(out.uri), rows_of(out), NOW + _SECOND) == {"a": b"2"}
        out.remove("coverage.json")
        run(filled, out, 9, "run")
        assert state_in(Lake(out.uri), rows_of(out), NOW + _SECOND) is None


def test_tables_without_the_file_that_lack_entries_do_not_answer(tmp_path: Path) -> None:
    """The tables are complete up to a gap, and the file is lost before the gap is accepted."""
    with database("sqlite", tmp_path, recorded=True) as filled:
        out = Folder(str(tmp_path / "lake"))
        filled.put(message("a", b"1"), message("b", b"1"), at=NOW)
        run(filled, out, 9, "run")
        out.remove("coverage.json")
        filled.put(message("b", b""), message("a", b"2"), at=NOW + _SECOND)
        filled.put(message("a", b"3"), at=NOW + 2 * _SECOND)
        prune(filled, NOW + 2 * _SECOND)
        filled.put(message("end"), at=NOW + 3 * _SECOND)
        run(filled, out, 9, "run")
        for at in (NOW, NOW + _SECOND, NOW + 2 * _SECOND):
            assert state_in(Lake(out.uri), rows_of(out), at) is None


def test_a_period_whose_end_was_never_seen_ends_where_the_lake_ended() -> None:
    """The database has forgotten it meanwhile. It does not answer for times in which nothing was recorded."""
    seen = Coverage().extended([Period(1, 1000, None, "", 1)], 20, 9000, 9500)
    later = seen.extended([Period(30, 50_000, None, "", 30)], 40, 60_000, 61_000)
    assert later.moment(5000).last_seq == 29
    for at in (9000, 20_000, 49_999, 60_000):
        with pytest.raises(PipelineError, match="does not cover"):
            later.moment(at)
    assert later.moment(55_000).first_seq == 30


@pytest.mark.parametrize(
    ("period", "told"),
    [
        (Period(1, 1000, 5000, "", 1), "the broker records no changes"),
        (Period(1, None, None, "", 1), "the broker writes the baseline of its history"),
    ],
)
def test_what_is_retained_now_is_not_known_without_a_present_period(period: Period, told: str) -> None:
    with pytest.raises(PipelineError, match=told):
        _ = Coverage(2, 3, 4, [period]).present


@pytest.mark.parametrize("name", ["sp ace", "ümlaut", "a*b", "{c}", "l?x"])
@pytest.mark.spark
def test_a_folder_may_have_any_name(spark: SparkSession, tmp_path: Path, name: str) -> None:
    with database("sqlite", tmp_path, recorded=True) as filled:
        filled.put(message("a"))
        out = Folder(str(tmp_path / name))
        run(filled, out, 9, "run")
        found = Lake(out.uri).read(spark, "current", ("topic",), "", F.lit(True))
        assert [row.topic for row in found.collect()] == ["a"]


@pytest.mark.parametrize("name", ["l[x]", "100%20"])
def test_names_that_delta_cannot_use_are_refused(tmp_path: Path, name: str) -> None:
    with database("sqlite", tmp_path, recorded=True) as filled:
        filled.put(message("a"))
        with pytest.raises(PipelineError, match="cannot be in a folder with one of"):
            run(filled, Folder(str(tmp_path / name)), 9, "run")
