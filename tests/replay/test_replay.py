"""Replays: complete, paced by the client, fair, never stale after fresh, and stopped without a trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, fail

from holdfast.core.messages import ApplicationMessage, ChangeKind, ChangeOrigin, RetainedChange, RetainedMessage
from holdfast.core.tickets import FailureKind, StorageFailure
from holdfast.core.topics import matches
from holdfast.core.units import Rate
from holdfast.retained.feed import Change
from holdfast.retained.limits import FlowSettings
from holdfast.retained.store.values import Batch
from holdfast.sessions.limits import Limits
from holdfast.storage.revisions import RevisionClock, after
from holdfast.wire import NO_PROPERTIES, Properties, encode
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker
from tests.retained.store.delayed_store import DelayedStore
from tests.retained.store.memory import MemoryRetainedStore

SMALL = FlowSettings(batch_read_number=4, batch_deliver_number=2)


def filled(count: int = 10, qos: int = 1, **options: Any) -> MemoryBroker:
    """Return a broker with retained messages t/00, t/01, ..."""
    broker = MemoryBroker(**{"flow": SMALL, **options})
    publisher = broker.client("filler")
    for number in range(count):
        publisher.publish(f"t/{number:02}", b"%d" % number, qos=qos, retain=True)
    return broker


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_all_messages_arrive_once_in_topic_order(version: int, qos: int) -> None:
    """With any window and any batch size, SUBACK first [MQTT5-3.8.4]."""
    broker = filled(limits=Limits(max_inflight=3))
    client = broker.client("c", version)
    client.send(p.Subscribe(1, (p.SubscriptionRequest("t/#", qos),)))
    suback = client.network.written[0][:1]
    assert suback == b"\x90"
    seen = client.messages()
    assert [topic for topic, _, _, _ in seen] == [f"t/{n:02}" for n in range(10)]
    assert {(q, retain) for _, _, q, retain in seen} == {(min(qos, 1), True)}
    assert len(broker.retained.feed) == 0


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("topic_filter", ["t/a", "t/+", "#", "+/a"])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_the_qos_is_the_lower_of_the_message_s_and_the_subscription_s(
    version: int, topic_filter: str, granted: int
) -> None:
    """With and without wildcards, and after replays with any QoS. The stored message keeps its QoS."""
    broker = MemoryBroker(flow=SMALL)
    publisher = broker.client("p")
    for published in (0, 1, 2):
        publisher.publish("t/a", b"x", published, True)
        for again in (granted, 2):
            client = broker.client("c", version)
            client.send(p.Subscribe(1, (p.SubscriptionRequest(topic_filter, again),)))
            assert client.messages() == [("t/a", b"x", min(published, again), True)]


def test_no_further_batch_is_read_while_the_window_is_full() -> None:
    broker = filled(limits=Limits(max_inflight=2), store=DelayedStore)
    broker.store.commit()
    client = broker.client("c", 5)
    client.subscribe("t/#", qos=1)
    broker.advance(0)
    reads = broker.store.read_count
    assert reads == 1
    for _ in range(20):
        broker.advance(0.01)
    assert broker.store.read_count == reads


def test_no_further_batch_is_read_while_the_transport_is_full() -> None:
    """At QoS 0 the transport's buffer is the limit."""
    broker = MemoryBroker(flow=FlowSettings(10, 5))
    publisher = broker.client("filler")
    for number in range(100):
        publisher.publish(f"t/{number:02}", b"x" * 10_000, retain=True)
    client = broker.client("c")
    client.network.blocked = True
    client.subscribe("t/#")
    assert client.connection.unsent < 200_000
    for _ in range(60):
        client.network.blocked = False
        client.connection.drained()
        broker.settle()
    assert len(client.messages()) == 100


def test_replays_take_turns() -> None:
    """Two clients that subscribe to ``#`` advance together."""
    broker = filled(20)
    clients = [broker.client(name) for name in "ab"]
    for client in clients:
        client.connection.receive(b"\x82\x08\x00\x01\x00\x03t/#\x00")
    for _ in range(8):  # a few turns
        broker.clock.turn()
    counts = [len(client.got(p.Publish)) for client in clients]
    assert 0 < counts[0] < 20
    assert abs(counts[0] - counts[1]) <= SMALL.batch_deliver_number
    broker.settle()


def test_unsubscribe_stops_a_replay_at_once() -> None:
    """No more messages come, nothing is left behind."""
    broker = filled(limits=Limits(max_inflight=2))
    client = broker.client("c", 5)
    first = [m for m in client.subscribe("t/#", qos=1) if isinstance(m, p.Publish)]
    assert len(first) == 2
    client.send(p.Unsubscribe(9, ("t/#",)))
    client.send(*(p.Puback(m.packet_identifier) for m in first))
    assert client.messages() == []
    assert len(broker.retained.feed) == broker.replays.flow.waiting == 0


