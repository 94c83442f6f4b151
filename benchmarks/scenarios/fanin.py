"""Ten publishers, one subscriber."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.brokers import Broker
from benchmarks.connection import Loop
from benchmarks.loadgen import clients, flow
from benchmarks.results import RATE, Result

if TYPE_CHECKING:
    from benchmarks.scenarios import Scale


def run(broker: Broker, result: Result, scale: Scale) -> None:
    """At most 1000 messages are published and not yet delivered."""
    for qos in (0, 1):
        with result.case(f"10 -> 1, QoS {qos}, W=1000", [RATE]) as case, case.watched(), Loop() as loop:
            sources, targets = clients(broker, loop, 10, 1, qos)
            done = flow(loop, sources, targets, 1000, 10 * scale.messages, scale.seconds, qos)
            case[RATE] = done.rate
            case.lost(done.lost)
