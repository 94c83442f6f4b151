"""SUBSCRIBE packets that cost much: many filters, resting replays, filters that overlap."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product

from benchmarks.attacker import Attacker, told
from benchmarks.attacks.field import Field
from holdfast.wire import encode
from holdfast.wire import packets as p

_MANY = 120_000
_RESTING = 8000
_PROBES = 300  # retained messages of another client beside the resting replays


def _large(field: Field) -> Iterator[str]:
    filters = tuple(p.SubscriptionRequest(f"{number:05x}") for number in range(field.many(_MANY)))
    packet = encode(p.Subscribe(1, filters), 5)
    attacker = field.attacker()
    yield ""
    took = attacker.flood(packet)
    yield f"{took}; {told(attacker.next_packet(60))}"


def _resting(field: Field) -> Iterator[str]:
    count = field.many(_RESTING)
    field.retain([f"rest/{number}/a" for number in range(count)], b"x" * 100)
    field.restart()
    publisher = field.attacker()
    attacker = field.attacker(receive_maximum=1)
    yield ""
    idle = _cost(field, publisher)
    refused = False
    for start in range(0, count, 100):
        requests = tuple(p.SubscriptionRequest(f"rest/{number}/+", 1) for number in range(start, start + 100))
        attacker.send(p.Subscribe(1, requests))
        while not isinstance(packet := attacker.next_packet(30), p.Suback):
            if packet is None:
                break
        refused |= packet is None or max(packet.reason_codes) >= 0x80
    field.broker.quiet()
    resting = _cost(field, publisher)
    answer = "some refused" if refused else "all granted"
    yield f"{answer}; another client's retained PUBLISH costs {resting:.2f} ms, without the replays {idle:.2f} ms"


def _cost(field: Field, publisher: Attacker) -> float:
    """The broker's processor time for one retained message of another client, in milliseconds."""
    before = field.broker.cpu_seconds()
    for number in range(_PROBES):
        publisher.publish(p.Publish(f"other/{number}", b"x" * 100, 1, True, packet_identifier=1))
    return 1000 * (field.broker.cpu_seconds() - before) / _PROBES


def _overlapping(field: Field) -> Iterator[str]:
    levels = 12
    topic = "/".join("abcdefghijkl"[:levels])
    for number in range(field.many(100)):
        field.retain([f"{topic}/{number}"], b"x" * 1000)
    field.restart()
    choices = islice(product(*[(level, "+") for level in topic.split("/")]), 923)
    packet = encode(p.Subscribe(1, tuple(p.SubscriptionRequest("/".join(one) + "/#") for one in choices)), 5)
    attacker = field.attacker()
    yield ""
    attacker.flood(packet)
    received = attacker.swallow(3.0)
    yield f"{len(packet):,} B in, {received / 1e6:.1f} MB out"


ATTACKS = {
    "4: one SUBSCRIBE with 120,000 filters": _large,
    "4: 8000 resting replays": _resting,
    "4: overlapping filters in 24 KB": _overlapping,
}
