"""Which PUBLISH packets are taken as runs, and when the broker looks at each of them again."""

from __future__ import annotations

from typing import Any

import pytest
from zope.interface import implementer

from holdfast.identity.interfaces import IAuthorizer, Principal, UnrestrictedAuthorizer
from holdfast.sessions.connection.packet_order import PACKETS_OF_A_TURN, RUN_DISCOUNT, STRIPE_DISCOUNT
from holdfast.sessions.delivery.session import Session
from holdfast.sessions.limits import Limits
from holdfast.wire import Properties, ReasonCode, encode
from holdfast.wire import packets as p
from holdfast.wire.runs import LONGEST_RUN
from tests.doubles import Client, MemoryBroker


@pytest.fixture
def singly(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The payloads of messages that were delivered one by one."""
    found: list[str] = []
    deliver = Session.deliver

    def spy(session: Session, outgoing: Any, *arguments: Any) -> None:
        found.append(outgoing.message.payload.decode())
        deliver(session, outgoing, *arguments)

    monkeypatch.setattr(Session, "deliver", spy)
    return found


def messages(*payloads: str, topic: str = "t", qos: int = 0, version: int = 4) -> bytes:
    return b"".join(
        encode(p.Publish(topic, payload.encode(), qos, packet_identifier=number if qos else 0), version)
        for number, payload in enumerate(payloads, 1)
    )


def payloads(client: Client) -> list[str]:
    return [packet.payload.decode() for packet in client.got(p.Publish)]


@pytest.mark.parametrize("qos", [0, 1])
def test_messages_after_the_first_of_a_topic_are_taken_together(qos: int, singly: list[str]) -> None:
    broker = MemoryBroker()
    subscriber, publisher = broker.client("s"), broker.client("p")
    subscriber.subscribe("#")
    publisher.raw(messages("1", "2", "3", qos=qos))
    publisher.raw(messages("4", "5", qos=qos))
    assert payloads(subscriber) == ["1", "2", "3", "4", "5"]
    assert singly == ["1"]
    assert [packet.packet_identifier for packet in publisher.got(p.Puback)] == ([1, 2, 3, 1, 2] if qos else [])


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1])
def test_a_message_that_comes_by_itself_is_sent_as_it_came(qos: int, version: int, singly: list[str]) -> None:
    """What each client of a fleet does: one message at a time."""
    broker = MemoryBroker()
    subscriber, publisher, other = broker.client("s", version), broker.client("p", version), broker.client("o")
    subscriber.subscribe("#", qos=1)
    other.subscribe("#")
    for number in range(1, 6):
        publisher.raw(messages(str(number), qos=qos, version=version))
        assert len(publisher.got(p.Puback)) == qos
        for receiver, granted in ((subscriber, qos), (other, 0)):
            (packet,) = receiver.got(p.Publish)
            assert (packet.payload, packet.qos) == (str(number).encode(), granted)
    assert singly == ["1", "1"]
    counted = broker.counters
    assert (counted.messages_received, counted.messages_sent) == (5, 10)
    size = 5 * len(messages("1", qos=qos, version=version))
    assert counted.message_bytes_received == size


def test_an_error_with_a_message_that_comes_by_itself_ends_its_connection_only(
    monkeypatch: pytest.MonkeyPatch, logged_failures: list[Any]
) -> None:
    broker = MemoryBroker()
    publisher, other = broker.client("p"), broker.client("o")
    publisher.raw(messages("1"))
    other.raw(messages("1"))
    with monkeypatch.context() as patched:
        patched.setattr(type(broker.router), "publish_run", lambda *_: 1 / 0)
        publisher.raw(messages("2"))
    assert publisher.network.closed
    other.raw(messages("2"))
    assert not other.network.closed
    assert len(logged_failures) == 1
    logged_failures.clear()


def test_a_new_subscription_gets_the_next_message(singly: list[str]) -> None:
    broker = MemoryBroker()
    first, second, publisher = broker.client("1"), broker.client("2"), broker.client("p")
    first.subscribe("t")
    publisher.raw(messages("1", "2"))
    second.subscribe("t")
    publisher.raw(messages("3"))
    publisher.raw(messages("4", "5"))
    publisher.raw(messages("6"))
    assert payloads(first) == ["1", "2", "3", "4", "5", "6"]
    assert payloads(second) == ["3", "4", "5", "6"]
    assert singly == ["1", "3", "3"]


@pytest.mark.parametrize(
    ("topic_filter", "concerned"),
    [("d/3", [3]), ("d/3/#", [3]), ("+/3", [3]), ("e/#", []), ("$share/g/d/3", [3]), ("#", [0, 1, 2, 3, 4])],
)
@pytest.mark.parametrize("together", [False, True])
def test_a_change_of_a_subscription_concerns_its_topics_only(
    topic_filter: str, concerned: list[int], together: bool, singly: list[str]
) -> None:
    """Devices come and go with subscriptions of their own: the messages of the others go on as they were."""
    broker = MemoryBroker()
    first, device, publisher = broker.client("1"), broker.client("2"), broker.client("p")
    first.subscribe("d/+")

    def publish() -> list[str]:
        """Publish to each topic; return which messages were delivered one by one."""
        singly.clear()
        parts = [messages(f"{number}", topic=f"d/{number}") for number in range(5)]
        for piece in [b"".join(parts)] if together else parts:
            publisher.raw(piece)
        assert sorted(payloads(first)) == ["0", "1", "2", "3", "4"]
        return sorted(set(singly))

    assert publish() == ["0", "1", "2", "3", "4"]
    assert publish() == []
    for subscribes in (True, False):
        if subscribes:
            device.subscribe(topic_filter)
        else:
            device.send(p.Unsubscribe(device.identifier(), [topic_filter]))
        expected = {str(number) for number in concerned}
        # Messages of a run that is taken apart, because one topic has changed, come one by one once.
        assert expected <= set(publish())
        assert together or set(singly) == expected
        if topic_filter.startswith("$share") and subscribes:
            continue  # each message of the group is sent by itself
        assert publish() == []
    times = 1 if topic_filter.startswith("$share") else 2
    assert sorted(payloads(device)) == sorted(times * [str(number) for number in concerned])


def test_sessions_that_have_ended_are_in_no_route_of_topics_that_go_on() -> None:
    broker = MemoryBroker()
    table = broker.router.table
    staying, publisher = broker.client("s"), broker.client("p")
    staying.subscribe("d/+")
    publisher.raw(messages("1", topic="d/1") + messages("1", topic="d/2"))
    for number in range(3):
        device = broker.client(f"device {number}")
        device.subscribe("d/1")
        publisher.raw(messages("1", topic="d/1") + messages("1", topic="d/2"))
        assert len(table._found) == 2
        device.drop()
        broker.settle()
        publisher.raw(messages("1", topic="d/1") + messages("1", topic="d/2"))
        assert len(table._found) == 1
        assert {match.session.client_id for route in table._numbered.values() for match in route.matches} == {"s"}
        assert not [having for having in table._having.values() if not having]


def test_many_changes_at_once_forget_all(singly: list[str]) -> None:
    broker = MemoryBroker()
    subscriber, device, publisher = broker.client("s"), broker.client("d"), broker.client("p")
    subscriber.subscribe("t")
    publisher.raw(messages("1"))
    publisher.raw(messages("2"))
    for number in range(20):
        device.subscribe(f"u/{number}")
    publisher.raw(messages("3"))
    publisher.raw(messages("4"))
    assert payloads(subscriber) == ["1", "2", "3", "4"]
    assert singly == ["1", "3"]


@implementer(IAuthorizer)
class Changing(UnrestrictedAuthorizer):
    """Allows what it is told to allow, and says when that has changed."""

    def __init__(self) -> None:
        self.allows = True
        self.asked = 0

    def may_publish(self, principal: Principal, topic: str, qos: int, retain: bool, clears: bool = False) -> bool:
        self.asked += 1
        return self.allows


def test_an_authorizer_that_changes_its_mind_is_asked_again() -> None:
    authorizer = Changing()
    broker = MemoryBroker(authorizer=authorizer)
    subscriber, publisher = broker.client("s"), broker.client("p")
    subscriber.subscribe("#")
    publisher.raw(messages("1", "2", "3"))
    assert authorizer.asked == 1
    authorizer.allows, authorizer.epoch = False, 1
    publisher.raw(messages("4", "5"))
    assert authorizer.asked == 3
    assert payloads(subscriber) == ["1", "2", "3"]
    authorizer.allows, authorizer.epoch = True, 2
    publisher.raw(messages("6"))
    authorizer.allows, authorizer.epoch = False, 3
    publisher.raw(messages("7"))
    assert payloads(subscriber) == ["6"]


def test_an_authorizer_that_promises_nothing_is_asked_each_time() -> None:
    authorizer = Changing()
    authorizer.epoch = None
    publisher = MemoryBroker(authorizer=authorizer).client("p")
    publisher.raw(messages("1", "2", "3"))
    assert authorizer.asked == 3


def test_a_run_that_exceeds_the_receive_maximum_ends_at_the_same_packet() -> None:
    broker = MemoryBroker(limits=Limits(max_awaiting_rel=2))
    publisher = broker.client("p", 5)
    publisher.raw(messages("1", qos=1, version=5))
    publisher.send(p.Publish("u", b"", 2, packet_identifier=9))
    publisher.raw(messages("2", "3", "4", qos=1, version=5))  # only unanswered ones count, and PUBREL is due for one
    assert len(publisher.got(p.Puback)) == 4
    publisher.send(p.Publish("u", b"", 2, packet_identifier=8))
    publisher.raw(messages("5", "6", qos=1, version=5))
    packets = publisher.packets()
    assert [type(packet) for packet in packets] == [p.Pubrec, p.Disconnect]
    assert packets[1] == p.Disconnect(ReasonCode.RECEIVE_MAXIMUM_EXCEEDED, packets[1].properties)  # type: ignore[union-attr]


@pytest.mark.parametrize("payloads", [["1", "2", "3"], ["1"]])
def test_clients_without_subscribers_are_told_so(payloads: list[str]) -> None:
    publisher = MemoryBroker().client("p", 5)
    publisher.raw(messages("0", qos=1, version=5))
    publisher.raw(messages(*payloads, qos=1, version=5))
    assert {packet.reason_code for packet in publisher.got(p.Puback)} == {ReasonCode.NO_MATCHING_SUBSCRIBERS}


@pytest.mark.parametrize("topic_filter", ["t", "$share/g/t"])
def test_own_messages_and_shared_subscriptions_are_delivered_singly(topic_filter: str, singly: list[str]) -> None:
    client = MemoryBroker().client("p")
    client.subscribe(topic_filter)
    client.raw(messages("1", "2", "3"))
    assert payloads(client) == singly == ["1", "2", "3"]


def test_a_receiver_that_takes_no_runs_delays_no_other(singly: list[str]) -> None:
    broker = MemoryBroker()
    usual, other, publisher = broker.client("1"), broker.client("2", 5), broker.client("p")
    usual.subscribe("t")
    other.subscribe("t", identifier=7)
    publisher.raw(messages("1", "2", "3"))
    assert payloads(usual) == ["1", "2", "3"]
    identifiers = [packet.properties for packet in other.got(p.Publish)]
    assert identifiers == [Properties(subscription_identifiers=(7,))] * 3
    assert singly == ["1", "1", "2", "3"]


def test_a_turn_takes_a_bounded_number_of_runs() -> None:
    broker = MemoryBroker()
    subscriber, publisher = broker.client("s"), broker.client("p")
    subscriber.subscribe("t")
    publisher.raw(messages("1"))
    publisher.connection.receive(messages(*["1"] * PACKETS_OF_A_TURN * RUN_DISCOUNT * 2))
    taken = broker.counters.messages_received
    assert PACKETS_OF_A_TURN * RUN_DISCOUNT * 0.9 < taken <= PACKETS_OF_A_TURN * RUN_DISCOUNT + LONGEST_RUN
    broker.settle()
    assert len(payloads(subscriber)) == 1 + PACKETS_OF_A_TURN * RUN_DISCOUNT * 2


def test_a_turn_takes_fewer_runs_of_mixed_topics() -> None:
    """Each of their packets is a stripe, and costs far more than one of many alike."""
    broker = MemoryBroker()
    subscriber, publisher = broker.client("s"), broker.client("p")
    subscriber.subscribe("#")
    publisher.raw(messages("1", topic="t") + messages("1", topic="u"))
    publisher.connection.receive(
        (messages("1", topic="t") + messages("1", topic="u")) * PACKETS_OF_A_TURN * STRIPE_DISCOUNT
    )
    taken = broker.counters.messages_received
    assert PACKETS_OF_A_TURN * STRIPE_DISCOUNT * 0.7 < taken <= PACKETS_OF_A_TURN * STRIPE_DISCOUNT + LONGEST_RUN
    broker.settle()
    assert len(payloads(subscriber)) == 2 + 2 * PACKETS_OF_A_TURN * STRIPE_DISCOUNT


@pytest.mark.parametrize("in_order", [True, False])
def test_a_turn_takes_more_acknowledgements_if_they_are_in_order(in_order: bool) -> None:
    """The window of a fast reader would stay full if its acknowledgements had to wait for their turn."""
    broker = MemoryBroker()
    subscriber, publisher = broker.client("s"), broker.client("p")
    subscriber.subscribe("t", qos=1)
    for _ in range(3):
        publisher.raw(messages(*["1"] * LONGEST_RUN, qos=1))
    identifiers = [packet.packet_identifier for packet in subscriber.got(p.Publish)]
    assert len(identifiers) == 3 * LONGEST_RUN
    if not in_order:
        identifiers.reverse()
    before = broker.counters.packets_received
    subscriber.connection.receive(b"".join(encode(p.Puback(identifier), 4) for identifier in identifiers))
    assert broker.counters.packets_received - before == (3 * LONGEST_RUN if in_order else PACKETS_OF_A_TURN)
    broker.settle()
    assert broker.counters.packets_received - before == 3 * LONGEST_RUN


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("limits", [Limits(max_buffered_messages=LONGEST_RUN), Limits(max_buffered_bytes=4000)])
def test_a_client_that_reads_is_not_shut_down_for_what_one_turn_has_for_it(limits: Limits, qos: int) -> None:
    broker = MemoryBroker(limits=limits)
    subscriber, publisher = broker.client("s"), broker.client("p")
    subscriber.subscribe("t", qos=qos)
    publisher.raw(messages("0", qos=qos))
    publisher.connection.receive(messages(*["1"] * LONGEST_RUN * 3, qos=qos))
    broker.settle()
    assert len(payloads(subscriber)) == 1 + 3 * LONGEST_RUN
    assert broker.counters.connections_shut_down == 0


def test_a_client_that_reads_is_not_shut_down_for_what_is_queued_beside_it() -> None:
    broker = MemoryBroker(limits=Limits(max_buffered_messages=LONGEST_RUN + 100, max_inflight=LONGEST_RUN))
    subscriber, publisher = broker.client("s"), broker.client("p")
    subscriber.subscribe("t", qos=1)
    publisher.raw(messages("0", qos=1))
    subscriber.messages()
    publisher.connection.receive(messages(*["1"] * (LONGEST_RUN + 300), qos=1))
    broker.settle()
    assert len(subscriber.messages()) == LONGEST_RUN + 300
    assert broker.counters.connections_shut_down == 0


def test_a_client_that_does_not_read_is_shut_down_by_a_run_too() -> None:
    broker = MemoryBroker(limits=Limits(max_buffered_messages=LONGEST_RUN))
    subscriber, publisher = broker.client("s"), broker.client("p")
    subscriber.subscribe("t")
    subscriber.network.blocked = True
    publisher.raw(messages("0"))
    publisher.connection.receive(messages(*["1"] * LONGEST_RUN * 3))
    broker.settle()
    assert subscriber.network.closed
    assert broker.counters.connections_shut_down == 1
