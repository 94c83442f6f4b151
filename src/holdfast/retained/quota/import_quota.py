"""Room for what is merged: the quotas as the store has them, in the writer's thread, where nothing comes between."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.retained.quota.budgets import Budget, Growth
from holdfast.retained.quota.limits import Limit, Quota, RetainerLimits, RetainRefused
from holdfast.retained.store.rows import Row
from holdfast.retained.store.usage import CLIENTS, UsageTable
from holdfast.storage.driver import Cursor
from holdfast.storage.writing.node_totals import read_totals
from holdfast.topics import matches

#: Size and Client of what is retained in a topic; None for nothing.
Before = tuple[int, str | None] | None


class ImportQuota:
    """How much room there is within one transaction. Where nothing is limited, nothing is asked."""

    def __init__(self, cursor: Cursor, limits: RetainerLimits, usage: UsageTable) -> None:
        self._cursor = cursor
        self._usage = usage
        self._client_quota = limits.client_quota
        self._clients: dict[str, Budget] = {}
        self._total: Budget | None = None
        if limits.max_retained_messages or limits.max_retained_bytes:
            meta = read_totals(cursor)
            total = Quota("retainer.", limits.max_retained_messages, limits.max_retained_bytes)
            self._total = Budget(
                total, Limit.MESSAGES, Limit.BYTES, messages=meta.retained_count, bytes=meta.retained_bytes
            )
        self._topics = [(scope, self._budget(quota, Limit.TOPIC_QUOTA, scope)) for scope, quota in limits.topic_quotas]
        self._is_limited = bool(self._total or self._topics or self._client_quota)

    def refusal(self, row: Row, before: Before) -> RetainRefused | None:
        """Return why there is no room for a row in the place of what was before, None if there is."""
        if not self._is_limited:
            return None
        for budget, growth in self._growths(row, before):
            refusal = budget.refusal(growth)
            if refusal is not None:
                return refusal
        return None

    def take(self, row: Row, before: Before) -> None:
        """Take the room for a row."""
        if not self._is_limited:
            return
        for budget, growth in self._growths(row, before):
            budget.charge(growth, True)
        if self._client_quota is not None and before is not None and before[1] and before[1] != row.client_id:
            self._client(before[1], self._client_quota).charge(Growth(-1, -before[0]), True)

    def _growths(self, row: Row, before: Before) -> Iterator[tuple[Budget, Growth]]:
        new = Growth(1, row.size)
        changed = new if before is None else Growth(0, row.size - before[0])
        if self._total is not None:
            yield self._total, changed
        for scope, budget in self._topics:
            if matches(scope, row.topic):
                yield budget, changed
        if self._client_quota is not None and row.client_id:
            theirs = before is not None and before[1] == row.client_id
            yield self._client(row.client_id, self._client_quota), changed if theirs else new

    def _client(self, client_id: str, quota: Quota) -> Budget:
        budget = self._clients.get(client_id)
        if budget is None:
            budget = self._clients[client_id] = self._budget(quota, Limit.CLIENT_QUOTA, CLIENTS, client_id)
        return budget

    def _budget(self, quota: Quota, limit: Limit, scope: str, client_id: str | None = None) -> Budget:
        used = self._usage.read(self._cursor, scope, client_id or "")
        topic_filter = None if client_id is not None else scope
        return Budget(quota, limit, limit, client_id, topic_filter, used.messages, used.bytes)
