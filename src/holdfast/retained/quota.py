"""Quotas: the budgets, the ledger that judges each message by them, and an import's exact view of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from attrs import define, evolve, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.core.clients import GUESTS
from holdfast.core.messages import ApplicationMessage, stored_size
from holdfast.core.tickets import StorageFailure
from holdfast.core.topics import matches
from holdfast.hot_values import hot_frozen
from holdfast.retained.limits import (
    UNLIMITED,
    Limit,
    PayerLimits,
    PayerQuotas,
    Quota,
    RetainerLimits,
    RetainRefused,
)
from holdfast.retained.policies import NO_POLICIES, Policies
from holdfast.retained.store.interfaces import IRetainedStore
from holdfast.retained.store.rows import Row, stored_row_size
from holdfast.retained.store.usage import CLIENTS, UsageTable
from holdfast.retained.store.values import NO_USAGE, Usage
from holdfast.scheduling.waiting import as_deferred
from holdfast.storage.committer import read_totals
from holdfast.storage.driver import Cursor
from holdfast.watch.lazy_log import LogThrottle
from holdfast.watch.log import client_text

# Budgets: how much of each quota is used, as an upper bound that is known without reading the store.
#
# A budget is the usage found when the store was read last, plus every message charged since, counted as if its topic
# were new. So a message that fits by its budgets certainly fits.


@hot_frozen
class Growth:
    """The messages and bytes that a message adds to a budget."""

    messages: int
    bytes: int


_NONE = Growth(0, 0)


@hot_frozen
class Charge:
    """The payers of a message, and their quotas in the zone through which it comes."""

    payers: tuple[str, ...]
    quotas: PayerQuotas


NOBODY = Charge((), UNLIMITED)


@define(eq=False)
class Budget:
    """The use of one quota: of one client's messages, of a payer's, of topics of a Topic Filter or a policy, or of all.

    ``scope`` is the name under which the store counts the topics of a filter or a policy.

    ``read_at`` is when (seconds) the store was read for it last, None if its use is not known. During a read, ``since``
    holds the charges made since the read began, and ``exact`` tells that none of them replaced a message that the read
    did not know.
    """

    quota: Quota
    over_messages: Limit
    over_bytes: Limit
    client_id: str | None = None
    topic_filter: str | None = None
    scope: str | None = None
    payer: str | None = None
    messages: int = 0
    bytes: int = 0
    read_at: float | None = None
    since: Growth = _NONE
    exact: bool = True

    def refusal(self, growth: Growth) -> RetainRefused | None:
        """Return the refusal of a message that does not fit, None if it fits. A message that adds nothing fits."""
        quota = self.quota
        if growth.messages > 0 and 0 < quota.max_messages < self.messages + growth.messages:
            return RetainRefused(
                self.over_messages, f"{quota.key}max_retained_messages = {quota.max_messages} is reached{self._whose()}"
            )
        if growth.bytes > 0 and 0 < quota.max_bytes < self.bytes + growth.bytes:
            key = f"{quota.key}max_retained_bytes"
            return RetainRefused(self.over_bytes, f"{key} = {quota.max_bytes} would be exceeded{self._whose()}")
        return None

    def _whose(self) -> str:
        if self.client_id is not None:
            return f" by {self.client_id!r}"
        if self.payer is not None:
            return f" by {client_text(self.payer)}"
        return "" if self.topic_filter is None else f" in {self.topic_filter!r}"

    def charge(self, growth: Growth, exact: bool) -> None:
        """Add a message that is going to be stored."""
        self.messages += growth.messages
        self.bytes += growth.bytes
        self.since = Growth(self.since.messages + growth.messages, self.since.bytes + growth.bytes)
        self.exact = self.exact and exact

    def begin_read(self) -> None:
        """Begin to count the charges during a read. The read sees all earlier ones."""
        self.since = _NONE
        self.exact = True

    def end_read(self, usage: Usage, seconds: float) -> None:
        """Take the usage that the read found, and add the charges made meanwhile."""
        self.messages = usage.messages + self.since.messages
        self.bytes = usage.bytes + self.since.bytes
        self.read_at = seconds


class Budgets:
    """The budgets of all configured quotas. ``opened`` is called with each one when it is first needed."""

    def __init__(self, limits: RetainerLimits, opened: Callable[[Budget], None] = lambda _: None) -> None:
        self._opened = opened
        self._payer_limits = limits.payers
        self._total: list[Budget] = []
        self._topics: list[tuple[str, Budget]] = []
        #: budgets of the clients seen so far
        self.clients: dict[str, Budget] = {}
        #: budgets of the payers seen so far in a zone with quotas for them
        self.payers: dict[str, Budget] = {}
        self.change_limits(limits)
        self._policies = NO_POLICIES
        #: budgets of the policies with a quota, by the names of their scopes
        self._of_policies: dict[str, Budget] = {}
        self.change_policies(limits.policies)

    def change_limits(self, limits: RetainerLimits) -> None:
        """Use other quotas of all messages, of each client and of Topic Filters. What is known of a use stays known.

        What had no quota is not known: it was not charged.
        """
        total = limits.total_quota
        if not total.is_limited:
            self._total = []
        elif self._total:
            self._total[0].quota = total
        else:
            self._total = [self._open(Budget(total, Limit.MESSAGES, Limit.BYTES))]
        self._client_quota = limits.client_quota
        if self._client_quota is None:
            self.clients = {}
        known = {(scope, budget.quota.key): budget for scope, budget in self._topics}
        self._topics = [
            (scope, self._with_quota(known.pop((scope, quota.key), None), quota, scope, scope))
            for scope, quota in limits.topic_quotas
        ]

    def change_policies(self, policies: Policies) -> None:
        """Use the quotas of other policies. What is known of the topics of a policy stays known."""
        known, self._of_policies = self._of_policies, {}
        for policy in policies.policies:
            if policy.has_quota:
                scope = policies.scope_name(policy)
                quota = Quota(policy.name, policy.max_retained_messages, policy.max_retained_bytes)
                self._of_policies[scope] = self._with_quota(known.get(scope), quota, policy.topic_filter, scope)
        self._policies = policies

    def _with_quota(self, known: Budget | None, quota: Quota, topic_filter: str, scope: str) -> Budget:
        """Return the known budget of a scope, or a new one, with this quota."""
        if known is None:
            over = Limit.TOPIC_QUOTA
            return self._open(Budget(quota, over, over, topic_filter=topic_filter, scope=scope))
        known.quota = quota
        return known

    def _open(self, budget: Budget) -> Budget:
        self._opened(budget)
        return budget

    def __iter__(self) -> Iterator[Budget]:
        yield from self._total
        yield from (budget for _, budget in self._topics)
        yield from self._of_policies.values()
        yield from self.clients.values()
        yield from self.payers.values()

    def of(self, topic: str, client_id: str | None, charge: Charge = NOBODY) -> Iterator[Budget]:
        """Yield the budgets that a client's message in a topic counts against."""
        yield from self._total
        for topic_filter, budget in self._topics:
            if matches(topic_filter, topic):
                yield budget
        if self._of_policies:
            scope = self._policies.scope_of(topic)
            if scope is not None:
                yield self._of_policies[scope]
        if self._client_quota is not None and client_id is not None:
            yield self._client(client_id, self._client_quota)
        for payer in charge.payers:
            quota = charge.quotas.guests if payer == GUESTS else charge.quotas.own
            if payer not in self.payers:
                if not quota.is_limited:
                    continue
                over = Limit.GUESTS_QUOTA if payer == GUESTS else Limit.USER_QUOTA
                self.payers[payer] = self._open(Budget(quota, over, over, payer=payer))
            known = self.payers[payer]
            known.quota = quota  # that of the zone through which this message comes
            yield known

    def growths(
        self, topic: str, size: int, client_id: str | None, before: Usage | None, charge: Charge = NOBODY
    ) -> Iterator[tuple[Budget, Growth]]:
        """Yield how much each budget grows by a message of ``size`` bytes in place of the topic's message ``before``.

        For the quota of a client or a payer, a message that replaces another one's message counts as a new one.
        """
        new = Growth(1, size)
        changed = new if before is None else Growth(0, size - before.bytes)
        others = self._payers_before(before)
        for budget in self.of(topic, client_id, charge):
            is_others = before is not None and (
                (budget.client_id is not None and before.client_id != client_id)
                or (budget.payer is not None and budget.payer not in others)
            )
            yield budget, new if is_others else changed

    def release(self, client_id: str | None, before: Usage | None, charge: Charge = NOBODY) -> None:
        """Take a client's message ``before`` off its quota if another client (``client_id``) replaces the message.

        So too for its payers, except those that the new message is charged to.
        """
        if before is not None:
            for budget in self.of_payers(before):
                if budget.payer not in charge.payers:
                    budget.charge(Growth(-1, -before.bytes), True)
        if self._client_quota is None or before is None or before.client_id in (None, client_id):
            return
        assert before.client_id is not None
        self._client(before.client_id, self._client_quota).charge(Growth(-1, -before.bytes), True)

    def of_payers(self, before: Usage) -> Iterator[Budget]:
        """Yield the known budgets of the payers of a retained message."""
        for payer in self._payers_before(before):
            if payer in self.payers:
                yield self.payers[payer]

    def _payers_before(self, before: Usage | None) -> tuple[str, ...]:
        if before is None or self._payer_limits is None:
            return ()
        return self._payer_limits.payers(before.username, before.client_id)

    def _client(self, client_id: str, quota: Quota) -> Budget:
        budget = self.clients.get(client_id)
        if budget is None:
            budget = self._open(Budget(quota, Limit.CLIENT_QUOTA, Limit.CLIENT_QUOTA, client_id=client_id))
            self.clients[client_id] = budget
        budget.quota = quota  # a reload may have changed it
        return budget


