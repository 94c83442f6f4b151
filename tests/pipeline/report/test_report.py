"""The figures of the report, in both kinds of databases, with and without a history."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from holdfast.retained.limits import FlowSettings
from holdfast_pipeline import snapshot_of
from holdfast_pipeline.analysis.history import busiest, history_of, step_of, topic_changes
from holdfast_pipeline.cli.root import main
from holdfast_pipeline.filters import of_lines
from holdfast_pipeline.jobs.report import report
from holdfast_pipeline.report.figures import BandTotals, History, NamedTotals, ReportedMessage
from tests.pipeline.stores import NOW, Filled, database, message

pytestmark = pytest.mark.spark

HOUR = 3_600_000


def test_a_history_of_any_length_has_at_most_72_steps() -> None:
    for seconds in (0, 59, 4_000, 86_400, 30 * 86_400, 10 * 365 * 86_400):
        step = step_of(seconds)
        assert step >= 60
        assert seconds / step <= 72
    assert (step_of(3600), step_of(86_400), step_of(7 * 86_400)) == (60, 3_600, 14_400)


def test_the_busiest_prefixes_have_the_levels_that_tell_most() -> None:
    """Not the building with nearly all changes, but its floors, and the one sensor that makes most of a floor's."""
    counts = {
        "hq": 950, "hq/f1": 300, "hq/f1/r1": 100, "hq/f1/r2": 100, "hq/f2": 600, "hq/f2/r1": 590,
        "hq/f2/r1/door": 580, "lab": 50, "lab/x": 20, "lab/y": 20, "/": 3, "": 3,
    }  # fmt: skip
    found = busiest([NamedTotals(name, count, count) for name, count in counts.items()], 1000)
    assert [(one.name, one.messages) for one in found] == [
        ("hq/f2/r1/door", 580),
        ("hq/f1", 300),
        ("lab", 50),
        ("/", 3),
    ]
    assert busiest([], 0) == ()


