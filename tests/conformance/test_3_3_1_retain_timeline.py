"""The timeline of a house's garage and room: the messages and RETAIN flags of each subscriber, in both versions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.paho import PahoClient, Seen

pytestmark = pytest.mark.conformance

Connect = Callable[..., PahoClient]


def play(connect: Connect, house: str, retain_later: bool) -> dict[str, list[Seen]]:
    """Play the timeline; return the messages of each subscriber, in order."""
    garage, room = f"{house}/garage", f"{house}/room"
    s1, s2, s3, s4, publisher = (connect() for _ in range(5))
    seen: dict[str, list[Seen]] = {}
    s1.subscribe(garage)  # t = 0
    publisher.publish(garage, "temp", retain=True)  # t = 1
    publisher.publish(garage, "on", retain=True)  # t = 3
    s2.subscribe(garage)  # t = 5
    seen["S2 at 5"] = s2.messages(1)
    for topic in (garage, room):  # t = 6
        publisher.publish(topic, "off", retain=retain_later)
    seen["S2 at 6"] = s2.messages(1)
    s3.subscribe(garage, room)  # t = 8
    seen["S3 at 8"] = sorted(s3.messages(2 if retain_later else 1))
    for topic in (garage, room):  # t = 9
        publisher.publish(topic, "", retain=retain_later)
    seen["S2 at 9"] = s2.messages(1)
    seen["S3 at 9"] = sorted(s3.messages(2))
    s4.subscribe(garage, room)  # t = 10
    seen["S4 at 10"] = [] if retain_later else s4.messages(1)
    seen["S1"] = s1.messages(4)
    assert all(client.quiet() for client in (s1, s2, s3, s4)), "nobody gets more than this"
    return seen


def test_as_written_only_the_first_two_publishes_are_retained(connect: Connect, house: str) -> None:
    """The publishes at 6 and 9 leave the retained 'on' alone [MQTT311-3.3.1-12], [MQTT5-3.3.1-8]."""
    garage, room = f"{house}/garage", f"{house}/room"
    assert play(connect, house, retain_later=False) == {
        "S1": [(garage, payload, 0, False) for payload in (b"temp", b"on", b"off", b"")],
        "S2 at 5": [(garage, b"on", 0, True)],
        "S2 at 6": [(garage, b"off", 0, False)],
        "S2 at 9": [(garage, b"", 0, False)],
        "S3 at 8": [(garage, b"on", 0, True)],
        "S3 at 9": [(garage, b"", 0, False), (room, b"", 0, False)],
        "S4 at 10": [(garage, b"on", 0, True)],
    }


def test_with_every_publish_retained(connect: Connect, house: str) -> None:
    """S3 gets 'off' twice, and S4 nothing, since the empty publishes cleared both topics."""
    garage, room = f"{house}/garage", f"{house}/room"
    assert play(connect, house, retain_later=True) == {
        "S1": [(garage, payload, 0, False) for payload in (b"temp", b"on", b"off", b"")],
        "S2 at 5": [(garage, b"on", 0, True)],
        "S2 at 6": [(garage, b"off", 0, False)],
        "S2 at 9": [(garage, b"", 0, False)],
        "S3 at 8": [(garage, b"off", 0, True), (room, b"off", 0, True)],
        "S3 at 9": [(garage, b"", 0, False), (room, b"", 0, False)],
        "S4 at 10": [],
    }
