"""The verdict on an imported message, given the present row of its topic."""

from __future__ import annotations

from enum import Enum
from typing import Protocol


class Merge(Enum):
    """The rule of an import for topics that the database knows."""

    NEWER = "newer"  #: the later change prevails, also if it was a clear
    REPLACE = "replace"  #: the imported message prevails
    KEEP = "keep"  #: the retained message prevails


class Verdict(Enum):
    """The result for an imported message."""

    IMPORTED = "imported"
    UNCHANGED = "unchanged"  #: exactly this message is retained
    KEPT = "kept"  #: another message is retained, and prevails
    CLEARED = "cleared"  #: the topic was cleared later than the message was stored
    EXPIRED = "expired"  #: the message has expired


class Stored(Protocol):
    """A message or a clear, with the time and the revision at which it was stored (milliseconds since the epoch)."""

    @property
    def stored_at(self) -> int:
        """The time of the change."""

    @property
    def expires_at(self) -> int | None:
        """The time at which the message expires, None for never."""

    @property
    def revision(self) -> int:
        """The revision, 0 for none."""

    @property
    def tombstone(self) -> int:
        """Whether this is a clear."""


def verdict_of(imported: Stored, present: Stored | None, merge: Merge, now: int, same: bool) -> Verdict:
    """Return the verdict on a message; ``same`` tells that exactly this message is retained.

    ``present`` is the topic's row, None if there is none. An expired row counts as none, swept or not.
    """
    if _has_expired(imported, now):
        return Verdict.EXPIRED
    if present is None or _has_expired(present, now):
        return Verdict.IMPORTED
    if present.tombstone:
        cleared_later = merge is Merge.NEWER and imported.stored_at <= present.stored_at
        return Verdict.CLEARED if cleared_later else Verdict.IMPORTED
    if same:
        return Verdict.UNCHANGED
    return Verdict.IMPORTED if _prevails(imported, present, merge) else Verdict.KEPT


def _prevails(imported: Stored, retained: Stored, merge: Merge) -> bool:
    if merge is Merge.NEWER:
        return (imported.stored_at, imported.revision) > (retained.stored_at, retained.revision)
    return merge is Merge.REPLACE


def _has_expired(row: Stored, now: int) -> bool:
    # As holdfast.core.messages.has_expired, which needs attrs: the help of a command imports this module.
    return row.expires_at is not None and row.expires_at <= now


# The size of the next part: as many rows as keep the writer busy for some milliseconds.


#: Smaller parts would spend their time in commits; larger ones would delay publishers.
LEAST_ROWS, MOST_ROWS = 100, 2000
#: Seconds for which a part should keep the writer, without the commit: a commit takes its time for any number of rows.
PART_SECONDS = 0.003


class PartSize:
    """The number of rows of the next part, from the time for which the last part kept the writer busy.

    ``rows`` is the size of the first part; ``hold`` is in seconds, None to keep the first size.
    """

    def __init__(self, rows: int, hold: float | None = None) -> None:
        self.rows = rows
        self._hold = hold

    def took(self, rows: int, seconds: float) -> None:
        """Choose the next size, after a part of ``rows`` rows that took ``seconds``.

        A part may have fewer rows than allowed, at the end or because rows are large. Such a part does not show that
        a larger one would be fast, so the size does not grow.
        """
        if self._hold is None or not rows:
            return
        fitting = int(rows * self._hold / seconds) if seconds > 0 else MOST_ROWS
        most = 2 * self.rows if rows >= self.rows else self.rows
        self.rows = max(LEAST_ROWS, min(fitting, most, MOST_ROWS))