def test_losing_the_connection_stops_its_replays() -> None:
    """A clean Session leaves nothing behind."""
    broker = filled(limits=Limits(max_inflight=2))
    client = broker.client("c", 5)
    client.subscribe("t/#", "t/+", qos=1)
    assert len(broker.retained.feed) == 2
    client.drop()
    assert len(broker.retained.feed) == broker.replays.flow.waiting == 0


@pytest.mark.parametrize("version", [4, 5])
def test_a_persistent_session_resumes_where_it_was(version: int) -> None:
    """In-flight messages again with DUP, then the rest. No other message comes twice."""
    broker = filled(limits=Limits(max_inflight=3))
    options: dict[str, Any] = {"clean": False, "properties": Properties(session_expiry_interval=100)}
    if version == 4:
        options.pop("properties")
    client = broker.client("c", version, **options)
    first = [m.topic for m in client.subscribe("t/#", qos=1) if isinstance(m, p.Publish)]
    assert first == ["t/00", "t/01", "t/02"]
    client.drop()
    client = broker.client("c", version, **options)
    again = [m for m in client.backlog if isinstance(m, p.Publish)]
    assert [(m.topic, m.dup, m.retain) for m in again[:3]] == [(t, True, True) for t in first]
    client.send(*(p.Puback(m.packet_identifier) for m in again))
    rest = [topic for topic, _, _, _ in client.messages()]
    assert [m.topic for m in again[3:]] + rest == [f"t/{n:02}" for n in range(3, 10)]


def test_resubscribing_restarts_or_continues() -> None:
    """Retain Handling 0 restarts the replay; 1 and 2 let it continue, here with a higher QoS."""
    for handling, expected in ((0, 10), (1, 8), (2, 8)):
        broker = filled(limits=Limits(max_inflight=2))
        client = broker.client("c", 5)
        first = [m for m in client.subscribe("t/#", qos=1) if isinstance(m, p.Publish)]
        assert len(first) == 2
        client.send(p.Subscribe(8, (p.SubscriptionRequest("t/#", 2, retain_handling=handling),)))
        client.send(*(p.Puback(m.packet_identifier) for m in first))
        assert len(client.messages()) == expected


def test_a_resubscription_with_another_form_takes_effect_mid_replay() -> None:
    """From QoS 1 to QoS 0 with a Subscription Identifier: the rest comes in the new form."""
    broker = filled(limits=Limits(max_inflight=2))
    client = broker.client("c", 5)
    first = [m for m in client.subscribe("t/#", qos=1) if isinstance(m, p.Publish)]
    client.send(
        p.Subscribe(8, (p.SubscriptionRequest("t/#", 0, retain_handling=1),), Properties(subscription_identifiers=(7,)))
    )
    client.send(*(p.Puback(m.packet_identifier) for m in first))
    rest = client.got(p.Publish)
    assert {(m.qos, m.properties.subscription_identifiers) for m in rest} == {(0, (7,))}
    assert len(rest) == 8


def test_options_of_the_subscription_apply() -> None:
    """No Local, Maximum Packet Size, Subscription Identifier and the remaining expiry interval."""
    broker = MemoryBroker(flow=SMALL)
    client = broker.client("c", 5, properties=Properties(maximum_packet_size=60))
    client.publish("t/own", b"x", retain=True)
    other = broker.client("o", 5)
    other.publish("t/big", b"x" * 60, retain=True)
    other.publish("t/expires", b"x", 1, True, Properties(message_expiry_interval=100, content_type="c"))
    other.publish("t/gone", b"x", 1, True, Properties(message_expiry_interval=10))
    other.publish("t/plain", b"x", 2, True)
    broker.advance(30)
    came = client.subscribe(p.SubscriptionRequest("t/#", 1, no_local=True), identifier=5)
    found = {m.topic: m for m in came if isinstance(m, p.Publish)}
    assert sorted(found) == ["t/expires", "t/plain"]
    expires = found["t/expires"].properties
    assert (expires.message_expiry_interval, expires.content_type) == (70, "c")
    assert found["t/plain"].properties == Properties(subscription_identifiers=(5,))
    assert {m.qos for m in found.values()} == {1}


def test_live_messages_and_a_replay_share_the_window() -> None:
    """While the client acknowledges slowly, neither starves. Also with a window of one."""
    for window in (1, 2, 4):
        broker = filled(12, limits=Limits(max_inflight=window))
        client = broker.client("c", 5)
        came = [m for m in client.subscribe("t/#", "live", qos=1) if isinstance(m, p.Publish)]
        publisher = broker.client("p")
        for number in range(12):
            publisher.publish("live", b"%d" % number, qos=1)
        came += client.got(p.Publish)
        order = []
        while came:
            packet = came.pop(0)
            order.append(packet.retain)
            client.send(p.Puback(packet.packet_identifier))
            came += client.got(p.Publish)
        assert sorted(order) == [False] * 12 + [True] * 12
        middle = order[4:16]
        assert 2 <= middle.count(True) <= 10, (window, order)


