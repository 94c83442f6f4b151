"""A run with QoS 1 is sent as one block where the Session keeps nothing of it, and one message at a time elsewhere."""

from __future__ import annotations

import pytest

from holdfast.sessions.limits import Limits
from holdfast.wire import encode
from holdfast.wire import packets as p
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
