"""The limits on retained messages: each with every policy, for every protocol version and QoS."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, succeed
from twisted.logger import formatEvent
from zope.interface import implementer

from holdfast.core.clients import GUESTS
from holdfast.core.messages import ApplicationMessage, ChangeOrigin, stored_size
from holdfast.core.tickets import FailureKind, StorageFailure
from holdfast.core.units import Rate
from holdfast.identity.interfaces import IAuthorizer, Principal, UnrestrictedAuthorizer
from holdfast.retained.delayed_writes import MOST_OF_PUBLISHER
from holdfast.retained.limits import (
    Limit,
    OnLimit,
    PayerLimits,
    PayerQuotas,
    Quota,
    RetainerLimits,
    RetainRefused,
)
from holdfast.retained.policies import Policies, Policy
from holdfast.retained.quota import size_of
from holdfast.sessions.limits import Limits, RetainMode
from holdfast.wire import NO_PROPERTIES, Properties, ReasonCode
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker
from tests.logs import logged
from tests.retained.store.contract import put
from tests.retained.store.delayed_store import DelayedStore
from tests.sessions.restartable import RestartableBroker
from tests.storage.doubles import fresh_file

CLIENT = Quota("retainer.client_quota.", max_messages=1)
CLIENT_BYTES = Quota("retainer.client_quota.", max_bytes=210)
TOPIC = Quota("retainer.topic_quotas.q.", max_messages=1)
TOPIC_BYTES = Quota("retainer.topic_quotas.q.", max_bytes=210)

#: limits, the limit that refuses, and a topic and payload above it while "old" retains b"old" (the topic may be "old")
OVER: list[tuple[RetainerLimits, Limit, str, bytes]] = [
    (RetainerLimits(max_payload_size=10), Limit.PAYLOAD_SIZE, "old", b"x" * 11),
    (RetainerLimits(max_topic_length=10), Limit.TOPIC_LENGTH, "t" * 11, b"new"),
    (RetainerLimits(max_publish_rate=Rate(1, 10)), Limit.PUBLISH_RATE, "old", b"new"),
    (RetainerLimits(max_retained_messages=1), Limit.MESSAGES, "second", b"new"),
    (RetainerLimits(max_retained_bytes=210), Limit.BYTES, "old", b"seven.."),
    (RetainerLimits(max_retained_bytes=211), Limit.BYTES, "second", b"four"),
    (RetainerLimits(client_quota=CLIENT), Limit.CLIENT_QUOTA, "second", b"new"),
    (RetainerLimits(client_quota=CLIENT_BYTES), Limit.CLIENT_QUOTA, "old", b"seven.."),
    (RetainerLimits(payers=PayerLimits(True, {}, PayerQuotas(CLIENT))), Limit.USER_QUOTA, "second", b"new"),
    (
        RetainerLimits(payers=PayerLimits(True, {}, PayerQuotas(guests=CLIENT_BYTES))),
        Limit.GUESTS_QUOTA,
        "old",
        b"seven..",
    ),
    (RetainerLimits(topic_quotas=(("#", TOPIC),)), Limit.TOPIC_QUOTA, "second", b"new"),
    (RetainerLimits(topic_quotas=(("old/#", TOPIC_BYTES),)), Limit.TOPIC_QUOTA, "old", b"seven.."),
    (
        RetainerLimits(policies=Policies([Policy(1, "old", max_retained_bytes=210)])),
        Limit.TOPIC_QUOTA,
        "old",
        b"seven..",
    ),
]
over = pytest.mark.parametrize(("limits", "limit", "topic", "payload"), OVER, ids=lambda value: str(value)[:24])
versions = pytest.mark.parametrize("version", [3, 4, 5])
all_qos = pytest.mark.parametrize("qos", [0, 1, 2])


class Scene:
    """A broker with b"old" retained in "old", its publisher, and a subscriber."""

    def __init__(self, limits: RetainerLimits, on_limit: OnLimit, version: int) -> None:
        self.broker = MemoryBroker(retainer=evolve(limits, on_limit=on_limit))
        self.watcher = self.broker.client("w", 5)
        self.publisher = self.broker.client("p", version)
        self.publisher.publish("old", b"old", retain=True)
        self.watcher.subscribe("#", qos=2)
        self.watcher.messages()

    def publish(self, topic: str, payload: bytes, qos: int) -> list[p.Packet]:
        """Publish with RETAIN 1. Return the answers."""
        self.publisher.publish(topic, payload, qos, True)
        return self.publisher.packets()

    @property
    def retained(self) -> dict[str, bytes]:
        """The messages that a new subscriber gets."""
        return retained(self.broker)


def retained(broker: MemoryBroker) -> dict[str, bytes]:
    """Return the messages that a new subscriber gets."""
    client = broker.client("look", 5)
    found = {m.topic: m.payload for m in client.subscribe("#") if isinstance(m, p.Publish)}
    client.send(p.Disconnect())
    return found


def acknowledged(qos: int, reason: ReasonCode = ReasonCode.SUCCESS) -> list[p.Packet]:
    answers: list[list[p.Packet]] = [[], [p.Puback(1, reason)], [p.Pubrec(1, reason)]]
    return answers[qos]


def without_text(packets: list[p.Packet]) -> list[p.Packet]:
    return [
        evolve(packet, properties=NO_PROPERTIES) if isinstance(packet, p.Puback | p.Pubrec) else packet
        for packet in packets
    ]


#: docs/operator/retained-messages.md, "A message over a limit": with MQTT 5 and QoS 1 or 2; otherwise
TREATMENTS = {
    OnLimit.REJECT: ("refused", "delivered"),
    OnLimit.DELIVER_ONLY: ("delivered", "delivered"),
    OnLimit.DROP_OLD: ("delivered", "delivered"),
    OnLimit.DISCONNECT: ("disconnected", "disconnected"),
}


@over
@versions
@all_qos
@pytest.mark.parametrize("on_limit", OnLimit)
def test_no_older_value_is_replayed_after_a_newer_one_was_seen(
    limits: RetainerLimits, limit: Limit, topic: str, payload: bytes, version: int, qos: int, on_limit: OnLimit
) -> None:
    """Whoever is told, and nobody else, leaves the older message of the topic. All outcomes are counted, by limit."""
    scene = Scene(limits, on_limit, version)
    told = version == 5 and qos > 0
    treatment = TREATMENTS[on_limit][0 if told else 1]
    answer = without_text(scene.publish(topic, payload, qos))
    live, counters = scene.watcher.messages(), scene.broker.counters
    assert scene.broker.retained.admission.refusals == {**dict.fromkeys(Limit, 0), limit: 1}
    outcomes = [counters.retained_refused, counters.retained_not_stored + counters.retained_delayed]
    if treatment == "delivered":
        assert live == [(topic, payload, qos, False)]
        waits = limit is Limit.PUBLISH_RATE
        assert (counters.retained_delayed, counters.retained_dropped_old) == (waits, topic == "old" and not waits)
        after = {"old": payload} if waits else {} if topic == "old" else {"old": b"old"}
        assert scene.retained == after
        assert answer + scene.publisher.packets() == acknowledged(qos)  # beyond the rate, once it is stored
        assert topic == "old" or topic not in scene.broker.store._changes  # an empty topic causes no write
        assert outcomes == [0, 1]
    else:
        assert (live, scene.retained) == ([], {"old": b"old"})
        if treatment == "refused":
            assert answer == acknowledged(qos, ReasonCode.QUOTA_EXCEEDED)
            assert outcomes == [1, 0]
        else:
            reasons = [packet.reason_code for packet in answer if isinstance(packet, p.Disconnect)]
            assert reasons == ([ReasonCode.QUOTA_EXCEEDED] if version == 5 else [])
            assert scene.publisher.network.closed
            assert counters.retained_disconnected == 1
    assert scene.watcher.messages() == []  # no empty message: the watcher has the new one


def test_a_topic_is_cleared_once_however_many_messages_are_over_the_limit() -> None:
    """The tombstone of the first one stays as it is, until something is retained again."""
    scene = Scene(RetainerLimits(max_payload_size=3), OnLimit.REJECT, 4)
    revisions = set()
    for _ in range(5):
        scene.publish("old", b"long", 1)
        revisions.add(scene.broker.store._changes["old"].revision)
    assert len(revisions) == scene.broker.counters.retained_dropped_old == 1
    scene.publish("old", b"new", 1)
    scene.publish("old", b"long", 1)
    assert (scene.retained, scene.broker.counters.retained_dropped_old) == ({}, 2)


def test_a_message_that_came_after_a_refused_one_is_not_cleared() -> None:
    """Its commit comes before the decision about the clear, which is older."""
    broker = MemoryBroker(store=DelayedStore, retainer=RetainerLimits(max_payload_size=3))
    client, other = broker.client("c", 4), broker.client("o", 4)
    client.publish("t", b"old", 0, True)
    client.publish("t", b"long", 0, True)
    other.publish("t", b"new", 0, True)
    for _ in range(3):
        broker.store.commit()
        broker.settle()
    assert retained(broker) == {"t": b"new"}


def test_a_running_replay_leaves_out_the_older_message_at_once() -> None:
    """It has read the message before the clear is committed, and the subscriber has got the newer one live."""
    broker = MemoryBroker(store=DelayedStore, retainer=RetainerLimits(max_payload_size=3))
    client, watcher = broker.client("c", 4), broker.client("w", 5)
    client.publish("t", b"old", 0, True)
    broker.store.commit()
    broker.store.read_later = True
    watcher.subscribe("#")
    broker.settle()
    client.publish("t", b"long", 0, True)
    assert broker.store.reads
    while broker.store.reads:
        answer, batch = broker.store.reads.pop(0)
        answer.callback(batch)
        broker.settle()
    assert watcher.messages() == [("t", b"long", 0, False)]


@pytest.mark.parametrize("deferred", [False, True])
@versions
@all_qos
def test_who_may_not_clear_a_topic_gets_neither_delivery_nor_clear(version: int, qos: int, deferred: bool) -> None:
    """Otherwise a publisher without that permission could clear by one message that is too long. Wills too."""
    authorizer = NoClears(deferred)
    broker = MemoryBroker(retainer=RetainerLimits(max_payload_size=3), authorizer=authorizer)
    watcher, client = broker.client("w", 5), broker.client("p", version, will=p.Will("old", b"a will", 0, True))
    client.publish("old", b"old", retain=True)
    watcher.subscribe("#", qos=2)
    watcher.messages()
    client.publish("old", b"long", qos, True)
    client.publish("old", b"and", 0)  # this one waits for its turn
    told = version == 5
    assert without_text(client.packets()) == acknowledged(
        qos, ReasonCode.QUOTA_EXCEEDED if told else ReasonCode.SUCCESS
    )
    assert watcher.messages() == [("old", b"and", 0, False)]
    client.drop()
    broker.settle()
    assert (watcher.messages(), retained(broker)) == ([], {"old": b"old"})
    assert broker.counters.retained_not_delivered == (1 if told and qos else 2)
    assert (broker.counters.retained_dropped_old, broker.counters.retained_refused) == (0, int(told and qos > 0))


@implementer(IAuthorizer)
class NoClears(UnrestrictedAuthorizer):
    """Allows everything but clears; with ``deferred``, it answers with a Deferred."""

    def __init__(self, deferred: bool) -> None:
        self.deferred = deferred

    def may_publish(
        self, principal: Principal, topic: str, qos: int, retain: bool, clears: bool = False
    ) -> bool | Deferred[bool]:
        return succeed(not clears) if self.deferred and clears else not clears


@pytest.mark.parametrize("on_limit", OnLimit)
def test_an_accepted_message_neither_reads_the_store_nor_needs_a_ledger(
    on_limit: OnLimit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the policy: limits of sizes and a rate keep no ledger, and let messages pass in retained runs."""
    limits = RetainerLimits(max_payload_size=3, max_publish_rate=None, on_limit=on_limit)
    quota = Policies([Policy(1, "counted", max_retained_messages=1)])
    for each in (limits, evolve(limits, policies=quota)):
        broker = MemoryBroker(retainer=each)
        assert broker.retained.retains_together
        broker.settle()
        for name in ("get", "read_usage", "listing", "read", "put_if"):
            monkeypatch.setattr(broker.store, name, None)
        client = broker.client("c", 5)
        client.publish("t", b"x", 1, True)
        assert client.got(p.Puback)[0].reason_code < 0x80
        assert not broker.counters.retained_refused


