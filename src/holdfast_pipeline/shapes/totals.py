"""The figures of shapes, as plain values."""

from __future__ import annotations

from attrs import frozen


@frozen
class ShapeTotals:
    """The retained messages of one shape.

    ``names`` has the number of names of each variable; if there are very many, it is ``about`` this number. ``kind`` is
    the most frequent kind of payload, ``unlike`` the number of messages with another kind, and ``schema`` Spark's type
    of all JSON values of this kind, None for other payloads. ``newest`` and ``oldest`` are times of storage in
    milliseconds since the epoch. ``publishers`` is approximate. ``changes_a_day`` is None without a history, and for
    topics that a policy records for another time or not at all. ``example`` is the first topic.
    """

    shape: str
    topic_filter: str
    names: tuple[int, ...]
    messages: int
    bytes: int
    kind: str
    unlike: int
    schema: str | None
    newest: int
    oldest: int
    expiring: int
    publishers: int
    changes_a_day: float | None
    example: str
    about: bool = False


@frozen
class ShapesFound:
    """The shapes at ``taken_at`` (milliseconds since the epoch), those with most messages first.

    ``unshaped`` is the number of messages without a shape: only if shapes were learned from a part of the topics.
    """

    taken_at: int
    messages: int
    bytes: int
    unshaped: int
    learned: int
    shapes: tuple[ShapeTotals, ...]
