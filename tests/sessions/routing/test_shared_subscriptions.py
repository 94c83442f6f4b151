"""Shared subscriptions: messages whose member disconnects, and messages that a member refuses [MQTT5-4.8.2]."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.sessions.limits import Limits
from holdfast.wire import Properties, ReasonCode
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker
from tests.sessions.restartable import RestartableBroker
from tests.storage.doubles import fresh_file

SHARED = "$share/g/t"
VERSIONS = pytest.mark.parametrize("version", [4, 5])


def member(broker: MemoryBroker, client_id: str, version: int = 5, clean: bool = True, qos: int = 2) -> Client:
    """Connect a member of the group."""
    expiry = Properties(session_expiry_interval=0 if clean else 1000) if version == 5 else Properties()
    client = broker.client(client_id, version, clean=clean, properties=expiry)
    client.subscribe(SHARED, qos=qos)
    return client


def payloads(client: Client) -> list[bytes]:
    """Return the payloads sent to a client, without acknowledging them."""
    return [packet.payload for packet in client.got(p.Publish)]


@VERSIONS
@pytest.mark.parametrize("clean", [True, False])
def test_qos_1_in_flight_to_a_member_that_disconnects_is_redelivered(version: int, clean: bool) -> None:
    """Another online member gets it, whether the Session ends or not, without DUP."""
    broker = MemoryBroker()
    first, second = member(broker, "a", version, clean), member(broker, "b", version, clean)
    broker.client("p").publish("t", b"1", qos=1)
    assert payloads(first) == [b"1"]
    first.drop()
    (again,) = second.got(p.Publish)
    assert (again.payload, again.qos, again.dup) == (b"1", 1, False)
    first = member(broker, "a", version, clean)
    assert [packet for packet in first.backlog if isinstance(packet, p.Publish)] == []


def test_qos_1_waits_for_its_client_when_no_other_member_is_online() -> None:
    """A Session that has not ended keeps it. It is sent again when the Client is back."""
    broker = MemoryBroker()
    first, second = member(broker, "a", clean=False), member(broker, "b", clean=False)
    second.drop()
    broker.client("p").publish("t", b"1", qos=1)
    assert payloads(first) == [b"1"]
    first.drop()
    back = broker.client("a", 5, clean=False, properties=Properties(session_expiry_interval=1000))
    assert [(packet.payload, packet.dup) for packet in back.backlog if isinstance(packet, p.Publish)] == [(b"1", True)]


def test_a_session_that_ends_leaves_its_messages_to_offline_members() -> None:
    """When the last online member's Session ends, an offline member gets them later."""
    broker = MemoryBroker()
    first, second = member(broker, "a", clean=True), member(broker, "b", clean=False)
    second.drop()
    for number in range(3):
        broker.client("p").publish("t", b"%d" % number, qos=1)
    first.drop()
    back = broker.client("b", 5, clean=False, properties=Properties(session_expiry_interval=1000))
    assert [packet.payload for packet in back.backlog if isinstance(packet, p.Publish)] == [b"0", b"1", b"2"]


def test_queued_messages_of_a_member_are_redelivered_in_order() -> None:
    """Messages that wait behind a full window go to other members, also with QoS 2: they have not been sent."""
    broker = MemoryBroker(limits=Limits(max_inflight=1))
    first = member(broker, "a")
    for number in range(5):
        broker.client("p").publish("t", b"%d" % number, qos=number % 2 + 1)
    assert payloads(first) == [b"0"]
    second = member(broker, "b")
    first.drop()
    assert [payload for _, payload, _, _ in second.messages()] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_qos_2_exchange_that_has_begun_waits_for_its_client() -> None:
    """It is completed with the Client that got the message first [MQTT5-4.8.2-4]."""
    broker = MemoryBroker()
    first, second = member(broker, "a", clean=False), member(broker, "b", clean=False)
    broker.client("p").publish("t", b"1", qos=2)
    assert payloads(first) == [b"1"]
    first.drop()
    assert payloads(second) == []
    back = broker.client("a", 5, clean=False, properties=Properties(session_expiry_interval=1000))
    assert [packet.payload for packet in back.backlog if isinstance(packet, p.Publish)] == [b"1"]


def test_a_qos_2_exchange_ends_with_its_session() -> None:
    """No other member gets the message [MQTT5-4.8.2-5]."""
    broker = MemoryBroker()
    first, second = member(broker, "a"), member(broker, "b")
    broker.client("p").publish("t", b"1", qos=2)
    assert payloads(first) == [b"1"]
    first.drop()
    assert payloads(second) == []
    assert broker.registry.session_count == 2  # of the publisher and of b


@pytest.mark.parametrize("qos", [1, 2])
def test_a_refused_message_goes_to_no_other_member(qos: int) -> None:
    """PUBACK or PUBREC of 0x80 or above ends the delivery [MQTT5-4.8.2-6]."""
    broker = MemoryBroker()
    first, second = member(broker, "a"), member(broker, "b")
    broker.client("p").publish("t", b"1", qos=qos)
    (publish,) = first.got(p.Publish)
    refusal = p.Puback if qos == 1 else p.Pubrec
    first.send(refusal(publish.packet_identifier, ReasonCode.UNSPECIFIED_ERROR))
    first.drop()
    assert payloads(second) == []


def test_an_acknowledgement_that_comes_too_late_is_ignored() -> None:
    """The first Client comes back and acknowledges a message that another member got meanwhile."""
    broker = MemoryBroker()
    first, second = member(broker, "a", clean=False), member(broker, "b")
    broker.client("p").publish("t", b"1", qos=1)
    (publish,) = first.got(p.Publish)
    first.drop()
    back = broker.client("a", 5, clean=False, properties=Properties(session_expiry_interval=1000))
    back.send(p.Puback(publish.packet_identifier))
    assert not back.network.closed
    assert [payload for _, payload, _, _ in second.messages()] == [b"1"]


def test_ordinary_messages_stay_with_their_session() -> None:
    """Only messages of the shared subscription move."""
    broker = MemoryBroker()
    first, second = member(broker, "a", clean=False), member(broker, "b")
    first.subscribe("u", qos=1)
    broker.client("p").publish("u", b"own", qos=1)
    first.drop()
    assert payloads(second) == []
    back = broker.client("a", 5, clean=False, properties=Properties(session_expiry_interval=1000))
    assert [packet.payload for packet in back.backlog if isinstance(packet, p.Publish)] == [b"own"]


def test_messages_of_a_shared_subscription_outlive_a_kill_and_move_on(tmp_path: Path) -> None:
    """After a restart they still belong to the group: a Session that ends leaves them to another member."""
    broker = RestartableBroker(fresh_file(tmp_path))
    for name in "ab":
        member(broker, name, clean=False).drop()
    for number in range(4):
        broker.client("p").publish("t", b"%d" % number, qos=1)
    broker = broker.restart()
    broker.client("a", clean=True)
    back = broker.client("b", 5, clean=False, properties=Properties(session_expiry_interval=1000))
    seen = [packet.payload for packet in back.backlog if isinstance(packet, p.Publish)]
    assert sorted(seen) == [b"0", b"1", b"2", b"3"]
    assert broker.rows("session_deliveries") == 4
