"""The tables of the benchmarks: medians, the better configuration of a peer, ratios, goals."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from benchmarks.__main__ import configurations
from benchmarks.brokers import Broker, Site
from benchmarks.connection import BenchError
from benchmarks.goals import Goal, goals, markdown, summary, terminal
from benchmarks.report import column, lines, ratio
from benchmarks.report import markdown as all_figures
from benchmarks.results import Metric, Processor, Result, Row
from benchmarks.scenarios import FULL, QUICK, SCENARIOS, Scenario
from benchmarks.scenarios.seed import BARE
from benchmarks.wire import Wire

RATE = Metric("rate", "msg/s", True)
WAIT = Metric("wait", "ms", False)


def rows(metric: Metric, *values: float, lost: int = 0) -> list[Row]:
    return [Row("c", metric, value, lost) for value in values]


def test_a_table_tells_medians_extremes_ratios_and_failures() -> None:
    """The same figures for a terminal and in Markdown."""
    figures = {
        ("s", "c", RATE): {"holdfast": rows(RATE, 300.0, 100.0, 200.0), "mosquitto": rows(RATE, 100.0)},
        ("s", "c", WAIT): {
            "holdfast": rows(WAIT, 1.5, lost=7),
            "mosquitto": [Row("c", WAIT, failure="TIMEOUT")],
            "mosquitto-nodelay": [Row("c", WAIT, failure="TIMEOUT")],
        },
    }
    makes = ["holdfast", "mosquitto"]
    assert list(all_figures(figures, makes)) == [
        "| scenario | case | figure | holdfast | mosquitto | ratio | note |",
        "|---|---|---|---|---|---|---|",
        "| s | c | rate, msg/s | 200 (100 .. 300) | 100 | 2.00 |  |",
        "| s | c | wait, ms | 1.5 LOST 7 | TIMEOUT |  |  |",
    ]
    told = [line.split() for line in lines(figures, makes)]
    assert told[2] == ["c", "rate", "msg/s", "200", "(100", "..", "300)", "100", "2.00"]


@pytest.mark.parametrize(
    ("metric", "default", "nodelay", "better"),
    [
        (RATE, [100, 110, 90], [300, 50, 60], "mosquitto"),
        (RATE, [100], [110], "mosquitto-nodelay"),
        (WAIT, [100], [110], "mosquitto"),
        (WAIT, [40], [1], "mosquitto-nodelay"),
    ],
)
def test_the_configuration_with_the_better_median_counts(
    metric: Metric, default: list[float], nodelay: list[float], better: str
) -> None:
    """The better median is the higher one of rates, and the lower one of waits."""
    found = {"mosquitto": rows(metric, *default), "mosquitto-nodelay": rows(metric, *nodelay)}
    assert column(metric, found, "mosquitto").configuration == better


def test_a_configuration_that_loses_messages_is_not_the_better_one() -> None:
    """A configuration that loses messages or fails never counts, however fast it is."""
    losing = {"mosquitto": rows(RATE, 1000.0, lost=1), "mosquitto-nodelay": rows(RATE, 10.0)}
    assert column(RATE, losing, "mosquitto").median == 10.0
    failing = {"mosquitto": [Row("c", RATE, failure="TIMEOUT")], "mosquitto-nodelay": rows(RATE, 10.0)}
    assert column(RATE, failing, "mosquitto").median == 10.0


def test_a_ratio_above_one_means_that_holdfast_is_better() -> None:
    """This holds for rates and for waits. Without a figure on either side, there is no ratio."""
    high, low, none = (column(RATE, {"x": rows(RATE, *values)}, "x") for values in ([20.0], [10.0], []))
    assert ratio(RATE, high, low) == 2
    assert ratio(WAIT, low, high) == 2
    assert ratio(RATE, high, none) is None
    assert ratio(RATE, none, high) is None


def test_processor_times_are_medians_and_one_limited_run_is_told() -> None:
    """The medians are those of the broker and of the generator, each by itself."""
    found = rows(RATE, 1.0, 2.0, 3.0)
    for row, broker in zip(found, (5.0, 1.0, 2.0), strict=True):
        row.processor = Processor(broker, 0.5, limited=broker == 5.0)
    assert column(RATE, {"x": found}, "x").processor == Processor(2.0, 0.5, limited=True)


@pytest.mark.parametrize(
    ("goal", "own", "peer", "met"),
    [
        (Goal("", "s", "c", RATE, 4), 400, 100, True),
        (Goal("", "s", "c", RATE, 4), 399, 100, False),
        (Goal("", "s", "c", RATE, 4), 399, None, None),
        (Goal("", "s", "c", RATE), 399, 100, None),
        (Goal("", "s", "c", RATE, 8000, absolute=True), 8000, 30_000, True),
        (Goal("", "s", "c", WAIT, 2, absolute=True), 2, None, True),
        (Goal("", "s", "c", WAIT, 2, absolute=True), 2.1, 1, False),
    ],
)
def test_goals_are_ratios_or_figures(goal: Goal, own: float, peer: float | None, met: bool | None) -> None:
    """A wait must not be longer, a rate not lower."""
    columns = [column(goal.metric, {"x": rows(goal.metric, *([value] if value else []))}, "x") for value in (own, peer)]
    assert goal.is_met(columns[0], columns[1]) is met


def test_the_summary_has_one_line_for_each_goal_that_was_measured() -> None:
    """Each line names the peer's configuration. FlashMQ has a column if it ran."""
    figures = {
        ("s", "c", RATE): {
            "holdfast": rows(RATE, 300.0),
            "mosquitto": rows(RATE, 50.0),
            "mosquitto-nodelay": rows(RATE, 100.0),
            "flashmq": rows(RATE, 1000.0),
            BARE: rows(RATE, 400.0),
        }
    }
    wanted = [
        Goal("beside mosquitto", "s", "c", RATE, 4),
        Goal("beside SQLite", "s", "c", RATE, 0.5, peer=BARE),
        Goal("not measured", "s", "d", RATE, 4),
    ]
    table = list(summary(figures, wanted, flashmq=True))
    assert [line[:6] for line in table[1:]] == [
        ["beside mosquitto, msg/s", "300", "100 [nodelay]", "3.00", "4x", "missed"],
        ["beside SQLite, msg/s", "300", "400 [bare SQLite]", "0.75", "0.5x", "met"],
    ]
    assert [line[-1] for line in table] == ["FlashMQ", "1,000", "1,000"]
    assert {line.count("|") for line in markdown(table)} == {len(table[0]) + 1}
    assert len(list(terminal(table))) == len(table)


