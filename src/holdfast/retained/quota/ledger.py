"""The ledger: it refuses or accepts each retained message by quota, before the message is stored or delivered.

How it works. Only before a message is stored, coalesced with others or delivered can it be refused to its publisher.
So the decision is made in the reactor thread, though only the writer's transaction knows the exact usage. For each
quota the ledger keeps an upper bound, its *budget* (:mod:`budgets`). Say ``max_retained_messages = 100``:

    the store was read: 97 messages                          the budget is 97
    t/1, t/2 and t/3 come: ``fits``, decided at once         the budget is 100, counted as if all three were new
    t/1 comes again: 101 might be too many                   ``look``: the publisher waits, its later packets too
    the store is read behind all pending writes              it holds 100 messages; t/1 is among them
    t/1 replaces a message: ``charge``                       the budget is 100

One read serves all publishers that wait together. Messages charged while it is under way are added to its result, and
each waiting message is decided in the turn in which its Deferred fires. A message is refused only after a read that

- was exact: no charge meanwhile may have replaced a message that the read did not know (``Budget.exact``), and
- came after a sweep of all expired messages: they do not count.

Otherwise the ledger sweeps some and reads once more.

The invariant: a budget is never below the true usage. Failed commits, clears and expiry make the true usage lower, so
nothing has to be undone; the next read corrects the budget. With several nodes a budget is stale after a second.

Tried and left out: to decide in the writer's transaction. That is exact with several nodes too, but then nothing may
be delivered before the commit, and only one node may commit at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from itertools import chain
from typing import Any

from attrs import define, evolve, field
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.log.log_throttle import LogThrottle
from holdfast.messages import ApplicationMessage
from holdfast.retained.policies import Policies
from holdfast.retained.quota.budgets import NOBODY, Budget, Budgets, Charge, Growth
from holdfast.retained.quota.limits import PayerLimits, RetainerLimits, RetainRefused
from holdfast.retained.store.interfaces import IRetainedStore
from holdfast.retained.store.values import NO_USAGE, Usage
from holdfast.sizes import stored_size
from holdfast.tickets import StorageFailure

#: Clients whose budgets are remembered.
_MOST_CLIENTS = 65_536
#: Seconds after which a budget is stale if other nodes write to the store.
_SHARED_FOR = 1.0


def size_of(message: ApplicationMessage) -> int:
    """Return the bytes of a message that quotas count."""
    return stored_size(message.topic, message.properties, len(message.payload))


@define(eq=False)
class _Waiting:
    message: ApplicationMessage
    decided: Deferred[None] = field(factory=Deferred)


@define(eq=False)
class _Look:
    """A read of the store: ``usage`` is by topic, as found or as changed since it began. None is an empty topic."""

    budgets: Sequence[Budget] = ()
    usage: dict[str, Usage | None] = field(factory=dict)


class Ledger:
    """Decides whether messages fit into the quotas.

    ``sweep`` removes some expired messages, so that they cause no refusal, and returns whether more may be left.
    """

    _log = Logger()

    def __init__(
        self, store: IRetainedStore, *, limits: RetainerLimits, sweep: Callable[[], Deferred[bool]], clock: IReactorTime
    ) -> None:
        self._store = store
        self._sweep = sweep
        self._clock = clock
        self._log_throttle = LogThrottle(self._log, clock.seconds)
        self._budgets = Budgets(limits)
        self._payers = limits.payers
        self._waiting: list[_Waiting] = []
        self._look: _Look | None = None
        #: how many imports are changing the store now, unseen by the budgets
        self._suspended = 0

    def change_payers(self, payers: PayerLimits) -> None:
        """Use these quotas of listeners from now on. Who is a payer stays as it was at the start, as do the counts."""
        if self._payers is not None:
            self._payers = evolve(payers, names_proven=self._payers.names_proven)

    def change_limits(self, limits: RetainerLimits) -> None:
        """Use these quotas of all messages together, of each Client and of Topic Filters from now on."""
        self._budgets.change_limits(limits)

    def change_policies(self, policies: Policies) -> None:
        """Use the quotas of other policies from now on."""
        self._budgets.change_policies(policies)

    def renew(self) -> None:
        """Read the store anew for every budget: it has counted topics that earlier reads did not include."""
        for budget in self._budgets:
            budget.read_at = None

    def fits(self, message: ApplicationMessage) -> bool:
        """Tell whether the message certainly fits, even if its topic is new."""
        # Forgetting a client costs a read when it comes again. During a read the charges would be lost.
        if len(self._budgets.clients) + len(self._budgets.payers) >= _MOST_CLIENTS and self._look is None:
            self._budgets.clients.clear()
            self._budgets.payers.clear()
        growth = Growth(1, size_of(message))
        return all(
            self._is_known(budget) and budget.refusal(growth) is None
            for budget in self._budgets.of(message.topic, message.client_id, self._charge_of(message))
        )

    def look(self, message: ApplicationMessage) -> Deferred[None]:
        """Read the store for a message. When this fires, :meth:`charge` decides about the message, in the same turn."""
        waiting = _Waiting(message)
        self._waiting.append(waiting)
        if self._look is None and len(self._waiting) == 1:  # one read serves all messages of this turn
            self._clock.callLater(0, self._begin)
        return waiting.decided

    def check(self, message: ApplicationMessage) -> Sequence[tuple[Budget, Growth]]:
        """Return how much each budget grows by a message. Raises :class:`RetainRefused` if it may not fit."""
        growths = self._growths(message)
        for budget, growth in growths:
            refusal = budget.refusal(growth)
            if refusal is None and not self._is_known(budget):
                refusal = RetainRefused(budget.over_messages, "the store cannot be read now to check the quotas")
            if refusal is not None:
                raise refusal
        return growths

    def charge(self, message: ApplicationMessage) -> None:
        """Count a message that is going to be stored. Raises :class:`RetainRefused` if it may not fit."""
        # All refusals come before the first charge: a refused message must not count anywhere.
        growths = self.check(message)
        exact = self._look is not None and message.topic in self._look.usage
        for budget, growth in growths:
            budget.charge(growth, exact)
        self._budgets.release(message.client_id, self._found(message.topic), self._charge_of(message))
        if self._look is not None:
            size = size_of(message)
            self._look.usage[message.topic] = Usage(1, size, message.client_id, message.username)

    def cleared(self, topic: str) -> None:
        """Take note of a topic that is going to be cleared. Without a read under way the budgets just stay too high."""
        look = self._look
        if look is None:
            return
        if topic not in look.usage:
            # The read may or may not see this clear, depending on the order of commits.
            for budget in look.budgets:
                budget.exact = False
        before = look.usage.get(topic)
        if before is not None:
            for budget in chain(self._budgets.of(topic, before.client_id), self._budgets.of_payers(before)):
                budget.charge(Growth(-1, -before.bytes), True)
        look.usage[topic] = None

    def holds(self, topic: str) -> bool:
        """Tell whether a topic holds a message, by the read under way. True if that is not known."""
        return self._look is None or topic not in self._look.usage or self._look.usage[topic] is not None

    def suspend(self) -> None:
        """Trust no budget until :meth:`resume`: an import is about to change the store."""
        self._suspended += 1

    def resume(self) -> None:
        """Read the store anew for every budget."""
        self._suspended -= 1
        self.renew()

    def _found(self, topic: str) -> Usage | None:
        return None if self._look is None else self._look.usage.get(topic)

    def _growths(self, message: ApplicationMessage) -> Sequence[tuple[Budget, Growth]]:
        before, to = self._found(message.topic), self._charge_of(message)
        return list(self._budgets.growths(message.topic, size_of(message), message.client_id, before, to))

    def _charge_of(self, message: ApplicationMessage) -> Charge:
        payers = self._payers
        if payers is None:
            return NOBODY
        return Charge(payers.payers(message.username, message.client_id), payers.quotas(message.listener))

    def _is_known(self, budget: Budget) -> bool:
        if not budget.quota.is_limited:  # a payer, in a zone without quotas for payers
            return True
        if self._look is not None:
            return budget.read_at is not None
        if budget.read_at is None or self._suspended:
            return False
        return not self._store.shared or self._clock.seconds() - budget.read_at < _SHARED_FOR

    def _begin(self) -> None:
        self._look = _Look()
        self._decide().addErrback(self._failed)

    @inlineCallbacks
    def _decide(self) -> Generator[Deferred[Any], Any, None]:
        """Read the store, round after round, while messages wait. Messages that come meanwhile join the next round."""
        swept = False  # whether no expired message was left before this round
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            messages = [one.message for one in waiting]
            budgets = {
                each: None
                for one in messages
                for each in self._budgets.of(one.topic, one.client_id, self._charge_of(one))
            }
            look = self._look = _Look(list(budgets))
            for budget in look.budgets:
                budget.begin_read()
            known = True
            try:
                yield from self._read(look, sorted({one.topic for one in messages}))
            except StorageFailure as failure:
                self._log_throttle.log("look", f"the store cannot be read to check the quotas: {failure}")
                known = False
            undecided = []
            for one in waiting:  # each message that is charged counts for the messages after it
                if known and self._needs_another_read(one.message, swept):
                    undecided.append(one)
                else:
                    one.decided.callback(None)
            # They keep their place before messages that came during the read.
            self._waiting = undecided + self._waiting
            swept = False
            if undecided:
                swept = not (yield self._sweep())
        self._look = None

    def _read(self, look: _Look, topics: Sequence[str]) -> Generator[Deferred[Any], Any, None]:
        seen = yield self._store.read_usage(
            topics,
            [budget.scope for budget in look.budgets if budget.scope is not None],
            [budget.client_id for budget in look.budgets if budget.client_id is not None],
            [budget.payer for budget in look.budgets if budget.payer is not None],
        )
        # Charges and clears during the read are newer than its result.
        look.usage = {**{topic: seen.topics.get(topic) for topic in topics}, **look.usage}
        now = self._clock.seconds()
        for budget in look.budgets:
            usage = seen.total
            if budget.client_id is not None:
                usage = seen.clients.get(budget.client_id, NO_USAGE)
            elif budget.payer is not None:
                usage = seen.payers.get(budget.payer, NO_USAGE)
            elif budget.scope is not None:
                usage = seen.filters.get(budget.scope, NO_USAGE)
            budget.end_read(usage, now)

    def _needs_another_read(self, message: ApplicationMessage, swept: bool) -> bool:
        """Tell whether to sweep and read once more before the message is refused.

        That is also so if a quota became valid during the read.
        """
        growths = self._growths(message)
        if any(budget.read_at is None and budget.quota.is_limited for budget, _ in growths):
            return True
        refusing = [budget for budget, growth in growths if budget.refusal(growth) is not None]
        return bool(refusing) and (not swept or not all(budget.exact for budget in refusing))

    def _failed(self, failure: Failure) -> None:
        """Log the failure, and decide all waiting messages: messages that may not fit are refused."""
        self._log.failure("checking the quotas of retained messages failed", failure)
        waiting, self._waiting, self._look = self._waiting, [], None
        for one in waiting:
            one.decided.callback(None)
