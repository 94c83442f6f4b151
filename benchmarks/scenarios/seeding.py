"""Retained messages for the scenarios that read them: published or, faster, written to the database."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.brokers import REPOSITORY, Broker
from benchmarks.connection import BenchError, Loop
from benchmarks.loadgen import Flow, publish_acknowledged
from benchmarks.publisher import Publisher

_WORTH_FILLING = 200_000  # with fewer messages, publishing takes no longer than a restart of the broker


def retain(broker: Broker, first: int, count: int, window: int) -> Flow:
    """Publish the topics from the number ``first`` with QoS 1, in portions to save memory."""
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
    """Make exactly the topics with the numbers 0 to ``count - 1`` retained."""
    if broker.retained > count:
        raise BenchError(f"{broker.retained} messages are retained already, {count} are wanted")
    missing = count - broker.retained
    if not missing:
        return
    if broker.name == "holdfast" and missing >= _WORTH_FILLING:
        broker.end()
        fill(broker, count)
        broker.launch()
        broker.ready()
    else:
        flow = retain(broker, broker.retained, missing, 10_000)
        if flow.lost:
            raise BenchError(f"{flow.lost} retained messages were not acknowledged")
        broker.retained = count


def fill(broker: Broker, count: int) -> None:
    """Write the missing rows into the database of Holdfast, which is stopped; do not wait for its start."""
    command = [sys.executable, "-m", "benchmarks.filling", str(broker.retained), str(count), *broker.options]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"the database could not be filled: {done.stderr.strip()[-300:]}")
    broker.retained = count
