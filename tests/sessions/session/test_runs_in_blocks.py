"""A run with QoS 1 is sent as one block where the Session keeps nothing of it, and one message at a time elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.sessions.delivery.outgoing import OutgoingMessage
from holdfast.sessions.delivery.session import Session
from holdfast.sessions.directory import queued_messages
from holdfast.sessions.limits import Limits
from holdfast.wire import encode
from holdfast.wire import packets as p
from tests.authorizers import Permissions
from tests.doubles import Client, MemoryBroker


def run(count: int, payload: bytes = b"x") -> bytes:
    """Return PUBLISH packets that form a run once their topic is known."""
    return b"".join(encode(p.Publish("t", payload, 1, packet_identifier=number + 1), 4) for number in range(count))


class Scene:
    """A publisher whose topic is known, and subscribers."""

    def __init__(self, *subscribers: tuple[str, bool], limits: Limits | None = None) -> None:
        self.broker = MemoryBroker(limits=limits or Limits())
        self.clients: dict[str, Client] = {}
        for name, clean in subscribers:
            self.clients[name] = self.broker.client(name, clean=clean)
            self.clients[name].subscribe("t", qos=1)
        self.publisher = self.broker.client("p")
        self.publisher.raw(run(1))
        for name in self.clients:
            self.acknowledge(name)

    def acknowledge(self, name: str) -> list[int]:
        """Acknowledge what a client has got, and return the Packet Identifiers."""
        client = self.clients[name]
        identifiers = [packet.packet_identifier for packet in client.got(p.Publish)]
        client.send(*(p.Puback(identifier) for identifier in identifiers))
        return identifiers

    def blocks(self, name: str) -> int:
        """Return how many messages are in blocks."""
        return self.broker.registry._sessions[name].inflight.blocks.count


def test_all_sessions_get_a_run_under_the_same_identifiers() -> None:
    scene = Scene(("a", True), ("b", True))
    for _ in range(3):
        scene.publisher.raw(run(100))
        assert scene.blocks("a") == scene.blocks("b") == 100
        identifiers = scene.acknowledge("a")
        assert identifiers == list(range(identifiers[0], identifiers[0] + 100))
        assert scene.acknowledge("b") == identifiers
        assert scene.blocks("a") == scene.blocks("b") == 0


def test_a_session_where_they_are_in_use_has_identifiers_of_its_own() -> None:
    scene = Scene(("a", True), ("b", True))
    scene.broker.router._identifiers._last = 999
    scene.broker.registry._sessions["b"].inflight.add_block(1050, 1, 1, False)
    scene.publisher.raw(run(100))
    assert scene.acknowledge("a") == list(range(1000, 1100))
    others = scene.acknowledge("b")
    assert others == list(range(others[0], others[0] + 100))
    assert 1050 not in others
    assert scene.blocks("b") == 1


def test_a_session_that_outlives_its_connection_keeps_every_message() -> None:
    scene = Scene(("a", True), ("b", False))
    scene.publisher.raw(run(100))
    assert (scene.blocks("a"), scene.blocks("b")) == (100, 0)
    assert len(scene.broker.registry._sessions["b"].inflight.entries) == 100


@pytest.mark.parametrize("limits", [Limits(max_inflight=60), Limits(max_inflight_bytes=6000)])
def test_a_run_that_exceeds_the_window_waits_in_part(limits: Limits) -> None:
    scene = Scene(("a", True), limits=limits)
    for number in range(3):
        scene.publisher.raw(run(50, b"%d" % number))
    assert 0 < scene.broker.registry._sessions["a"].inflight.count <= 60
    assert [payload for _, payload, *_ in scene.clients["a"].messages()] == [b"0"] * 50 + [b"1"] * 50 + [b"2"] * 50
    assert scene.broker.registry._sessions["a"].window.bytes == 0


def test_the_next_run_waits_behind_the_queue() -> None:
    scene = Scene(("a", True), limits=Limits(max_inflight=10))
    scene.publisher.raw(run(11, b"1"))
    scene.publisher.raw(run(2, b"2"))
    session = scene.broker.registry._sessions["a"]
    assert (session.inflight.count, len(session.queue)) == (10, 3)
    assert [payload for _, payload, *_ in scene.clients["a"].messages()] == [b"1"] * 11 + [b"2"] * 2


@pytest.fixture
def singly(monkeypatch: pytest.MonkeyPatch) -> list[OutgoingMessage]:
    """The messages that were delivered one by one."""
    found: list[OutgoingMessage] = []
    deliver = Session.deliver

    def spy(session: Session, outgoing: OutgoingMessage, *arguments: Any) -> None:
        found.append(outgoing)
        deliver(session, outgoing, *arguments)

    monkeypatch.setattr(Session, "deliver", spy)
    return found


def numbered(first: int, count: int) -> bytes:
    """Return PUBLISH packets with these numbers as payloads."""
    return b"".join(
        encode(p.Publish("t", b"%d" % number, 1, packet_identifier=1 + number % 50), 4)
        for number in range(first, first + count)
    )


def test_runs_that_find_no_room_in_the_window_wait_as_runs(singly: list[OutgoingMessage]) -> None:
    scene = Scene(("a", True), limits=Limits(max_inflight=7))
    singly.clear()
    subscriber = scene.clients["a"]
    holdings = scene.broker.counters.holdings
    for first in range(0, 60, 20):
        scene.publisher.raw(numbered(first, 20))
    scene.publisher.raw(numbered(60, 1))
    assert holdings.queued_messages == 61 - 7
    listed: list[str] = []
    position: int | None = 0
    while position is not None:  # page by page, as operators list them
        page = queued_messages(scene.broker.registry._sessions["a"], position, 10, 1000)
        assert page.messages
        listed += [(one.payload or b"").decode() for one in page.messages]
        position = page.next_position
    assert listed == [str(number) for number in range(7, 61)]
    found = []
    while True:
        packets = subscriber.got(p.Publish)
        if not packets:
            break
        assert len(packets) <= 7
        found += [int(packet.payload) for packet in packets]
        for packet in packets:  # answers that come one by one
            subscriber.send(p.Puback(packet.packet_identifier))
    assert found == list(range(61))
    assert not singly
    assert (holdings.queued_messages, holdings.queued_bytes, scene.blocks("a")) == (0, 0, 0)


def test_a_session_that_ends_with_runs_in_its_queue_leaves_nothing() -> None:
    scene = Scene(("a", True), limits=Limits(max_inflight=7))
    for first in range(0, 60, 20):
        scene.publisher.raw(numbered(first, 20))
    scene.clients["a"].drop()
    scene.broker.settle()
    holdings = scene.broker.counters.holdings
    assert (holdings.queued_messages, holdings.queued_bytes) == (0, 0)


def test_messages_of_runs_that_wait_are_judged_one_by_one_after_a_change_of_permissions() -> None:
    permissions = Permissions()
    broker = MemoryBroker(authorizer=permissions, limits=Limits(max_inflight=3))
    subscriber, publisher = broker.client("a"), broker.client("p")
    subscriber.subscribe("t/#", qos=1)

    def send(topic: str) -> None:
        publisher.raw(b"".join(encode(p.Publish(topic, b"", 1, packet_identifier=one), 4) for one in range(1, 6)))

    for topic in ("t/a", "t/b", "t/a", "t/b"):
        send(topic)
    permissions.deny("receive", "t/a")
    assert [topic for topic, *_ in subscriber.messages()].count("t/a") == 3, "those that were sent before"
    assert broker.counters.deliveries_not_authorized == 7
    send("t/b")
    assert len(subscriber.messages()) == 5
