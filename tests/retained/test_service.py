"""The retainer's limits, expiry and modes, through the broker."""

from __future__ import annotations

import pytest
from attrs import evolve
from twisted.internet.defer import Deferred, succeed

from holdfast.core.tickets import FailureKind, StorageFailure
from holdfast.retained.limits import OnLimit, Quota, RetainerLimits
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.sessions.operator_publisher import OperatorPublisher
from holdfast.wire import Properties, ReasonCode
from holdfast.wire import packets as p
from tests.doubles import MemoryBroker
from tests.postgres import drop, fresh_database, synchronous, wait_for_end
from tests.retained.store.delayed_store import DelayedStore
from tests.storage.doubles import result_of


def topics(broker: MemoryBroker) -> list[str]:
    """Return the topics that a new subscriber gets."""
    client = broker.client("look", 5)
    found = [m.topic for m in client.subscribe("#") if isinstance(m, p.Publish)]
    client.send(p.Disconnect())
    return found


@pytest.mark.parametrize(
    ("limits", "topic", "payload"),
    [
        (RetainerLimits(max_payload_size=10), "t", b"x" * 11),
        (RetainerLimits(max_topic_length=10), "t" * 11, b"x"),
        (RetainerLimits(max_retained_messages=1), "second", b"x"),
    ],
)
def test_a_refused_message_is_answered(limits: RetainerLimits, topic: str, payload: bytes) -> None:
    """MQTT 5 with QoS 1 or 2: 0x97 and not routed; otherwise delivered live only. Always counted."""
    broker = MemoryBroker(retainer=limits)
    broker.client("first").publish("first", b"1", retain=True)
    watcher = broker.client("w", 5)
    watcher.subscribe("+", qos=1)
    watcher.messages()
    new = broker.client("new", 5)
    new.publish(topic, payload, qos=1, retain=True)
    new.publish(topic, payload, qos=2, retain=True)
    answers = [packet for packet in new.packets() if isinstance(packet, p.Puback | p.Pubrec)]
    assert [answer.reason_code for answer in answers] == [ReasonCode.QUOTA_EXCEEDED] * 2
    assert all(answer.properties.reason_string for answer in answers)
    assert watcher.messages() == []
    old = broker.client("old", 4)
    old.publish(topic, payload, qos=1, retain=True)
    old.publish(topic, payload, qos=2, retain=True)
    assert old.packets() == [p.Puback(1), p.Pubrec(2)]
    new.publish(topic, payload, retain=True)
    assert len(watcher.messages()) == 3
    assert topics(broker) == ["first"]
    assert (broker.counters.retained_refused, broker.counters.retained_not_stored) == (2, 3)


@pytest.mark.parametrize(("version", "code"), [(4, 0x80), (5, 0x83)])
def test_while_the_database_is_unavailable_a_replay_waits_or_is_refused(version: int, code: int) -> None:
    """By ``retainer.when_unavailable``. A subscription that needs no replay is granted in any case."""
    for refuse in (False, True):
        broker = MemoryBroker(store=DelayedStore, retainer=RetainerLimits(refuse_unavailable=refuse))
        broker.store.available = False
        client = broker.client("c", version)
        client.send(p.Subscribe(1, (p.SubscriptionRequest("a", 1), p.SubscriptionRequest("$share/g/b", 1))))
        (suback,) = client.got(p.Suback)
        assert suback.reason_codes == (code if refuse else 1, 1)
        broker.store.available = True
        client.send(p.Subscribe(2, (p.SubscriptionRequest("a", 1),)))
        (suback,) = client.got(p.Suback)
        assert suback.reason_codes == (1,)


def test_a_full_store_still_takes_updates_and_clears() -> None:
    """Retained topics may be replaced and cleared, which makes room."""
    broker = MemoryBroker(retainer=RetainerLimits(max_retained_messages=1))
    client = broker.client("c", 5)
    client.publish("a", b"1", retain=True)
    client.publish("a", b"2", retain=True)
    client.publish("a", b"", retain=True)
    client.publish("b", b"1", qos=1, retain=True)
    assert topics(broker) == ["b"]
    assert broker.retained.totals.refreshed().count == 1