@pytest.mark.parametrize("scale", [FULL, QUICK])
@pytest.mark.parametrize("postgres", [False, True])
def test_every_goal_belongs_to_a_scenario_and_appears_once(scale: object, postgres: bool) -> None:
    """Titles tell the rows apart."""
    assert isinstance(scale, type(FULL))
    rows_of_summary = goals(scale, postgres)
    assert {goal.scenario for goal in rows_of_summary} <= set(SCENARIOS)
    titles = [(goal.title, goal.metric.name) for goal in rows_of_summary]
    assert len(titles) == len(set(titles))


def test_mosquitto_runs_in_both_configurations_where_that_matters() -> None:
    """The server that does almost nothing runs only what it can."""

    def never(*_: object) -> None:
        raise AssertionError

    makes = ["holdfast", "mosquitto", "null"]
    assert configurations(Scenario(never), makes) == ["holdfast", "mosquitto", "mosquitto-nodelay", "null"]
    assert configurations(Scenario(never, nodelay=True, null=False), makes) == ["holdfast", "mosquitto-nodelay"]
    assert configurations(Scenario(never, alone=True), makes) == ["holdfast"]


def test_each_failed_case_is_told_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one without figures."""
    monkeypatch.setattr(Broker, "settle", lambda self: None)
    result = Result(Broker("holdfast", Site.here(str(tmp_path), Wire(4)), tmp_path, 1, []), 0.05)
    with result.case("good", [RATE]) as case:
        case[RATE] = 1.0
    assert not result.failed
    with result.case("bad", []):
        raise BenchError("no report")
    with result.case("slow", [RATE, WAIT]) as case:
        case[RATE] = 1.0
        while True:
            time.sleep(0.01)
    assert result.failed
    assert result.failures == ["bad: FAILED: no report", "slow: TIMEOUT"]
    assert [(row.case, row.value, row.failure) for row in result.rows] == [
        ("good", 1.0, ""),
        ("slow", None, "TIMEOUT"),
        ("slow", None, "TIMEOUT"),
    ]