def test_messages_queued_before_the_replay_go_first() -> None:
    """A message that waited for the window is delivered before a later replay begins."""
    broker = MemoryBroker(limits=Limits(max_inflight=1), flow=SMALL)
    client = broker.client("c", 5)
    client.subscribe("t", qos=1)
    publisher = broker.client("p")
    for value in (b"1", b"2", b"3"):
        publisher.publish("t", value, qos=1, retain=True)
    (first,) = client.got(p.Publish)
    client.subscribe("t", qos=1)
    client.send(p.Puback(first.packet_identifier))
    rest = [(payload, retain) for _, payload, _, retain in client.messages()]
    assert rest == [(b"2", False), (b"3", False), (b"3", True)]


def test_an_unreadable_store_ends_the_connection_with_a_reason() -> None:
    """A replay that cannot be completed never ends silently: DISCONNECT 0x83."""

    class Unreadable(MemoryRetainedStore):
        def read(self, *arguments: Any, **more: Any) -> Deferred[Batch]:
            return fail(StorageFailure(FailureKind.UNAVAILABLE, "no disk"))

    broker = MemoryBroker(store=lambda now: Unreadable(RevisionClock(1, 0, now)))
    client = broker.client("c", 5)
    client.subscribe("#")
    assert client.network.closed
    assert broker.registry.session_count == 0


def test_a_late_read_after_unsubscribe_is_ignored() -> None:
    broker = filled(store=DelayedStore)
    broker.store.commit()
    broker.store.read_later = True
    client = broker.client("c", 5)
    client.subscribe("t/#")
    client.send(p.Unsubscribe(3, ("t/#",)))
    broker.store.answer_reads()
    broker.settle()
    assert client.messages() == []


def test_a_change_not_sent_live_is_included() -> None:
    """Changes by import, by the API or by another node reach a running replay: the held batch is read again."""
    broker = filled(6, limits=Limits(max_inflight=2))
    client = broker.client("c", 5)
    first = [m for m in client.subscribe("t/#", qos=1) if isinstance(m, p.Publish)]
    revision = broker.store.next_revision()
    message = RetainedMessage("t/03", b"imported", 1, NO_PROPERTIES, None, None, broker.now(), None, revision)
    ticket = broker.store.put(RetainedChange("t/03", revision, broker.now(), message))
    change = Change("t/03", revision, ChangeKind.SET, ChangeOrigin.IMPORT, live=False, ticket=ticket)
    broker.retained.feed.announce(change)
    client.send(*(p.Puback(m.packet_identifier) for m in first))
    rest = {topic: payload for topic, payload, _, _ in client.messages()}
    assert rest == {"t/02": b"2", "t/03": b"imported", "t/04": b"4", "t/05": b"5"}


@pytest.mark.parametrize("window", [1, 2, 3])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_an_operators_change_does_not_let_a_replay_overtake_queued_messages(window: int, qos: int) -> None:
    """The batch that is read again sees all commits, also those of queued live messages. These go first."""
    broker = filled(6, limits=Limits(max_inflight=window))
    client = broker.client("c", 5)
    seen = [m for m in client.subscribe("t/#", qos=1) if isinstance(m, p.Publish)]
    publisher = broker.client("p")
    for value in range(10, 30):
        publisher.publish("t/03", b"%d" % value, qos=1, retain=True)
    publisher.publish("t/03", b"30", qos=qos, retain=True)
    broker.retained.retain(ApplicationMessage("t/05", b"", retain=True), ChangeOrigin.API, live=False)
    taken = 0
    while taken < len(seen):
        packet = seen[taken]
        taken += 1
        if packet.qos:
            client.send(p.Puback(packet.packet_identifier))
        seen += client.got(p.Publish)
    values = [int(packet.payload) for packet in seen if packet.topic == "t/03" and packet.qos]
    assert values == sorted(values)
    assert {packet.topic for packet in seen} == {f"t/{number:02}" for number in range(5)}
    assert broker.replays.running == {}


@pytest.mark.parametrize("failure", [None, StorageFailure(FailureKind.UNAVAILABLE, "away")])
def test_an_operators_uncommitted_change_hides_nothing(failure: StorageFailure | None) -> None:
    """A replay that passes the topic meanwhile delivers the older message. A failed change changes nothing."""
    broker = filled(6, limits=Limits(max_inflight=2), store=DelayedStore)
    broker.store.commit()
    client = broker.client("c", 5)
    came = [m for m in client.subscribe("t/#", qos=1) if isinstance(m, p.Publish)]
    broker.retained.retain(ApplicationMessage("t/03", b"new", 1, retain=True), ChangeOrigin.API, live=False)
    seen = take_all(broker, client, came)
    broker.store.commit(failure)
    seen += take_all(broker, client, [])
    assert [(m.topic, m.payload) for m in seen] == [(f"t/{n:02}", b"%d" % n) for n in range(6)]


