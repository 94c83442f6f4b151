"""The benchmarks run, each at a tiny size, and the shortcut they take to a filled database makes no difference."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from benchmarks.attacks import ATTACKS
from benchmarks.attacks.field import Field
from benchmarks.bare_sqlite import report
from benchmarks.brokers import Broker, Site
from benchmarks.makes import start
from benchmarks.report import lines, markdown
from benchmarks.results import Metric, Result, Row
from benchmarks.scenarios import SCENARIOS, Scale, hostile
from benchmarks.scenarios.seeding import ensure, fill, retain
from benchmarks.wire import Wire

pytestmark = pytest.mark.e2e

TINY = Scale((200,), 0.05, 300, 1, attack=0.002)
#: one attack, since the scenario starts a broker for each one
ONE_ATTACK = dict(list(ATTACKS.items())[:1])
#: columns that differ in every run, for any writer of the rows
_ROWS = (
    "SELECT topic, levels, qos, size, expires_at, tombstone, client_id LIKE 'bench-%', username, prefix3, prefix5, "
    "properties5, properties_json, payload FROM retained ORDER BY topic"
)
_TOTALS = "SELECT node, retained_count, retained_bytes, largest_packet, revision_mark >= {newest} FROM nodes"


def stored(broker: Broker) -> list[list[Any]]:
    """Return the contents of the database of a stopped broker: rows, totals, level counts."""
    url = broker.postgres or f"sqlite:///{broker.directory}/data/holdfast.db"
    engine = create_engine(url)
    with engine.connect() as connection:

        def all_of(query: str) -> list[Any]:
            return [tuple(row) for row in connection.execute(text(query))]

        totals = _TOTALS.format(newest="(SELECT max(revision) FROM retained)")
        return [all_of(_ROWS), all_of(totals), all_of("SELECT levels FROM retained_levels")]


@pytest.fixture(params=["sqlite", "postgres"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    return Site.here(str(tmp_path), Wire(4), postgres=request.param == "postgres")


def test_filling_and_publishing_write_the_same_rows(site: Site) -> None:
    """This is true of either database, in one step or in two."""
    found = []
    for how in ("published", "filled"):
        broker = start("holdfast", site)
        try:
            if how == "published":
                retain(broker, 0, 50, 10)
                broker.end()
            else:
                broker.end()
                fill(broker, 20)
                fill(broker, 50)
            found.append(stored(broker))
        finally:
            broker.stop()
    published, filled = found
    assert len(published[0]) == 50
    assert filled == published


def test_sqlite_alone_writes_the_same_rows(tmp_path: Path) -> None:
    """The bound for durable writes is of the broker's rows, and each of them is replaced."""
    broker = start("holdfast", Site.here(str(tmp_path), Wire(4)))
    try:
        broker.end()
        fill(broker, 50)
        filled = stored(broker)
        found = report(broker.directory / "data" / "holdfast.db", topics=50, messages=50, size=8)
        assert found["rows"] == 50
        assert stored(broker) == filled
    finally:
        broker.stop()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = start("holdfast", Site.here(str(tmp_path_factory.mktemp("bench")), Wire(4)))
    yield broker
    broker.stop()


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_runs(broker: Broker, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every case has its figures, and no message is lost."""
    monkeypatch.setattr(hostile, "ATTACKS", ONE_ATTACK)
    result = Result(broker, 30.0)
    SCENARIOS[name](broker, result, TINY)
    assert not result.failed
    assert result.rows
    assert [
        (row.case, row.failure, row.lost) for row in result.rows if row.value is None or row.failure or row.lost
    ] == []


def test_every_attack_runs(tmp_path: Path) -> None:
    """An attack that the broker refuses goes on too, and its answer is told."""
    broker = start("holdfast", Site.here(str(tmp_path), Wire(4)))
    kinds = {getattr(attack, "func", attack): (name, attack) for name, attack in ATTACKS.items()}
    for name, attack in kinds.values():  # one of each function
        field = Field(broker, TINY.attack)
        steps = attack(field)
        try:
            answers = [next(steps), next(steps)]
        finally:
            field.leave()
        assert all(isinstance(answer, str) for answer in answers), name
    broker.settle()
    broker.stop()


def test_a_filled_broker_keeps_its_messages_after_a_restart(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scenarios go on with the same broker."""
    monkeypatch.setattr("benchmarks.scenarios.seeding._WORTH_FILLING", 100)
    before = broker.retained
    ensure(broker, before + 300)
    broker.end()
    assert len(stored(broker)[0]) == broker.retained == before + 300


def test_reports_tell_medians_extremes_ratios_and_failures() -> None:
    """The same figures for a terminal and in Markdown."""
    rate = Metric("rate", "msg/s", True)
    wait = Metric("wait", "ms", False)
    figures = {
        ("s", "c", rate): {
            "holdfast": [Row("c", rate, value) for value in (300.0, 100.0, 200.0)],
            "mosquitto": [Row("c", rate, 100.0)],
        },
        ("s", "c", wait): {"holdfast": [Row("c", wait, 1.5, 7)], "mosquitto": [Row("c", wait, failure="TIMEOUT")]},
    }
    brokers = ["holdfast", "mosquitto"]
    assert list(markdown(figures, brokers)) == [
        "| scenario | case | figure | holdfast | mosquitto | ratio | note |",
        "|---|---|---|---|---|---|---|",
        "| s | c | rate, msg/s | 200 (100 .. 300) | 100 | 2.00 |  |",
        "| s | c | wait, ms | 1.5 LOST 7 | TIMEOUT |  |  |",
    ]
    told = [line.split() for line in lines(figures, brokers)]
    assert told[2] == ["c", "rate", "msg/s", "200", "(100", "..", "300)", "100", "2.00"]
