"""Operators' changes reach subscribers: in bounded parts, at the pace of slow clients, and at nobody's expense."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.messages import HELD_ENTRY, ApplicationMessage, ChangeOrigin
from holdfast.retained.limits import RetainerLimits
from holdfast.sessions.limits import Limits, WhenFull
from holdfast.sessions.operator_publisher import DELIVERIES, SUBSCRIBER_PATIENCE, OperatorMessages, OperatorPublisher
from holdfast.wire import Properties
from holdfast.wire import packets as p
from holdfast.wire.packets import SubscriptionRequest
from tests.admin.doubles import Desk
from tests.doubles import Client, MemoryBroker
from tests.sessions.restartable import RestartableBroker
from tests.storage.doubles import fresh_file, result_of


def filled(count: int, **options: Any) -> Desk:
    desk = Desk(**options)
    client = desk.broker.client("filler", 5)
    for number in range(count):
        client.publish(f"t/{number:04}", b"old", qos=1, retain=True)
    return desk


def kept(broker: MemoryBroker, client_id: str, topic_filter: str = "t/#", group: str = "") -> Client:
    """Return a client whose Session outlives its connection, and that has no replay."""
    client = Client(broker, 5)
    client.connect(client_id, clean=False, properties=Properties(session_expiry_interval=3600))
    client.subscribe(SubscriptionRequest(group + topic_filter, 1, retain_handling=0 if group else 2))
    client.messages()
    return client


def _again(run: Callable[[str, int], None], name: str, left: int, _: None) -> None:
    run(name, left)


def back(broker: MemoryBroker, client_id: str) -> list[tuple[str, bytes, int, bool]]:
    """Connect again, and return the messages that waited."""
    client = Client(broker, 5)
    client.connect(client_id, clean=False, properties=Properties(session_expiry_interval=3600))
    came = [packet for packet in client.backlog if isinstance(packet, p.Publish)]
    client.send(*(p.Puback(packet.packet_identifier) for packet in came if packet.qos))
    return [(packet.topic, packet.payload, packet.qos, packet.retain) for packet in came] + client.messages()


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_change_reaches_present_subscribers_like_any_message(version: int) -> None:
    """Set and clear, with RETAIN 0; a clear is an empty message."""
    desk = filled(0)
    client = desk.broker.client("c", version)
    client.subscribe("t/#", qos=1)
    desk.ask("POST", "/messages", {"topic": "t/1", "payload": "new", "qos": 1})
    desk.ask("POST", "/messages", {"topic": "t/2", "payload": "new"})
    assert client.messages() == [("t/1", b"new", 1, False), ("t/2", b"new", 0, False)]
    desk.ask("DELETE", "/messages", topic="t/1")
    desk.ask("DELETE", "/message/t%2F2")
    assert client.messages() == [("t/1", b"", 1, False), ("t/2", b"", 1, False)]


def test_a_clear_of_everything_reaches_them() -> None:
    desk = filled(3)
    client = desk.broker.client("c", 5)
    client.subscribe(SubscriptionRequest("#", 0, retain_handling=2))
    desk.ask("DELETE", "/messages")
    assert [(topic, data) for topic, data, _, _ in client.messages()] == [(f"t/{n:04}", b"") for n in range(3)]
    assert desk.topics() == []


def test_retain_as_published_keeps_the_flag() -> None:
    desk = filled(1)
    client = desk.broker.client("c", 5)
    client.subscribe(SubscriptionRequest("t/#", 0, retain_as_published=True, retain_handling=2))
    desk.ask("POST", "/messages", {"topic": "t/1", "payload": "new"})
    desk.ask("DELETE", "/messages", topic="t/1")
    assert client.messages() == [("t/1", b"new", 0, True), ("t/1", b"", 0, True)]


@pytest.mark.parametrize("by_parameter", [False, True])
def test_a_quiet_change_reaches_new_subscribers_only(by_parameter: bool) -> None:
    desk = filled(2)
    client = desk.broker.client("c", 5)
    client.subscribe(SubscriptionRequest("#", 1, retain_handling=2))
    if by_parameter:
        desk.ask("POST", "/messages", {"topic": "t/5", "payload": "new"}, quiet="true")
    else:
        desk.ask("POST", "/messages", {"topic": "t/5", "payload": "new", "quiet": True})
    desk.ask("DELETE", "/message/t%2F0000", quiet="true")
    desk.ask("DELETE", "/messages", topic="t/0001", quiet="true")
    assert client.messages() == []
    assert desk.topics() == ["t/5"]
    desk.ask("DELETE", "/messages", quiet="true")
    assert client.messages() == []
    assert desk.topics() == []


def test_a_flag_that_is_no_flag_is_refused() -> None:
    desk = Desk()
    status, code, says = desk.refused("POST", "/messages", {"topic": "t", "payload": "x", "quiet": "yes"})
    assert (status, code) == (400, "BAD_REQUEST")
    assert "quiet: is not true or false" in says
    assert "quiet is true or false" in desk.refused("DELETE", "/messages", topic="t", quiet="1")[2]


def test_a_large_clear_holds_no_turn_of_the_reactor() -> None:
    """The deliveries of a turn are bounded, and every topic is cleared."""
    desk = filled(1000)
    client = desk.broker.client("c", 5)
    client.subscribe(SubscriptionRequest("t/#", 0, retain_handling=2))
    clearing = desk.administration.clear("t/#")
    sent, turns = 0, 0
    while not clearing.called:
        desk.broker.clock.turn()
        came = len(client.packets())
        assert came <= DELIVERIES
        sent += came
        turns += 1
    desk.broker.settle()
    sent += len(client.packets())
    assert result_of(clearing).count == sent == 1000
    assert turns > 1000 * 2 // DELIVERIES - 2  # each topic counts once itself, and once for its delivery


def test_two_large_clears_take_turns() -> None:
    desk = filled(600)
    other = desk.broker.client("filler", 5)
    for number in range(600):
        other.publish(f"u/{number:04}", b"old", retain=True)
    first, second = desk.administration.clear("t/#"), desk.administration.clear("u/#")
    desk.broker.clock.turn()
    for _ in range(8):
        desk.broker.clock.turn()
    desk.broker.settle()
    assert desk.administration.counts["cleared"] == 1200
    assert result_of(first).count == result_of(second).count == 600


def test_waiting_commands_take_turns() -> None:
    """First in, first out: a long command does not keep another one waiting for its end."""
    broker = MemoryBroker()
    publisher = OperatorPublisher(broker.router, broker.clock)
    order: list[str] = []

    def run(name: str, left: int) -> None:
        while left:
            room = publisher.room(name)
            if room is not None:
                room.addCallback(partial(_again, run, name, left))
                return
            order.append(name)
            publisher.publish(ApplicationMessage(name, b"", 0, True), ChangeOrigin.API)
            left -= 1

    run("a", 3 * DELIVERIES)
    run("b", 3 * DELIVERIES)
    broker.settle()
    assert order[DELIVERIES : 5 * DELIVERIES] == (["a"] * DELIVERIES + ["b"] * DELIVERIES) * 2


def test_a_clear_waits_for_a_connected_client_whose_queue_is_full() -> None:
    """It acknowledges one message at a time, and gets all of them; its connection is not shut down."""
    limits = Limits(max_inflight=1, max_mqueue_len=5, max_buffered_messages=600)
    desk = filled(2000, limits=limits)
    client = desk.broker.client("slow", 5)
    client.subscribe(SubscriptionRequest("t/#", 1, retain_handling=2))
    clearing = desk.administration.clear("t/#")
    got = []
    for _ in range(400):
        got += client.messages()
        desk.broker.advance(0.1)
        assert len(desk.broker.registry._sessions["slow"].queue) <= 600
        if clearing.called:
            break
    got += client.messages()
    assert result_of(clearing).count == 2000
    assert [(topic, data) for topic, data, _, _ in got] == [(f"t/{n:04}", b"") for n in range(2000)]
    assert desk.broker.counters.connections_shut_down == 0


def test_a_single_change_waits_too() -> None:
    """The client's queue is full of other clients' messages; it reads on."""
    desk = filled(0, limits=Limits(max_inflight=1))
    client = desk.broker.client("slow", 5)
    client.subscribe(SubscriptionRequest("t/#", 1))
    publisher = desk.broker.client("p", 5)
    for number in range(600):
        publisher.publish(f"t/{number}", qos=1)
    setting = desk.administration.set(ApplicationMessage("t/set", b"x", 1, True))
    desk.broker.advance(0.1)
    assert not setting.called
    assert desk.topics() == []
    assert len(client.messages()) == 600
    desk.broker.advance(0.1)
    assert setting.called
    assert [topic for topic, _, _, _ in client.messages()] == ["t/set"]


def test_a_client_that_takes_nothing_is_waited_for_once() -> None:
    """Not once for each topic, and not by other commands again."""
    desk = filled(1500, limits=Limits(max_inflight=1))
    client = desk.broker.client("stuck", 5)
    client.subscribe(SubscriptionRequest("t/#", 1, retain_handling=2))
    client.got(p.Publish)
    clearing = desk.administration.clear("t/#")
    desk.broker.advance(SUBSCRIBER_PATIENCE / 2)
    assert not clearing.called
    desk.broker.advance(SUBSCRIBER_PATIENCE)
    desk.broker.settle()
    assert result_of(clearing).count == 1500
    again = desk.administration.set(ApplicationMessage("t/1", b"x", 1, True))
    desk.broker.settle()
    assert again.called


def test_a_clear_replaces_the_queued_message_of_its_topic() -> None:
    """The client that comes back gets the clear, at its place in the order, and no outdated value."""
    desk = filled(0)
    kept(desk.broker, "away").drop()
    publisher = desk.broker.client("p", 5)
    for topic in ("t/1", "t/2", "t/1"):
        publisher.publish(topic, b"old", qos=1, retain=True)
    publisher.publish("t/1", b"event", qos=1)  # not retained: nobody has cleared it
    desk.ask("DELETE", "/messages", topic="t/1")
    publisher.publish("t/3", b"new", qos=1, retain=True)
    assert [(topic, data) for topic, data, _, _ in back(desk.broker, "away")] == [
        ("t/2", b"old"), ("t/1", b"event"), ("t/1", b""), ("t/3", b"new"),
    ]  # fmt: skip


@pytest.mark.parametrize("publish", [False, True], ids=["set", "POST /publish"])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("keeps_qos_0", [False, True])
def test_a_set_is_queued_with_qos_1_in_the_place_of_the_older_message(
    publish: bool, qos: int, keeps_qos_0: bool
) -> None:
    """As far as the Subscription grants it. Present subscribers get it with QoS 0, as it was set."""
    desk = filled(0, limits=Limits(mqueue_store_qos0=keeps_qos_0))
    here = desk.broker.client("here", 5)
    here.subscribe("t/#", qos=2)
    away = kept(desk.broker, "away")
    away.subscribe(SubscriptionRequest("t/#", qos, retain_handling=2))
    away.drop()
    publisher = desk.broker.client("p", 5)
    for topic in ("t/1", "t/2"):
        publisher.publish(topic, b"old", qos=1, retain=True)
    here.messages()
    message = ApplicationMessage("t/1", b"new", 0, True)
    if publish:
        operator = OperatorPublisher(desk.broker.router, desk.broker.clock)
        sent: object = OperatorMessages(operator, desk.broker.retained).publish(message)
    else:
        sent = desk.administration.set(message)
    desk.broker.settle()
    assert sent is not None
    assert here.messages() == [("t/1", b"new", 0, False)]
    expected = [("t/2", b"old", min(qos, 1), False), ("t/1", b"new", min(qos, 1), False)]
    assert back(desk.broker, "away") == (expected if qos or keeps_qos_0 else [])


def test_a_replaced_message_stays_replaced_after_a_kill(tmp_path: Path) -> None:
    broker = RestartableBroker(fresh_file(tmp_path))
    kept(broker, "away").drop()
    broker.client("p", 5).publish("t/1", b"old", qos=1, retain=True)
    publisher = OperatorPublisher(broker.router, broker.clock)
    publisher.publish(ApplicationMessage("t/1", b"new", 0, True), ChangeOrigin.API)
    broker.settle()
    assert broker.rows("session_messages") == 1
    broker = broker.restart()
    assert [(topic, data, qos) for topic, data, qos, _ in back(broker, "away")] == [("t/1", b"new", 1)]
    kept(broker, "away").drop()
    broker.client("p", 5).publish("t/1", b"newer", qos=1, retain=True)
    publisher = OperatorPublisher(broker.router, broker.clock)
    publisher.publish(ApplicationMessage("t/1", b"", 1, True), ChangeOrigin.API)
    broker.settle()
    assert broker.rows("session_messages") == 1
    assert [(topic, data) for topic, data, _, _ in back(broker.restart(), "away")] == [("t/1", b"")]


@pytest.mark.parametrize("policy", list(WhenFull))
def test_a_clear_evicts_no_other_message(policy: WhenFull) -> None:
    """If it does not fit it is dropped and counted; a set follows the policy of the zone, like any message."""
    desk = filled(5, limits=Limits(max_mqueue_len=3, mqueue_full=policy))
    kept(desk.broker, "away").drop()
    publisher = desk.broker.client("p", 5)
    for topic in ("t/a", "t/b", "t/c"):
        publisher.publish(topic, b"old", qos=1, retain=True)
    dropped = desk.broker.counters.messages_dropped_queue_full
    desk.ask("DELETE", "/messages", topic="t/0003")
    assert desk.broker.counters.messages_dropped_queue_full == dropped + 1
    desk.ask("DELETE", "/messages", topic="t/b")  # fits: it takes the place of the older message
    assert desk.broker.counters.messages_dropped_queue_full == dropped + 1
    assert [(topic, data) for topic, data, _, _ in back(desk.broker, "away")] == [
        ("t/a", b"old"), ("t/c", b"old"), ("t/b", b""),
    ]  # fmt: skip


def test_a_clear_evicts_nothing_from_a_queue_that_is_full_of_bytes() -> None:
    desk = filled(1, limits=Limits(max_mqueue_bytes=HELD_ENTRY + 104))
    kept(desk.broker, "away").drop()
    desk.broker.client("p", 5).publish("t/a", bytes(100), qos=1, retain=True)
    desk.ask("DELETE", "/messages", topic="t/0000")
    assert [topic for topic, _, _, _ in back(desk.broker, "away")] == ["t/a"]


def test_a_clear_replaces_what_any_member_of_a_group_has_queued() -> None:
    """The next member gets the clear; the others must not keep the outdated value."""
    desk = filled(0)
    for client in [kept(desk.broker, name, group="$share/g/") for name in ("a", "b")]:
        client.drop()
    publisher = desk.broker.client("p", 5)
    publisher.publish("t/1", b"1", qos=1, retain=True)
    publisher.publish("t/1", b"2", qos=1, retain=True)
    desk.ask("DELETE", "/messages", topic="t/1")
    assert [data for name in ("a", "b") for _, data, _, _ in back(desk.broker, name)] == [b""]


def test_clears_work_where_the_retainer_is_disabled() -> None:
    """The messages of the time before it was disabled can be removed."""
    desk = filled(2)
    desk.broker.retained.admission.limits = RetainerLimits(enable=False)
    desk.ask("DELETE", "/messages", topic="#")
    assert desk.topics() == []
