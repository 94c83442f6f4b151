"""One case of live messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from benchmarks import generator
from benchmarks.brokers import Broker
from benchmarks.results import RATE, Metric, Result

if TYPE_CHECKING:
    from benchmarks.scenarios import Scale

_RATE = {RATE: "rate"}


def flow(
    broker: Broker, result: Result, scale: Scale, name: str, metrics: Mapping[Metric, str] = _RATE, **options: object
) -> None:
    """Run a case of the generator's scenario `flow`, and note these figures of its report."""
    with result.case(name, list(metrics), broker) as case:
        report = generator.run(broker, "flow", seconds=scale.seconds, messages=scale.messages, **options)
        case.take(report, metrics)