class ElsewhereStore(DelayedStore):
    """A store that reads in another thread: an answer has all changes committed before it was made."""

    def read(self, *arguments: Any) -> Deferred[Batch]:
        answer: Deferred[Batch] = Deferred()
        self.reads.append((answer, arguments))  # type: ignore[arg-type]
        return answer

    def answer_reads(self) -> None:
        reads, self.reads = self.reads, []
        for answer, arguments in reads:
            MemoryRetainedStore.read(self, *arguments).chainDeferred(answer)  # type: ignore[misc]


def test_a_message_replaced_during_a_read_is_not_left_out() -> None:
    """An answer made after the commit, to a question asked before it, has neither the older message nor the newer."""
    broker = MemoryBroker(flow=SMALL, store=ElsewhereStore)
    broker.store.reads_ahead = True
    publisher = broker.client("filler", 5)
    for number in range(6):
        publisher.publish(f"t/{number:02}", b"old", qos=1, retain=True)
    broker.store.commit()
    client = broker.client("c", 5)
    client.subscribe("t/#")
    broker.advance(0)
    assert len(broker.store.reads) == 1
    stamp = broker.store.next_revision()
    broker.retained.merging(stamp)
    for number in (1, 3):
        topic = f"t/{number:02}"
        imported = RetainedMessage(topic, b"imported", 0, NO_PROPERTIES, None, None, broker.now(), None, stamp)
        MemoryRetainedStore.put(broker.store, RetainedChange(topic, stamp, broker.now(), imported))
    seen = take_all(broker, client, [])
    broker.retained.merged(["t/01", "t/03"], stamp)
    seen += take_all(broker, client, [])
    assert [m.topic for m in seen] == [f"t/{n:02}" for n in range(6)]
    assert [m.payload for m in seen] == [b"old", b"imported", b"old", b"imported", b"old", b"old"]


def test_an_import_does_not_let_a_replay_overtake_queued_messages() -> None:
    """During a merge, replays may read changes that are queued live for the same client. The queue goes first."""
    broker = filled(6, limits=Limits(max_inflight=2))
    client = broker.client("c", 5)
    seen = [m for m in client.subscribe("t/#", qos=1) if isinstance(m, p.Publish)]
    publisher = broker.client("p")
    for value in range(10, 30):
        publisher.publish("t/03", b"%d" % value, qos=1, retain=True)
    (replay,) = broker.replays.running.values()
    replay.reread()
    broker.retained.merging(broker.store.next_revision())
    seen = take_all(broker, client, seen)
    values = [int(packet.payload) for packet in seen if packet.topic == "t/03"]
    assert values == sorted(values)
    assert {packet.topic for packet in seen} == {f"t/{number:02}" for number in range(6)}


class SharedStore(MemoryRetainedStore):
    """A store to which another node writes, too: these changes are not announced here."""

    shared = True

    def __init__(self, now: Callable[[], int]) -> None:
        super().__init__(RevisionClock(1, 0, now))

    def written_elsewhere(self, topic: str, payload: bytes) -> None:
        """The other node stores a message."""
        revision = after(self.next_revision(), 2)
        message = RetainedMessage(topic, payload, 1, NO_PROPERTIES, None, None, 0, None, revision)
        self.put(RetainedChange(topic, revision, 0, message))


@pytest.mark.parametrize("filters", [("t/#", "t/+"), ("t/+", "t/03"), ("t/03", "t/#")])
@pytest.mark.parametrize("rows", [1, 3, 4, 6])
@pytest.mark.parametrize("moment", range(6))
def test_overlapping_replays_are_not_stale_when_another_node_writes(
    filters: tuple[str, str], rows: int, moment: int
) -> None:
    """Of two replays to one client, the one that read first delivers no older message than the other."""
    broker = filled(6, store=SharedStore, flow=FlowSettings(rows, 1), limits=Limits(max_inflight=1))
    client = broker.client("c", 5)
    seen: list[tuple[str, bytes]] = []

    def take(most: int) -> None:
        for _ in range(most):
            for message in client.got(p.Publish):
                assert (message.topic, b"new") not in seen or message.payload == b"new"
                seen.append((message.topic, message.payload))
                if message.qos:
                    client.send(p.Puback(message.packet_identifier))

    client.send(p.Subscribe(1, (p.SubscriptionRequest(filters[0], 1),)))
    take(moment)
    for topic in ("t/03", "t/05"):
        broker.store.written_elsewhere(topic, b"new")
    client.send(p.Subscribe(2, (p.SubscriptionRequest(filters[1]),)))  # QoS 0 overtakes
    take(30)
    topics = [f"t/{number:02}" for number in range(6)]
    assert sorted(topic for topic, _ in seen) == sorted(
        topic for topic_filter in filters for topic in topics if matches(topic_filter, topic)
    )


