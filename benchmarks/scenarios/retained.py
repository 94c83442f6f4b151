"""Live messages of which every tenth one is retained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.brokers import Broker
from benchmarks.makes import start
from benchmarks.results import Result
from benchmarks.scenarios.flow import flow

if TYPE_CHECKING:
    from benchmarks.scenarios import Scale

_TOPICS = 101  # of each publisher. No multiple of ten, so that all topics have retained messages


def run(broker: Broker, result: Result, scale: Scale) -> None:
    """Use a broker of its own: other scenarios count the retained messages."""
    own = start(broker.name, broker.site)
    try:
        for qos in (0, 1):
            flow(own, result, scale, name(qos), publishers=10, qos=qos, topics=_TOPICS, retain=10)
    finally:
        own.stop()


def name(qos: int) -> str:
    """The name of the case."""
    return f"10 -> 1, QoS {qos}, 10 % retained"