def test_a_disabled_retainer_routes_and_acknowledges() -> None:
    """retainer.enable = false."""
    broker = MemoryBroker(retainer=RetainerLimits(enable=False))
    watcher = broker.client("w")
    watcher.subscribe("t")
    client = broker.client("c")
    client.publish("t", b"x", qos=1, retain=True)
    assert client.packets() == [p.Puback(1)]
    assert watcher.messages() == [("t", b"x", 0, False)]
    assert topics(broker) == []


def test_a_disabled_retainer_replays_nothing_that_is_stored() -> None:
    """What was stored before is there again when the retainer is enabled."""
    before = MemoryBroker()
    before.client("c").publish("t", b"x", qos=1, retain=True)
    before.settle()
    assert topics(before) == ["t"]
    for enabled, seen in ((False, []), (True, ["t"])):
        assert topics(MemoryBroker(lambda _now: before.store, retainer=RetainerLimits(enable=enabled))) == seen


def test_clears_can_be_kept_from_subscribers() -> None:
    """retainer.stop_publish_clear_msg."""
    broker = MemoryBroker(stop_publish_clear_msg=True)
    watcher = broker.client("w")
    watcher.subscribe("t")
    client = broker.client("c")
    client.publish("t", b"x", retain=True)
    client.publish("t", b"", retain=True)
    assert watcher.messages() == [("t", b"x", 0, False)]
    assert topics(broker) == []


def test_messages_expire_by_default_or_by_their_own_interval() -> None:
    """retainer.msg_expiry_interval applies if the message has none. The sweep removes expired messages."""
    broker = MemoryBroker(retainer=RetainerLimits(msg_expiry_interval=30, msg_clear_interval=10))
    client = broker.client("c", 5)
    client.publish("short", b"x", 1, True, Properties(message_expiry_interval=5))
    client.publish("default", b"x", 1, True)
    client.publish("long", b"x", 1, True, Properties(message_expiry_interval=1000))
    broker.advance(6)
    assert topics(broker) == ["default", "long"]
    broker.advance(10)
    assert broker.retained.totals.refreshed().count == 2
    for _ in range(3):
        broker.advance(10)
    assert broker.retained.totals.refreshed().count == 1
    assert topics(broker) == ["long"]


def test_a_sweep_goes_on_in_slices_until_nothing_is_left() -> None:
    """A second after each slice of retainer.msg_clear_limit, not an interval later. Then the interval again."""
    limits = RetainerLimits(msg_expiry_interval=30, msg_clear_interval=100, msg_clear_limit=10)
    broker = MemoryBroker(retainer=limits)
    client = broker.client("c", 5)
    for number in range(35):
        client.publish(f"t/{number}", b"x", 1, True)
    broker.advance(99)
    left = [broker.store.statistics().count]
    for _ in range(6):
        broker.advance(1)
        left.append(broker.store.statistics().count)
    assert left == [35, 25, 15, 5, 0, 0, 0]
    client.publish("later", b"x", 1, True)
    broker.advance(97)
    assert broker.store.statistics().count == 1
    broker.advance(2)
    assert broker.store.statistics().count == 0


def test_old_tombstones_are_purged_in_slices_too() -> None:
    limits = RetainerLimits(msg_clear_interval=100, msg_clear_limit=10, tombstone_ttl=50)
    broker = MemoryBroker(retainer=limits)
    client = broker.client("c", 5)
    for number in range(15):
        client.publish(f"t/{number}", b"x", 1, True)
        client.publish(f"t/{number}", b"", 1, True)
    broker.advance(100)
    assert len(broker.store._changes) == 5
    broker.advance(1)
    assert len(broker.store._changes) == 0


def test_a_broker_that_stops_begins_no_further_slice() -> None:
    limits = RetainerLimits(msg_expiry_interval=30, msg_clear_interval=100, msg_clear_limit=10)
    broker = MemoryBroker(retainer=limits)
    client = broker.client("c", 5)
    for number in range(35):
        client.publish(f"t/{number}", b"x", 1, True)
    broker.advance(100)
    broker.retained.stopService()
    broker.advance(300)
    assert broker.store.statistics().count == 25


