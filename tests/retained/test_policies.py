"""Policies of Topic Filters, alone and through the broker."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.topics import matches
from holdfast.retained.policies import Policies, Policy
from holdfast.wire import NO_PROPERTIES, Properties
from holdfast.wire import packets as p
from tests.doubles import MemoryBroker

LEVELS = st.lists(st.sampled_from("ab"), min_size=1, max_size=3).map("/".join)
FILTERS = st.builds(
    lambda levels, multi: "/".join([*levels, "#"] if multi else levels),
    st.lists(st.sampled_from("ab+"), min_size=1, max_size=3),
    st.booleans(),
)


def broker_with(*policies: Policy) -> MemoryBroker:
    """Return a broker whose router hears of changed policies, as the real one does."""
    broker = MemoryBroker()
    broker.retained.change_policies(Policies(policies))
    return broker


def retained(broker: MemoryBroker) -> dict[str, bytes]:
    """Return the messages that a new subscriber gets."""
    client = broker.client("look", 5)
    found = {m.topic: m.payload for m in client.subscribe("#") if isinstance(m, p.Publish)}
    client.send(p.Disconnect())
    return found


@given(st.lists(FILTERS, max_size=6), LEVELS)
def test_the_first_policy_that_matches_applies(filters: list[str], topic: str) -> None:
    """In the order of the file, whatever the filters are; a second look-up has the same answer."""
    policies = Policies([Policy(number, topic_filter) for number, topic_filter in enumerate(filters, 1)])
    expected = next((number for number, each in enumerate(filters, 1) if matches(each, topic)), None)
    for _ in range(2):
        found = policies.of(topic)
        assert (None if found is None else found.number) == expected


def test_a_policy_replaces_expiry_and_size_for_its_topics_only() -> None:
    """The general options hold for all other topics, and for what the policy does not set."""
    broker = broker_with(
        Policy(1, "short/#", msg_expiry_interval=5, max_payload_size=3),
        Policy(2, "capped/#", msg_expiry_interval_override=5),
    )
    client = broker.client("c", 5)
    client.publish("short/a", b"abc", 1, True)
    client.publish("short/own", b"abc", 1, True, Properties(message_expiry_interval=100))
    client.publish("short/long", b"abcd", 1, True)
    client.publish("capped/a", b"abcd", 1, True, Properties(message_expiry_interval=100))
    client.publish("capped/never", b"abcd", 1, True)
    client.publish("other", b"abcd", 1, True)
    refused = [packet for packet in client.packets() if isinstance(packet, p.Puback) and packet.reason_code >= 0x80]
    assert len(refused) == 1
    assert "retainer.policies, number 1, max_payload_size is 3" in str(refused[0].properties.reason_string)
    assert set(retained(broker)) == {"short/a", "short/own", "capped/a", "capped/never", "other"}
    broker.advance(6)
    assert set(retained(broker)) == {"short/own", "capped/never", "other"}


def test_force_retain_keeps_the_last_value_without_retain_1() -> None:
    """Present subscribers get RETAIN 0 as before, and an empty message clears the topic."""
    broker = broker_with(Policy(1, "cache/#", force_retain=True))
    watcher = broker.client("w", 5)
    watcher.subscribe(p.SubscriptionRequest("cache/#", 0, retain_as_published=True))
    client = broker.client("c", 5)
    for number in range(3):
        client.publish("cache/a", b"%d" % number, qos=number)
    client.publish("other", b"x")
    assert watcher.messages() == [("cache/a", b"%d" % number, 0, False) for number in range(3)]
    assert retained(broker) == {"cache/a": b"2"}
    client.publish("cache/a", b"")
    assert retained(broker) == {}


def test_a_refusal_of_a_forced_message_is_not_told_to_its_publisher() -> None:
    """It did not ask to retain it: the message is delivered, and counted as not stored."""
    broker = broker_with(Policy(1, "cache/#", force_retain=True, max_payload_size=1))
    watcher = broker.client("w", 4)
    watcher.subscribe("cache/a")
    client = broker.client("c", 5)
    client.publish("cache/a", b"long", qos=1)
    (answer,) = client.got(p.Puback)
    assert answer.reason_code < 0x80
    assert watcher.messages() == [("cache/a", b"long", 0, False)]
    assert broker.counters.retained_not_stored == 1
    assert retained(broker) == {}


def test_force_retain_begins_with_a_reload_also_for_topics_in_runs() -> None:
    """A topic that came in runs before is retained from the change on, and no longer after the policy is gone."""
    broker = broker_with()
    client = broker.client("c", 5)
    for expected, policies in (({}, ()), ({"a": b"3"}, (Policy(1, "a", force_retain=True),)), ({"a": b"3"}, ())):
        broker.retained.change_policies(Policies(policies))
        payload = b"3" if policies else b"1"
        client.send(*[p.Publish("a", payload, 0, False, False, 0, NO_PROPERTIES) for _ in range(3)])
        assert retained(broker) == expected


def test_topics_with_a_policy_are_in_no_retained_run() -> None:
    """Others still are."""
    broker = broker_with(Policy(1, "a/#"))
    assert [broker.retained.admission.is_plain(topic) for topic in ("a/b", "b")] == [False, True]
