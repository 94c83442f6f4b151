"""The sources of happenings, on a broker in memory."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock

from holdfast.admin.api import happening_sources
from holdfast.watch.alarms import Alarms, Severity
from holdfast.watch.audit import NoAudit, OverheardAudit
from holdfast.watch.ring import Present, Ring
from tests.doubles import MemoryBroker


def test_clients_and_replays_are_told_from_begin_to_stop() -> None:
    """Client Identifiers are cut: they may have 64 KB."""
    audit = OverheardAudit(NoAudit())
    broker = MemoryBroker(audit=audit)
    told: list[Any] = []
    stops = [
        happening_sources.clients(audit, broker.now)(told.append),
        happening_sources.replays(broker.replays, broker.clock)(told.append),
    ]
    publisher = broker.client("p" * 1000, 5)
    publisher.publish("a", b"x", retain=True)
    publisher.subscribe("#")
    broker.settle()
    publisher.drop()
    broker.settle()
    assert [each["event"] for each in told] == ["connected", "began", "ended", "disconnected"]
    assert told[0]["clientid"] == "p" * 256
    assert (told[2]["topic"], told[2]["sent"], told[2]["complete"]) == ("#", 1, True)
    assert told[3]["reason"]
    for stop in stops:
        stop()
    broker.client("later", 5)
    assert len(told) == 4


def test_alarms_are_told_as_the_api_shows_them() -> None:
    alarms, told = Alarms(lambda: 1_700_000_000_000), []  # type: ignore[var-annotated]
    stop = happening_sources.alarms(alarms, lambda: 1_700_000_000_000, 1)(told.append)
    alarms.begin("disk", Severity.WARNING, "little room", {})
    alarms.end("disk")
    stop()
    alarms.begin("disk", Severity.WARNING, "little room", {})
    assert [(each["event"], each["name"]) for each in told] == [("raised", "disk"), ("ended", "disk")]


def test_the_newest_figures_are_told_each_second() -> None:
    """Not before there are any."""
    clock, ring, told = Clock(), Ring([Present("connections", lambda: 3.0)]), []  # type: ignore[var-annotated]
    stop = happening_sources.monitor(ring, clock)(told.append)
    clock.advance(0)
    assert not told
    ring.tick(1000)
    ring.tick(2000)
    clock.advance(1)
    clock.advance(1)
    stop()
    assert [(each["time_stamp"], each["connections"]) for each in told] == [(2000, 3.0)] * 2
    assert not clock.getDelayedCalls()