def test_the_report_counts_messages_by_size_age_publisher_and_expiry(spark: SparkSession, filled: Filled) -> None:
    with snapshot_of(_prepared(filled).url) as before:
        now = before.taken_at
    for age, one in (
        (40 * 24 * HOUR, message("a/b", b"x" * 100, client_id="c1")),
        (2 * HOUR, message("a/c", b"x" * 5, client_id="c1")),
        (31 * 24 * HOUR, message("old/x", b"x")),
        (HOUR // 2, message("soon", b"xy", client_id="c2", expires_at=now + HOUR + HOUR // 2)),
        (HOUR // 2, message("later", b"xy", client_id="c2", expires_at=now + 50 * 24 * HOUR)),
    ):
        filled.put(one, at=now - age)
    with snapshot_of(filled.url) as snapshot:
        found = report(spark, snapshot, FlowSettings(), of_lines(["a/#", "none"]), pages=0)
    assert found.history is None
    assert (found.totals.messages, found.totals.bytes, found.totals.largest, found.totals.clients) == (5, 110, 100, 2)
    assert (found.totals.expiring, found.totals.stale, found.totals.lasting_bytes) == (2, 2, 101)
    assert found.sizes == (BandTotals(0, 1, 1), BandTotals(1, 2, 4), BandTotals(3, 1, 5), BandTotals(7, 1, 100))
    assert found.ages == (BandTotals(0, 2, 4), BandTotals(1, 1, 5), BandTotals(5, 2, 101))
    assert [one.topic for one in found.oldest][:2] == ["a/b", "old/x"]
    assert found.largest[0] == ReportedMessage("a/b", "c1", 100, now - 40 * 24 * HOUR)
    assert found.clients == (NamedTotals("c1", 2, 105), NamedTotals("c2", 2, 4), NamedTotals(None, 1, 1))
    assert [one.prefix for one in found.stale] == ["old", "a/b"]
    assert (found.expiry.hours[1], sum(found.expiry.hours), found.expiry.days[0]) == (1, 1, 1)
    assert (found.expiry.later, found.expiry.never) == (1, 3)
    assert {one.prefix for one in found.branches} == {"a", "a/b", "a/c", "old", "old/x", "soon", "later"}
    assert found.deliveries is not None
    assert [(one.topic_filter, one.messages) for one in found.deliveries.deliveries] == [("a/#", 2), ("none", 0)]
    assert "password" not in found.database


def test_the_report_counts_changes_and_untouched_topics(spark: SparkSession, recorded: Filled) -> None:
    recorded.put(message("a/once", client_id="c1"), message("a/often", client_id="c1"), message("gone"), at=NOW)
    later = NOW + 400 * 24 * HOUR
    recorded.put(*(message("a/often", b"xyz", client_id="c2") for _ in range(5)), message("gone", b""), at=later)
    history = _history(spark, recorded)
    assert history is not None
    assert (history.changes, history.retained, history.untouched) == (9, 2, 1)
    assert history.untouched_topics == ("a/once",)
    assert [(one.sets, one.clears, one.expires) for one in history.churn] == [(3, 0, 0), (5, 1, 0)]
    assert history.topics[0] == NamedTotals("a/often", 6, 16)
    assert history.prefixes[0] == NamedTotals("a/often", 6, 16)
    assert {(one.name, one.messages) for one in history.clients} == {("c1", 2), ("c2", 5), (None, 2)}
    assert history.churn[1].at - history.churn[0].at >= history.step * 1000


def test_neither_an_expired_message_nor_an_override_of_expiry_changes_the_untouched_topics(
    spark: SparkSession, recorded: Filled
) -> None:
    """The history still has the expired message: it was not swept. The override has an entry, but stores nothing."""
    recorded.put(message("kept"), message("expired", expires_at=NOW + 1), at=NOW)
    with recorded.store() as store:
        store.cap_expiry(20 * 365 * 24 * HOUR, True, "", 100)
    history = _history(spark, recorded)
    assert history is not None
    assert (history.retained, history.untouched, history.untouched_topics) == (1, 1, ("kept",))


def test_an_empty_database_has_a_report(spark: SparkSession, filled: Filled, tmp_path: Path) -> None:
    """The page is in the folder, and --json prints a line of JSON."""
    command = ["report", "--storage", _prepared(filled).url, "--out", str(tmp_path / "new"), "--json", "--pages", "0"]
    found = CliRunner().invoke(main, command)
    told = json.loads(found.stdout)
    assert (found.exit_code, told["messages"], told["out"]) == (0, 0, str(tmp_path / "new" / "report.html"))
    assert "No messages are retained." in (tmp_path / "new" / "report.html").read_text()


def test_the_command_writes_a_page_and_lists_invalid_filters(spark: SparkSession, tmp_path: Path) -> None:
    """It replaces an earlier page as a whole; nothing else is left in the folder."""
    with database("sqlite", tmp_path) as filled:
        filled.put(message("a/<b>", b"xyz"))
        filters, out = tmp_path / "filters.txt", tmp_path / "out" / "page.html"
        filters.write_text("a/#\nbad/#/x\n")
        command = [
            "report",
            "--storage",
            filled.url,
            "--out",
            str(out),
            "--filters",
            str(filters),
            "--title",
            "T & <co>",
        ]
        for more in ([], ["--previous", str(out)]):
            found = CliRunner().invoke(main, command + more)
            assert found.exit_code == 3
            assert f"{filters}:2: 'bad/#/x'" in found.stderr
            assert f"1 messages reported in {out}" in found.stdout
    page = out.read_text()
    assert "<title>T &amp; &lt;co&gt;</title>" in page
    assert "a/&lt;b&gt;" in page
    assert "No shape is new, gone, grown or shrunk." in page
    assert [file.name for file in out.parent.iterdir()] == ["page.html"]


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (["--stale", "soon"], 2, "stale: found 'soon'; allowed: a time of at least a second"),
        (["--batch-deliver-number", "1001"], 1, "batch_deliver_number is 1001 and batch_read_number 1000; allowed"),
        (["--previous", "/nowhere/x.html"], 1, "/nowhere/x.html: cannot be read"),
        (["--filters", "/nowhere/x"], 1, "/nowhere/x: the Topic Filters cannot be read"),
    ],
)
def test_a_wrong_option_is_explained_in_one_line(
    spark: SparkSession, tmp_path: Path, options: list[str], status: int, said: str
) -> None:
    command = ["report", "--storage", f"sqlite:///{tmp_path}/none.db", "--out", str(tmp_path), *options]
    found = CliRunner().invoke(main, command)
    assert (found.exit_code, said in found.stderr, found.stderr.count("\n")) == (status, True, 1)


def _prepared(filled: Filled) -> Filled:
    with filled.store():
        pass
    return filled


def _history(spark: SparkSession, filled: Filled) -> History | None:
    with snapshot_of(filled.url) as snapshot, topic_changes(spark, snapshot) as changes:
        return None if changes is None else history_of(snapshot, changes)