@over
@pytest.mark.parametrize("on_limit", OnLimit)
def test_clears_and_smaller_values_are_always_allowed(
    limits: RetainerLimits, limit: Limit, topic: str, payload: bytes, on_limit: OnLimit
) -> None:
    """At a limit topics can still be updated, and a clear makes room."""
    scene = Scene(limits, on_limit, 5)
    if limit is not Limit.PUBLISH_RATE:
        assert scene.publish("old", b"upd", 1) == acknowledged(1)
        assert scene.retained == {"old": b"upd"}
    scene.watcher.messages()
    scene.publish("old", b"", 1)
    assert scene.watcher.messages() == [("old", b"", 1, False)]
    assert scene.retained == {}
    if limit not in (Limit.PUBLISH_RATE, Limit.PAYLOAD_SIZE, Limit.TOPIC_LENGTH) and len(payload) < 7:
        assert scene.publish(topic, payload, 0) == []
        assert scene.retained == {topic: payload}
    assert not any(scene.broker.retained.admission.refusals.values())


@pytest.mark.parametrize("on_limit", OnLimit)
@over
def test_a_will_over_a_limit_is_delivered(
    limits: RetainerLimits, limit: Limit, topic: str, payload: bytes, on_limit: OnLimit
) -> None:
    """There is no publisher to tell or to disconnect. No older message stays behind it."""
    scene = Scene(limits, on_limit, 4)
    scene.publisher.send(p.Disconnect())
    scene.broker.client("p", 4, will=p.Will(topic, payload, 1, True)).drop()
    assert scene.watcher.messages() == [(topic, payload, 1, False)]
    waits = limit is Limit.PUBLISH_RATE
    assert scene.retained == ({"old": payload} if waits else {} if topic == "old" else {"old": b"old"})
    counters = scene.broker.counters
    assert (counters.retained_delayed, counters.retained_not_stored) == (waits, not waits)
    assert scene.broker.retained.admission.refusals[limit] == 1


