"""Anonymous memory of the broker with all retained messages: idle, during a replay, with stalled readers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks import generator
from benchmarks.brokers import Broker
from benchmarks.connection import Loop
from benchmarks.makes import start
from benchmarks.postgres import backends_mib
from benchmarks.results import Case, Metric, Result
from benchmarks.scenarios.seeding import ensure, retain
from benchmarks.subscriber import Stalled

if TYPE_CHECKING:
    from benchmarks.scenarios import Scale

MEMORY = Metric("RssAnon", "MiB", False)
EACH = Metric("each", "MiB", False)
_UPDATES = 100_000
_STALL_SECONDS = 2.5  # the readers stall for so long before the measurement


def run(broker: Broker, result: Result, scale: Scale) -> None:
    """Use a broker of its own, so that the memory of other scenarios does not count."""
    count = scale.retained[-1]
    own = start(broker.name, broker.site)
    try:
        prepare(own, count)
        _measure(own, result, count, min(_STALL_SECONDS, 4 * scale.seconds))
    finally:
        own.stop()


def _measure(broker: Broker, result: Result, count: int, stall: float) -> None:
    with result.case(idle(count), [MEMORY], broker) as case:
        note_memory(broker, case)
    with result.case("while one client replays #, at most", [MEMORY], broker) as case:
        case[MEMORY] = generator.run(broker, "replay", expect=count)["memory_most_kib"] / 1024
    with result.case("after it", [MEMORY], broker) as case:
        note_memory(broker, case)
    for readers in (1, 50):
        with result.case(stalled(readers), [MEMORY, EACH], broker) as case, Loop() as loop:
            before = broker.rss_anon()
            for _ in range(readers):
                loop.add(Stalled(broker.port, broker.wire, b"#"))
            broker.quiet()
            time.sleep(stall)
            note_memory(broker, case)
            case[EACH] = (broker.rss_anon() - before) / readers
    with result.case("after they have gone", [MEMORY], broker) as case:
        note_memory(broker, case)
    updates = min(count, _UPDATES)
    with result.case(f"after {updates:,} updates", [MEMORY], broker) as case:
        case.lost(retain(broker, 0, updates, 10_000).lost)
        note_memory(broker, case)


def idle(count: int) -> str:
    """The name of the first case."""
    return f"{count:,} retained, idle"


def stalled(readers: int) -> str:
    """The name of a case with readers that read nothing."""
    return f"{readers} stalled reader{'s' * (readers > 1)} of #"


def prepare(broker: Broker, count: int) -> None:
    """Make so many topics retained. Then Holdfast starts anew: memory used by publishing does not count.

    The others go on: they would lose the messages.
    """
    ensure(broker, count)
    if broker.name == "holdfast":
        broker.restart()


def note_memory(broker: Broker, case: Case) -> None:
    """Note the broker's memory when it is quiet."""
    broker.quiet()
    case[MEMORY] = broker.rss_anon()
    if broker.postgres is not None:
        case.note(f"and {backends_mib(broker.postgres):.0f} MiB of the server's processes")
