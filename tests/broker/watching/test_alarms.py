"""Each alarm begins when its condition is bad, and ends when it is good again; operators hear of it everywhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from attrs import evolve
from twisted.internet.defer import Deferred

from holdfast.broker.figures import Heartbeat, SurroundingsWatch
from holdfast.cluster.fallback_bus import Way
from holdfast.config import load
from holdfast.core.tickets import FailureKind, StorageFailure
from holdfast.identity.addresses import Peer
from holdfast.identity.bans import Bans, Exempt
from holdfast.identity.failed_logins import FailureLimits, Failures
from holdfast.replay.interfaces import ReplayState
from holdfast.replay.replay import Replay
from holdfast.watch.alarms import Alarms
from holdfast.watch.log import LastingFailure
from holdfast.wire import packets as p
from tests.broker.watching.watched import WatchedBroker
from tests.doubles import Client
from tests.logs import logged
from tests.sessions.exchange.test_failed_logins import Passwords

Act = Callable[[WatchedBroker], None]


def found(broker: WatchedBroker) -> SurroundingsWatch:
    return next(each for each in broker.monitoring.services if isinstance(each, SurroundingsWatch))


def heart(broker: WatchedBroker) -> Heartbeat:
    return next(each for each in broker.monitoring.services if isinstance(each, Heartbeat))


def _surroundings(**numbers: int) -> Act:
    def act(broker: WatchedBroker) -> None:
        found(broker).latest = evolve(found(broker).latest, **numbers)

    return act


def _count(name: str, number: int) -> Act:
    def act(broker: WatchedBroker) -> None:
        setattr(broker.counters, name, getattr(broker.counters, name) + number)

    return act


def _attempts(number: int) -> Act:
    def act(broker: WatchedBroker) -> None:
        broker.parts.writer._attempts = number

    return act


def _damage(failure: StorageFailure | None) -> Act:
    def act(broker: WatchedBroker) -> None:
        broker.parts.database.damage = failure

    return act


def _commits(seconds: float) -> Act:
    def act(broker: WatchedBroker) -> None:
        broker.parts.writer.counters.durations.observe(seconds, 10)

    return act


def _failed(broker: WatchedBroker) -> None:
    broker.parts.writer.counters.failed += 1


def _unrecorded(broker: WatchedBroker) -> None:
    broker.telemetry.dropped += 1


def _pending(size: int) -> Act:
    def act(broker: WatchedBroker) -> None:
        broker.parts.writer.pending_bytes = size

    return act


def _lag(seconds: float) -> Act:
    def act(broker: WatchedBroker) -> None:
        heart(broker)._worst = seconds

    return act


def _certificate(days: float) -> Act:
    def act(broker: WatchedBroker) -> None:
        broker.around.certificates = {"tls": broker.now() / 1000 + 86400 * days}

    return act


def _renewed_with(left: float) -> Act:
    def act(broker: WatchedBroker) -> None:
        broker.around.lease_left = left

    return act


def _offset(seconds: float) -> Act:
    def act(broker: WatchedBroker) -> None:
        broker.around.offset = seconds

    return act


def _behind(seconds: float) -> Act:
    def act(broker: WatchedBroker) -> None:
        broker.around.behind = seconds

    return act


def _idle(seconds: float) -> Act:
    def act(broker: WatchedBroker) -> None:
        replay = SimpleNamespace(idle=seconds, state=ReplayState.RESTING)
        waiting = SimpleNamespace(idle=9e9, state=ReplayState.THROTTLED)  # the configuration lets it wait
        broker.replays.running = cast("dict[int, Replay]", {1: replay, 2: waiting})

    return act


def _refuses(refuses: bool) -> Act:
    def act(broker: WatchedBroker) -> None:
        assert broker.memory_guard is not None
        broker.memory_guard.refuses = refuses

    return act


def _lost(broker: WatchedBroker) -> None:
    broker.audit.lost += 7


def _silent(*nodes: int) -> Act:
    def act(broker: WatchedBroker) -> None:
        broker.exchange.silent = frozenset(nodes)

    return act


def _configured_otherwise(*nodes: int) -> Act:
    def act(broker: WatchedBroker) -> None:
        broker.around.other_configurations = nodes

    return act


def _gaps(number: int) -> Act:
    def act(broker: WatchedBroker) -> None:
        broker.exchange.breaks += number

    return act


def _lost_to_members(number: int) -> Act:
    def act(broker: WatchedBroker) -> None:
        broker.exchange.lost += number

    return act


def _connected(is_connected: bool) -> Act:
    def act(broker: WatchedBroker) -> None:
        cast("Any", broker.carriers.nats).is_connected = is_connected

    return act


def _reached(ways: dict[int, Way]) -> Act:
    def act(broker: WatchedBroker) -> None:
        cast("Any", broker.carriers.fallback).ways = ways

    return act


def _other_secret(*nodes: int) -> Act:
    def act(broker: WatchedBroker) -> None:
        cast("Any", broker.carriers.fallback).with_another_sign = frozenset(nodes)

    return act


def _nothing(_broker: WatchedBroker) -> None:
    """It ends by itself."""


#: the alarm, what makes it begin, and what makes it end
CASES: dict[str, tuple[Act, Act]] = {
    "disk_nearly_full": (_surroundings(disk_free_bytes=1 << 29), _surroundings(disk_free_bytes=2 << 30)),
    "wal_growing": (_surroundings(wal_bytes=1 << 30), _surroundings(wal_bytes=1 << 20)),
    "database_unavailable": (_attempts(1), _attempts(0)),
    "database_damaged": (_damage(StorageFailure(FailureKind.UNAVAILABLE, "x")), _damage(None)),
    "changes_not_stored": (_failed, _nothing),
    "telemetry_dropped": (_unrecorded, _nothing),
    "commits_slow": (_commits(0.9), _nothing),
    "writer_queue_nearly_full": (_pending(60 << 20), _pending(0)),
    "memory_nearly_full": (_refuses(True), _refuses(False)),
    "reactor_lag_high": (_lag(0.5), _lag(0)),
    "messages_dropped": (_count("messages_dropped_queue_full", 200), _nothing),
    "replay_stalled": (_idle(700), _idle(0)),
    "clock_went_back": (_behind(60), _behind(0)),
    "lease_nearly_lost": (_renewed_with(0.2), _renewed_with(3.0)),
    "clocks_differ": (_offset(-7.0), _offset(0.1)),
    "cluster_member_silent": (_silent(2, 3), _silent()),
    "cluster_configurations_differ": (_configured_otherwise(2), _configured_otherwise()),
    "cluster_gaps": (_gaps(7), _nothing),
    "cluster_messages_lost": (_lost_to_members(200), _nothing),
    "cluster_nats_unavailable": (_connected(False), _connected(True)),
    "cluster_nats_passes_nothing": (_reached({2: Way.SECOND, 3: Way.FIRST}), _reached({2: Way.FIRST})),
    "cluster_secrets_differ": (_other_secret(2), _other_secret()),
    "logins_fail": (_count("logins_failed", 200), _nothing),
    "certificate_expires": (_certificate(3), _certificate(90)),
    "audit_lines_lost": (_lost, _nothing),
}


@pytest.fixture
def watched(tmp_path: Path) -> WatchedBroker:
    return WatchedBroker(tmp_path, most_memory=1 << 30)


def look(broker: WatchedBroker, act: Act, times: int) -> None:
    """Look so often, with this state before each look; time passes, and nothing else happens."""
    act(broker)
    for _ in range(times):
        broker.monitoring.watch.look()
        if act in REPEATED:
            act(broker)


#: what has to be so at each look, since the look takes the number
REPEATED = (CASES["reactor_lag_high"][0],)


def test_every_alarm_has_a_case(watched: WatchedBroker) -> None:
    assert {each.name for each in watched.monitoring.watch.conditions} == set(CASES)
    watched.close()


@pytest.mark.parametrize("name", CASES)
def test_an_alarm_begins_and_ends(watched: WatchedBroker, name: str) -> None:
    """No other alarm begins. The message says what to do, without the end mark of a sentence."""
    begin, end = CASES[name]
    alarms = watched.monitoring.alarms
    look(watched, _nothing, 2)
    assert alarms.active == []
    (condition,) = (each for each in watched.monitoring.watch.conditions if each.name == name)
    look(watched, begin, max(6, condition.begins_after))
    (alarm,) = alarms.active
    assert alarm.name == name
    assert len(alarm.message.split(". ", 1)) == 2
    look(watched, end, 70)
    assert alarms.active == []
    assert [each.name for each in alarms.past] == [name]
    watched.close()


def test_messages_with_topics_too_long_for_the_record_begin_no_alarm(watched: WatchedBroker) -> None:
    """It would never end while their publisher goes on, and no other database would help."""
    look(watched, _nothing, 2)

    def too_long(broker: WatchedBroker) -> None:
        broker.telemetry.dropped += 1
        broker.telemetry.too_long += 1

    for _ in range(10):
        look(watched, too_long, 1)
    assert watched.monitoring.alarms.active == []
    watched.close()


def test_the_alarm_of_the_disk_ends_soon_after_there_is_room_again(watched: WatchedBroker) -> None:
    """Also if the disk has never had much more than the limit. Its message always tells the present room."""
    alarms, limit = watched.monitoring.alarms, 1 << 30
    look(watched, _surroundings(disk_free_bytes=limit - 1), 1)
    (alarm,) = alarms.active
    for _ in range(3):
        look(watched, _surroundings(disk_free_bytes=limit + (1 << 20)), 20)
        (alarm,) = alarms.active
        assert "has 1,025 MB left" in alarm.message
        look(watched, _surroundings(disk_free_bytes=limit), 1)
    look(watched, _surroundings(disk_free_bytes=limit + (1 << 20)), 30)
    assert alarms.active == []
    watched.close()


def test_the_disk_is_measured_while_the_database_is_away(
    watched: WatchedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An alarm that began in the outage of a database would else stay until its end."""
    watch = found(watched)
    monkeypatch.setattr(watch, "_database", None)  # as with Postgres, whose size is read
    monkeypatch.setattr(watched.parts, "readers", SimpleNamespace(read=lambda _work: Deferred(), available=False))
    free = [5 << 20, 7 << 30]
    monkeypatch.setattr(watch, "_disk_usage", lambda _: SimpleNamespace(total=9 << 30, free=free[0]))
    watched.watch()
    assert watch.latest.disk_free_bytes == free.pop(0)
    with logged(LastingFailure):
        for _ in range(4):
            watched.advance(10)
    assert watch.latest.disk_free_bytes == free[0]
    monkeypatch.undo()
    watched.close()


