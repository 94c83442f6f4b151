"""The ledger: whether there is room for a message, decided before anything is stored or delivered.

As long as a message surely fits (:mod:`budgets`), it is decided at once and nothing is read. Where it may not fit, its
publisher waits while the store is looked at: behind all that is pending, for all publishers who wait together. Then it
is known whether the topic is retained already, of which size and from whom, and the decision is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from holdfast.log_throttle import LogThrottle
from holdfast.messages import ApplicationMessage
from holdfast.retained.quota.budgets import Budget, Growth
from holdfast.retained.quota.limits import Limit, Quota, RetainerLimits, RetainRefused
from holdfast.retained.store.interfaces import IRetainedStore
from holdfast.retained.store.values import NOTHING, Usage
from holdfast.tickets import StorageFailure
from holdfast.topics import matches

#: Clients whose budgets are remembered.
_MOST_CLIENTS = 65_536
#: Seconds after which a store that other nodes write to is looked at again.
_SHARED_FOR = 1.0


class _Waiting:
    def __init__(self, message: ApplicationMessage) -> None:
        self.message = message
        self.answer: Deferred[None] = Deferred()


class Ledger:
    """Knows what counts against the limits on how much is retained.

    ``sweep`` removes some of what has expired, if anything has, so that it stands in nobody's way.
    """

    _log = Logger()

    def __init__(
        self,
        store: IRetainedStore,
        limits: RetainerLimits,
        sweep: Callable[[], Deferred[int]],
        clock: IReactorTime,
    ) -> None:
        self._store = store
        self._sweep = sweep
        self._clock = clock
        self._log_throttle = LogThrottle(self._log, clock.seconds)
        total = Quota("retainer.", limits.max_retained_messages, limits.max_retained_bytes)
        self._total = Budget(total, Limit.MESSAGES, Limit.BYTES)
        self._topics = [
            (topic_filter, Budget(quota, Limit.TOPIC_QUOTA, Limit.TOPIC_QUOTA, topic_filter=topic_filter))
            for topic_filter, quota in limits.topic_quotas
        ]
        self._client_quota = limits.client_quota
        self._clients: dict[str, Budget] = {}
        self._waiting: list[_Waiting] = []
        self._looking = False
        #: how many changes are under way that the store alone will know about
        self._suspended = 0
        self._examined: list[Budget] = []
        #: what is retained in topics, as far as it is known to the turn or changed while the store is looked at
        self._rows: dict[str, Usage | None] = {}

    def fits(self, message: ApplicationMessage) -> bool:
        """Tell whether the message surely fits, whatever its topic holds now."""
        growth = Growth(1, len(message.payload))
        return all(
            self._is_known(budget) and budget.refusal(growth) is None
            for budget in self._budgets(message.topic, message.client_id)
        )

    def look(self, message: ApplicationMessage) -> Deferred[None]:
        """Look at the store for a message; when this fires, :meth:`charge` decides about it, in the same turn."""
        waiting = _Waiting(message)
        self._waiting.append(waiting)
        if not self._looking and len(self._waiting) == 1:  # the others of this turn come along
            self._clock.callLater(0, self._begin)
        return waiting.answer

    def charge(self, message: ApplicationMessage) -> None:
        """Take note of a message that is going to be stored. Raises :class:`RetainRefused` where it may not fit."""
        growths = list(self._growths(message))
        for budget, growth in growths:
            refusal = budget.refusal(growth)
            if refusal is None and not self._is_known(budget):
                refusal = RetainRefused(budget.over_messages, "what is retained already cannot be looked at now")
            if refusal is not None:
                raise refusal
        exact = message.topic in self._rows
        for budget, growth in growths:
            budget.charge(growth, exact)
        before = self._rows.get(message.topic)
        if before is not None and before.client_id != message.client_id and before.client_id in self._clients:
            self._clients[before.client_id].charge(Growth(-1, -before.bytes), True)
        if self._looking:
            self._rows[message.topic] = Usage(1, len(message.payload), message.client_id)

    def cleared(self, topic: str) -> None:
        """Take note of a topic that is going to be cleared."""
        if not self._looking:
            return
        if topic not in self._rows:
            for budget in self._examined:
                budget.certain = False
        before = self._rows.get(topic)
        if before is not None:
            for budget in self._budgets(topic, before.client_id):
                budget.charge(Growth(-1, -before.bytes), True)
        self._rows[topic] = None

    def holds(self, topic: str) -> bool:
        """Tell whether a message is retained in a topic that has been looked at; True when it is not known."""
        return self._rows.get(topic, Usage(1, 0)) is not None

    def suspend(self) -> None:
        """Take nothing for known until :meth:`resume`: the store is being changed behind these budgets."""
        self._suspended += 1

    def resume(self) -> None:
        """Look at the store anew."""
        self._suspended -= 1
        for budget in (self._total, *(budget for _, budget in self._topics), *self._clients.values()):
            budget.looked_at = None

    def _budgets(self, topic: str, client_id: str | None) -> Iterator[Budget]:
        """Yield what a Client's message in a topic counts against."""
        if self._total.is_limited:
            yield self._total
        for topic_filter, budget in self._topics:
            if matches(topic_filter, topic):
                yield budget
        if self._client_quota is not None and client_id is not None:
            yield self._client(client_id)

    def _client(self, client_id: str) -> Budget:
        budget = self._clients.get(client_id)
        if budget is None:
            assert self._client_quota is not None
            if len(self._clients) >= _MOST_CLIENTS and not self._looking:
                self._clients.clear()
            budget = Budget(self._client_quota, Limit.CLIENT_QUOTA, Limit.CLIENT_QUOTA, client_id)
            self._clients[client_id] = budget
        return budget

    def _growths(self, message: ApplicationMessage) -> Iterator[tuple[Budget, Growth]]:
        """Yield by how much each budget grows; what is not known to be replaced counts as new."""
        size = len(message.payload)
        before = self._rows.get(message.topic)
        changed = Growth(1, size) if before is None else Growth(0, size - before.bytes)
        new = Growth(1, size)
        for budget in self._budgets(message.topic, message.client_id):
            theirs = budget.client_id is not None and before is not None and before.client_id != budget.client_id
            yield budget, new if theirs else changed

    def _is_known(self, budget: Budget) -> bool:
        if budget.looked_at is None or (self._suspended and not self._looking):
            return False
        return not self._store.shared or self._looking or self._clock.seconds() - budget.looked_at < _SHARED_FOR

    def _begin(self) -> None:
        self._looking = True
        self._look().addErrback(self._look_failed)

    @inlineCallbacks
    def _look(self) -> Generator[Deferred[Any], Any, None]:
        """Look at the store, round after round, as long as somebody waits: who comes meanwhile is in the next one."""
        swept = False
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            messages = [one.message for one in waiting]
            self._rows.clear()
            self._examined = list({each: None for one in messages for each in self._budgets(one.topic, one.client_id)})
            for budget in self._examined:
                budget.look()
            known = True
            try:
                yield from self._learn(waiting, self._examined)
            except StorageFailure as failure:
                self._log_throttle.log("look", f"limits of what is retained cannot be looked at: {failure}")
                known = False
            undecided = []
            for one in waiting:  # what each does counts for the next one
                if known and self._is_undecided(one.message, swept):
                    undecided.append(one)
                else:
                    one.answer.callback(None)
            self._waiting = undecided + self._waiting
            swept = bool(undecided)
            if swept:
                yield self._sweep()
        self._rows.clear()
        self._looking = False

    def _learn(self, waiting: Sequence[_Waiting], budgets: Sequence[Budget]) -> Generator[Deferred[Any], Any, None]:
        topics = sorted({one.message.topic for one in waiting})
        seen = yield self._store.look(
            topics,
            [budget.topic_filter for budget in budgets if budget.topic_filter is not None],
            [budget.client_id for budget in budgets if budget.client_id is not None],
        )
        self._rows = {**{topic: seen.topics.get(topic) for topic in topics}, **self._rows}
        now = self._clock.seconds()
        for budget in budgets:
            usage = seen.total
            if budget.client_id is not None:
                usage = seen.clients.get(budget.client_id, NOTHING)
            elif budget.topic_filter is not None:
                usage = seen.filters.get(budget.topic_filter, NOTHING)
            budget.learn(usage.messages, usage.bytes, now)

    def _is_undecided(self, message: ApplicationMessage, swept: bool) -> bool:
        """Tell whether to look once more before the message is refused: for what has expired, or may not be new."""
        refused = [budget for budget, growth in self._growths(message) if budget.refusal(growth) is not None]
        return bool(refused) and (not swept or not all(budget.certain for budget in refused))

    def _look_failed(self, failure: Any) -> None:
        """Log, and let everybody go on: what is not known to fit is refused."""
        self._log.failure("deciding what may be retained failed", failure)
        waiting, self._waiting, self._looking = self._waiting, [], False
        self._rows.clear()
        for one in waiting:
            one.answer.callback(None)
