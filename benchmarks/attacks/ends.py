"""Ends of large things: a member of many shared groups, a large Session, many Wills, all subscriptions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

from benchmarks.attacker import Attacker, told
from benchmarks.attacks.field import Field
from holdfast.wire import Properties, encode
from holdfast.wire import packets as p

_DAY = 86_400
_SUBSCRIPTIONS = 10_000
_QUEUED = 20_000
_GROUPS = 1000
_CLIENTS = 10_000


def _member(field: Field) -> Iterator[str]:
    """Two members of each group share the messages. One of them leaves, and the other one gets them all."""
    groups = [f"$share/g{number}/s" for number in range(field.many(_GROUPS))]
    leaving, staying = (field.attacker(f"member-{number}", receive_maximum=1) for number in range(2))
    leaving.subscribe(groups)
    staying.subscribe(groups)
    field.attacker().publish(p.Publish("s", b"x" * 100, 1, packet_identifier=1), 2 * 10_000 // _GROUPS, 1)
    yield ""
    leaving.vanish()
    field.broker.quiet()
    yield ""


def _large_session(field: Field) -> Attacker:
    """Make a Session with many Subscriptions and queued messages, and return a connection to it that reads nothing."""
    first = field.attacker("large", expiry=_DAY)
    first.subscribe([f"large/{number}/#" for number in range(field.many(_SUBSCRIPTIONS))])
    first.send(p.Disconnect(0))
    first.vanish()
    packet = p.Publish("large/0/x", b"x" * 100, 1, packet_identifier=1)
    field.attacker().publish(packet, field.many(_QUEUED))
    return field.attacker("large", clean=False, expiry=_DAY, receive_maximum=10)


def _take_over(field: Field) -> Iterator[str]:
    _large_session(field)
    yield ""
    for _ in range(field.many(20)):
        attacker = field.attacker("large", clean=False, expiry=_DAY, receive_maximum=10)
    yield f"Session Present {int(attacker.present)}"


def _clean_start(field: Field) -> Iterator[str]:
    _large_session(field)
    yield ""
    attacker = field.attacker("large", clean=True, expiry=_DAY)
    field.broker.quiet()
    yield f"Session Present {int(attacker.present)}"


def _expiry(field: Field) -> Iterator[str]:
    attacker = _large_session(field)
    yield ""
    attacker.send(p.Disconnect(0, Properties(session_expiry_interval=1)))
    time.sleep(1.5)
    field.broker.quiet()
    yield ""


def _unsubscribe(field: Field) -> Iterator[str]:
    attacker = _large_session(field)
    filters = tuple(f"large/{number}/#" for number in range(field.many(_SUBSCRIPTIONS)))
    yield ""
    took = attacker.flood(encode(p.Unsubscribe(1, filters), 5))
    while not isinstance(packet := attacker.next_packet(30), p.Unsuback):
        if packet is None:
            break
    yield f"{took}; {told(packet)}"


def _wills(retain: bool, field: Field) -> Iterator[str]:
    """All Wills go to one subscriber."""
    watcher = field.attacker()
    watcher.subscribe(["will/#"], 0)
    count = field.many(_CLIENTS)
    clients = []
    for number in range(count):
        will = p.Will(f"will/{number}", b"x" * 100, 1, retain)
        clients.append(field.attacker(f"will-{number}", will=will))
    yield ""
    for client in clients:
        client.vanish()
    received = watcher.swallow(3.0)
    yield f"{count:,} clients; {received / 1e6:.2f} MB to the subscriber"


ATTACKS: dict[str, Callable[[Field], Iterator[str]]] = {
    "5: a member of 1000 shared groups leaves": _member,
    "5: take-over of a large Session": _take_over,
    "5: Clean Start of a large Session": _clean_start,
    "5: a large Session expires": _expiry,
    "5: UNSUBSCRIBE of 10,000 filters": _unsubscribe,
    "5: Wills of many clients at once": partial(_wills, False),
    "5: retained Wills of many clients at once": partial(_wills, True),
}