@pytest.mark.parametrize("pause", [0.1, 65])
def test_one_address_that_guesses_until_it_is_banned_raises_an_alarm(tmp_path: Path, pause: float) -> None:
    """With all limits at their defaults, whether it guesses fast or at the pace that the delays allow."""
    exempt, attacker = Exempt(), Peer(ip_address("192.0.2.66"), 5555)

    def seconds() -> float:  # the clock is made later
        return broker.clock.seconds()

    bans = Bans(now=seconds, exempt=exempt)
    failures = Failures(FailureLimits(window=3600), seconds=seconds, ban=bans.ban_peer, exempt=exempt)
    broker = WatchedBroker(tmp_path, authenticator=Passwords(), failures=failures, bans=bans)
    broker.monitoring.watch.look()
    for number in range(20):
        assert [each.name for each in broker.monitoring.alarms.active] == []
        client = Client(broker, 5)
        client.network.peer = attacker
        client.send(p.Connect(f"c{number}", 5, True, 0, "alice", b"wrong"))
        broker.advance(pause)
        broker.monitoring.watch.look()
    (alarm,) = broker.monitoring.alarms.active
    assert (alarm.name, alarm.details) == ("logins_fail", {"addresses_banned": 1})
    assert "addresses banned for them: 1" in alarm.message
    broker.close()


