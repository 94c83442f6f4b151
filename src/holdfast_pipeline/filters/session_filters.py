"""The Topic Filters of the Sessions in a broker's database."""

from __future__ import annotations

from holdfast_pipeline.filters.requested_filters import (
    InvalidFilter,
    Replayed,
    RequestedFilter,
    RequestedFilters,
    complaint,
    replayed,
)
from holdfast_pipeline.sources.lake import Lake
from holdfast_pipeline.sources.snapshot import Snapshot

_STATEMENT = (
    "SELECT topic_filter, count(*), sum(CASE WHEN retain_handling < 2 THEN 1 ELSE 0 END) "
    "FROM session_subscriptions GROUP BY topic_filter ORDER BY topic_filter"
)


def of_sessions(snapshot: Snapshot) -> RequestedFilters:
    """Read the subscriptions of all Sessions in a database. Only Sessions that outlive a connection are stored.

    A lake knows none.
    """
    if isinstance(snapshot.source, Lake):
        return RequestedFilters()
    with snapshot.source.transaction() as transaction:
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