def test_of_several_nodes_one_sweeps_at_a_time() -> None:
    """The one that leads goes on until nothing is left, then gives the sweep back."""
    limits = RetainerLimits(msg_expiry_interval=30, msg_clear_interval=100, msg_clear_limit=10)
    broker = MemoryBroker(retainer=limits)
    taken: list[str] = []
    mine = [False, True, True]
    broker.store.take_sweep = lambda: succeed(mine.pop(0))

    def give_back() -> Deferred[bool]:
        taken.append("back")
        return succeed(True)

    broker.store.give_sweep_back = give_back
    client = broker.client("c", 5)
    for number in range(15):
        client.publish(f"t/{number}", b"x", 1, True)
    broker.advance(100)
    assert (broker.store.statistics().count, taken) == (15, [])
    broker.advance(100)
    assert (broker.store.statistics().count, taken) == (5, [])
    broker.advance(1)
    assert (broker.store.statistics().count, taken) == (0, ["back"])


def test_nodes_on_one_postgres_take_the_sweep_from_each_other_only_when_it_is_given_back() -> None:
    """Or when the node that had it is gone."""
    url = fresh_database()
    try:
        stores = []
        for number in (1, 2):
            durable = synchronous(url, number)[0]
            stores.append((SQLRetainedStore(durable), durable))
            durable.open()
        (one, first), (two, second) = stores
        take = [result_of(store.take_sweep()) for store in (one, one, two)]
        assert take == [True, True, False]
        result_of(one.give_sweep_back())
        assert [result_of(store.take_sweep()) for store in (two, one)] == [True, False]
        result_of(second.close())
        wait_for_end(url, 2)
        assert result_of(one.take_sweep())
        result_of(first.close())
    finally:
        drop(url)


def test_puback_waits_for_the_commit_and_keeps_its_order() -> None:
    """Later acknowledgements wait behind it. Deliveries of QoS 0 and 1 do not wait."""
    broker = MemoryBroker(store=DelayedStore)
    watcher = broker.client("w")
    watcher.subscribe("#", qos=1)
    client = broker.client("c")
    client.publish("a", b"1", qos=1, retain=True)
    client.publish("b", b"2", qos=1)
    client.publish("c", b"3", qos=2, retain=True)
    assert client.packets() == []
    assert len(watcher.got(p.Publish)) == 3
    broker.store.commit()
    broker.settle()
    assert client.packets() == [p.Puback(1), p.Puback(2), p.Pubrec(3)]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (FailureKind.FULL, ReasonCode.QUOTA_EXCEEDED),
        (FailureKind.UNAVAILABLE, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR),
    ],
)
def test_a_failed_commit_is_answered(kind: FailureKind, reason: ReasonCode) -> None:
    """MQTT 5: 0x97 or 0x83 in PUBACK and PUBREC; MQTT 3: a close without acknowledgement. It is counted."""
    broker = MemoryBroker(store=DelayedStore)
    new, old = broker.client("n", 5, properties=Properties(request_problem_information=0)), broker.client("o", 4)
    new.publish("a", b"1", qos=1, retain=True)
    new.publish("b", b"1", qos=2, retain=True)
    old.publish("c", b"1", qos=1, retain=True)
    broker.store.commit(StorageFailure(kind, "test"))
    broker.settle()
    assert new.packets() == [p.Puback(1, reason), p.Pubrec(2, reason)]
    assert not new.network.closed
    assert old.packets() == []
    assert old.network.closed
    assert broker.counters.commits_failed == 3


def test_a_store_that_is_behind_stops_publishers() -> None:
    """Publishers are not read while too much is pending, and continue in order."""
    broker = MemoryBroker(store=DelayedStore)
    client = broker.client("c")
    broker.pressure.change(True)
    client.publish("a", b"1", qos=1, retain=True)
    client.publish("b", b"2", qos=1, retain=True)
    assert broker.counters.messages_received == 1
    broker.pressure.change(False)
    broker.settle()
    assert broker.counters.messages_received == 2


def test_a_retained_will_over_the_limit_is_delivered_live() -> None:
    """Wills have the same limits, and are not lost."""
    broker = MemoryBroker(retainer=RetainerLimits(max_payload_size=3))
    watcher = broker.client("w")
    watcher.subscribe("gone")
    broker.client("c", 5, will=p.Will("gone", b"too long", 0, True)).drop()
    assert watcher.messages() == [("gone", b"too long", 0, False)]
    assert topics(broker) == []
    assert broker.counters.retained_not_stored == 1


