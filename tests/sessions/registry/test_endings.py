"""Ends of Sessions take turns: bounded work in each, nothing lost or repeated, and a clean new Session meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from twisted.logger import formatEvent

from holdfast.scheduling.long_work import STEPS_IN_PART
from holdfast.sessions.delivery import session as membership
from holdfast.sessions.limits import Limits
from holdfast.sessions.registry import Endings
from holdfast.sessions.routing_table import RoutingTable
from holdfast.wire import Properties, ReasonCode, encode
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker
from tests.logs import logged
from tests.sessions.restartable import RestartableBroker
from tests.storage.doubles import fresh_file

KEPT = Properties(session_expiry_interval=1000)
#: the most calls of one kind in one turn: messages or filters of a step, times the steps of a part
MOST_PER_TURN = 4 * STEPS_IN_PART


class Calls:
    """Counts the calls of a method."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> None:
        self.count = 0
        called: Callable[..., object] = getattr(owner, name)

        def counting(*arguments: object, **options: object) -> object:
            self.count += 1
            return called(*arguments, **options)

        monkeypatch.setattr(owner, name, counting)

    def take(self) -> int:
        """Return the calls since the last time."""
        count, self.count = self.count, 0
        return count


def member_of_many_groups(
    broker: MemoryBroker, client_id: str, groups: int, qos: int = 1, properties: Properties = KEPT
) -> Client:
    """Connect a member of many groups."""
    client = Client(broker, 5)
    client.connect(client_id, clean=False, properties=properties)
    for first in range(0, groups, 50):
        client.subscribe(*(f"$share/g/t/{number}" for number in range(first, min(groups, first + 50))), qos=qos)
    client.packets()
    return client


def fill(broker: MemoryBroker, groups: int, messages: int) -> list[bytes]:
    """Publish to the groups in turn; return the payloads."""
    publisher = broker.client("p")
    sent = [b"%d" % number for number in range(messages)]
    for number, payload in enumerate(sent):
        publisher.publish(f"t/{number % groups}", payload, qos=1)
    return sent


def payloads(messages: list[tuple[str, bytes, int, bool]]) -> list[bytes]:
    return [payload for _, payload, _, _ in messages]


def connect_packet(client_id: str, expiry: int = 0, clean: bool = True) -> bytes:
    """Return a CONNECT."""
    return encode(p.Connect(client_id, 5, clean, 0, properties=Properties(session_expiry_interval=expiry)), 5)


def publish_1(topic: str, payload: bytes) -> bytes:
    return encode(p.Publish(topic, payload, 1, False, False, 9), 4)


def busy(broker: MemoryBroker) -> bool:
    """Tell whether something is due in the next turn."""
    return any(call.getTime() <= broker.clock.seconds() for call in broker.clock.getDelayedCalls())


def lose(client: Client) -> None:
    """Lose the connection, without any turn."""
    client.network.closed = True
    client.connection.lost()


