"""Many publishers, one subscriber: ten with much under way, and a crowd of 500 with one message each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.brokers import Broker
from benchmarks.results import Result
from benchmarks.scenarios.flow import flow

if TYPE_CHECKING:
    from benchmarks.scenarios import Scale

MANY_TOPICS = "10 -> 1, QoS 0, 2000 topics each"
CROWD = 500
SMALL_WRITES = "10 -> 1, QoS 0, small writes"


def run(broker: Broker, result: Result, scale: Scale) -> None:
    """Each publisher has one topic, then 2000; then each message is sent alone, in a segment of its own.

    Ten publishers have at most 1000 messages under way together; each of the crowd has one.
    """
    for qos in (0, 1):
        flow(broker, result, scale, name(qos), publishers=10, qos=qos)
    flow(broker, result, scale, MANY_TOPICS, publishers=10, topics=2000)
    flow(broker, result, scale, SMALL_WRITES, publishers=10, separate=1)
    for qos in (0, 1):
        flow(broker, result, scale, crowd(qos), publishers=CROWD, inflight=CROWD, qos=qos)


def name(qos: int) -> str:
    """The name of the case."""
    return f"10 -> 1, QoS {qos}"


def crowd(qos: int) -> str:
    """The name of the case with many publishers."""
    return f"{CROWD} -> 1, QoS {qos}, one under way each"