# --- other limits while the broker runs


def test_other_limits_hold_for_the_next_message() -> None:
    """Sizes, the number of messages, whether messages are stored at all, and their treatment."""
    broker = MemoryBroker()
    client = broker.client("c", 5)
    published = 0

    def reason(topic: str, payload: bytes = b"x") -> int:
        nonlocal published
        published += 1
        client.publish(topic, payload, 1, True)
        broker.settle()
        return client.got(p.Puback)[-1].reason_code & 0x80

    client.publish("old", b"old", 1, True)
    for changed, topic, payload in [
        (RetainerLimits(max_payload_size=3), "t", b"long"),
        (RetainerLimits(max_topic_length=3), "long", b"x"),
        (RetainerLimits(max_retained_messages=1), "t", b"x"),
        (RetainerLimits(max_retained_bytes=204), "t", b"x"),
        (RetainerLimits(client_quota=Quota("c.", 1)), "t", b"x"),
        (RetainerLimits(topic_quotas=(("#", Quota("q.", 1)),)), "t", b"x"),
    ]:
        broker.retained.change_limits(changed, False)
        assert (reason(topic, payload), topics(broker)) == (0x80, ["old"])
        assert broker.retained.retains_together is (not changed.has_quotas)
        broker.retained.change_limits(evolve(changed, on_limit=OnLimit.DROP_OLD), False)
        assert (reason(topic, payload), topics(broker)) == (0, ["old"])
        broker.retained.change_limits(RetainerLimits(), False)
        assert (reason(topic, payload), topics(broker)) == (0, sorted(["old", topic]))
        client.publish(topic, b"", 1, True)
        client.got(p.Puback)
    broker.retained.change_limits(RetainerLimits(enable=False), False)
    assert (reason("t"), topics(broker)) == (0, [])
    broker.retained.change_limits(RetainerLimits(), False)
    assert topics(broker) == ["old"]


def test_another_quota_counts_what_is_stored_and_what_waits_for_its_commit() -> None:
    """Raised and lowered while publishers wait, too."""
    broker = MemoryBroker(store=DelayedStore, retainer=RetainerLimits(max_retained_messages=2))
    client = broker.client("c", 5)
    for number in range(3):
        client.publish(f"{number}", b"x", 1, True)
    broker.retained.change_limits(RetainerLimits(max_retained_messages=3), False)
    for number in range(3, 5):
        client.publish(f"{number}", b"x", 1, True)
    for _ in range(6):
        broker.settle()
        broker.store.commit()
    assert len(topics(broker)) == 3
    answers = [packet.reason_code & 0x80 for packet in client.got(p.Puback)]
    assert answers == [0, 0, 0, 0x80, 0x80]


def test_other_times_of_expiry_hold_for_stored_messages_too() -> None:
    """An override shortens their lifetime, as at a start. The sweep has its new interval at once."""
    broker = MemoryBroker(retainer=RetainerLimits(msg_clear_interval=3600))
    broker.retained.announce_expiry(OperatorPublisher(broker.router, broker.clock), False)
    client, watcher = broker.client("c", 5), broker.client("w", 5)
    client.publish("stored", b"x", 1, True)
    watcher.subscribe("#")
    watcher.messages()
    broker.retained.change_limits(
        RetainerLimits(msg_clear_interval=10, msg_expiry_interval_override=50, allow_never_expire=False), True
    )
    broker.settle()
    broker.retained.change_limits(
        RetainerLimits(
            msg_clear_interval=10, msg_expiry_interval_override=50, allow_never_expire=False, msg_expiry_interval=20
        ),
        True,
    )
    client.publish("new", b"x", 1, True)
    assert [message[0] for message in watcher.messages()] == ["new"]
    for _ in range(4):
        broker.advance(10)
    assert topics(broker) == ["stored"]
    for _ in range(3):
        broker.advance(10)
    assert topics(broker) == []
    assert sorted(message[:2] for message in watcher.messages()) == [("new", b""), ("stored", b"")]