# --- pending messages count


def test_a_burst_does_not_exceed_the_limit_before_it_is_committed() -> None:
    """Uncommitted messages count. The last ones wait for the commit, and are then decided exactly."""
    broker = MemoryBroker(store=DelayedStore, retainer=RetainerLimits(max_retained_messages=3, max_retained_bytes=1000))
    clients = [broker.client(f"c{number}", 5) for number in range(5)]
    for number, client in enumerate(clients):
        client.publish(f"t{number}", b"x", 1, True)
    assert [client.packets() for client in clients] == [[]] * 5
    broker.store.commit()
    broker.settle()
    broker.store.commit()
    broker.settle()
    answers = [packet.reason_code for client in clients for packet in client.got(p.Puback)]
    assert answers == [*[ReasonCode.NO_MATCHING_SUBSCRIBERS] * 3, *[ReasonCode.QUOTA_EXCEEDED] * 2]
    assert len(retained(broker)) == 3


def test_a_publisher_keeps_its_order_while_it_waits() -> None:
    """Its packets after an undecided message are handled and acknowledged after that message."""
    broker = MemoryBroker(store=DelayedStore, retainer=RetainerLimits(max_retained_messages=1))
    watcher = broker.client("w")
    watcher.subscribe("#", qos=1)
    first, client = broker.client("f"), broker.client("c", 5)
    first.publish("a", b"1", 1, True)
    client.publish("b", b"2", 1, True)
    client.publish("live", b"3", 1)
    first.publish("other", b"4", 1)
    assert [message[0] for message in watcher.messages()] == ["a", "other"]
    broker.store.commit()
    broker.settle()
    assert [message[0] for message in watcher.messages()] == ["live"]
    assert [packet.reason_code for packet in client.got(p.Puback)] == [ReasonCode.QUOTA_EXCEEDED, ReasonCode.SUCCESS]