def test_after_a_failed_commit_no_stored_message_follows_a_newer_live_one() -> None:
    """The live message was delivered, its commit failed: the older stored one must not follow on this connection."""
    broker = filled(4, store=DelayedStore, limits=Limits(max_inflight=1))
    broker.store.commit()
    client = broker.client("c", 5)
    (suback, first) = client.subscribe("t/#", qos=1)
    assert isinstance(suback, p.Suback)
    assert isinstance(first, p.Publish)
    broker.client("p").publish("t/02", b"live", retain=True)
    broker.store.commit(StorageFailure(FailureKind.FULL, "disk full"))
    client.send(p.Puback(first.packet_identifier))
    seen = client.messages()
    assert ("t/02", b"live", 0, False) in seen
    assert [topic for topic, _, _, retain in seen if retain] == ["t/01", "t/03"]


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("seconds", [0.2, 20])
def test_a_message_that_expires_while_it_waits_for_room_is_not_delivered(
    version: int, qos: int, seconds: float
) -> None:
    """Expiry is checked again at delivery, in both versions, while the message is held and after it was given up."""
    broker = MemoryBroker(flow=FlowSettings(100, 1), limits=Limits(max_inflight=1))
    publisher = broker.client("p", 5)
    for number in range(4):
        interval = Properties(message_expiry_interval=10) if number == 2 else Properties()
        publisher.publish(f"t/{number}", b"x" * 70_000, 1, True, interval)
    client = broker.client("c", version)
    client.network.blocked = True
    broker.advance(9.9)
    client.send(p.Subscribe(1, (p.SubscriptionRequest("t/#", qos),)))
    broker.advance(seconds)
    client.network.blocked = False
    seen = []
    for _ in range(10):
        client.connection.drained()
        broker.settle()
        seen += [topic for topic, _, _, _ in client.messages()]
    assert seen == ["t/0", "t/1", "t/3"]


@given(
    st.lists(st.sampled_from(["publish", "commit", "turn", "turn", "reads", "answer"]), min_size=1, max_size=60),
    st.integers(0, 20),
    st.integers(0, 2),
    st.booleans(),
)
def test_no_message_comes_both_live_and_replayed(steps: list[str], joins_at: int, qos: int, at_once: bool) -> None:
    """Published before, while and after a client subscribes: each message at most once, and always the newest."""
    store = DelayedStore(lambda: 0)
    store.read_later, store.acknowledge_at_once = True, at_once
    broker = MemoryBroker(store=lambda _: store, flow=FlowSettings(2, 1), limits=Limits(max_inflight=2))
    publisher, client = broker.client("p"), broker.client("c")
    request = encode(p.Subscribe(99, (p.SubscriptionRequest("t/#", qos),)), 4)
    seen: list[tuple[str, bytes]] = []
    newest: dict[str, bytes] = {}
    for number, step in enumerate([*steps, "publish"]):
        if number == min(joins_at, len(steps)):
            client.connection.receive(request)
        match step:
            case "publish":
                topic, payload = f"t/{number % 4}", b"%d" % number
                publisher.connection.receive(encode(p.Publish(topic, payload, 0, True), 4))
                newest[topic] = payload
            case "commit":
                store.commit()
            case "turn":
                broker.clock.turn()
            case "reads":
                store.answer_reads()
            case "answer":
                seen += [message[:2] for message in client.messages()]
    for _ in range(60):
        store.commit()
        store.answer_reads()
        broker.settle()
        seen += [message[:2] for message in client.messages()]
    assert broker.replays.running == {}
    assert len(seen) == len(set(seen))
    assert {topic: payload for topic, payload in seen if newest[topic] == payload} == newest


# --- stores that read ahead


def far_away(count: int = 12, payload: int = 1, **options: Any) -> MemoryBroker:
    """Return a broker whose store reads ahead and answers when told, with retained messages t/00, t/01, ..."""
    broker = MemoryBroker(flow=SMALL, store=DelayedStore, **options)
    broker.store.reads_ahead = True
    publisher = broker.client("filler", 5)
    for number in range(count):
        publisher.publish(f"t/{number:02}", b"x" * payload, qos=1, retain=True)
    broker.store.commit()
    broker.store.read_later = True
    return broker


def arrived(broker: MemoryBroker, client: Client) -> list[p.Publish]:
    """Answer the waiting reads. Return the packets sent to the client since."""
    if isinstance(broker.store, DelayedStore):
        broker.store.answer_reads()
    broker.settle()
    return client.got(p.Publish)


