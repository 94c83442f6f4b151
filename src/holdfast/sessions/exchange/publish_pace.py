"""The rates of the PUBLISH packets of one Client (``limits.messages_rate`` and ``limits.bytes_rate``).

How it works. Each PUBLISH is taken whole, and takes its tokens, perhaps more than there are. Without tokens left, the
connection is held: the broker does not read it, and acts on no later packet, until a tenth of the rate's amount has
come together again. A Client that goes on sending fills the network's buffers, then it cannot send. One that sends
DISCONNECT and leaves is not noticed before all that it has sent. So nothing is dropped, and nobody else waits.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IReactorTime

from holdfast.scheduling.rates import Rate, TokenBucket
from holdfast.sessions.connection.client_link import IClientLink
from holdfast.sessions.counters import Counters
from holdfast.sessions.limits import Limits
from holdfast.wire import NO_PROPERTIES
from holdfast.wire.packets import Publish
from holdfast.wire.property_codec import encode_properties


class PublishPace:
    """Holds the connection of a Client that publishes faster than its rates allow."""

    def __init__(self, link: IClientLink, limits: Limits, clock: IReactorTime, counters: Counters) -> None:
        self._link = link
        self._clock = clock
        self._counters = counters
        now = clock.seconds()
        self._messages = _bucket(limits.messages_rate, now)
        self._bytes = _bucket(limits.bytes_rate, now)
        self._delayed: Any = None

    def took(self, packet: Publish) -> None:
        """Count a PUBLISH, and hold the connection if it came too early."""
        now = self._clock.seconds()
        wait = 0.0
        for bucket, tokens in ((self._messages, 1), (self._bytes, 0 if self._bytes is None else _size_of(packet))):
            if bucket is not None:
                bucket.take(tokens, now)
                if bucket.wait(1, now):
                    wait = max(wait, bucket.wait(bucket.rate.portion, now))
        if wait and self._delayed is None:
            self._counters.publishers_delayed += 1
            self._link.hold(reads=False)
            self._delayed = self._clock.callLater(wait, self._go_on)

    def close(self) -> None:
        """Let go of the connection, which is over."""
        if self._delayed is not None:
            self._delayed.cancel()
            self._delayed = None

    def _go_on(self) -> None:
        self._delayed = None
        with self._link.guard:
            self._link.release()


def pace_of(link: IClientLink, clock: IReactorTime, counters: Counters) -> PublishPace | None:
    """Return the pace of a connection, None if its zone has no rates."""
    limits = link.limits
    if limits.messages_rate is None and limits.bytes_rate is None:
        return None
    return PublishPace(link, limits, clock, counters)


def _bucket(rate: Rate | None, now: float) -> TokenBucket | None:
    return None if rate is None else TokenBucket(rate, now)


def _size_of(packet: Publish) -> int:
    """Return the bytes of the topic, the properties and the payload."""
    size = len(packet.topic.encode()) + len(packet.payload)
    return size if packet.properties is NO_PROPERTIES else size + len(encode_properties(packet.properties))
