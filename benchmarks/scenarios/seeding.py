"""Retained messages for the scenarios that read them: published once per broker process."""

from __future__ import annotations

from benchmarks.brokers import Broker
from benchmarks.connection import BenchError, Loop
from benchmarks.loadgen import Flow, publish_acknowledged
from benchmarks.publisher import Publisher


def retain(broker: Broker, first: int, count: int, window: int) -> Flow:
    """Retain the topics numbered from ``first`` with QoS 1, in slices so that the bytes are not all made at once."""
    seconds = 0.0
    acked = 0
    with Loop() as loop:
        for start in range(first, first + count, 50_000):
            size = min(50_000, first + count - start)
            publisher = Publisher(broker.port, broker.wire, broker.wire.publishes(start, size, 1, True), 1)
            loop.add(publisher)
            flow = publish_acknowledged(loop, publisher, size, window)
            seconds += flow.seconds
            acked += flow.delivered
    return Flow(seconds, count, acked)


def ensure(broker: Broker, count: int) -> None:
    """Have the topics numbered 0 to ``count - 1`` retained, and no others."""
    if broker.retained > count:
        raise BenchError(f"{broker.retained} messages are retained already, {count} are wanted")
    if broker.retained < count:
        flow = retain(broker, broker.retained, count - broker.retained, 10_000)
        if flow.lost:
            raise BenchError(f"{flow.lost} retained messages were not acknowledged")
        broker.retained = count
