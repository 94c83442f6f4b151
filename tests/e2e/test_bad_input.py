"""Malformed and unexpected packets to a real broker: the right answer, a close, and no effect on other clients."""

from __future__ import annotations

import socket

import pytest

from holdfast.wire import PacketParser, encode
from holdfast.wire import packets as p
from tests.e2e.raw import RawClient
from tests.processes import PATIENCE, BrokerProcess
from tests.wire.test_vectors import WRONG

pytestmark = pytest.mark.e2e


def answer(port: int, version: int | None, data: bytes) -> list[p.Packet]:
    """Send bytes, before CONNECT or after it; return the packets received until the broker closes."""
    if version is not None:
        client = RawClient(port, version=version)
        client.socket.sendall(data)
        found = list(client.packets())
        client.close()
        return found
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        connection.sendall(data)
        received = b""
        try:
            while chunk := connection.recv(4096):
                received += chunk
        except ConnectionError:
            pass
    parser = PacketParser(1 << 20, 5 if len(received) > 4 else 4)
    parser.receive_data(received)
    packet = parser.next_packet()
    return [] if packet is None else [packet]


def test_every_malformed_packet_closes_its_connection_and_no_other(broker: BrokerProcess) -> None:
    """MQTT 5 clients get the Reason Code, MQTT 3 clients a close. Another client continues. No failure is logged."""
    bystander = RawClient(broker.port, "bystander")
    bystander.send(p.Subscribe(1, (p.SubscriptionRequest("alive"),)))
    for name, version, raw, _, reason in WRONG:
        came = answer(broker.port, version, bytes.fromhex(raw))
        if version == 5:
            assert len(came) == 1, name
            (disconnect,) = came
            assert isinstance(disconnect, p.Disconnect), name
            assert disconnect.reason_code == reason, name
        elif version is not None:
            assert came == [], name
        elif came:  # CONNACK, if the client's protocol version has a code for the error
            assert isinstance(came[0], p.Connack), name
            assert came[0].reason_code in (reason, 1), name
    publisher = RawClient(broker.port, "publisher")
    publisher.send(p.Publish("alive", b"yes"))
    for packet in bystander.packets():
        if isinstance(packet, p.Publish):
            assert packet.payload == b"yes"
            break
    status, errors = broker.stop()
    assert (status, errors) == (0, "")
    log = "\n".join(broker.lines)
    assert "Traceback" not in log
    assert "Unhandled" not in log


def test_a_packet_in_single_bytes_is_understood(broker: BrokerProcess) -> None:
    """The broker accepts a packet at any speed."""
    with socket.create_connection(("127.0.0.1", broker.port), timeout=PATIENCE) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in encode(p.Connect("slow", 5), 5) + encode(p.Pingreq(), 5):
            connection.sendall(bytes((byte,)))
        parser = PacketParser(1 << 20, 5)
        found: list[p.Packet] = []
        while len(found) < 2:
            parser.receive_data(connection.recv(4096))
            while (packet := parser.next_packet()) is not None:
                found.append(packet)
    assert [type(packet) for packet in found] == [p.Connack, p.Pingresp]