@pytest.mark.parametrize("expiry", [0, 1000])
def test_a_member_of_many_groups_leaves_in_portions_and_each_message_is_looked_at_once(
    expiry: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not once for each group. Other members get every message once, in the order of each topic."""
    broker = MemoryBroker(limits=Limits(max_inflight=1))
    leaving = member_of_many_groups(broker, "a", 200, properties=Properties(session_expiry_interval=expiry))
    sent = fill(broker, 200, 1000)
    staying = member_of_many_groups(broker, "b", 200)
    taken = Calls(monkeypatch, membership, "_take_queued")
    removed = Calls(monkeypatch, RoutingTable, "unsubscribe")
    lose(leaving)
    counts = [(taken.take(), removed.take())]
    while busy(broker):
        broker.clock.turn()
        counts.append((taken.take(), removed.take()))
    assert max(max(count) for count in counts) <= MOST_PER_TURN
    assert sum(count for count, _ in counts) == len(sent) - 1  # the first one was in flight
    seen = payloads(staying.messages())
    assert sorted(seen, key=int) == sent
    for group in range(200):
        mine = [int(payload) for payload in seen if int(payload) % 200 == group]
        assert mine == sorted(mine)


def test_many_subscriptions_are_removed_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = MemoryBroker()
    client = broker.client("a")
    client.subscribe(*(f"t/{number}" for number in range(1000)))
    removed = Calls(monkeypatch, RoutingTable, "unsubscribe")
    lose(client)
    counts = [removed.take()]
    while busy(broker):
        broker.clock.turn()
        counts.append(removed.take())
    assert sum(counts) == 1000
    assert max(counts) <= MOST_PER_TURN
    assert broker.router.reach("t/1") == 0


def test_messages_of_an_ended_session_are_freed_in_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = RestartableBroker(fresh_file(tmp_path))
    client = broker.client("a", 5, clean=False, properties=KEPT)
    client.subscribe("t", qos=1)
    client.drop()
    publisher = broker.client("p")
    for number in range(1500):
        publisher.publish("t", b"%d" % number, qos=1)
    session = next(session for session in broker.registry if session.client_id == "a")
    assert broker.rows("session_messages") == 1500
    back = Client(broker, 5)
    back.connection.receive(connect_packet("a"))
    waiting = [len(session.queue)]
    while session.queue:
        broker.clock.turn()
        waiting.append(len(session.queue))
    assert max(before - after for before, after in pairwise(waiting)) <= 20 * STEPS_IN_PART
    assert waiting[0] >= 1500 - 20 * STEPS_IN_PART
    broker.settle()
    for table in ("session_messages", "session_deliveries", "session_subscriptions", "sessions"):
        assert broker.rows(table) == 0, table


@pytest.mark.parametrize("ends", ["expiry", "clean start", "disconnect", "restart"])
def test_the_queue_of_an_ended_session_is_counted_and_logged(tmp_path: Path, ends: str) -> None:
    """However it ends. Messages that were sent do not count, and neither do those that another member gets."""
    limits = Limits(max_inflight=2, mqueue_store_qos0=True)
    broker = RestartableBroker(fresh_file(tmp_path), limits=limits)
    other = Client(broker, 5)
    other.connect("other", clean=False, properties=KEPT)
    other.subscribe("$share/g/shared", qos=1)
    kept = KEPT if ends != "disconnect" else Properties()
    client = broker.client("a", 5, clean=ends == "disconnect", properties=kept)
    client.subscribe("t", "$share/g/shared", qos=1)
    publisher = broker.client("p")
    for number in range(302):
        publisher.publish("t", b"%d" % number, qos=1)
    if ends != "disconnect":
        client.drop()
        publisher.publish("t", b"QoS 0")
    with logged(Endings) as lines:
        if ends == "expiry":
            broker.advance(1001)
        elif ends == "clean start":
            broker.client("a", 5)
        elif ends == "disconnect":
            client.drop()
        else:
            broker.kill()
            broker = RestartableBroker(tmp_path / "store.db", start=broker.clock.seconds() + 1001, limits=limits)
        broker.settle()
    waited = 300 + (ends != "disconnect")
    assert broker.counters.messages_dropped_session_ended == waited
    assert [formatEvent(line) for line in lines] == [
        f"the Session of 'a' has ended; messages in its queue that are dropped: {waited}"
    ]


def test_a_session_that_ends_with_an_empty_queue_is_not_told(tmp_path: Path) -> None:
    """Nor are messages that went to another member of a shared subscription."""
    broker = RestartableBroker(fresh_file(tmp_path))
    leaving = member_of_many_groups(broker, "a", 1)
    fill(broker, 1, 5)
    leaving.drop()
    fill(broker, 1, 20)
    member_of_many_groups(broker, "b", 1)
    with logged(Endings) as lines:
        broker.client("a", 5)
        broker.settle()
    assert broker.counters.messages_dropped_session_ended == 0
    assert lines == []


def test_messages_in_flight_of_an_ended_session_are_freed_in_portions() -> None:
    broker = MemoryBroker(limits=Limits(max_inflight=1500, max_inflight_bytes=10 << 20))
    client = broker.client("a", 5, clean=False, properties=KEPT)
    client.subscribe("t", qos=1)
    publisher = broker.client("p")
    for number in range(1500):
        publisher.publish("t", b"%d" % number, qos=1)
    client.drop()
    entries = broker.registry._sessions["a"].inflight.entries
    Client(broker, 5).connection.receive(connect_packet("a"))
    left = [1500, len(entries)]
    while entries:
        broker.clock.turn()
        left.append(len(entries))
    assert max(before - after for before, after in pairwise(left)) <= 20 * STEPS_IN_PART


def test_a_client_has_a_clean_new_session_while_its_old_one_is_taken_apart() -> None:
    broker = MemoryBroker()
    client = broker.client("a", 5, clean=False, properties=KEPT)
    client.subscribe(*(f"t/{number}" for number in range(1000)), qos=1)
    client.drop()
    publisher = broker.client("p")
    publisher.publish("t/999", b"old", qos=1)
    back = Client(broker, 5)
    back.connection.receive(connect_packet("a", 1000))
    broker.clock.turn()
    publisher.connection.receive(publish_1("t/999", b"while the old Session is taken apart"))
    broker.clock.turn()
    assert busy(broker)
    (connack,) = back.packets()
    assert isinstance(connack, p.Connack)
    assert not connack.session_present
    back.subscribe("t/1", qos=1)
    broker.settle()
    publisher.publish("t/1", b"new", qos=1)
    publisher.publish("t/2", b"not subscribed", qos=1)
    assert payloads(back.messages()) == [b"new"]
    assert broker.registry.session_count == 2


@pytest.mark.parametrize("turns", range(0, 12, 2))
def test_a_member_that_is_back_at_any_turn_loses_nothing(turns: int) -> None:
    """Messages that have not moved yet are its own again; those that have moved come once, from the other member."""
    broker = MemoryBroker(limits=Limits(max_inflight=1))
    leaving = member_of_many_groups(broker, "a", 20)
    sent = fill(broker, 20, 600)
    staying = member_of_many_groups(broker, "b", 20)
    lose(leaving)
    for _ in range(turns):
        broker.clock.turn()
    back = Client(broker, 5)
    back.connect("a", clean=False, properties=KEPT)
    back_messages = [packet for packet in back.backlog if isinstance(packet, p.Publish)]
    received = [packet.payload for packet in back_messages]
    back.send(*(p.Puback(packet.packet_identifier) for packet in back_messages))
    received += payloads(back.messages()) + payloads(staying.messages())
    assert sorted(received, key=int) == sent


@pytest.mark.parametrize("clean_start", [False, True], ids=["expired", "clean start"])
@pytest.mark.parametrize("turns", [1, 2, 3, 5, 8, 30])
def test_a_kill_while_a_session_is_taken_apart_loses_no_shared_message(
    tmp_path: Path, turns: int, clean_start: bool
) -> None:
    """And repeats none: each left one Session and entered the other one in the same commit."""
    broker = RestartableBroker(fresh_file(tmp_path))
    member_of_many_groups(broker, "a", 20).drop()
    sent = fill(broker, 20, 600)
    member_of_many_groups(broker, "b", 20, properties=Properties(session_expiry_interval=9000)).drop()
    if clean_start:
        back = Client(broker, 5)
        back.connection.receive(connect_packet("a", 2000))
    else:
        broker.clock.rightNow += 1001
    for _ in range(turns):
        broker.clock.turn()
    broker = broker.restart()
    assert sorted(session.client_id for session in broker.registry) == (["a", "b"] if clean_start else ["b"])
    back = Client(broker, 5)
    connack = back.connect("b", clean=False, properties=KEPT)
    assert connack is not None
    assert connack.session_present
    seen = [packet.payload for packet in back.backlog if isinstance(packet, p.Publish)]
    back.send(*(p.Puback(packet.packet_identifier) for packet in back.backlog if isinstance(packet, p.Publish)))
    seen += payloads(back.messages())
    assert Counter(seen) == Counter(sent)
    if clean_start:
        assert [len(session.subscriptions) for session in broker.registry if session.client_id == "a"] == [0]


def test_a_session_whose_end_was_answered_is_over_after_a_kill(tmp_path: Path) -> None:
    """The Clean Start was accepted while the rest was taken apart, and the new Session ended with its connection."""
    broker = RestartableBroker(fresh_file(tmp_path))
    client = broker.client("a", 5, clean=False, properties=KEPT)
    client.subscribe(*(f"t/{number}" for number in range(1000)), qos=1)
    client.drop()
    back = Client(broker, 5)
    back.connection.receive(connect_packet("a"))
    while not back.got(p.Connack):
        broker.clock.turn()
    assert busy(broker)
    broker = broker.restart()
    connack = broker.client("a", 5, clean=False, properties=KEPT).connack
    assert connack is not None
    assert not connack.session_present


def test_sessions_that_expire_at_one_moment_end_in_portions() -> None:
    """A Client that is back before its turn has its Session."""
    broker = MemoryBroker()
    for number in range(300):
        broker.client(f"c{number}", 5, clean=False, properties=KEPT).subscribe("t", qos=1)
    for session in list(broker.registry):
        assert session.link is not None
        session.link.finish(b"", None)
    broker.settle()
    broker.clock.rightNow += 1000
    counts = [broker.registry.session_count]
    broker.clock.turn()
    counts.append(broker.registry.session_count)
    back = Client(broker, 5)
    back.connection.receive(connect_packet("c299", 1000, clean=False))
    while busy(broker) and broker.registry.session_count > 1:
        broker.clock.turn()
        counts.append(broker.registry.session_count)
    assert counts[0] == 300
    assert counts[-1] == 1
    assert max(before - after for before, after in pairwise(counts)) <= STEPS_IN_PART
    broker.settle()
    (connack,) = back.packets()
    assert isinstance(connack, p.Connack)
    assert connack.session_present
    assert broker.counters.sessions_expired == 299


def test_large_sessions_that_expire_at_one_moment_end_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = MemoryBroker()
    for number in range(30):
        client = broker.client(f"c{number}", 5, clean=False, properties=KEPT)
        client.subscribe(*(f"t/{topic}" for topic in range(40)), qos=1)
    for session in list(broker.registry):
        assert session.link is not None
        session.link.finish(b"", None)
    broker.settle()
    broker.clock.rightNow += 1000
    removed = Calls(monkeypatch, RoutingTable, "unsubscribe")
    counts = []
    while busy(broker):
        broker.clock.turn()
        counts.append(removed.take())
    assert sum(counts) == 30 * 40
    assert max(counts) <= MOST_PER_TURN


def test_a_session_that_expired_while_the_broker_was_away_is_never_resumed(tmp_path: Path) -> None:
    broker = RestartableBroker(fresh_file(tmp_path))
    for number in range(50):
        client = broker.client(f"c{number}", 5, clean=False, properties=Properties(session_expiry_interval=10))
        client.subscribe("t", qos=1)
        client.drop()
    broker = broker.restart(after=11)
    assert broker.registry.session_count == 0
    assert broker.counters.sessions_expired == 50
    assert broker.rows("sessions") == broker.rows("session_subscriptions") == 0


def test_the_broker_stops_in_portions() -> None:
    broker = MemoryBroker()
    clients = [broker.client(f"c{number}", 5) for number in range(200)]
    stopped = broker.registry.shut_down()
    counts = [broker.registry.connection_count]
    while not stopped.called:
        broker.clock.turn()
        counts.append(broker.registry.connection_count)
    assert counts[0] >= 200 - STEPS_IN_PART
    assert counts[-1] == 0
    assert max(before - after for before, after in pairwise(counts)) <= STEPS_IN_PART
    broker.settle()
    assert all(client.got(p.Disconnect)[0].reason_code is ReasonCode.SERVER_SHUTTING_DOWN for client in clients)
