"""A closed connection leaves no cycle of objects: the garbage collector runs rarely, so cycles would pile up."""

from __future__ import annotations

import gc
import weakref

import pytest

from holdfast.wire import Properties, encode
from holdfast.wire import packets as p
from tests.authorizers import Permissions
from tests.doubles import MemoryBroker
from tests.transports.test_protocol import Door
from tests.transports.websocket.client import CLOSE, PING, TEXT, WebSocketDoor, frame, request


def _connect(client_id: str = "a", expiry: int = 0) -> bytes:
    properties = Properties(session_expiry_interval=expiry)
    return encode(p.Connect(client_id, 5, clean_start=True, properties=properties), 5)


def _publish(topic: str, retain: bool = False, qos: int = 1, **properties: object) -> bytes:
    return encode(p.Publish(topic, b"x", qos, retain, packet_identifier=1, properties=Properties(**properties)), 5)  # type: ignore[arg-type]


def _subscribe(topic_filter: str, qos: int = 1) -> bytes:
    return encode(p.Subscribe(1, (p.SubscriptionRequest(topic_filter, qos),)), 5)


def _question(topic: str, payload: bytes) -> bytes:
    return encode(p.Publish(topic, payload, properties=Properties(response_topic="a/b")), 5)


LIVES = {
    "nothing was sent": [],
    "CONNECT was malformed": [b"\xf0\x00"],
    "a client came and went": [_connect()],
    "it sent DISCONNECT": [_connect(), encode(p.Disconnect(), 5)],
    "it published": [_connect(), _publish("a/b", retain=True)],
    "it published a run": [_connect(), _publish("a/b"), 3 * _publish("a/b")],
    "it received": [_connect(), _subscribe("a/#"), _publish("a/b")],
    "it received with QoS 2": [_connect(), _subscribe("a/#", 2), _publish("a/b", qos=2)],
    "it was replayed to": [_connect(), _publish("a/b", retain=True), _subscribe("a/#")],
    "it was a member of a group": [_connect(), _subscribe("$share/g/a/#"), _publish("a/b")],
    "it set under conditions": [
        encode(p.Connect("a", 5, properties=Properties(user_properties=(("holdfast", "?"),))), 5),
        *(2 * [_publish("a/b", retain=True, user_properties=(("holdfast-if-absent", ""),))]),
    ],
    "it sent too many properties": [_connect(), _publish("a/b", user_properties=(("", ""),) * 200)],
    "it broke the protocol": [_connect(), b"\x00"],
    "it asked": [_connect(), _subscribe("a/#"), _question("$retained/tree", b"{}")],
    "it asked and was refused": [_connect(), _subscribe("a/#"), _publish("$retained/get", response_topic="a/b")],
    "it asked and left": [
        _connect(),
        _subscribe("a/#"),
        _question("$retained/tree", b"{}") * 3 + encode(p.Disconnect(), 5),
    ],
    "its Session stayed": [_connect(expiry=60), _subscribe("a/#"), _publish("a/b")],
}


#: over WebSocket: the bytes of the client
WEBSOCKET_LIVES = {
    "nothing was sent": [],
    "half a request was sent": [b"GET /"],
    "no request was sent": [b"\0"],
    "the request was refused": [request("GET / HTTP/1.1")],
    "the request was malformed": [request(Host=None)],
    "a client came and went": [request(), frame(_connect())],
    "half a frame was sent": [request(), frame(_connect())[:5]],
    "it sent DISCONNECT": [request(), frame(_connect()), frame(encode(p.Disconnect(), 5)), frame(b"", CLOSE)],
    "it sent Close": [request(), frame(_connect()), frame(b"", CLOSE)],
    "it sent pings": [request(), frame(_connect()), frame(b"x", PING) * 3],
    "it sent text": [request(), frame(_connect()), frame(b"x", TEXT)],
    "it broke the protocol": [request(), frame(_connect()), frame(b"\0")],
    "it sent many frames": [request(), frame(_connect()), frame(b"") * 5000],
}


def _live(door: Door, packets: list[bytes]) -> weakref.ref[object]:
    """Let one client come, send these packets, and go."""
    protocol = door.accept()
    for packet in packets:
        door.send(protocol, packet)
    protocol.transport.producer = None  # Twisted's transports do this before they tell that they are lost
    protocol.connectionLost()
    door.broker.settle()
    return weakref.ref(protocol)


def cycles() -> list[str]:
    """Return the kinds of our objects that only the garbage collector frees, of those made since `gc.freeze`."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return [type(one).__qualname__ for one in gc.garbage if type(one).__module__.startswith("holdfast.")]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


@pytest.mark.parametrize(
    ("kind", "life"), [*((Door, life) for life in LIVES), *((WebSocketDoor, life) for life in WEBSOCKET_LIVES)]
)
def test_a_closed_connection_is_freed_at_once(kind: type[Door], life: str) -> None:
    packets = LIVES[life] if kind is Door else WEBSOCKET_LIVES[life]
    door = kind()
    _live(door, packets)  # what is made once only, such as caches, does not count
    gc.freeze()  # what another test left is not looked at
    gc.disable()
    try:
        gone = _live(door, packets)
        door.broker.clock.advance(30)
        assert gone() is None
        assert cycles() == []
    finally:
        gc.enable()


def test_a_connection_that_was_taken_over_is_freed_at_once() -> None:
    door = Door()
    first = door.accept()
    door.send(first, _connect(expiry=60))
    gc.freeze()  # what another test left is not looked at
    gc.disable()
    try:
        second = door.accept()
        door.send(second, _connect(expiry=60))
        gone = weakref.ref(first)
        first.transport.producer = None
        first.connectionLost()
        del first
        door.broker.clock.advance(30)
        assert gone() is None
        assert cycles() == []
    finally:
        gc.enable()


def test_a_session_whose_waiting_messages_were_judged_again_is_freed_at_once() -> None:
    """Its Client was away while the permissions changed, then came back and ended the Session."""
    permissions = Permissions()
    broker = MemoryBroker(authorizer=permissions)
    publisher = broker.client("p", 5)

    def life() -> weakref.ref[object]:
        client = broker.client("a", 5, properties=Properties(session_expiry_interval=60))
        client.subscribe("t/#", qos=2)
        client.drop()
        publisher.publish("t/a", qos=1)
        permissions.deny("receive", "t/b")
        client = broker.client("a", 5, clean=False)
        assert client.messages() or client.backlog
        client.send(p.Disconnect())
        return weakref.ref(client.connection)

    life()
    gc.freeze()  # what another test left is not looked at
    gc.disable()
    try:
        gone = life()
        broker.advance(30)
        assert gone() is None
        assert cycles() == []
    finally:
        gc.enable()