@pytest.mark.parametrize(("qos", "delivered"), [(0, True), (1, False), (2, False)])
def test_a_publisher_that_disconnects_while_it_waits(qos: int, delivered: bool) -> None:
    """Its QoS 0 message is still received. It will send others again, so these are not delivered twice."""
    broker = MemoryBroker(store=DelayedStore, retainer=RetainerLimits(max_retained_messages=2))
    first, client = broker.client("f"), broker.client("c", 5)
    first.publish("a", b"1", 1, True)
    first.publish("a", b"2", 1, True)
    client.publish("b", b"2", qos, True)
    client.drop()
    broker.store.commit()
    broker.settle()
    broker.store.commit()
    assert ("b" in retained(broker)) is delivered


@pytest.mark.parametrize(("qos", "paused"), [(0, True), (1, False)])
def test_the_end_of_a_connection_is_noticed_behind_its_last_qos_0_message(qos: int, paused: bool) -> None:
    """It is not read while the message waits: a sensor sends a few messages and leaves at once."""
    broker = MemoryBroker(store=DelayedStore, retainer=RetainerLimits(max_retained_messages=2))
    first, client = broker.client("f"), broker.client("c", 5)
    first.publish("a", b"1", 1, True)
    first.publish("a", b"2", 1, True)
    client.publish("b", b"2", qos, True)
    assert client.network.paused is paused
    client.publish("b", b"3", 0, True)
    for _ in range(3):
        broker.store.commit()
        broker.settle()
    assert not client.network.paused
    client.drop()
    assert retained(broker)["b"] == b"3"


def test_a_refused_message_never_replaces_an_accepted_one() -> None:
    """Both wait for the same commit: the accepted one is stored."""
    broker = MemoryBroker(store=DelayedStore, retainer=RetainerLimits(max_payload_size=3, max_retained_bytes=1000))
    broker.store.commit()
    client = broker.client("c", 5)
    client.publish("t", b"v1", 1, True)
    client.publish("t", b"much longer", 1, True)
    broker.store.commit()
    broker.settle()
    assert [packet.reason_code for packet in client.got(p.Puback)] == [
        ReasonCode.NO_MATCHING_SUBSCRIBERS,
        ReasonCode.QUOTA_EXCEEDED,
    ]
    assert retained(broker) == {"t": b"v1"}


Step = tuple[int, str, bytes, int]
steps = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 3), st.sampled_from("abcd"), st.sampled_from([b"", b"1", b"22", b"4444"]), st.just(1)),
        st.just("commit"),
    ),
    max_size=40,
)


@given(
    steps,
    st.sampled_from(
        [
            RetainerLimits(max_retained_messages=2),
            RetainerLimits(max_retained_bytes=409),
            RetainerLimits(client_quota=Quota("", 1, 206)),
            RetainerLimits(topic_quotas=(("a", Quota("", 0, 204)), ("#", Quota("", 3, 612)))),
            RetainerLimits(payers=PayerLimits(True, {}, PayerQuotas(Quota("", 2, 409)))),
            RetainerLimits(payers=PayerLimits(True, {}, PayerQuotas(Quota("", 3), Quota("", 2)))),
            RetainerLimits(payers=PayerLimits(False, {}, PayerQuotas(Quota("", 2), Quota("", 3)))),
        ]
    ),
)
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_acknowledged_messages_are_retained_and_no_limit_is_exceeded(steps: list[Any], limits: RetainerLimits) -> None:
    """Publishers do anything, and commits come at any time.

    Each topic retains its last accepted message, a refused message leaves no trace, and no message is refused that
    would not have exceeded a limit.
    """
    broker = MemoryBroker(store=DelayedStore, retainer=limits)
    broker.store.names_proven = limits.payers is None or limits.payers.names_proven
    refused = broker.retained.admission.refused

    def justly(message: ApplicationMessage, refusal: RetainRefused, outcome: str) -> None:
        accepted = {topic: change.message for topic, change in broker.store._changes.items()}
        accepted.update({change.topic: change.message for change, _ in broker.store.pending if change is not None})
        accepted[message.topic] = message
        assert not within_limits([one for one in accepted.values() if one is not None], limits)
        refused(message, refusal, outcome)

    broker.retained.admission.refused = justly  # type: ignore[method-assign]
    clients = [broker.client(f"c{number}", 5, username=user) for number, user in enumerate(("a", "a", None, None))]
    sent: dict[tuple[int, int], tuple[str, bytes]] = {}
    for step in [*steps, "commit", "commit", "commit", "commit"]:
        if step == "commit":
            broker.store.commit()
            broker.settle()
            check(broker, limits)
        else:
            number, topic, payload, qos = step
            clients[number].publish(topic, payload, qos, True)
            sent[number, clients[number]._identifier] = (topic, payload)
    while broker.store.pending:
        broker.store.commit()
        broker.settle()
    answers = {
        (number, packet.packet_identifier): packet.reason_code
        for number, client in enumerate(clients)
        for packet in client.got(p.Puback)
    }
    assert answers.keys() == sent.keys()
    stored = {sent[key] for key, reason in answers.items() if reason is not ReasonCode.QUOTA_EXCEEDED}
    assert set(retained(broker).items()) <= stored
    assert all(reason is not ReasonCode.QUOTA_EXCEEDED for key, reason in answers.items() if not sent[key][1])


def check(broker: MemoryBroker, limits: RetainerLimits) -> None:
    """Assert that the committed messages exceed no limit."""
    messages = [change.message for change in broker.store._changes.values() if change.message is not None]
    assert within_limits(messages, limits)


