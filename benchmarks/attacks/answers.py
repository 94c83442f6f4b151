"""Packets that the broker answers, from a client that never reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from benchmarks.attacker import STALL
from benchmarks.attacks.field import Field
from holdfast.wire import encode
from holdfast.wire import packets as p

_BYTES = 5_000_000
_PATIENCE = 40.0  # the broker closes connections that take nothing for 30 s

_FLOODS: dict[str, p.Packet] = {
    "PUBREC of unknown identifiers": p.Pubrec(7),
    "PINGREQ": p.Pingreq(),
    "SUBSCRIBE": p.Subscribe(1, (p.SubscriptionRequest("t"),)),
    "UNSUBSCRIBE": p.Unsubscribe(1, ("t",)),
    "QoS 1 PUBLISH": p.Publish("t", b"", 1, packet_identifier=1),
}


def _flood(packet: p.Packet, field: Field) -> Iterator[str]:
    data = encode(packet, 5)
    data *= field.many(_BYTES) // len(data)
    attacker = field.attacker(reads=False)
    yield ""
    yield attacker.flood(data, _PATIENCE if field.size == 1 else STALL)


ATTACKS: dict[str, Callable[[Field], Iterator[str]]] = {
    f"1: {name}, answers unread": partial(_flood, packet) for name, packet in _FLOODS.items()
}
