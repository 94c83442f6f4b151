"""Compare the retained messages with what the history says is retained, some topics at a time.

A change and its entry are in one commit, so each topic agrees in every transaction. A slice of topics takes one short
transaction, and the broker may run meanwhile.
"""

from __future__ import annotations

from collections import Counter

from attrs import frozen

from holdfast.changes.entries import retained_sql
from holdfast.changes.moments import present_moment
from holdfast.storage.driver import Cursor

# SQL is built from constants: values are always bound.
# ruff: noqa: S608

#: The revision holds the time of storing, so ``stored_at`` adds nothing.
_COMPARED = ("payload", "qos", "client_id", "username", "expires_at", "revision", "properties_json")
_SAME = " AND ".join(f"(r.{name} = h.{name} OR (r.{name} IS NULL AND h.{name} IS NULL))" for name in _COMPARED)
_UNEXPIRED = "tombstone = 0 AND (expires_at IS NULL OR expires_at > ?)"
_RETAINED = (
    f"SELECT r.topic, CASE WHEN h.op IS NULL OR h.op != 'set' THEN 'missing' WHEN {_SAME} THEN 'same' "
    "ELSE 'different' END FROM (SELECT * FROM retained WHERE topic > ? AND "
    f"{_UNEXPIRED} ORDER BY topic LIMIT ?) AS r LEFT JOIN retained_history AS h ON h.topic = r.topic AND h.seq = "
    "(SELECT max(seq) FROM retained_history WHERE topic = r.topic AND seq > ?) ORDER BY r.topic"
)
_RECORDED = (
    f"SELECT h.topic FROM retained_history AS h WHERE h.topic > ? {{upto}}AND h.seq > ? AND {retained_sql('?')} "
    "AND NOT EXISTS (SELECT 1 FROM retained_history WHERE topic = h.topic AND seq > h.seq) "
    f"AND NOT EXISTS (SELECT 1 FROM retained WHERE topic = h.topic AND {_UNEXPIRED}) ORDER BY h.topic LIMIT ?"
)


@frozen
class Disagreement:
    """A topic whose message is ``missing`` in the history, ``different`` there, or retained ``only`` there."""

    topic: str
    verdict: str


@frozen
class ComparedSlice:
    """The disagreements of a slice, and the number of the topics with each verdict.

    The topics that the history does not record are ``unknown``. The next slice begins after the topic ``after``, None
    behind the last one.
    """

    found: tuple[Disagreement, ...]
    counts: Counter[str]
    after: str | None


def compare(cursor: Cursor, after: str, topics: int, now: int) -> ComparedSlice:
    """Compare the next retained ``topics`` after a topic, at the time ``now`` (milliseconds since the epoch).

    Raises :class:`HistoryUnavailable` if there is no history of the present.
    """
    moment = present_moment(cursor)
    cursor.execute(_RETAINED, (after, now, topics, moment.first_seq))
    verdicts = dict(cursor.fetchall())
    last = None if len(verdicts) < topics else max(verdicts)  # in order of code points, as in the database
    for topic, verdict in verdicts.items():
        if verdict == "missing" and not moment.knows(topic):
            verdicts[topic] = "unknown"
    bounds = (after,) if last is None else (after, last)
    statement = _RECORDED.format(upto="" if last is None else "AND h.topic <= ? ")
    cursor.execute(statement, (*bounds, moment.first_seq, now, now, topics))
    recorded = [topic for (topic,) in cursor.fetchall()]
    if len(recorded) == topics:
        last = recorded[-1]
        verdicts = {topic: verdict for topic, verdict in verdicts.items() if topic <= last}
    verdicts |= {topic: "only" for topic in recorded if moment.knows(topic)}
    found = tuple(
        Disagreement(topic, verdict) for topic, verdict in verdicts.items() if verdict not in ("same", "unknown")
    )
    return ComparedSlice(found, Counter(verdicts.values()), last)