def test_a_limit_of_0_turns_an_alarm_off(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text('[alarms]\ndisk_free = 0\ncertificate_expiry = "0s"\n')
    broker = WatchedBroker(tmp_path, load(file))
    names = {each.name for each in broker.monitoring.watch.conditions}
    assert not names & {"disk_nearly_full", "certificate_expires"}
    assert {"database_unavailable", "commits_slow", "logins_fail"} <= names
    broker.close()


def test_the_log_the_audit_log_the_topics_and_the_metric_tell_of_an_alarm(
    broker: WatchedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event has EMQX's topic and fields."""
    told: list[dict[str, object]] = []
    monkeypatch.setattr(broker.audit, "tell", lambda kind, group, fields: told.append({"event": kind, **fields}))
    observer = Client(broker)
    observer.connect("observer")
    observer.subscribe("$SYS/brokers/#")
    with logged(Alarms) as lines:
        look(broker, _attempts(1), 2)
        look(broker, _attempts(0), 2)
    broker.settle()
    assert [line["log_level"].name for line in lines] == ["warn", "info"]
    assert [(each["event"], each["name"], each["state"]) for each in told] == [
        ("alarm", "database_unavailable", "active"),
        ("alarm", "database_unavailable", "ended"),
    ]
    events = [each for each in observer.packets() if isinstance(each, p.Publish)]
    assert [each.topic for each in events] == ["$SYS/brokers/1/alarms/activate", "$SYS/brokers/1/alarms/deactivate"]
    begun, ended = (json.loads(each.payload) for each in events)
    assert begun["name"] == ended["name"] == "database_unavailable"
    assert begun["activate_at"] == ended["activate_at"] == 1000 * broker.now()
    assert ended["deactivate_at"] == 1000 * broker.now()
    states = {metric.name: reading for metric, reading in broker.monitoring.metrics.readings()}
    active = states["holdfast_alarms_active"]
    assert isinstance(active, dict)
    assert active["database_unavailable",] == 0
    look(broker, _attempts(1), 2)
    assert broker.monitoring.watch.states()["database_unavailable",] == 1
