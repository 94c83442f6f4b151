"""The load: publishing with a window of PUBACKs or of deliveries.

`python -m benchmarks.loadgen selfcheck` proves its speed.

The generator must never limit a figure. It counts bytes and handles many messages at a time. If it lags, it finds more
messages in the socket at its next turn, and spends less time on each.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.brokers import Broker, Site
from benchmarks.connection import Connection, Loop
from benchmarks.makes import start
from benchmarks.publisher import Publisher
from benchmarks.subscriber import ByteCounter, PublishStream
from benchmarks.wire import Wire

STALL_SECONDS = 8.0  # after so long without a delivery, the missing messages are lost


@dataclass(frozen=True)
class Flow:
    """The result of a run: of `expected` deliveries, `delivered` arrived in `seconds`."""

    seconds: float
    expected: int
    delivered: int

    @property
    def rate(self) -> float:
        """Deliveries per second."""
        return self.delivered / self.seconds

    @property
    def lost(self) -> int:
        """The number of messages that were published and not delivered."""
        return self.expected - self.delivered


def publish_acknowledged(loop: Loop, publisher: Publisher, total: int, window: int) -> Flow:
    """Publish `total` QoS 1 messages with at most `window` unacknowledged; the clock stops at the last PUBACK."""
    window = min(window, publisher.limit)
    step = max(1, window // 10)
    start_time = time.perf_counter()
    while publisher.acked < total:
        room = min(window - (publisher.allowed - publisher.acked), total - publisher.allowed)
        if room >= step or 0 < room == total - publisher.allowed:
            publisher.allow(room)
        if not loop.turn(STALL_SECONDS):
            break
    return Flow(time.perf_counter() - start_time, total, publisher.acked)


def flow(
    loop: Loop,
    publishers: Sequence[Publisher],
    subscribers: Sequence[ByteCounter | PublishStream],
    window: int,
    total: int,
    seconds: float,
    qos: int = 0,
) -> Flow:
    """Publish up to `total` messages, or for `seconds`, each to be delivered to every subscriber.

    At most `window` messages are published and not yet delivered, over all publishers. Publishers take turns, a tenth
    of the window each, so that the window never runs empty and no turn is for one message only (unless the window is
    1). The clock stops at the last delivery; at QoS 1 all PUBACKs must then come too.
    """
    step = max(1, window // 10)
    copies = len(subscribers)
    published = delivered = 0
    turn_of = 0
    start_time = last = time.perf_counter()
    while True:
        delivered = sum([subscriber.messages for subscriber in subscribers])
        if delivered >= published * copies:
            last = time.perf_counter()
            if published == total and (not qos or sum([p.acked for p in publishers]) == published):
                break
        if published < total and time.perf_counter() - start_time > seconds:
            total = published
            continue
        room = min(window - (published - delivered // copies), total - published)
        while room >= step or 0 < room == total - published:
            share = min(step, room)
            publisher = publishers[turn_of % len(publishers)]
            if qos and publisher.allowed - publisher.acked + share > publisher.limit:
                break
            publisher.allow(share)
            turn_of += 1
            published += share
            room -= share
        if not loop.turn(STALL_SECONDS):
            break
    return Flow(last - start_time, published * copies, delivered)


def selfcheck(site: Site, messages: int) -> dict[str, float]:
    """Messages per second against a server that does almost nothing, for each kind of load."""
    sink = start("sink", site)
    try:
        site.pin_generator()
        return {
            "publish, QoS 0, discarded": _discard(sink, messages),
            "publish, QoS 1, window 1000": _acknowledged(sink, messages),
            "10 -> 1, QoS 0, W=1000": _relay(sink, messages, publishers=10, subscribers=1, qos=0),
            "10 -> 1, QoS 1, W=1000": _relay(sink, messages, publishers=10, subscribers=1, qos=1),
            "1 -> 100, QoS 0, W=1000": _relay(sink, messages // 10, publishers=1, subscribers=100, qos=0),
            "1 -> 100, QoS 1, W=1000": _relay(sink, messages // 10, publishers=1, subscribers=100, qos=1),
            "receive a replay, QoS 0": _receive(sink, messages, 0),
            "receive a replay, QoS 1": _receive(sink, messages, 1),
        }
    finally:
        sink.stop()


def _discard(sink: Broker, messages: int) -> float:
    packets = sink.wire.publishes(0, 1000, 0)
    connection = Connection(sink.port, sink.wire)
    start_time = time.perf_counter()
    for _ in range(messages // 1000):
        connection.sock.sendall(packets)
    connection.round_trip()
    seconds = time.perf_counter() - start_time
    connection.close()
    return messages / seconds


def _acknowledged(sink: Broker, messages: int) -> float:
    packets = sink.wire.publishes(0, messages, 1)
    with Loop() as loop:
        publisher = Publisher(sink.port, sink.wire, packets, 1)
        loop.add(publisher)
        return publish_acknowledged(loop, publisher, messages, 1000).rate


def _relay(sink: Broker, messages: int, publishers: int, subscribers: int, qos: int) -> float:
    with Loop() as loop:
        sources, targets = clients(sink, loop, publishers, subscribers, qos)
        return flow(loop, sources, targets, 1000, messages, 10, qos).rate


def _receive(sink: Broker, messages: int, qos: int) -> float:
    with Loop() as loop:
        stream = PublishStream(sink.port, sink.wire, qos)
        loop.add(stream)
        stream.start(b"replay/%d/" % messages)
        while not stream.messages:
            loop.turn(STALL_SECONDS)
        start_time = time.perf_counter()
        while stream.messages < messages and loop.turn(STALL_SECONDS):
            pass
        return stream.messages / (time.perf_counter() - start_time)


def clients(
    broker: Broker, loop: Loop, publishers: int, subscribers: int, qos: int, topics: int = 2000
) -> tuple[list[Publisher], list[ByteCounter | PublishStream]]:
    """Connect subscribers to `site/#`, and publishers with `topics` topics each."""
    wire: Wire = broker.wire
    targets: list[ByteCounter | PublishStream] = []
    for _ in range(subscribers):
        target = PublishStream(broker.port, wire, qos, 1 << 16) if qos else ByteCounter(broker.port, wire)
        target.subscribe(b"site/#", qos)
        loop.add(target)
        targets.append(target)
    sources = []
    for number in range(publishers):
        sources.append(Publisher(broker.port, wire, wire.publishes(number * topics, topics, qos), qos))
        loop.add(sources[-1])
    return sources, targets


def main() -> int:
    """Run the self-check and print its figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loadgen", description=__doc__)
    parser.add_argument("command", choices=["selfcheck"])
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--protocol", type=int, choices=[4, 5], default=4, help="4 is MQTT 3.1.1")
    options = parser.parse_args()
    gc.disable()
    for name, rate in selfcheck(Site.here(None, Wire(options.protocol)), options.messages).items():
        print(f"{name:32s} {rate:>14,.0f} msg/s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
