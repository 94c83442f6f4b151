"""Publishers and subscribers of both protocol versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.brokers import Broker
from benchmarks.results import Result
from benchmarks.scenarios.flow import flow

if TYPE_CHECKING:
    from benchmarks.scenarios import Scale

NAME = "10 -> 10, QoS 0, half MQTT 3.1.1 and half 5.0"


def run(broker: Broker, result: Result, scale: Scale) -> None:
    """Every second publisher and every second subscriber uses MQTT 5.0."""
    flow(broker, result, scale, NAME, publishers=10, subscribers=10, mixed=1)