def take_all(broker: MemoryBroker, client: Client, came: list[p.Publish]) -> list[p.Publish]:
    """Let the client acknowledge until no more comes. Return all messages, after those in ``came``."""
    seen = list(came)
    for _ in range(20):
        if client.network.closed:
            break
        client.send(*(p.Puback(m.packet_identifier) for m in came if m.qos))
        came = arrived(broker, client)
        seen += came
    return seen


def test_the_next_batch_is_read_while_the_present_one_is_delivered() -> None:
    """It is asked for with the first slice, and there when the last slice has gone. No message is read twice."""
    broker = far_away()
    client = broker.client("c")
    client.connection.receive(b"\x82\x08\x00\x01\x00\x03t/#\x00")
    broker.settle()
    broker.store.answer_reads()
    broker.clock.turn()
    broker.clock.turn()  # the packets of a turn are written at its end
    assert len(client.got(p.Publish)) == SMALL.batch_deliver_number
    assert (len(broker.store.reads), broker.store.read_count) == (1, 2)
    broker.settle()
    assert len(client.got(p.Publish)) == SMALL.batch_deliver_number
    assert len(take_all(broker, client, [])) == 8
    assert broker.store.read_count == 3
    assert len(broker.retained.feed) == broker.replays.flow.waiting == 0


def test_a_client_that_stalls_has_one_batch_read_ahead() -> None:
    """And no more, however long it stalls."""
    broker = far_away(limits=Limits(max_inflight=2))
    client = broker.client("c", 5)
    client.subscribe("t/#", qos=1)
    for _ in range(20):
        arrived(broker, client)
        broker.advance(0.01)
    assert broker.store.read_count == 2


@pytest.mark.parametrize("read", [False, True], ids=["being read", "read already"])
@pytest.mark.parametrize("window", [2, 4], ids=["within a batch", "between two"])
def test_a_client_that_stopped_reading_gives_up_the_batch_read_ahead(window: int, read: bool) -> None:
    """It is read again when there is room: each message comes once, in order."""
    broker = far_away(limits=Limits(max_inflight=window))
    client = broker.client("c", 5)
    client.subscribe("t/#", qos=1)
    came = arrived(broker, client)
    if read:
        broker.store.answer_reads()
    (status,) = broker.replays.statuses()
    assert status.held == 4 - window + (4 if read else 0)
    broker.advance(5)
    broker.store.answer_reads()
    (status,) = broker.replays.statuses()
    assert status.held == 0
    assert [m.topic for m in take_all(broker, client, came)] == [f"t/{n:02}" for n in range(12)]


@pytest.mark.parametrize(("payload", "most"), [(70_000, 1 << 20), (1, 100_000)])
def test_no_batch_is_read_ahead_that_may_be_too_large(payload: int, most: int) -> None:
    """The cost of a stalled client is bounded, also by ``max_batch_bytes``. Otherwise the next batch is read later."""
    broker = far_away(payload=payload, limits=Limits(max_inflight=1))
    broker.replays.flow.change(FlowSettings(4, 2, most))
    client = broker.client("c", 5)
    client.subscribe("t/#", qos=1)
    for _ in range(5):
        arrived(broker, client)
        broker.advance(0.01)
    assert broker.store.read_count == 1


@pytest.mark.parametrize("read", [False, True], ids=["being read", "read already"])
@pytest.mark.parametrize("committed", [False, True], ids=["pending", "committed"])
def test_a_topic_that_changes_is_dropped_from_the_batch_read_ahead(read: bool, committed: bool) -> None:
    """The newer message was sent live: the older one must not follow it."""
    broker = far_away(limits=Limits(max_inflight=4))
    client = broker.client("c", 5)
    client.subscribe("t/#", qos=1)
    came = arrived(broker, client)
    assert broker.store.read_count == 2
    if read:
        broker.store.answer_reads()
    broker.client("p").publish("t/05", b"new", retain=True)
    if committed:
        broker.store.commit()
    seen = take_all(broker, client, came + client.got(p.Publish))
    assert [m.payload for m in seen if m.topic == "t/05"] == [b"new"]
    assert sorted(m.topic for m in seen) == [f"t/{n:02}" for n in range(12)]


def test_reading_ahead_forgets_no_change_that_the_present_batch_has_missed() -> None:
    """The change was committed before the next batch was asked for, but after the present one had been read."""
    broker = far_away()
    client = broker.client("c", 5)
    client.subscribe("t/#", qos=1)
    broker.client("p").publish("t/03", b"new", retain=True)
    broker.store.commit()
    seen = take_all(broker, client, client.got(p.Publish))
    assert [m.payload for m in seen if m.topic == "t/03"] == [b"new"]
    assert sorted(m.topic for m in seen) == [f"t/{n:02}" for n in range(12)]


