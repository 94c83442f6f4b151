"""The cost of Topic Filters with wildcards over many retained messages, beside a statement that scans all of them.

There is no broker and no network: this process reads the store like a replay, batch by batch. ``first`` and ``last``
are the milliseconds until the first batch with a message and until the end, medians of the rounds. ``hold`` is the
longest read; with SQLite, the broker does nothing else meanwhile. ``scan`` is one statement that counts the matches in
the whole table, with a pattern and all checks of a replay; ``pattern`` checks only the pattern. Postgres uses no
parallel workers.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from twisted.internet.task import Clock

from holdfast.core.messages import RetainedChange, RetainedMessage
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.retained.store.values import Selection
from holdfast.retained.store.wildcards import GLOB, LIKE, plan
from holdfast.storage.database import Durability
from holdfast.storage.executor import SynchronousExecutor
from holdfast.storage.store import DurableStore
from holdfast.wire.properties import NO_PROPERTIES
from tests.postgres import drop, empty_database

FILTERS = (
    "#",
    "site/+/dev/+/temp",
    "site/7/#",
    "+/7/#",
    "site/+/dev/77/#",
    "site/+/dev/77077/#",
    "+/+/dev/12345/temp",
    "+/+/dev/nope",
    "+/+/+/+/hum",
    "site/+/+/+/hum",
)
_NOW = 1_700_000_000_000
_LATE = 2**62
_ROWS, _SLICE_ROWS, _BYTES = 1000, 100, 1 << 20  # the default bounds of a replay's reads
_PENDING = 1 << 40


@contextmanager
def opened(url: str) -> Iterator[tuple[DurableStore, SQLRetainedStore, SynchronousExecutor]]:
    """Open an empty store that does its work in this thread."""
    executor = SynchronousExecutor()
    durable = DurableStore(
        url, durability=Durability.PROCESS, flush_interval=1.0, max_pending=_PENDING, node=1, reactor=Clock(),
        now=lambda: _NOW, executor=executor, reading_executor=SynchronousExecutor,
    )  # fmt: skip
    store = SQLRetainedStore(durable)
    durable.open()
    try:
        yield durable, store, executor
    finally:
        durable.close()


def fill(store: SQLRetainedStore, executor: SynchronousExecutor, rows: int) -> None:
    """Store `rows` messages, ten thousand in a commit."""
    for start in range(0, rows, 10_000):
        executor.manual = True
        for number in range(start, min(start + 10_000, rows)):
            topic, revision = f"site/{number % 1000}/dev/{number}/temp", store.next_revision()
            message = RetainedMessage(topic, b"%020d" % number, 0, NO_PROPERTIES, None, None, _NOW, None, revision)
            store.put(RetainedChange(topic, revision, _NOW, message))
        executor.stop()
        executor.manual = False


def replay(store: SQLRetainedStore, topic_filter: str) -> tuple[float, float, float, int]:
    """Read all matches; return the seconds to the first and the last match and of the longest read, and the number."""
    selection = Selection(topic_filter, 4, _LATE, 1, _NOW)
    after, done, count, first, longest = "", False, 0, 0.0, 0.0
    begin = time.perf_counter()
    while not done:
        before = time.perf_counter()
        batch: Any = store.read(selection, after, _ROWS, _SLICE_ROWS, _BYTES, False).result
        now = time.perf_counter()
        longest = max(longest, now - before)
        after, done = batch.after, batch.done
        if batch.slices and not count:
            first = now - begin
        count += sum(one.count for one in batch.slices)
    return first, time.perf_counter() - begin, longest, count


def scans(dialect: str, topic_filter: str) -> tuple[str, str] | None:
    """Return the two statements that scan the whole table, None for a filter without a pattern."""
    planned = plan(topic_filter)
    if planned.levels is None:
        return None
    form, column, operator = (GLOB, "+topic", "GLOB") if dialect == "sqlite" else (LIKE, "topic", "LIKE")
    terms = planned.terms([5], form) or ()
    pattern = " OR ".join(f"{column} {operator} '{term.pattern}'" for term in terms) or "1 = 0"
    exact = " OR ".join(f"levels = {term.levels} AND {column} {operator} '{term.pattern}'" for term in terms) or "1 = 0"
    return (
        f"SELECT count(topic), sum(length(prefix3) + length(payload)) FROM retained WHERE ({exact}) AND tombstone = 0 "
        f"AND (expires_at IS NULL OR expires_at > {_NOW}) AND (revision <= {_LATE} OR revision & 255 <> 1)",
        f"SELECT count(topic) FROM retained WHERE {pattern}",
    )


def seconds_of(connection: Any, statement: str) -> float:
    """Run a statement; return its time in seconds."""
    begin = time.perf_counter()
    connection.cursor().execute(statement).fetchall()
    return time.perf_counter() - begin


def measure(url: str, rows: int, rounds: int) -> None:
    """Fill a store, and print a line for each filter."""
    with opened(url) as (durable, store, executor):
        fill(store, executor, rows)
        assert durable.parts is not None
        with closing(durable.parts.database.connect_reader()) as connection:
            dialect = durable.dialect
            if dialect != "sqlite":
                connection.cursor().execute("SET max_parallel_workers_per_gather = 0")
            print(f"\n{dialect}, {rows:,} retained messages; milliseconds")
            print(
                f"{'filter':22s}{'count':>10s}{'first':>9s}{'last':>10s}{'hold':>8s}"
                f"{'scan':>9s}{'ratio':>7s}{'pattern':>9s}{'ratio':>7s}"
            )
            for topic_filter in FILTERS:
                print(line(connection, store, topic_filter, rounds, scans(dialect, topic_filter)), flush=True)


def line(
    connection: Any, store: SQLRetainedStore, topic_filter: str, rounds: int, statements: tuple[str, str] | None
) -> str:
    """Measure one filter, alternating with the scans."""
    replays, scanned = [], []
    for _ in range(rounds):
        replays.append(replay(store, topic_filter))
        scanned.append([seconds_of(connection, statement) for statement in statements or ()])
    middle: Callable[[Any], float] = statistics.median
    first, last, hold = (1000 * middle([one[at] for one in replays]) for at in range(3))
    text = f"{topic_filter:22s}{replays[0][3]:10,d}{first:9.2f}{last:10.2f}{hold:8.2f}"
    for values in zip(*scanned, strict=True):
        text += f"{1000 * middle(values):9.2f}{last / 1000 / middle(values):7.2f}"
    return text


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wildcards", description=__doc__)
    parser.add_argument("--rows", type=int, help="retained messages (default 1,000,000)")
    parser.add_argument("--quick", action="store_true", help="100,000 retained messages")
    parser.add_argument("--repeat", type=int, default=5, help="rounds; the medians are reported (default 5)")
    parser.add_argument("--postgres", action="store_true", help="on Postgres, from a wheel or $HOLDFAST_TEST_POSTGRES")
    parser.add_argument("--directory", help="where SQLite's file goes (default: the system's temporary folder)")
    options = parser.parse_args()
    rows = options.rows or (100_000 if options.quick else 1_000_000)
    if rows < 1 or options.repeat < 1:
        parser.error("--rows and --repeat are at least 1")
    if options.postgres:
        url = empty_database()
        try:
            measure(url, rows, options.repeat)
        finally:
            drop(url)
    else:
        with TemporaryDirectory(dir=options.directory) as directory:
            measure(f"sqlite:///{Path(directory) / 'store.db'}", rows, options.repeat)


if __name__ == "__main__":
    main()