def within_limits(messages: list[Any], limits: RetainerLimits) -> bool:
    """Tell whether these messages exceed no limit."""

    def within(quota: Quota, chosen: Callable[[Any], bool]) -> bool:
        sizes = [size_of(message) for message in messages if chosen(message)]
        fits = not quota.max_bytes or sum(sizes) <= quota.max_bytes
        return fits and (not quota.max_messages or len(sizes) <= quota.max_messages)

    quotas: list[tuple[Quota, Callable[[Any], bool]]] = [
        (Quota("", limits.max_retained_messages, limits.max_retained_bytes), lambda _: True)
    ]
    for topic_filter, quota in limits.topic_quotas:
        quotas.append((quota, lambda message, one=topic_filter: one in ("#", message.topic)))  # type: ignore[misc]
    for client_id in ("c0", "c1", "c2", "c3") if limits.client_quota is not None else ():
        assert limits.client_quota is not None
        quotas.append((limits.client_quota, lambda message, one=client_id: message.client_id == one))  # type: ignore[misc]
    if (payers := limits.payers) is not None:
        for payer in ("user a", "client c0", "client c1", "client c2", "client c3", GUESTS):
            quota = payers.otherwise.guests if payer == GUESTS else payers.otherwise.own
            whose = partial(_is_charged, payers, payer)
            quotas.append((quota, whose))
    return all(within(quota, chosen) for quota, chosen in quotas)


def _is_charged(payers: PayerLimits, payer: str, message: Any) -> bool:
    return payer in payers.payers(message.username, message.client_id)


def test_a_topic_counts_against_the_client_that_published_to_it_last() -> None:
    broker = MemoryBroker(retainer=RetainerLimits(client_quota=CLIENT))
    one, two = broker.client("one", 5), broker.client("two", 5)
    one.publish("a", b"1", 1, True)
    two.publish("a", b"2", 1, True)
    one.publish("b", b"1", 1, True)
    two.publish("b", b"2", 1, True)
    assert [packet.reason_code for packet in two.got(p.Puback)][1:] == [ReasonCode.QUOTA_EXCEEDED]
    assert retained(broker) == {"a": b"2", "b": b"1"}


@over
@pytest.mark.parametrize("on_limit", OnLimit)
def test_only_retained_messages_count_as_retained(
    limits: RetainerLimits, limit: Limit, topic: str, payload: bytes, on_limit: OnLimit
) -> None:
    """Not refused, cleared or expired messages, nor the broker's own topics."""
    scene = Scene(limits, on_limit, 5)
    scene.publish(topic, payload, 1)
    assert scene.broker.retained.admission.refusals[limit] == 1
    kept = scene.retained
    statistics = scene.broker.retained.totals.refreshed()
    assert (statistics.count, statistics.bytes) == (
        len(kept),
        sum(stored_size(name, NO_PROPERTIES, len(value)) for name, value in kept.items()),
    )


def test_expired_messages_do_not_count_after_the_sweep() -> None:
    """Nor do cleared messages, nor the broker's own topics, however many there are."""
    broker = MemoryBroker(sys_msg_interval=10, retainer=RetainerLimits(msg_clear_interval=60))
    client = broker.client("c", 5)
    client.publish("expires", b"x", 1, True, Properties(message_expiry_interval=10))
    client.publish("stays", b"x", 1, True)
    client.publish("cleared", b"x", 1, True)
    client.publish("cleared", b"", 1, True)
    broker.advance(60)
    broker.advance(10)
    assert retained(broker) == {"stays": b"x"}
    watcher = broker.client("w", 5)
    figures = {m.topic: m.payload for m in watcher.subscribe("$SYS/#") if isinstance(m, p.Publish)}
    assert figures["$SYS/broker/retained messages/count"] == b"1"
    assert len(figures) > 50


def test_expired_messages_cause_no_refusal() -> None:
    """They are removed before a message is refused because of them, without waiting for the sweep."""
    limits = RetainerLimits(max_retained_messages=1, msg_expiry_interval=5, msg_clear_interval=3600)
    broker = MemoryBroker(retainer=limits)
    client = broker.client("c", 5)
    client.publish("a", b"1", 1, True)
    broker.advance(6)
    client.publish("b", b"2", 1, True)
    assert retained(broker) == {"b": b"2"}
    assert not broker.counters.retained_refused


def test_expired_messages_of_others_hide_no_expired_message() -> None:
    """The sweep removes the earliest ones first; the ones that matter may be behind thousands of others."""
    quotas = (("mine/#", Quota("q.", max_messages=1)),)
    limits = RetainerLimits(topic_quotas=quotas, msg_clear_interval=3600)
    broker = MemoryBroker(retainer=limits)
    client = broker.client("c", 5)
    for number in range(1500):
        client.publish(f"other/{number}", b"x", 1, True, Properties(message_expiry_interval=1))
    client.publish("mine/1", b"1", 1, True, Properties(message_expiry_interval=2))
    broker.advance(3)
    client.publish("mine/2", b"2", 1, True)
    assert retained(broker) == {"mine/2": b"2"}
    assert not broker.counters.retained_refused


def test_while_the_store_cannot_be_read_messages_that_may_not_fit_are_refused() -> None:
    """They neither exceed a limit nor make publishers wait for ever."""
    broker = MemoryBroker(retainer=RetainerLimits(max_retained_messages=1))
    failure = StorageFailure(FailureKind.UNAVAILABLE, "test")

    def fail(*_: Any) -> Any:
        from twisted.internet.defer import fail

        return fail(failure)

    broker.store.read_usage = fail
    client = broker.client("c", 5)
    client.publish("a", b"1", 1, True)
    assert [packet.reason_code for packet in client.got(p.Puback)] == [ReasonCode.QUOTA_EXCEEDED]
    del broker.store.read_usage
    client.publish("a", b"1", 1, True)
    assert retained(broker) == {"a": b"1"}