# The ledger: it refuses or accepts each retained message by quota, before the message is stored or delivered.
#
# How it works. Only before a message is stored, coalesced with others or delivered can it be refused to its publisher.
# So the decision is made in the reactor thread, though only the writer's transaction knows the exact usage. For each
# quota the ledger keeps an upper bound, its *budget*. Say ``max_retained_messages = 100``:
#
#     the store was read: 97 messages                          the budget is 97
#     t/1, t/2 and t/3 come: ``fits``, decided at once         the budget is 100, counted as if all three were new
#     t/1 comes again: 101 might be too many                   ``look``: the publisher waits, its later packets too
#     the store is read behind all pending writes              it holds 100 messages; t/1 is among them
#     t/1 replaces a message: ``charge``                       the budget is 100
#
# One read serves all publishers that wait together. Messages charged while it is under way are added to its result, and
# each waiting message is decided in the turn in which its Deferred fires. A message is refused only after a read that
#
# - was exact: no charge meanwhile may have replaced a message that the read did not know (``Budget.exact``), and
# - came after a sweep of all expired messages: they do not count.
#
# Otherwise the ledger sweeps some and reads once more.
#
# The invariant: a budget is never below the true usage. Failed commits, clears and expiry make the true usage lower, so
# nothing has to be undone; the next read corrects the budget. With several nodes a budget is stale after a second.
#
# Tried and left out: to decide in the writer's transaction. That is exact with several nodes too, but then nothing may
# be delivered before the commit, and only one node may commit at a time.


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

    @as_deferred
    async def _decide(self) -> None:
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
                await self._read(look, sorted({one.topic for one in messages}))
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
                swept = not (await self._sweep())
        self._look = None

    async def _read(self, look: _Look, topics: Sequence[str]) -> None:
        seen = await self._store.read_usage(
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


# The quotas as an import sees them: exact, within one transaction of the writer's thread.


#: The counted bytes and the client of the message that a row replaces; None for none.
Replaced = tuple[int, str | None] | None


class ImportQuota:
    """Decides which rows fit, within one transaction. Without any quota it reads nothing.

    No other change can come between the reads and the commit, so the budgets are exact and no message waits.
    """

    def __init__(self, cursor: Cursor, limits: RetainerLimits, usage: UsageTable) -> None:
        self._cursor = cursor
        self._usage = usage
        self._budgets = Budgets(limits, self._read) if limits.has_quotas else None

    def refusal(self, row: Row, replaced: Replaced) -> RetainRefused | None:
        """Return the refusal of a row that does not fit, None if it fits."""
        if self._budgets is None:
            return None
        growths = self._budgets.growths(row.topic, stored_row_size(row), row.client_id or None, _usage_of(replaced))
        refusals = (budget.refusal(growth) for budget, growth in growths)
        return next((refusal for refusal in refusals if refusal is not None), None)

    def charge(self, row: Row, replaced: Replaced) -> None:
        """Count a row that is going to be written."""
        if self._budgets is None:
            return
        before, client_id = _usage_of(replaced), row.client_id or None
        for budget, growth in self._budgets.growths(row.topic, stored_row_size(row), client_id, before):
            budget.charge(growth, True)
        self._budgets.release(client_id, before)

    def _read(self, budget: Budget) -> None:
        """Begin with the usage that the last transaction left."""
        if budget.client_id is not None:
            usage = self._usage.read(self._cursor, CLIENTS, budget.client_id)
        elif budget.scope is not None:
            usage = self._usage.read(self._cursor, budget.scope, "")
        else:
            totals = read_totals(self._cursor)
            usage = Usage(totals.retained_count, totals.retained_bytes)
        budget.end_read(usage, 0)


def _usage_of(replaced: Replaced) -> Usage | None:
    return None if replaced is None else Usage(1, replaced[0], replaced[1] or None)
