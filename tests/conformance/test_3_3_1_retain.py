"""One test for each normative statement about the RETAIN flag, with a real client.

The numbers differ between the versions: each test cites both where both have the statement.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.paho import PahoClient

pytestmark = pytest.mark.conformance

Connect = Callable[..., PahoClient]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_retained_message_is_stored_with_its_qos(connect: Connect, house: str, qos: int) -> None:
    """The message and its QoS are there for future subscribers [MQTT311-3.3.1-5], [MQTT5-3.3.1-5].

    Over TCP, which keeps bytes in order and loses none [MQTT311-7.1.1-1], [MQTT5-4.2.0-1].
    """
    connect().publish(f"{house}/t", "kept", qos=qos, retain=True)
    subscriber = connect()
    subscriber.subscribe(f"{house}/#", qos=2)
    assert subscriber.messages(1) == [(f"{house}/t", b"kept", qos, True)]


def test_a_new_subscription_gets_the_last_message_of_each_matching_topic(connect: Connect, house: str) -> None:
    """[MQTT311-3.3.1-6]: it gets the last retained message of each matching Topic Name."""
    publisher = connect()
    for value in ("old", "new"):
        for topic in ("a", "b", "c/d"):
            publisher.publish(f"{house}/{topic}", value, retain=True)
    subscriber = connect()
    subscriber.subscribe(f"{house}/+")
    assert sorted(subscriber.messages(2)) == [(f"{house}/{t}", b"new", 0, True) for t in ("a", "b")]
    assert subscriber.quiet()


def test_a_qos_0_message_replaces_the_retained_one(connect: Connect, house: str) -> None:
    """[MQTT311-3.3.1-7], [MQTT5-3.3.1-5]: a QoS 0 message discards the one before, and is itself stored."""
    publisher = connect()
    publisher.publish(f"{house}/t", "one", qos=2, retain=True)
    publisher.publish(f"{house}/t", "two", qos=0, retain=True)
    publisher.publish(f"{house}/sync", "", qos=1)
    subscriber = connect()
    subscriber.subscribe(f"{house}/t", qos=2)
    assert subscriber.messages(1) == [(f"{house}/t", b"two", 0, True)]


def test_retain_is_1_for_a_new_subscription_and_0_for_an_established_one(connect: Connect, house: str) -> None:
    """[MQTT311-3.3.1-8], [MQTT311-3.3.1-9], [MQTT5-3.3.1-12]: the flag distinguishes replayed from live messages."""
    publisher, subscriber = connect(), connect()
    publisher.publish(f"{house}/t", "1", retain=True)
    subscriber.subscribe(f"{house}/t")
    assert subscriber.messages(1) == [(f"{house}/t", b"1", 0, True)]
    publisher.publish(f"{house}/t", "2", retain=True)
    assert subscriber.messages(1) == [(f"{house}/t", b"2", 0, False)]


def test_an_empty_retained_message_clears_and_is_routed_as_normal(connect: Connect, house: str) -> None:
    """[MQTT311-3.3.1-10], [MQTT5-3.3.1-6]: it is forwarded with RETAIN 0, and future subscribers get nothing."""
    publisher, early, late = connect(), connect(), connect()
    early.subscribe(f"{house}/t")
    publisher.publish(f"{house}/t", "x", retain=True)
    publisher.publish(f"{house}/t", "", retain=True)
    assert early.messages(2) == [(f"{house}/t", b"x", 0, False), (f"{house}/t", b"", 0, False)]
    late.subscribe(f"{house}/t")
    assert late.quiet()


def test_an_empty_retained_message_is_not_stored(connect: Connect, house: str) -> None:
    """[MQTT311-3.3.1-11], [MQTT5-3.3.1-7]: even if nothing was retained before."""
    connect().publish(f"{house}/t", "", retain=True)
    subscriber = connect()
    subscriber.subscribe(f"{house}/#")
    assert subscriber.quiet()


def test_a_message_without_retain_changes_no_retained_message(connect: Connect, house: str) -> None:
    """[MQTT311-3.3.1-12], [MQTT5-3.3.1-8]: it is not stored, and neither removes nor replaces a message."""
    publisher = connect()
    publisher.publish(f"{house}/t", "kept", retain=True)
    publisher.publish(f"{house}/t", "passing", retain=False)
    publisher.publish(f"{house}/t", "", retain=False)
    subscriber = connect()
    subscriber.subscribe(f"{house}/#")
    assert subscriber.messages(1) == [(f"{house}/t", b"kept", 0, True)]
    assert subscriber.quiet()


def test_retain_handling_0_sends_at_every_subscribe(connect: Connect, house: str) -> None:
    """[MQTT5-3.3.1-9] and MQTT 3.1.1 [MQTT311-3.8.4-3]: a repeated SUBSCRIBE sends the retained messages again."""
    connect().publish(f"{house}/t", "x", retain=True)
    subscriber = connect()
    for _ in range(2):
        subscriber.subscribe(f"{house}/t")
        assert subscriber.messages(1) == [(f"{house}/t", b"x", 0, True)]


def test_retain_handling_1_sends_only_for_a_new_subscription(connect: Connect, house: str) -> None:
    """[MQTT5-3.3.1-10]."""
    connect(version=5).publish(f"{house}/t", "x", retain=True)
    subscriber = connect(version=5)
    subscriber.subscribe(f"{house}/t", handling=1)
    assert subscriber.messages(1) == [(f"{house}/t", b"x", 0, True)]
    subscriber.subscribe(f"{house}/t", handling=1)
    assert subscriber.quiet()


def test_retain_handling_2_sends_nothing(connect: Connect, house: str) -> None:
    """[MQTT5-3.3.1-11]."""
    connect(version=5).publish(f"{house}/t", "x", retain=True)
    subscriber = connect(version=5)
    subscriber.subscribe(f"{house}/t", handling=2)
    assert subscriber.quiet()


def test_retain_as_published_keeps_the_flag(connect: Connect, house: str) -> None:
    """[MQTT5-3.3.1-13]: with the option, a live message keeps the RETAIN flag of its PUBLISH."""
    publisher, subscriber = connect(version=5), connect(version=5)
    subscriber.subscribe(f"{house}/t", retainAsPublished=True)
    publisher.publish(f"{house}/t", "1", retain=True)
    publisher.publish(f"{house}/t", "2", retain=False)
    assert subscriber.messages(2) == [(f"{house}/t", b"1", 0, True), (f"{house}/t", b"2", 0, False)]


def test_a_shared_subscription_gets_no_retained_messages(connect: Connect, house: str) -> None:
    """[MQTT5-3.8.4]: a new one gets none."""
    connect(version=5).publish(f"{house}/t", "x", retain=True)
    subscriber = connect(version=5)
    subscriber.subscribe(f"$share/group/{house}/#")
    assert subscriber.quiet()


def test_a_leading_wildcard_does_not_match_dollar_topics(connect: Connect) -> None:
    """[MQTT311-4.7.2-1], [MQTT5-4.7.2-1]: no live and no retained messages match it; they match a filter with $."""
    publisher, subscriber = connect(), connect()
    publisher.publish("$holdfast-test/dollar", "x", retain=True)
    subscriber.subscribe("+/dollar")
    assert subscriber.quiet()
    subscriber.subscribe("$holdfast-test/#")
    assert subscriber.messages(1) == [("$holdfast-test/dollar", b"x", 0, True)]
    publisher.publish("$holdfast-test/dollar", "", retain=True)


def test_retained_messages_outlive_their_publisher(connect: Connect, house: str) -> None:
    """Retained messages are no part of the Session [MQTT311-3.1.2-7], [MQTT5-4.1]."""
    publisher = connect()
    publisher.publish(f"{house}/t", "x", retain=True)
    publisher.close()
    subscriber = connect()
    subscriber.subscribe(f"{house}/t")
    assert subscriber.messages(1) == [(f"{house}/t", b"x", 0, True)]
