"""The search for changes that a killed process had not appended yet: rows above a revision, part by part."""

from __future__ import annotations

from attrs import frozen

from holdfast.storage.driver import Cursor

#: the rows that a part looks at
_ROWS = 5000
_CHANGED = (
    "SELECT topic FROM (SELECT topic, revision FROM retained WHERE topic > ? ORDER BY topic LIMIT ?) AS part "
    "WHERE revision > ?"
)
_END = "SELECT max(topic), count(*) FROM (SELECT topic FROM retained WHERE topic > ? ORDER BY topic LIMIT ?) AS part"


@frozen
class Part:
    """The changed topics of a part. The next part begins ``after`` a topic, None at the end."""

    topics: list[str]
    after: str | None


def read_part(cursor: Cursor, revision: int, after: str) -> Part:
    """Return the topics whose rows are above a revision, of the next rows after a topic."""
    cursor.execute(_CHANGED, (after, _ROWS, revision))
    topics = [topic for (topic,) in cursor.fetchall()]
    cursor.execute(_END, (after, _ROWS))
    ((last, count),) = cursor.fetchall()
    return Part(topics, last if count == _ROWS else None)
