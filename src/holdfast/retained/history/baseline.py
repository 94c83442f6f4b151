"""The baseline: an entry for each retained message when a period begins, some hundred in a transaction.

Topics that the rules of the period exclude have no entry.
"""

from __future__ import annotations

from typing import Any

from holdfast.messages import ChangeKind, ChangeOrigin
from holdfast.retained.history.entries import WEIGHT, Entry
from holdfast.retained.history.periods import DepthState, Period, advance, read_periods, states_text, take_turn
from holdfast.storage.driver import Cursor

# Built from constants and counts alone: values are always bound.

_NEXT = "SELECT topic, size FROM retained WHERE topic > ? ORDER BY topic LIMIT ?"
#: A topic with an entry in this period needs no baseline entry: a change has recorded its message.
_WANTED = (
    "FROM retained WHERE topic > :after AND topic <= :upto AND tombstone = 0 AND NOT EXISTS (SELECT 1 "
    "FROM retained_history AS entry WHERE entry.topic = retained.topic AND entry.seq > :first){but}"
)
_MEASURE = f"SELECT count(*), CAST(coalesce(sum({WEIGHT}), 0) AS BIGINT) {_WANTED}"
_COPY = (
    f"INSERT INTO retained_history ({', '.join(Entry._fields)}) SELECT :last + row_number() OVER (ORDER BY topic), "
    f"topic, '{ChangeKind.SET.value}', '{ChangeOrigin.BASELINE.value}', qos, size, :now, expires_at, revision, "
    f"client_id, username, properties5, properties_json, payload, NULL {_WANTED}"
)
_PASSED = "UPDATE retained_history_periods SET baseline_to = ? WHERE first_seq = ?"
_COMPLETE = "UPDATE retained_history_periods SET complete_since = ?, depths = ? WHERE first_seq = ?"


def write_part(cursor: Cursor, now: int, rows: int, size: int) -> bool:
    """Write the baseline of the next topics, at most ``rows`` topics or ``size`` bytes; tell whether it is complete.

    Clients change topics in the meantime. The period answers for moments after its baseline is complete: then each
    topic has an entry, either of the baseline or of a change. Nodes that share a database write one baseline together.
    """
    last_seq, last_at, _ = take_turn(cursor)
    period = _unfinished(cursor)
    if period is None:
        return True
    now = max(now, last_at)
    topics = _next(cursor, period.baseline_to, rows, size)
    if not topics:
        rules = period.parsed
        depths = states_text({depth: DepthState(period.first_seq, now) for depth in rules.depths})
        cursor.execute(_COMPLETE, (now, depths, period.first_seq))
        advance(cursor, last_seq, now, 0)
        return True
    upto = topics[-1]
    bound: dict[str, Any] = {
        "after": period.baseline_to, "upto": upto, "first": period.first_seq, "last": last_seq, "now": now,
    }  # fmt: skip
    excluded = [topic for topic in topics if not period.parsed.records(topic)]
    bound |= {f"but{number}": topic for number, topic in enumerate(excluded)}
    but = f" AND topic NOT IN ({', '.join(f':but{number}' for number in range(len(excluded)))})" if excluded else ""
    cursor.execute(_MEASURE.format(but=but), bound)
    ((count, weight),) = cursor.fetchall()
    if count:
        cursor.execute(_COPY.format(but=but), bound)
        advance(cursor, last_seq + count, now, weight)
    cursor.execute(_PASSED, (upto, period.first_seq))
    return False


def _unfinished(cursor: Cursor) -> Period | None:
    """Return the present period, None if its baseline is complete."""
    periods = read_periods(cursor)
    if not periods or periods[-1].ended_at is not None or periods[-1].complete_since is not None:
        return None
    return periods[-1]


def _next(cursor: Cursor, after: str, rows: int, size: int) -> list[str]:
    """Return the topics of this transaction in their order, none if no topic is left."""
    cursor.execute(_NEXT, (after, rows))
    topics: list[str] = []
    for topic, bytes_ in cursor.fetchall():
        if topics and bytes_ > size:
            break
        topics.append(topic)
        size -= bytes_
    return topics
