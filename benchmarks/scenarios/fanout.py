"""One publisher, a hundred subscribers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.brokers import Broker
from benchmarks.connection import Loop
from benchmarks.loadgen import clients, flow
from benchmarks.results import RATE, Result

if TYPE_CHECKING:
    from benchmarks.scenarios import Scale


def run(broker: Broker, result: Result, scale: Scale) -> None:
    """With 1000 messages on their way, and with one, when the broker can combine nothing."""
    for qos, window in ((0, 1000), (1, 1000), (0, 1)):
        with result.case(f"1 -> 100, QoS {qos}, W={window}", [RATE]) as case, case.watched(), Loop() as loop:
            sources, targets = clients(broker, loop, 1, 100, qos)
            done = flow(loop, sources, targets, window, scale.messages, scale.seconds, qos)
            case[RATE] = done.rate
            case.lost(done.lost)