def test_a_caller_that_does_not_wait_is_refused_unless_the_message_certainly_fits() -> None:
    broker = MemoryBroker(retainer=RetainerLimits(max_retained_messages=1))
    message = ApplicationMessage("t", b"x", 0, True)
    with pytest.raises(RetainRefused, match="cannot be read now"):
        broker.retained.retain(message, ChangeOrigin.API)
    asked = broker.retained.admission.undecided(message)
    assert asked is not None
    asked.addCallback(lambda _: broker.retained.retain(message, ChangeOrigin.API))
    broker.settle()
    assert retained(broker) == {"t": b"x"}
    with pytest.raises(RetainRefused, match="max_retained_messages = 1 is reached"):
        broker.retained.retain(evolve(message, topic="u"), ChangeOrigin.API)


def test_messages_of_other_nodes_count_within_a_second() -> None:
    """On a shared store a budget is not trusted for longer."""
    broker = MemoryBroker(retainer=RetainerLimits(max_retained_messages=3))
    broker.store.shared = True
    client = broker.client("c", 5)
    client.publish("a", b"1", 1, True)
    for topic in ("b", "c"):
        put(broker.store, topic)  # by another node
    broker.advance(1)
    client.publish("d", b"1", 1, True)
    client.publish("a", b"2", 1, True)
    assert [packet.reason_code >= ReasonCode.UNSPECIFIED_ERROR for packet in client.got(p.Puback)] == [
        *(False, True, False)
    ]


# --- the publish rate


def test_the_publish_rate_allows_a_burst_of_one_second() -> None:
    """After a quiet second. Clears cost no tokens and are never refused."""
    broker = MemoryBroker(retainer=RetainerLimits(max_publish_rate=Rate(3, 1), on_limit=OnLimit.DELIVER_ONLY))
    client = broker.client("c")

    def burst() -> int:
        before = broker.retained.admission.refusals[Limit.PUBLISH_RATE]
        for number in range(10):
            client.publish(f"t{number}", b"x", 1, True)
        return 10 - (broker.retained.admission.refusals[Limit.PUBLISH_RATE] - before)

    assert burst() == 3
    for number in range(10):
        client.publish(f"t{number}", b"", 1, True)
    assert retained(broker) == {}
    assert burst() == 0
    for _ in range(5):
        broker.advance(1)  # what waits is written
    assert burst() == 3


def test_sixty_in_a_minute_may_come_at_once() -> None:
    """After a pause the whole number may come, whatever the time in which it is counted; then one each second."""
    broker = MemoryBroker(retainer=RetainerLimits(max_publish_rate=Rate(60, 60)))
    client = broker.client("c", 5)
    codes: list[int] = []

    def publish(count: int) -> None:
        for number in range(count):
            client.publish(f"t{number}", b"x", 1, True)
        codes.extend(packet.reason_code & 0x80 for packet in client.got(p.Puback))

    publish(61)
    assert codes == [0] * 60 + [0x80]
    broker.advance(1)
    publish(2)
    assert codes[61:] == [0, 0x80]


def test_a_message_refused_by_another_limit_does_not_count_against_the_rate() -> None:
    broker = MemoryBroker(
        retainer=RetainerLimits(max_publish_rate=Rate(1, 1), max_payload_size=1, max_retained_messages=5)
    )
    client = broker.client("c", 5)
    client.publish("t", b"too long", 1, True)
    client.publish("t", b"x", 1, True)
    assert retained(broker) == {"t": b"x"}


def stored(broker: MemoryBroker) -> dict[str, bytes]:
    """Return the messages in the store, without a reader for whom it is brought up to date."""
    return {
        topic: change.message.payload for topic, change in broker.store._changes.items() if change.message is not None
    }


def test_beyond_the_rate_the_newest_value_of_each_topic_is_stored_when_the_rate_allows() -> None:
    """Meanwhile present subscribers have it, and new ones get it, not the older one."""
    broker = MemoryBroker(retainer=RetainerLimits(max_publish_rate=Rate(1, 1)))
    client = broker.client("c", 4)
    for number in range(4):
        client.publish("a", b"%d" % number, 0, True)
    client.publish("b", b"0", 0, True)
    assert stored(broker) == {"a": b"0"}
    broker.advance(1)
    assert stored(broker) == {"a": b"3"}
    broker.advance(1)
    assert stored(broker) == {"a": b"3", "b": b"0"}
    client.publish("b", b"1", 0, True)
    assert retained(broker) == {"a": b"3", "b": b"1"}
    assert broker.counters.retained_dropped_old == 0


