"""Live latency during replays: one ping every millisecond in any case, so that a stall counts in full."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from benchmarks.brokers import Broker
from benchmarks.connection import BenchError, Loop
from benchmarks.results import MAX, P50, P99, Case, Result, percentile
from benchmarks.scenarios.seeding import ensure
from benchmarks.subscriber import ByteCounter, PublishStream

if TYPE_CHECKING:
    from benchmarks.scenarios import Scale

_PATIENCE = 60.0


def run(broker: Broker, result: Result, scale: Scale) -> None:
    """Measure an idle broker, and one while 1 and 4 clients replay all messages."""
    count = scale.retained[-1]
    ensure(broker, count)
    for replays in (0, 1, 4):
        name = "idle" if not replays else f"{replays} replaying {count:,}"
        with result.case(name, [P50, P99, MAX]) as case, Loop() as loop:
            _measure(broker, case, loop, replays, count, scale.seconds)


def _measure(broker: Broker, case: Case, loop: Loop, replays: int, count: int, seconds: float) -> None:
    wire = broker.wire
    ping = wire.ping()
    receiver = ByteCounter(broker.port, wire)
    receiver.subscribe(b"ping/#", 0)
    loop.add(receiver)
    sender = ByteCounter(broker.port, wire)
    loop.add(sender)
    streams = []
    for _ in range(replays):
        stream = PublishStream(broker.port, wire, 0)
        loop.add(stream)
        streams.append(stream)
    for stream in streams:
        stream.start(b"site/#")
    due: deque[float] = deque()
    times: list[float] = []
    begin = time.perf_counter()
    sent = 0
    received = 0
    while True:
        now = time.perf_counter()
        replaying = any(stream.messages < count for stream in streams)
        over = (not replaying) if streams else now - begin > seconds
        if over and received == sent:
            break
        if now - begin > _PATIENCE:
            raise BenchError(f"after {_PATIENCE:.0f} s not over: {[stream.messages for stream in streams]}")
        if not over:
            while begin + sent / 1000 <= now:
                due.append(begin + sent / 1000)
                sender.sock.send(ping)
                sent += 1
        loop.brief_turn(max(0.0, begin + sent / 1000 - time.perf_counter()))
        arrived = receiver.messages
        now = time.perf_counter()
        while received < arrived:
            times.append(1000 * (now - due.popleft()))
            received += 1
    times.sort()
    case[P50] = percentile(times, 0.5)
    case[P99] = percentile(times, 0.99)
    case[MAX] = times[-1]
    if streams:
        took = time.perf_counter() - begin
        case.note(f"{replays * count / took:,.0f} retained messages/s meanwhile")
