"""Earlier changes, from the history: they outlast a restart of the broker, and reach further back than its memory."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from holdfast.retained.changes.change import StoredChange, change_of_event
from holdfast.retained.changes.token import NO_HEAD, Head
from holdfast.retained.history.history import RetainedHistory
from holdfast.retained.history.periods import read_periods, read_state
from holdfast.storage.driver import Cursor

#: The changes of one read.
_CHANGES = 200


class Forgotten(Exception):
    """The history lacks changes since a place; the text has the reason."""


def head_of(cursor: Cursor) -> Head:
    """Return the last entry of the history if every change is recorded now, else NO_HEAD."""
    periods = read_periods(cursor)
    if not periods or periods[-1].ended_at is not None:
        return NO_HEAD
    seq = read_state(cursor).last_seq
    revision = _revision_at(cursor, seq)
    return NO_HEAD if revision is None else Head(seq, revision)


class PastChanges:
    """Reads the changes after an entry of the history."""

    def __init__(self, history: RetainedHistory) -> None:
        self._history = history

    @property
    def enabled(self) -> bool:
        """Whether this broker records its changes."""
        return self._history.limits.enable

    @inlineCallbacks
    def check(self, topic_filter: str, head: Head) -> Generator[Deferred[Any], Any, None]:
        """Fail with :class:`Forgotten` if changes of the topics after this entry are missing.

        Also if the entry is of another database.
        """
        if not self.enabled or head == NO_HEAD:
            raise Forgotten("the changes since the token are not known any more")

        def work(cursor: Cursor) -> str | None:
            periods, state = read_periods(cursor), read_state(cursor)
            present = periods[-1] if periods else None
            if head.seq > state.last_seq or _revision_at(cursor, head.seq) not in (head.revision, None):
                return "the token is of another database, or of a later state of this one"
            if present is None or present.ended_at is not None or head.seq <= present.first_seq:
                return "not every change since the token is recorded"
            if present.left_out_at(state.last_at, topic_filter).filters:
                return "not every change of these topics is recorded"
            if head.seq < present.pruned_in(topic_filter) or _revision_at(cursor, head.seq) is None:
                return "the token is older than the history"
            return None

        refusal: str | None = yield self._history.read(work)
        if refusal is not None:
            raise Forgotten(refusal)

    @inlineCallbacks
    def read(
        self, topic_filter: str, seq: int
    ) -> Generator[Deferred[Any], Any, tuple[list[StoredChange], Head, int, bool]]:
        """Return the next changes after ``seq``, their last entry, the next position, and whether these are all.

        Fails with :class:`Forgotten` if pruning has passed ``seq``.
        """
        page = yield self._history.events(topic_filter, cursor=seq, limit=_CHANGES)

        def work(cursor: Cursor) -> tuple[int, int]:
            periods = read_periods(cursor)
            return max(each.pruned_in(topic_filter) for each in periods), periods[-1].first_seq

        pruned, first_seq = yield self._history.read(work)
        if first_seq > seq:
            raise Forgotten("not every change since the token is recorded")
        if pruned > seq:
            raise Forgotten("the history forgets the changes faster than they are read")
        last = Head(page.events[-1].seq, page.events[-1].revision) if page.events else NO_HEAD
        return [change_of_event(event) for event in page.events], last, page.cursor, page.done


def _revision_at(cursor: Cursor, seq: int) -> int | None:
    cursor.execute("SELECT revision FROM retained_history WHERE seq = ?", (seq,))
    found = cursor.fetchall()
    return found[0][0] if found else None
