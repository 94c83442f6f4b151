"""Budgets: how much of each quota is used, as an upper bound that is known without reading the store.

A budget is the usage found when the store was read last, plus every message charged since, counted as if its topic
were new. So a message that fits by its budgets certainly fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attrs import define

from holdfast.charging import GUESTS
from holdfast.hot_values import hot_frozen
from holdfast.log.client_log import client_text
from holdfast.retained.policies import NO_POLICIES, Policies
from holdfast.retained.quota.limits import UNLIMITED, Limit, PayerQuotas, Quota, RetainerLimits, RetainRefused
from holdfast.retained.store.values import Usage
from holdfast.topics import matches


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
