"""The log of connections: the address on every line, and few lines however many packets are bad."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any

import pytest
from twisted.logger import LogEvent, formatEvent
from zope.interface import implementer

from holdfast.identity.addresses import Peer
from holdfast.identity.interfaces import IAuthorizer, Principal, UnrestrictedAuthorizer
from holdfast.sessions.limits import Limits
from holdfast.watch.log import MOST_LINES, ClientLog
from holdfast.wire import Properties, ReasonCode
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker
from tests.logs import logged

FORGED = "x\n2026-11-22 'admin' from 192.0.2.9:1 is connected"


@pytest.fixture
def events() -> Iterator[list[LogEvent]]:
    with logged(ClientLog) as found:
        yield found


def lines(events: list[LogEvent]) -> list[str]:
    """Return the lines logged since the last call."""
    found = [formatEvent(event) for event in events]
    events.clear()
    return found


def client_at(broker: MemoryBroker, address: str, version: int = 5) -> Client:
    """Return a client with this address, before CONNECT."""
    client = Client(broker, version)
    client.network.peer = Peer(ip_address(address), 4000)
    return client


@implementer(IAuthorizer)
class Forbidding(UnrestrictedAuthorizer):
    def may_publish(self, principal: Principal, topic: str, qos: int, retain: bool, clears: bool = False) -> bool:
        return False


def test_a_client_that_comes_and_goes(events: list[LogEvent]) -> None:
    broker = MemoryBroker()
    client = client_at(broker, "192.0.2.7")
    client.connect("a", username="bob", keep_alive=30)
    client.send(p.Disconnect(ReasonCode.DISCONNECT_WITH_WILL_MESSAGE, Properties(reason_string="bye\n")))
    assert lines(events) == [
        "'a' from 192.0.2.7:4000 is connected: MQTT 5.0, user 'bob', a new Session, Keep Alive 30 s",
        "'a' from 192.0.2.7:4000 is gone: DISCONNECT 0x04: bye\\n",
    ]
    broker.client("b").drop()
    assert lines(events)[1] == "'b' from 192.0.2.1:5555 is gone: the connection was lost"


def test_the_listener_stands_for_the_address_of_a_unix_socket(events: list[LogEvent]) -> None:
    client = Client(MemoryBroker())
    client.network.peer = Peer(None)
    client.connect("a")
    client.raw(b"\xf0\x00")
    assert all(line.startswith("'a' on listener test") for line in lines(events))


def test_a_new_client_is_known_by_its_address(events: list[LogEvent]) -> None:
    broker = MemoryBroker()
    client_at(broker, "2001:db8::5").raw(b"\x20\x02\x00\x00")
    broker.advance(20)
    (line,) = lines(events)
    assert line.startswith("a new client from [2001:db8::5]:4000: broke the protocol: ")


@pytest.mark.parametrize("addresses", ["192.0.2.1", "2001:db8::{:x}", "198.51.100.{}"])
def test_bad_packets_cause_a_counted_number_of_lines(events: list[LogEvent], addresses: str) -> None:
    """One for each address (IPv6: /64) and cause, at most 100 a second, and the counts a second later."""
    broker = MemoryBroker()
    for number in range(200):
        client_at(broker, addresses.format(number)).raw(b"\x20\x02\x00\x00")
    groups = 200 if addresses.startswith("198") else 1
    assert len(lines(events)) == min(groups, MOST_LINES)
    broker.clock.advance(1)
    assert len(lines(events)) == (1 if groups == 1 else 100)
    for _ in range(5):
        broker.clock.advance(1)
    assert lines(events) == []


def test_many_refused_messages_of_one_client_are_two_lines(events: list[LogEvent]) -> None:
    broker = MemoryBroker(authorizer=Forbidding())
    client = broker.client("a", 5)
    events.clear()
    for number in range(100):
        client.publish("t" * 300, qos=1, identifier=number + 1)
    (line,) = lines(events)
    assert line == f"'a' from 192.0.2.1:5555: may not publish this: to '{'t' * 256}'... (300 characters)"
    broker.clock.advance(1)
    assert lines(events) == ["192.0.2.1: 99 more lines like the last one left out: may not publish this"]


def test_three_denied_topics_are_all_named(events: list[LogEvent]) -> None:
    """One line hid two of them."""
    broker = MemoryBroker(authorizer=Forbidding())
    client = broker.client("a", 5)
    events.clear()
    for topic in ("x", "y", "z"):
        client.publish(topic)
    assert lines(events) == ["'a' from 192.0.2.1:5555: may not publish this: to 'x'"]
    broker.clock.advance(1)
    assert lines(events) == ["192.0.2.1: 2 more lines like the last one left out: may not publish this: 'y', 'z'"]


def _refused_connect(broker: MemoryBroker) -> None:
    client_at(broker, "192.0.2.1").connect(FORGED * 1000)


def _reason_string(broker: MemoryBroker) -> None:
    broker.client("a", 5).send(p.Disconnect(ReasonCode.SUCCESS, Properties(reason_string=FORGED * 1000)))


def _user_name(broker: MemoryBroker) -> None:
    broker.client("a", username=FORGED * 1000)


def _client_id(broker: MemoryBroker) -> None:
    broker.client(FORGED * 10).raw(b"\xf0\x00")


def _will(broker: MemoryBroker) -> None:
    broker.client(FORGED * 10, 5, will=p.Will(FORGED * 100, b"", 0, False)).drop()


def _topic(broker: MemoryBroker) -> None:
    broker.client("a", 5).publish(f"$SYS/{FORGED * 100}", qos=1)


def _filter(broker: MemoryBroker) -> None:
    broker.client("a", 5).subscribe(f"#/{FORGED * 100}")


@pytest.mark.parametrize("attack", [_refused_connect, _reason_string, _user_name, _client_id, _will, _topic, _filter])
def test_no_text_of_a_client_is_long_or_forges_a_line(events: list[LogEvent], attack: Any) -> None:
    attack(MemoryBroker(limits=Limits(max_packet_size=1 << 20)))
    found = lines(events)
    assert found
    for line in found:
        assert "\n" not in line
        assert line.isprintable()
        assert len(line) < 3 * 256 + 400  # a Client Identifier, another text, and each escape is some characters
