"""Bounds between partitions, chosen so that the partitions have similar numbers of rows."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.retained.api import KeyRange
from holdfast_pipeline.database.connection import ReadTransaction

# SQL is built from constants and counts only: values are always bound.
# ruff: noqa: S608

#: Rows that Postgres samples to find the bounds.
_SAMPLE = 10_000


def bounds(transaction: ReadTransaction, ranges: Sequence[KeyRange], parts: int) -> list[str]:
    """Return the topics at which to divide ranges into ``parts`` parts; fewer if there are few rows."""
    if parts < 2 or not ranges:
        return []
    if transaction.dialect == "postgresql":
        sample = _sampled(transaction, ranges)
        positions = [len(sample) * part // parts for part in range(1, parts)]
        return sorted({sample[position] for position in positions if 0 < position < len(sample)})
    where, values = within(ranges)
    (total,) = transaction.rows(f"SELECT count(*) FROM retained WHERE {where}", values)[0]
    found: set[str] = set()
    for part in range(1, parts):
        at = total * part // parts
        if at:
            found.update(
                topic
                for (topic,) in transaction.rows(
                    f"SELECT topic FROM retained WHERE {where} ORDER BY topic LIMIT 1 OFFSET ?", (*values, at)
                )
            )
    return sorted(found)


def within(ranges: Sequence[KeyRange]) -> tuple[str, tuple[str, ...]]:
    """Return the SQL condition that a topic is in one of the ranges, and its values."""
    terms, values = [], []
    for one in ranges:
        terms.append("topic >= ?" if one.high is None else "topic >= ? AND topic < ?")
        values += [one.low] if one.high is None else [one.low, one.high]
    return " OR ".join(f"({term})" for term in terms) or "1 = 0", tuple(values)


def _sampled(transaction: ReadTransaction, ranges: Sequence[KeyRange]) -> list[str]:
    """Return topics in order: all of a small table, the topics on some pages of a large one."""
    # The planner's estimate costs nothing; an exact count would read the whole table.
    (estimate,) = transaction.rows("SELECT reltuples FROM pg_class WHERE oid = CAST('retained' AS regclass)")[0]
    where, values = within(ranges)
    percent = 100.0 * _SAMPLE / estimate if estimate > _SAMPLE else 100.0
    sample = "" if percent >= 100 else f" TABLESAMPLE SYSTEM ({percent:.6f}) REPEATABLE (1)"
    return [
        topic
        for (topic,) in transaction.rows(f"SELECT topic FROM retained{sample} WHERE {where} ORDER BY topic", values)
    ]
