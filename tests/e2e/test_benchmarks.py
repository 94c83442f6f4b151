"""The benchmarks run, each at a tiny size, and the shortcut they take to a filled database makes no difference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from benchmarks import crossing, generator, soak
from benchmarks.attacks import ATTACKS
from benchmarks.attacks.field import Field
from benchmarks.bare_sqlite import report
from benchmarks.brokers import Broker, Site, Unavailable
from benchmarks.connection import BenchError
from benchmarks.generator import compiled
from benchmarks.makes import AUTHORITY, NULL, PLAIN, RULES, TLS, TRANSPORTS, WEBSOCKET, is_installed, start
from benchmarks.results import Result
from benchmarks.scenarios import SCENARIOS, Scale, fleet, hostile, permissions
from benchmarks.scenarios.seeding import ensure, fill, retain
from benchmarks.wire import Wire
from holdfast.wire import packets as p
from holdfast.wire.reasons import ReasonCode
from tests.certificates import Authority
from tests.e2e.raw import RawClient

pytestmark = pytest.mark.e2e

try:
    compiled()
except Unavailable as error:
    pytest.skip(str(error), allow_module_level=True)

TINY = Scale((200,), 0.05, 300, 1, 20, attack=0.002, turns=1)
#: of each case: more than a busy machine needs
_SECONDS = 120.0
#: those that take less than a second; the others start many brokers, or wait
QUICK_SCENARIOS = ("fanin", "fanout", "live", "mixed", "pingpong", "replay")
#: one attack, since the scenario starts a broker for each one
ONE_ATTACK = dict(list(ATTACKS.items())[:1])
#: A broker takes seconds to read 10,000 rules.
FEW_RULES = {"10 rules": (10, False), "10 rules, deliveries judged": (10, True)}
#: How few devices come; the scenario has thousands.
SMALL_FLEETS = tuple((20, transport) for transport in TRANSPORTS)
#: columns that differ in every run, for any writer of the rows
_ROWS = (
    "SELECT topic, levels, qos, size, expires_at, tombstone, client_id LIKE 'bench-%', username, prefix3, prefix5, "
    "properties5, properties_json, payload FROM retained ORDER BY topic"
)
_TOTALS = "SELECT node, retained_count, retained_bytes, largest_packet, revision_mark >= {newest} FROM nodes"


def site_in(directory: Path, version: int = 4, postgres: bool = False) -> Site:
    """Return a site without cores of its own: nothing is measured here, and other tests use the same cores."""
    return Site(None, None, str(directory), Wire(version), postgres=postgres)


def stored(broker: Broker) -> list[list[Any]]:
    """Return the contents of the database of a stopped broker: rows, totals, level counts."""
    url = broker.postgres or f"sqlite:///{broker.directory}/data/holdfast.db"
    engine = create_engine(url)
    with engine.connect() as connection:

        def all_of(query: str) -> list[Any]:
            return [tuple(row) for row in connection.execute(text(query))]

        totals = _TOTALS.format(newest="(SELECT max(revision) FROM retained)")
        return [all_of(_ROWS), all_of(totals), all_of("SELECT levels FROM retained_levels")]


@pytest.mark.nightly
@pytest.mark.parametrize("bus", [crossing.ALONE, crossing.POSTGRES, crossing.NATS])
def test_crossing_has_figures_of_messages_and_subacks(bus: str, capsys: pytest.CaptureFixture[str]) -> None:
    crossing.measure(bus, 10)
    lines = capsys.readouterr().out.splitlines()
    assert [line.removeprefix(bus).split()[:2] for line in lines] == [["live", "10"], ["suback", "2"]]


def nightly_but(quick: Sequence[str], names: Iterable[str]) -> list[Any]:
    """Return the names as parameters; only ``make nightly`` takes those that are not quick."""
    return [pytest.param(name, marks=() if name in quick else pytest.mark.nightly) for name in names]


def assert_complete(result: Result) -> None:
    """Every case has its figures, and no message is lost."""
    assert result.failures == []
    assert result.rows
    assert [
        (row.case, row.failure, row.lost, row.wrong)
        for row in result.rows
        if row.value is None or row.failure or row.lost or row.wrong
    ] == []


@pytest.fixture(params=["sqlite", "postgres"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    return site_in(tmp_path, postgres=request.param == "postgres")


@pytest.mark.nightly
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
    broker = start("holdfast", site_in(tmp_path))
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
    broker = start("holdfast", site_in(tmp_path_factory.mktemp("bench")))
    yield broker
    broker.stop()


@pytest.mark.parametrize("name", nightly_but(QUICK_SCENARIOS, SCENARIOS))
def test_every_scenario_runs(broker: Broker, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every case has its figures, and no message is lost."""
    monkeypatch.setattr(fleet, "CASES", SMALL_FLEETS)
    monkeypatch.setattr(hostile, "ATTACKS", ONE_ATTACK)
    monkeypatch.setattr(permissions, "_RULES", FEW_RULES)
    result = Result(broker, _SECONDS)
    SCENARIOS[name].run(broker, result, TINY)
    assert_complete(result)


