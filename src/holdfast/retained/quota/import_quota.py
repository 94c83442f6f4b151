"""The quotas as an import sees them: exact, within one transaction of the writer's thread."""

from __future__ import annotations

from holdfast.retained.quota.budgets import Budget, Budgets
from holdfast.retained.quota.limits import RetainerLimits, RetainRefused
from holdfast.retained.store.rows import Row, stored_row_size
from holdfast.retained.store.usage import CLIENTS, UsageTable
from holdfast.retained.store.values import Usage
from holdfast.storage.driver import Cursor
from holdfast.storage.writing.node_totals import read_totals

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
