"""The Topic Filters of the Sessions in a broker's database."""

from __future__ import annotations

from holdfast_pipeline.database.connection import Source
from holdfast_pipeline.filters.requested_filters import (
    InvalidFilter,
    Replayed,
    RequestedFilter,
    RequestedFilters,
    complaint,
    replayed,
)

_STATEMENT = (
    "SELECT topic_filter, count(*), sum(CASE WHEN retain_handling < 2 THEN 1 ELSE 0 END) "
    "FROM session_subscriptions GROUP BY topic_filter ORDER BY topic_filter"
)


def of_sessions(source: Source) -> RequestedFilters:
    """Read the subscriptions of all Sessions in a database. Only Sessions that outlive a connection are stored."""
    with source.transaction() as transaction:
        rows = transaction.rows(_STATEMENT)
    reasons = {text: complaint(text) for text, _, _ in rows}
    return RequestedFilters(
        tuple(
            RequestedFilter(text, int(replaying or count), replayed(text) if replaying else Replayed.DECLINED)
            for text, count, replaying in rows
            if not reasons[text]
        ),
        tuple(InvalidFilter(0, text, reason) for text, reason in reasons.items() if reason),
    )
