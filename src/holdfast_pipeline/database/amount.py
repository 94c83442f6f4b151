"""Whether a database is so small that a job on it is short: Spark is then started and set for that."""

from __future__ import annotations

from holdfast_pipeline.database.connection import Source
from holdfast_pipeline.database.history_range import history_range, telemetry_range

#: Retained messages and entries of the history together. With more, a job is taken for a long one.
MOST_SMALL = 50_000
_MESSAGES = "SELECT coalesce(sum(retained_count), 0) FROM nodes"


def is_small(source: Source, telemetry: bool = False) -> bool:
    """Tell whether a database has few messages and a short history, or a short ``telemetry``.

    Raises :class:`PipelineError`.
    """
    with source.transaction() as transaction:
        ((messages,),) = transaction.rows(_MESSAGES)
        there = (telemetry_range if telemetry else history_range)(transaction)
    return int(messages) + there.last - there.before <= MOST_SMALL
