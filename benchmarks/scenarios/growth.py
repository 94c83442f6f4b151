"""Anonymous memory of an idle broker against the number of its retained messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.brokers import Broker
from benchmarks.makes import start
from benchmarks.results import Result
from benchmarks.scenarios.memory import MEMORY, note_memory, prepare

if TYPE_CHECKING:
    from benchmarks.scenarios import Scale


def run(broker: Broker, result: Result, scale: Scale) -> None:
    """Use a broker of its own for each number."""
    for count in counts(scale.retained[-1]):
        own = start(broker.name, broker.site)
        try:
            with result.case(name(count), [MEMORY], own) as case:
                prepare(own, count)
                note_memory(own, case)
        finally:
            own.stop()


def counts(most: int) -> tuple[int, ...]:
    """Return the numbers of retained messages: none, and up to ``most`` in steps of ten."""
    return (0, *(number for number in (most // 100, most // 10, most) if number))


def name(count: int) -> str:
    """The name of the case."""
    return f"{count:,} retained"