@pytest.mark.parametrize("read", [False, True], ids=["being read", "read already"])
def test_a_change_not_sent_live_is_read_ahead_again(read: bool) -> None:
    """Changes by import, by the API or by another node reach the client. All messages come, once and in order."""
    broker = far_away(limits=Limits(max_inflight=2))
    client = broker.client("c", 5)
    client.subscribe("t/#", qos=1)
    came = arrived(broker, client)
    if read:
        broker.store.answer_reads()
    revision = broker.store.next_revision()
    message = RetainedMessage("t/05", b"imported", 1, NO_PROPERTIES, None, None, broker.now(), None, revision)
    ticket = broker.store.put(RetainedChange("t/05", revision, broker.now(), message))
    broker.retained.feed.announce(
        Change("t/05", revision, ChangeKind.SET, ChangeOrigin.IMPORT, live=False, ticket=ticket)
    )
    broker.store.commit()
    seen = take_all(broker, client, came)
    assert [m.payload for m in seen if m.topic == "t/05"] == [b"imported"]
    assert [m.topic for m in seen] == [f"t/{n:02}" for n in range(12)]


def test_a_change_is_forgotten_once_no_message_read_before_its_commit_is_held() -> None:
    """A replay that always reads ahead does not remember all changes."""
    broker = far_away(100, limits=Limits(max_inflight=2))
    client = broker.client("c", 5)
    client.subscribe("t/#", qos=1)
    came = arrived(broker, client)
    publisher = broker.client("p")
    (replay,) = broker.replays.running.values()
    for number in range(20):
        publisher.publish(f"t/{99 - number}", b"new", retain=True)
        broker.store.commit()
        client.send(*(p.Puback(m.packet_identifier) for m in came + client.got(p.Publish) if m.qos))
        came = arrived(broker, client)
        assert len(replay.held.marks) <= 2 * SMALL.batch_read_number
    assert replay.delivered > 5 * SMALL.batch_read_number


def test_a_message_that_expires_after_it_was_read_ahead_is_not_delivered() -> None:
    """Expiry is checked again at delivery."""
    broker = far_away(5, limits=Limits(max_inflight=2))
    broker.client("p", 5).publish("t/05", b"x", 1, True, Properties(message_expiry_interval=10))
    broker.store.commit()
    client = broker.client("c", 5)
    client.subscribe("t/#", qos=1)
    came = arrived(broker, client) + arrived(broker, client)
    assert broker.store.read_count == 2
    broker.advance(20)
    seen = take_all(broker, client, came)
    assert [m.topic for m in seen] == [f"t/{n:02}" for n in range(5)]
    assert len(broker.retained.feed) == 0


def test_the_answer_to_a_read_ahead_after_unsubscribe_is_ignored() -> None:
    """Nothing is left behind."""
    broker = far_away(limits=Limits(max_inflight=2))
    client = broker.client("c", 5)
    client.subscribe("t/#", qos=1)
    came = arrived(broker, client)
    assert len(broker.store.reads) == 1
    client.send(p.Unsubscribe(3, ("t/#",)))
    assert take_all(broker, client, came) == came
    assert len(broker.retained.feed) == broker.replays.flow.waiting == 0


@pytest.mark.parametrize("over", [True, False], ids=["a failure that is over by then", "one that is not"])
def test_a_batch_that_could_not_be_read_ahead_is_read_when_it_is_needed(over: bool) -> None:
    """A failure that has passed by then does no harm; otherwise the connection ends with a reason."""
    broker = far_away(limits=Limits(max_inflight=2))
    client = broker.client("c", 5)
    client.subscribe("t/#", qos=1)
    came = arrived(broker, client)
    failure = StorageFailure(FailureKind.UNAVAILABLE, "gone")
    broker.store.fail_reads(failure)
    broker.store.failing = None if over else failure
    seen = take_all(broker, client, came)
    assert [m.topic for m in seen] == [f"t/{n:02}" for n in range(12 if over else 4)]
    assert client.network.closed is not over


TOPICS = [f"t/{letter}" for letter in "abcdef"]