def installed(*makes: str) -> list[Any]:
    """Return the makes as parameters; those that are not installed are skipped."""
    return [pytest.param(make, marks=pytest.mark.skipif(not is_installed(make), reason="missing")) for make in makes]


@pytest.mark.parametrize("make", installed("holdfast", "mosquitto"))
@pytest.mark.parametrize("transport", [TLS, WEBSOCKET])
def test_a_fleet_comes_by_tls_and_websocket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: str, transport: str
) -> None:
    """With MQTT 5.0; all of it comes back after the storm, and only the named transport is measured."""
    monkeypatch.setattr(fleet, "CASES", SMALL_FLEETS)
    broker = start(make, site_in(tmp_path, 5))
    try:
        result = Result(broker, _SECONDS)
        fleet.run(broker, result, replace(TINY, transports=(transport,)))
    finally:
        broker.stop()
    assert_complete(result)
    assert {row.case for row in result.rows} == {fleet.name(20, transport)}


def test_devices_verify_the_certificate_of_the_broker(tmp_path: Path) -> None:
    """An authority that has not issued it ends the run with the reason."""
    stranger = tmp_path / "stranger.pem"
    stranger.write_bytes(Authority("Stranger").chain)
    broker = start("holdfast", site_in(tmp_path), transport=TLS)
    try:
        options = {"device_port": broker.device_port, "tls": 1, "count": 1, "seconds": 0.1, "period": 1}
        with pytest.raises(BenchError, match="certificate verify failed"):
            generator.run(broker, "fleet", **options, ca=stranger)
        assert generator.run(broker, "fleet", **options, ca=broker.directory / AUTHORITY).lost == 0
    finally:
        broker.stop()


def test_devices_use_tls_or_websocket(broker: Broker) -> None:
    with pytest.raises(BenchError, match="not both"):
        generator.run(broker, "fleet", tls=1, websocket=1, count=1)


@pytest.mark.parametrize("make", installed("holdfast", "mosquitto"))
def test_the_rules_of_a_fleet_let_a_device_publish_below_its_own_name_only(tmp_path: Path, make: str) -> None:
    """Without rules it may publish everywhere."""
    answers = []
    for transport in (RULES, PLAIN):
        broker = start(make, site_in(tmp_path), transport=transport)
        try:
            device = RawClient(broker.device_port, "device", 5)
            for number, owner in enumerate(("device", "other"), 1):
                device.send(p.Publish(f"fleet/site/{owner}/state", b"1", 1, packet_identifier=number))
            packets = device.packets()
            pubacks = [packet for packet in (next(packets), next(packets)) if isinstance(packet, p.Puback)]
            answers.append([puback.reason_code == ReasonCode.NOT_AUTHORIZED for puback in pubacks])
            device.close()
        finally:
            broker.stop()
    assert answers == [[False, True], [False, False]]


@pytest.mark.parametrize(
    "name", nightly_but(QUICK_SCENARIOS, [name for name, scenario in SCENARIOS.items() if scenario.null])
)
def test_the_generator_gets_all_messages_of_a_server_that_does_almost_nothing(tmp_path: Path, name: str) -> None:
    """With MQTT 5.0, too."""
    for version in (4, 5):
        broker = start(NULL, site_in(tmp_path, version))
        try:
            result = Result(broker, _SECONDS)
            SCENARIOS[name].run(broker, result, TINY)
        finally:
            broker.stop()
        assert [(row.case, row.failure, row.lost, row.wrong) for row in result.rows] == [
            (row.case, "", 0, "") for row in result.rows
        ]


@pytest.mark.nightly
def test_every_attack_runs(tmp_path: Path) -> None:
    """An attack that the broker refuses goes on too, and its answer is told."""
    broker = start("holdfast", site_in(tmp_path))
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


@pytest.mark.nightly
def test_a_filled_broker_keeps_its_messages_after_a_restart(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scenarios go on with the same broker."""
    monkeypatch.setattr("benchmarks.scenarios.seeding._WORTH_FILLING", 100)
    before = broker.retained
    ensure(broker, before + 300)
    broker.end()
    assert len(stored(broker)[0]) == broker.retained == before + 300


@pytest.mark.parametrize(
    ("seconds", "count"), [(3, 20), pytest.param(300, 10_000, marks=pytest.mark.nightly)], ids=["quick", "5 minutes"]
)
def test_a_fleet_makes_nothing_grow(tmp_path: Path, seconds: float, count: int) -> None:
    """The long run draws its picture, too."""
    broker = start("holdfast", site_in(tmp_path))
    try:
        done, samples = soak.soak(broker, count, seconds, 60 if count > 1000 else 1)
    finally:
        broker.stop()
    (tmp_path / "soak.svg").write_text(soak.drawn(samples, []))
    assert samples[-1].messages > 0
    assert soak.problems(samples, done) == []
