"""Fill Holdfast's database while no broker uses it, with the same rows as publishing, through Holdfast's writer.

`python -m benchmarks.filling 0 1000000 --data-dir DIR [--storage URL]` stores the topics 0 to 999,999. The
arguments after the numbers are the broker's options of `twistd holdfast`, so that the rows agree with its settings.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from twisted.internet.task import Clock
from twisted.python.failure import Failure

from benchmarks.wire import PAYLOAD, TOPIC
from holdfast.broker.retainer import recorder_of
from holdfast.changes.recording import HistoryRecorder
from holdfast.config import Config
from holdfast.core.messages import RetainedChange, RetainedMessage
from holdfast.core.tickets import CommitTicket, FailureKind, StorageFailure
from holdfast.retained.configured import store_of
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.storage.database import Durability
from holdfast.storage.executor import SynchronousExecutor
from holdfast.storage.location import DirectoryLock, DirectoryUnusable, StoreUnusable
from holdfast.storage.store import DurableStore
from holdfast.tap import Options
from holdfast.wire import NO_PROPERTIES

BATCH = 20_000  # rows of one commit
CLIENT = "bench-1"


@contextmanager
def offline_store(config: Config, now: Callable[[], int]) -> Iterator[tuple[SQLRetainedStore, Callable[[], None]]]:
    """Open the store that no broker uses. Yield it and a function that commits what has been put.

    ``now`` returns the time in milliseconds since the epoch: earlier times make an earlier history. Raises
    StoreUnusable, DirectoryUnusable, or StorageFailure when something could not be stored.
    """
    lock = DirectoryLock(config.data_dir)
    lock.acquire()
    try:
        clock, executor = Clock(), SynchronousExecutor(waits_for_turn=True)
        durable = DurableStore(
            config.storage.url, durability=Durability.PROCESS, flush_interval=0, max_pending=0, node=config.node.id,
            reactor=clock, now=now, executor=executor, reading_executor=SynchronousExecutor,
        )  # fmt: skip
        history = HistoryRecorder(durable.bulk, durable.shared, config.retainer.history.enable)
        recorder, _ = recorder_of(config.retainer, durable, history, gathers=False)
        store = store_of(config.retainer, durable, recorder)
        durable.open()
        failures: list[Failure] = []
        try:
            yield store, lambda: clock.advance(0)  # the writer commits at the end of the turn
        finally:
            durable.close().addErrback(failures.append)
        for failure in failures:
            failure.raiseException()
    finally:
        lock.release()


def settle(tickets: list[CommitTicket]) -> None:
    """Raise the failure of the first ticket that was not committed."""
    for ticket in tickets:
        if not ticket.settled:
            raise StorageFailure(FailureKind.UNAVAILABLE, "the database cannot be reached any more")
        if ticket.failure is not None:
            raise ticket.failure


def fill(config: Config, first: int, end: int) -> None:
    """Store the topics with the numbers `first` to `end - 1`, like a client that publishes them with QoS 1.

    Raises StoreUnusable, DirectoryUnusable, or StorageFailure when something could not be stored.
    """
    with offline_store(config, milliseconds) as (store, commit):
        for start in range(first, end, BATCH):
            tickets = _put(store, range(start, min(start + BATCH, end)))
            commit()
            settle(tickets)


def _put(store: SQLRetainedStore, numbers: range) -> list[CommitTicket]:
    now = milliseconds()
    tickets = []
    for number in numbers:
        topic, payload = (TOPIC % (number % 1000, number)).decode(), PAYLOAD % number
        revision = store.next_revision()
        message = RetainedMessage(topic, payload, 1, NO_PROPERTIES, CLIENT, None, now, None, revision)
        tickets.append(store.put(RetainedChange(topic, revision, now, message, CLIENT)))
    return tickets


def milliseconds() -> int:
    return time.time_ns() // 1_000_000


def main(arguments: list[str]) -> int:
    """Fill the database of the broker's options; print the rate."""
    try:
        first, end = map(int, arguments[:2])
    except ValueError:
        print("name the first number and the one after the last: python -m benchmarks.filling 0 1000000 --data-dir DIR")
        return 1
    options = Options()
    options.parseOptions(arguments[2:])  # type: ignore[no-untyped-call]
    gc.disable()
    begin = time.perf_counter()
    try:
        fill(options.config, first, end)
    except (StoreUnusable, DirectoryUnusable, StorageFailure) as error:
        print(error, file=sys.stderr)
        return 1
    seconds = time.perf_counter() - begin
    print(f"{end - first:,} messages in {seconds:.1f} s: {(end - first) / seconds:,.0f} a second")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