@settings(max_examples=300)
@given(st.data())
def test_never_stale_after_fresh(data: st.DataObject) -> None:
    """Publishers count up while a subscriber joins, stalls, leaves and rejoins, and commits and reads come late.

    Rates that change, and another client's replay that must end first, delay its replays. On one connection no message
    with RETAIN 1 is older than one seen before it (DUP excepted), the live messages of a topic rise, a cleared topic
    does not come back, and in the end the client has seen the newest message of every topic.
    """
    draw = data.draw
    store = None

    def late(now: Any) -> DelayedStore:
        nonlocal store
        store = DelayedStore(now)
        return store

    def drawn_flow() -> FlowSettings:
        rates = st.sampled_from([None, None, Rate(1, 1), Rate(3, 2)])
        return FlowSettings(draw(st.integers(1, 5)), draw(st.integers(0, 3)), 1 << 20, draw(rates), draw(rates))

    broker = MemoryBroker(store=late, flow=drawn_flow(), limits=Limits(max_inflight=draw(st.integers(1, 3))))
    assert store is not None
    hog = broker.client("hog", 4)
    for number in range(4):  # more than its window
        hog.publish(f"hog/{number}", retain=True)
    store.commit()
    if draw(st.booleans()):
        hog.subscribe("hog/#", qos=1)
    store.read_later = draw(st.booleans())
    store.acknowledge_at_once = draw(st.booleans())
    store.reads_ahead = draw(st.booleans())
    publisher = broker.client("p", 4)
    qos = draw(st.integers(0, 2))
    version = draw(st.sampled_from([4, 5]))
    session = Properties(session_expiry_interval=1000) if version == 5 else Properties()
    newest: dict[str, int] = {}
    current: dict[str, bool] = {}
    counter = 0

    class Watcher:
        """Takes packets apart, holds acknowledgements back while it stalls, and checks the messages."""

        def __init__(self) -> None:
            self.client = self.connect()
            self.waiting: list[p.Packet] = []

        def connect(self) -> Client:
            client = Client(broker, version)
            self.seen: dict[str, int] = {}
            self.clears: list[tuple[str, int]] = []  # published while connected, not yet seen
            client.connect("w", clean=False, properties=session)
            self.take_packets(client.backlog)
            return client

        def take(self) -> None:
            self.take_packets(self.client.packets())

        def take_packets(self, came: list[p.Packet]) -> None:
            if not hasattr(self, "waiting"):
                self.waiting = []
            for packet in came:
                match packet:
                    case p.Publish():
                        topic = packet.topic
                        if packet.payload:
                            value = int(packet.payload)
                            assert packet.dup or value >= self.seen.get(topic, 0), (topic, value, self.seen)
                        else:  # a clear: no message published before it may follow
                            assert not packet.retain
                            at = next(n for n, (cleared, _) in enumerate(self.clears) if cleared == topic)
                            value = self.clears.pop(at)[1]
                        self.seen[topic] = max(value, self.seen.get(topic, 0))
                        if packet.qos == 1:
                            self.waiting.append(p.Puback(packet.packet_identifier))
                        elif packet.qos == 2:
                            self.waiting.append(p.Pubrec(packet.packet_identifier))
                    case p.Pubrel():
                        self.waiting.append(p.Pubcomp(packet.packet_identifier))

        def answer(self) -> None:
            answers, self.waiting = self.waiting, []
            if answers:
                self.client.connection.receive(b"".join(_encode(packet, version) for packet in answers))

    from holdfast.wire import encode as _encode

    watcher = Watcher()
    watcher.client.subscribe("t/#", qos=qos)
    for _ in range(draw(st.integers(1, 60))):
        step = draw(
            st.sampled_from(
                [
                    "publish",
                    "publish",
                    "clear",
                    "commit",
                    "turn",
                    "turn",
                    "answer",
                    "subscribe",
                    "rejoin",
                    "reads",
                    "wait",
                    "flow",
                ]
            )
        )
        topic = draw(st.sampled_from(TOPICS))
        match step:
            case "publish":
                counter += 1
                newest[topic] = counter
                current[topic] = True
                publisher.connection.receive(_encode(p.Publish(topic, b"%d" % counter, 0, True), 4))
            case "clear":
                current[topic] = False
                watcher.clears.append((topic, counter))
                publisher.connection.receive(_encode(p.Publish(topic, b"", 0, True), 4))
            case "commit":
                store.commit()
            case "turn":
                broker.clock.turn()
            case "answer":
                watcher.answer()
            case "subscribe":
                handling = draw(st.integers(0, 2)) if version == 5 else 0
                request = p.SubscriptionRequest("t/#", qos, retain_handling=handling)
                watcher.client.connection.receive(_encode(p.Subscribe(99, (request,)), version))
            case "rejoin":
                watcher.client.network.closed = True
                watcher.client.connection.lost()
                watcher.waiting.clear()
                watcher.client = watcher.connect()
            case "reads":
                store.answer_reads()
            case "wait":
                broker.clock.advance(2)
            case "flow":
                broker.replays.flow.change(drawn_flow())
        watcher.take()
    hog.drop()
    for _ in range(500):  # until all is delivered
        store.commit()
        store.answer_reads()
        broker.advance(0.5)
        watcher.take()
        if not watcher.waiting and not store.reads and not store.pending and not broker.replays.running:
            break
        watcher.answer()
    else:
        raise AssertionError("never at rest")
    final = broker.client("final", 5)
    final.connection.receive(_encode(p.Subscribe(1, (p.SubscriptionRequest("t/#"),)), 5))
    for _ in range(200):
        store.answer_reads()
        broker.advance(0.1)
    assert broker.replays.flow.waiting == 0
    found = {topic: int(payload) for topic, payload, _, retain in final.messages() if retain}
    assert found == {topic: newest[topic] for topic, kept in current.items() if kept}
