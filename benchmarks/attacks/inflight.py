"""Readers of all retained messages with QoS 1 that acknowledge nothing, or read nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from benchmarks.attacks.field import Field
from holdfast.wire import packets as p

_READERS = 10
_AWAY = 1  # seconds that a persistent Session outlives its connection: it ends before the memory is looked at last


def _readers(payload: int, reads: bool, persistent: bool, field: Field) -> Iterator[str]:
    count = field.many(450 if payload > 10_000 else 5000)
    field.retain([f"in/{number}" for number in range(count)], b"x" * payload)
    field.restart()
    expiry, readers = _AWAY if persistent else 0, field.many(_READERS)
    attackers = [field.attacker(f"reader-{number}", reads=reads, expiry=expiry) for number in range(readers)]
    before = field.broker.rss_anon()
    yield ""
    for attacker in attackers:
        attacker.send(p.Subscribe(1, (p.SubscriptionRequest("#", 1),)))
    received = 0
    if reads:
        for attacker in attackers:
            received += attacker.swallow(1.0)
    field.broker.quiet()
    each = (field.broker.rss_anon() - before) / readers
    yield f"{each:.2f} MiB for each reader; {received / readers / 1e6:.1f} MB sent to each"


ATTACKS: dict[str, Callable[[Field], Iterator[str]]] = {
    f"2: {kind} Sessions, {payload // 1000} KB, {'acknowledge' if reads else 'read'} nothing": partial(
        _readers, payload, reads, kind == "persistent"
    )
    for kind in ("clean", "persistent")
    for payload in (2000, 100_000)
    for reads in (True, False)
}
