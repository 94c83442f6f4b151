"""Where to divide the topics, so that the parts have about as many rows each."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.pipeline.database.connection import Reading
from holdfast.retained.wildcards.plan import KeyRange

# Built from constants and counts alone: values are always bound.
# ruff: noqa: S608

#: Rows looked at to find the bounds.
_SAMPLE = 10_000


def bounds(reading: Reading, ranges: Sequence[KeyRange], parts: int) -> list[str]:
    """Return the topics at which to divide ranges of topics into ``parts`` parts, or fewer where there is little."""
    if parts < 2 or not ranges:
        return []
    if reading.dialect == "postgresql":
        sample = _sampled(reading, ranges)
        places = [len(sample) * part // parts for part in range(1, parts)]
        return sorted({sample[place] for place in places if 0 < place < len(sample)})
    where, values = within(ranges)
    (total,) = reading.rows(f"SELECT count(*) FROM retained WHERE {where}", values)[0]
    found: set[str] = set()
    for part in range(1, parts):
        at = total * part // parts
        if at:
            found.update(
                topic
                for (topic,) in reading.rows(
                    f"SELECT topic FROM retained WHERE {where} ORDER BY topic LIMIT 1 OFFSET ?", (*values, at)
                )
            )
    return sorted(found)


def within(ranges: Sequence[KeyRange]) -> tuple[str, tuple[str, ...]]:
    """Return the condition that a topic is in one of the ranges, and its values."""
    terms, values = [], []
    for one in ranges:
        terms.append("topic >= ?" if one.high is None else "topic >= ? AND topic < ?")
        values += [one.low] if one.high is None else [one.low, one.high]
    return " OR ".join(f"({term})" for term in terms) or "1 = 0", tuple(values)


def _sampled(reading: Reading, ranges: Sequence[KeyRange]) -> list[str]:
    """Return some of the topics in order: of few all, of many those on some pages."""
    (estimate,) = reading.rows("SELECT reltuples FROM pg_class WHERE oid = CAST('retained' AS regclass)")[0]
    where, values = within(ranges)
    share = 100.0 * _SAMPLE / estimate if estimate > _SAMPLE else 100.0
    chosen = "" if share >= 100 else f" TABLESAMPLE SYSTEM ({share:.6f}) REPEATABLE (1)"
    return [
        topic for (topic,) in reading.rows(f"SELECT topic FROM retained{chosen} WHERE {where} ORDER BY topic", values)
    ]
