"""One publisher, a hundred subscribers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.brokers import Broker
from benchmarks.results import Result
from benchmarks.scenarios.flow import flow

if TYPE_CHECKING:
    from benchmarks.scenarios import Scale

ONE = "1 -> 100, QoS 0, one under way"


def run(broker: Broker, result: Result, scale: Scale) -> None:
    """With 1000 messages on their way, and with one, when the broker can combine nothing."""
    for qos in (0, 1):
        flow(broker, result, scale, name(qos), subscribers=100, qos=qos)
    flow(broker, result, scale, ONE, subscribers=100, inflight=1)


def name(qos: int) -> str:
    """The name of the case."""
    return f"1 -> 100, QoS {qos}"