def test_a_flood_by_one_client_changes_no_retained_value_of_another() -> None:
    """Others take turns with it: their few values are stored soon, however many topics the flood has."""
    rate = Rate(10, 1)
    broker = MemoryBroker(retainer=RetainerLimits(max_publish_rate=rate))
    flood, quiet, told = broker.client("flood", 4), broker.client("quiet", 4), broker.client("told", 5)
    quiet.publish("quiet/1", b"before", 0, True)
    told.publish("told", b"before", 1, True)
    for number in range(2000):
        flood.publish(f"flood/{number}", b"x", 0, True)
    assert stored(broker)["quiet/1"] == b"before"
    quiet.publish("quiet/1", b"after", 1, True)
    quiet.publish("quiet/2", b"after", 1, True)
    for _ in range(20):
        broker.advance(0.1)
        flood.publish("flood/again", b"x", 0, True)
    assert stored(broker)["quiet/1"] == stored(broker)["quiet/2"] == b"after"
    assert len(quiet.got(p.Puback)) == 2
    assert len(stored(broker)) < 40  # the rate holds
    for _ in range(30):
        told.publish("told", b"after", 1, True)
        broker.advance(0.1)
    assert {packet.reason_code for packet in told.got(p.Puback)} == {
        ReasonCode.NO_MATCHING_SUBSCRIBERS,
        ReasonCode.QUOTA_EXCEEDED,
    }
    assert stored(broker)["told"] == b"after"
    assert not broker.counters.retained_dropped_old


def test_a_flood_is_not_read_while_too_much_of_it_waits() -> None:
    """So it fills no memory. It goes on when the rate has caught up, and nothing of it is lost."""
    broker = MemoryBroker(retainer=RetainerLimits(max_publish_rate=Rate(100, 1)))
    flood = broker.client("flood", 4)
    flood.send(*[p.Publish(f"flood/{number}", b"x", 0, True) for number in range(1000)])
    assert len(broker.retained.delayed) == MOST_OF_PUBLISHER + 1
    assert flood.network.paused
    for second in range(1, 10):
        broker.advance(1)
        assert len(stored(broker)) <= 100 + 100 * second
    broker.advance(1)
    assert not flood.network.paused
    assert len(stored(broker)) == 1000


def test_readers_that_have_waiting_values_written_first_do_not_raise_the_rate() -> None:
    """What they take early is owed."""
    broker = MemoryBroker(retainer=RetainerLimits(max_publish_rate=Rate(10, 1)))
    flood = broker.client("flood", 4)
    flood.send(*[p.Publish(f"{number}", b"x", 0, True) for number in range(1000)])
    for second in range(1, 20):
        retained(broker)
        broker.advance(1)
        assert len(stored(broker)) <= MOST_OF_PUBLISHER + 12 + 10 * second


@pytest.mark.parametrize("qos", [1, 2])
def test_an_acknowledgement_beyond_the_rate_promises_that_it_or_a_newer_value_is_stored(qos: int) -> None:
    broker = MemoryBroker(store=DelayedStore, retainer=RetainerLimits(max_publish_rate=Rate(1, 1)))
    client, other = broker.client("c", 4), broker.client("o", 4)

    def commit() -> int:
        broker.settle()
        while broker.store.pending:
            broker.store.commit()
            broker.settle()
        return len([packet for packet in client.packets() if isinstance(packet, p.Puback | p.Pubrec)])

    client.publish("a", b"0", qos, True)
    assert commit() == 1
    client.publish("a", b"1", qos, True)
    client.publish("a", b"2", qos, True)
    assert commit() == 0
    broker.advance(1)
    broker.advance(1)
    assert (client.packets(), broker.store._changes["a"].message.payload) == ([], b"0")  # given to the writer
    assert commit() == 2
    assert stored(broker) == {"a": b"2"}
    client.publish("a", b"3", qos, True)
    broker.advance(0)
    other.publish("a", b"", 1, True)  # a clear is newer, and is stored at once
    assert commit() == 1
    assert stored(broker) == {}


def test_nothing_waits_any_more_without_a_rate_or_after_a_stop() -> None:
    broker = MemoryBroker(retainer=RetainerLimits(max_publish_rate=Rate(1, 60)))
    client = broker.client("c", 4)
    client.send(*[p.Publish(f"{number}", b"x", 0, True) for number in range(500)])
    broker.retained.admission.change_publish_rate(None)
    broker.settle()
    broker.advance(1)
    assert len(stored(broker)) == 500
    broker.retained.admission.change_publish_rate(Rate(1, 60))
    client.publish("first", b"x", 0, True)
    client.publish("last", b"x", 0, True)
    broker.retained.delayed.stop()
    assert len(stored(broker)) == 502


# --- modes of zones


@pytest.mark.parametrize(
    ("mode", "live"),
    [
        (RetainMode.ENABLED, [("t", b"x", 1, True), ("t", b"", 1, True), ("will", b"w", 0, True)]),
        (RetainMode.ENABLED_WITHOUT_RETAINING, [("t", b"x", 1, True), ("t", b"", 1, True), ("will", b"w", 0, False)]),
        (RetainMode.DOWNGRADE, [("t", b"x", 1, False), ("t", b"", 1, False), ("will", b"w", 0, False)]),
        (RetainMode.DROP, []),
    ],
)
@all_qos
def test_modes_of_a_zone(mode: RetainMode, live: list[tuple[str, bytes, int, bool]], qos: int) -> None:
    """Only mode "enabled" changes retained messages. In every mode clients are acknowledged, and get replays."""
    broker = MemoryBroker()
    broker.client("before").publish("t", b"kept", 1, True)
    watcher = broker.client("w", 5)
    watcher.subscribe(p.SubscriptionRequest("#", 2, retain_as_published=True, retain_handling=2))
    broker.limits = Limits(retained_messages_mode=mode)
    client = broker.client("c", 5, will=p.Will("will", b"w", 0, True))
    client.publish("t", b"x", qos, True)
    client.publish("t", b"", qos, True)
    assert len(client.packets()) == (2 if qos else 0)
    if mode is not RetainMode.ENABLED:
        assert retained(broker) == {"t": b"kept"}
    client.drop()
    assert watcher.messages() == [
        (topic, payload, 0 if topic == "will" else qos, retain) for topic, payload, _, retain in live
    ]
    assert broker.counters.messages_dropped_retained == (2 if mode is RetainMode.DROP else 0)


