"""The totals of the retained messages as operators see them: of all nodes, without expired messages.

How it works. Each node adds its changes to its own row of the totals, in the transaction of the change. So the sum of
all rows is exact at every moment. No node hears of the others' commits, so the sum is read when somebody asks. It
includes expired messages until the sweep removes them. These are counted with the help of their index, some hundred in
each turn of the reactor:

    17 messages in all, 10 of them expired    one statement, the answer is 7
    1,000,000 in all, 30,000 expired          one statement for each 500 expired ones, in 61 turns

At most ``MOST_PARTS`` such parts are counted, so a count costs little even if the sweep is disabled. A read that began
before somebody asked does not answer him: the next one does. So whoever asks after his change is told the new total.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from holdfast.core.tickets import StorageFailure
from holdfast.retained.store.interfaces import IRetainedStore
from holdfast.retained.store.values import Census, ExpiredPosition, RetainedStatistics
from holdfast.scheduling.waiting import as_deferred

#: expired messages counted in one turn
ROWS_IN_TURN = 500
#: the most parts that are counted: 100,000 expired messages
MOST_PARTS = 200
#: seconds after which the totals known before are the answer, because the database is away
TOTALS_PATIENCE = 1.0


class TotalsReader:
    """Reads the totals. ``now`` returns milliseconds since the epoch."""

    _log = Logger()

    def __init__(self, store: IRetainedStore, clock: IReactorTime, now: Callable[[], int]) -> None:
        self._store = store
        self._clock = clock
        self._now = now
        self._latest: RetainedStatistics | None = None
        self._waiting: list[Deferred[RetainedStatistics]] = []
        self._running = False

    @property
    def latest(self) -> RetainedStatistics:
        """The totals as they were read last."""
        statistics: RetainedStatistics = self._store.statistics() if self._latest is None else self._latest
        return statistics

    def refreshed(self) -> RetainedStatistics:
        """Return the totals as of the last commit (SQLite) or the last read, and begin to read them again."""
        self.read()
        return self.latest

    def read(self) -> Deferred[RetainedStatistics]:
        """Read the totals. If the database does not answer in time, the answer is the totals as they were read last."""
        answer: Deferred[RetainedStatistics] = Deferred()
        self._waiting.append(answer)
        if not self._running:
            self._running = True
            self._run().addErrback(self._failed)
        return answer.addTimeout(TOTALS_PATIENCE, self._clock, lambda _failure, _seconds: self.latest)

    @as_deferred
    async def _run(self) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            try:
                self._latest = await self._count()
            except StorageFailure as failure:
                self._log.debug(
                    "the totals cannot be read: {failure}", failure=failure
                )  # the store has said so already
            for answer in waiting:
                answer.callback(self.latest)
        self._running = False

    async def _count(self) -> RetainedStatistics:
        after: ExpiredPosition | None = None
        count = size = 0
        for part in range(MOST_PARTS):
            census: Census = await self._store.census(self._now(), after, ROWS_IN_TURN)
            if not part:
                count, size = census.total.count, census.total.bytes
            count -= census.expired.count
            size -= census.expired.bytes
            after = census.after
            if after is None:
                break
            await deferLater(self._clock, 0)
        return RetainedStatistics(max(0, count), max(0, size))  # the sweep may have removed some meanwhile

    def _failed(self, failure: Any) -> None:
        """Log an error of this program, and answer with the totals known before."""
        self._log.failure("counting the retained messages failed", failure)
        waiting, self._waiting, self._running = self._waiting, [], False
        for answer in waiting:
            answer.callback(self.latest)
