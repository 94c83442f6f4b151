"""Layers between the socket and MQTT: their bytes, their ends, and what is left of them."""

from __future__ import annotations

import gc
import weakref
from typing import Any

from holdfast.transports.layers import Layer
from holdfast.transports.protocol import CLOSING_TIME, MQTTServerFactory, OpenConnections
from holdfast.wire import ReasonCode, encode
from holdfast.wire import packets as p
from tests.transports.test_protocol import PROXY, Door, Transport

CONNECT = encode(p.Connect("c"), 4)
CONNACK = b"\x20\x02\0\0"


class Shifted(Layer):
    """A layer whose bytes on the wire are the others plus a number."""

    def __init__(self, shift: int) -> None:
        super().__init__()
        self.shift = shift

    def receive(self, data: bytes) -> None:
        self.above.receive(shifted(data, -self.shift))

    def write(self, data: bytes) -> bool:
        return self.below.write(shifted(data, self.shift))

    def close(self, data: bytes, reason: ReasonCode) -> None:
        self.below.close(shifted(data, self.shift), reason)


def shifted(data: bytes, shift: int) -> bytes:
    return bytes((byte + shift) % 256 for byte in data)


class LayeredDoor(Door):
    """A listener with two layers."""

    def __init__(self, proxies: list[str] | None = None) -> None:
        super().__init__(proxies)
        self.layers: list[Layer] = []

        def make() -> list[Layer]:
            self.layers = [Shifted(1), Shifted(2)]
            return self.layers

        self.factory = MQTTServerFactory(
            lambda network: self.broker.connect(network, self.broker.limits, "test"),
            OpenConnections(self.broker.clock), self.broker.clock, self.acceptance, make,
        )  # fmt: skip


def test_bytes_pass_through_all_layers_in_both_directions() -> None:
    door = LayeredDoor()
    protocol = door.accept()
    assert door.send(protocol, shifted(CONNECT, 3)) == shifted(CONNACK, 3)


def test_the_header_of_a_proxy_comes_before_the_layers() -> None:
    door = LayeredDoor(proxies=["127.0.0.1"])
    header = b"PROXY TCP4 192.0.2.1 192.0.2.9 5555 8883\r\n"
    assert door.send(door.accept(PROXY), header + shifted(CONNECT, 3)) == shifted(CONNACK, 3)


def test_bytes_of_a_layer_wait_behind_those_that_the_socket_has_not_taken() -> None:
    door = LayeredDoor()
    protocol = door.accept()
    transport = protocol.transport
    transport.dataBuffer, transport.offset, transport._tempDataLen = b"x", 0, 0
    protocol._send = len  # a socket that has room again, before Twisted has noticed it
    assert not door.layers[0].write(b"a")
    assert transport.value() == b"b"
    transport.dataBuffer = b""
    assert door.layers[0].write(b"a")


def test_a_layer_that_fails_ends_the_connection() -> None:
    door = LayeredDoor()
    protocol = door.accept()
    door.send(protocol, shifted(CONNECT, 3))
    door.layers[1].fail("broke its protocol", "so to speak")
    assert protocol.transport.disconnecting
    assert not door.broker.registry.connection_count
    door.layers[1].fail("broke its protocol", "again")


def test_a_layer_that_takes_too_long_to_close_is_cut_off() -> None:
    door = LayeredDoor()
    protocol = door.accept()
    door.layers[1].closing()
    assert protocol.is_closing
    door.broker.clock.advance(CLOSING_TIME + 0.1)
    assert protocol.transport.aborted


def test_a_closed_connection_with_layers_is_freed_at_once() -> None:
    door = LayeredDoor()
    gc.collect()
    gc.disable()
    try:
        protocol: Any = door.accept()
        door.send(protocol, shifted(CONNECT, 3))
        gone = [weakref.ref(protocol), weakref.ref(protocol._connection)]
        protocol.transport.producer = None
        protocol.connectionLost()
        door.broker.settle()
        door.layers.clear()
        assert isinstance(protocol.transport, Transport)
        del protocol
        door.broker.clock.advance(30)
        assert [one() for one in gone] == [None, None]
    finally:
        gc.enable()