# --- over restarts, in SQLite


@pytest.mark.parametrize(
    "limits",
    [
        RetainerLimits(max_retained_messages=2),
        RetainerLimits(max_retained_bytes=406),
        RetainerLimits(client_quota=Quota("", 2)),
        RetainerLimits(topic_quotas=(("+", Quota("", 0, 406)),)),
        RetainerLimits(policies=Policies([Policy(1, "+", max_retained_messages=2)])),
        RetainerLimits(payers=PayerLimits(False, {}, PayerQuotas(Quota("", 2)))),
        RetainerLimits(payers=PayerLimits(False, {}, PayerQuotas(guests=Quota("", 0, 406)))),
    ],
)
def test_a_full_store_is_full_after_a_restart(tmp_path: Path, limits: RetainerLimits) -> None:
    """Topics can still be updated and cleared, without counting anything at start."""
    broker = RestartableBroker(fresh_file(tmp_path), retainer=limits)
    client = broker.client("c", 5)
    client.publish("a", b"1", 1, True)
    client.publish("b", b"1", 1, True)
    broker = broker.restart()
    client = broker.client("c", 5)
    answers = [answer(client, topic, payload) for topic, payload in [("c", b"1"), ("a", b"2"), ("b", b""), ("c", b"3")]]
    assert [reason >= ReasonCode.UNSPECIFIED_ERROR for reason in answers] == [True, False, False, False]
    broker = broker.stop()
    assert retained(broker) == {"a": b"2", "c": b"3"}


def test_quotas_count_messages_retained_before_they_were_configured(tmp_path: Path) -> None:
    """In bounded statements, after the start."""
    broker = RestartableBroker(fresh_file(tmp_path))
    client = broker.client("c", 5)
    for number in range(3):
        client.publish(f"t/{number}", b"x", 0, True)
    broker.commit()
    broker._options = {"retainer": RetainerLimits(topic_quotas=(("t/#", Quota("", 4)),), client_quota=Quota("", 5))}
    broker = broker.restart()
    client = broker.client("c", 5)
    topics = ["t/3", "t/4", "u", "v"]
    assert [answer(client, topic, b"x") for topic in topics] == [
        *(ReasonCode.NO_MATCHING_SUBSCRIBERS, ReasonCode.QUOTA_EXCEEDED),
        *(ReasonCode.NO_MATCHING_SUBSCRIBERS, ReasonCode.QUOTA_EXCEEDED),
    ]
    assert broker.rows("retained_usage") == 3


def answer(client: Client, topic: str, payload: bytes) -> ReasonCode:
    """Publish with RETAIN 1 and QoS 1. Return the Reason Code."""
    client.publish(topic, payload, 1, True)
    (packet,) = client.got(p.Puback)
    return ReasonCode(packet.reason_code)


def test_properties_and_topic_count_against_the_quotas_in_bytes() -> None:
    """``max_retained_bytes`` counts what is stored; ``max_payload_size`` is about the payload alone."""
    pairs = Properties(user_properties=(("k", "v" * 900),))
    for limits in (
        RetainerLimits(max_retained_bytes=1500, max_payload_size=1),
        RetainerLimits(client_quota=Quota("", 0, 1500), max_payload_size=1),
        RetainerLimits(topic_quotas=(("#", Quota("", 0, 1500)),), max_payload_size=1),
    ):
        client = MemoryBroker(retainer=limits).client("c", 5)
        for topic, properties in (("a", pairs), ("b", pairs), ("t" * 200, NO_PROPERTIES), ("a", NO_PROPERTIES)):
            client.publish(topic, b"x", 1, True, properties)
        client.publish("b", b"x", 1, True, pairs)
        codes = [packet.reason_code for packet in client.got(p.Puback)]
        assert [code == ReasonCode.QUOTA_EXCEEDED for code in codes] == [False, True, True, False, False]


def test_a_store_beyond_its_limits_keeps_its_messages_and_says_so() -> None:
    """As after an upgrade or a change of the configuration: with the figures, once; replacing is possible."""
    filled = MemoryBroker()
    filled.client("p", 5).publish("a/1", b"x" * 500, 1, True)
    filled.client("p", 5).publish("a/2", b"x" * 500, 1, True)
    limits = RetainerLimits(
        max_retained_bytes=1000, topic_quotas=(("a/#", Quota("retainer.topic_quotas.a.", 1)), ("b", Quota("", 1)))
    )
    with logged() as lines:
        broker = MemoryBroker(store=lambda _now: filled.store, retainer=limits)
        broker.settle()
    told = [text for event in lines if "exceed a limit" in (text := formatEvent(event))]
    assert len(told) == 2
    assert "1408 bytes (retainer.max_retained_bytes is 1000)" in told[0]
    assert "'a/#'" in told[1]
    assert "2 messages (retainer.topic_quotas.a.max_retained_messages is 1)" in told[1]
    client = broker.client("c", 5)
    client.publish("a/3", b"x", 1, True)
    client.publish("a/1", b"y" * 500, 1, True)
    assert [packet.reason_code for packet in client.got(p.Puback)] == [ReasonCode.QUOTA_EXCEEDED, 0x10]
    assert set(retained(broker)) == {"a/1", "a/2"}
