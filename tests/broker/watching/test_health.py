"""The health checks tell which one fails, and why."""

from __future__ import annotations

from attrs import evolve

from holdfast.admin.api.overview import HealthAPI
from holdfast.admin.call import ANYONE, Call
from holdfast.broker.figures import SurroundingsWatch
from holdfast.core.tickets import FailureKind, StorageFailure
from tests.broker.watching.watched import WatchedBroker
from tests.storage.doubles import result_of


def failing(broker: WatchedBroker) -> list[str]:
    """Return the checks of readiness that fail."""
    health = broker.monitoring.health.ready()
    bad = [name for name, text in health.checks.items() if text != "ok"]
    assert health.is_good is not bool(bad)
    assert health.content()["status"] == ("failing" if bad else "ok")
    return bad


def test_a_broker_at_work_is_alive_and_ready(broker: WatchedBroker) -> None:
    broker.watch()
    broker.advance(1)
    assert failing(broker) == []
    assert broker.monitoring.health.alive().content() == {"status": "ok", "checks": {"reactor": "ok"}}


def test_a_stopping_broker_is_not_ready(broker: WatchedBroker) -> None:
    broker.around.stopping = True
    assert failing(broker) == ["process"]


def test_a_listener_that_does_not_listen_is_named(broker: WatchedBroker) -> None:
    broker.around.closed_names = ["tls"]
    assert failing(broker) == ["listeners"]
    assert "tls" in broker.monitoring.health.ready().checks["listeners"]


def test_a_database_that_is_closed_or_away_or_damaged_is_not_ready(broker: WatchedBroker) -> None:
    """Each is told in words."""
    writer, database = broker.parts.writer, broker.parts.database
    writer._attempts = 1
    assert broker.monitoring.health.ready().checks["store"] == "the database cannot be written"
    writer._attempts = 0
    database.damage = StorageFailure(FailureKind.UNAVAILABLE, "damaged")
    assert "damaged" in broker.monitoring.health.ready().checks["store"]
    database.damage = None
    assert failing(broker) == []
    parts, broker.durable.parts = broker.durable.parts, None
    assert failing(broker) == ["store"]
    broker.durable.parts = parts


def test_a_full_disk_is_not_ready(broker: WatchedBroker) -> None:
    watch = next(each for each in broker.monitoring.services if isinstance(each, SurroundingsWatch))
    watch.latest = evolve(watch.latest, disk_free_bytes=(50 << 20) - 1)
    assert failing(broker) == ["disk"]
    watch.latest = evolve(watch.latest, disk_free_bytes=50 << 20)
    assert failing(broker) == []


def test_a_heartbeat_that_is_late_is_told(broker: WatchedBroker) -> None:
    broker.watch()
    broker.clock.rightNow += 6  # nothing runs meanwhile
    assert not broker.monitoring.health.alive().is_good
    broker.advance(1)
    assert broker.monitoring.health.alive().is_good


def test_the_status_of_emqx_tells_readiness_in_a_line(broker: WatchedBroker) -> None:
    broker.watch()
    broker.advance(1)
    calls = HealthAPI(broker.monitoring.health, "1")
    call = Call("GET", "/status", {}, b"", ANYONE)
    found = result_of(calls.status(call))
    assert (found.status, found.body) == (200, b"Node 1 is started\nholdfast is running")
    broker.around.stopping = True
    assert result_of(calls.status(call)).status == 503
