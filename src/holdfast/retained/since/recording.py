"""Recording: appends the changed topics in the transaction that changes the retained messages, or soon after it.

In Postgres each transaction appends its rows (:class:`AppendingRecorder`).

In SQLite a row in each transaction would nearly double the bytes that a single change writes: the last page of the
table, again and again. So :class:`GatheringRecorder` keeps the newest changes in memory, and appends a few hundred
together, in a transaction that happens anyway. A token is only made of changes that are in the table: who asks for one
has them appended first. What a kill takes is found again::

    missing_above 700     durable since the first change that was only gathered; all of them have higher revisions
    a, b, c gathered      revisions 701, 702, 703
    kill -9
    start                 every row of ``retained`` above 700 is looked for, part by part; a, b, c are appended

Until this search is over, no token is good. Where nothing is gathered, ``missing_above`` is NULL, and nothing is
searched.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from time import monotonic
from typing import Protocol

from holdfast.messages import ChangeOrigin
from holdfast.retained.since.turns import POSTGRES
from holdfast.retained.store.recorder import ChangedRow, Recorder
from holdfast.storage import layouts
from holdfast.storage.driver import Cursor
from holdfast.storage.writing.bulk import Bulk

#: Gathered changes are appended once there are so many, or some seconds after the last time.
_MOST_GATHERED = 256
_SECONDS = 10.0
_STATE = (
    "SELECT (SELECT missing_above FROM retained_changes_kept WHERE id = 1), "
    "(SELECT coalesce(max(turn), 0) FROM retained_changes)"
)
_MISSING = "UPDATE retained_changes_kept SET missing_above = ? WHERE id = 1"


class IChangesRecorder(Recorder, Protocol):
    """A recorder of changed topics. ``searching`` tells that changes of an earlier process are looked for.

    ``gathers`` tells whether committed changes may not be in the table yet.
    """

    searching: bool
    gathers: bool

    def append_gathered(self, cursor: Cursor) -> None:
        """Append everything that is not in the table yet. Called in the writer's thread, in a transaction."""

    def append_found(self, cursor: Cursor, topics: Sequence[str], now: int) -> None:
        """Append topics that were found again. Called in the writer's thread, in a transaction."""


class AppendingRecorder:
    """Appends the changed topics of each transaction; then the ``inner`` recorder has its turn."""

    gathers = False

    def __init__(self, inner: Recorder, bulk: Bulk) -> None:
        self.searching = False
        self._inner = inner
        self._bulk = bulk

    def key_of(self, topic: str, revision: int) -> Hashable:
        """Return the key of the inner recorder."""
        return self._inner.key_of(topic, revision)

    def record(self, cursor: Cursor, changes: Sequence[ChangedRow]) -> None:
        """Append the topics of these changes."""
        self._append(cursor, {row.topic: changed_at for row, changed_at, _ in changes})
        self._inner.record(cursor, changes)

    def record_stored(self, cursor: Cursor, topics: Sequence[str], changed_at: int, origin: ChangeOrigin) -> None:
        """Append these topics."""
        self._append(cursor, dict.fromkeys(topics, changed_at))
        self._inner.record_stored(cursor, topics, changed_at, origin)

    def record_expired(self, cursor: Cursor, topics: Sequence[str], now: int, revision: int) -> None:
        """Append these topics."""
        self._append(cursor, dict.fromkeys(topics, now))
        self._inner.record_expired(cursor, topics, now, revision)

    def append_gathered(self, cursor: Cursor) -> None:
        """Do nothing: everything is in the table."""

    def append_found(self, cursor: Cursor, topics: Sequence[str], now: int) -> None:
        """Append these topics."""
        self._append(cursor, dict.fromkeys(topics, now))

    def _append(self, cursor: Cursor, changed: dict[str, int]) -> None:
        if changed:
            assert POSTGRES.present is not None
            cursor.execute(POSTGRES.present)
            ((turn,),) = cursor.fetchall()
            self._bulk.upsert(
                cursor, layouts.retained_changes, [(turn, topic, changed[topic]) for topic in sorted(changed)]
            )


class GatheringRecorder:
    """Gathers changed topics and appends them together; the ``inner`` recorder has its turn in each transaction.

    All methods run in the writer's thread. A transaction may fail after any of them, so what is durable is looked up at
    the next change: gathered changes are kept until their turns are in the table.
    """

    gathers = True

    def __init__(
        self, inner: Recorder, bulk: Bulk, most: int = _MOST_GATHERED, seconds: Callable[[], float] = monotonic
    ) -> None:
        self.searching = False
        self._inner = inner
        self._bulk = bulk
        self._most = most
        self._seconds = seconds
        self._appended_at = seconds()
        #: by topic, the turn and the time of its newest change that may not be in the table; in the order of turns
        self._gathered: dict[str, tuple[int, int]] = {}
        self._turn = 0

    def key_of(self, topic: str, revision: int) -> Hashable:
        """Return the key of the inner recorder."""
        return self._inner.key_of(topic, revision)

    def record(self, cursor: Cursor, changes: Sequence[ChangedRow]) -> None:
        """Gather the topics of these changes."""
        if changes:
            lowest = min(row.revision for row, _, _ in changes)
            self._gather(cursor, [(row.topic, changed_at) for row, changed_at, _ in changes], lowest)
        self._inner.record(cursor, changes)

    def record_stored(self, cursor: Cursor, topics: Sequence[str], changed_at: int, origin: ChangeOrigin) -> None:
        """Append these topics now: their revisions are old, so a search after a kill would not find them."""
        self.append_found(cursor, topics, changed_at)
        self._inner.record_stored(cursor, topics, changed_at, origin)

    def record_expired(self, cursor: Cursor, topics: Sequence[str], now: int, revision: int) -> None:
        """Gather these topics."""
        if topics:
            self._gather(cursor, [(topic, now) for topic in topics], revision)
        self._inner.record_expired(cursor, topics, now, revision)

    def append_gathered(self, cursor: Cursor) -> None:
        """Append all gathered changes."""
        missing_above, _ = self._look(cursor)
        self._append(cursor, missing_above)

    def append_found(self, cursor: Cursor, topics: Sequence[str], now: int) -> None:
        """Append these topics, and all gathered changes."""
        missing_above, _ = self._look(cursor)
        self._add([(topic, now) for topic in topics])
        self._append(cursor, missing_above)

    def _gather(self, cursor: Cursor, changed: Sequence[tuple[str, int]], lowest: int) -> None:
        missing_above, _ = self._look(cursor)
        self._add(changed)
        if len(self._gathered) >= self._most or self._seconds() - self._appended_at >= _SECONDS:
            self._append(cursor, missing_above)
        elif missing_above is None or lowest <= missing_above:
            cursor.execute(_MISSING, (lowest - 1,))

    def _look(self, cursor: Cursor) -> tuple[int | None, int]:
        """Look up what is durable, and forget gathered changes that are."""
        cursor.execute(_STATE)
        ((missing_above, last),) = cursor.fetchall()
        gathered = self._gathered
        while gathered and (first := next(iter(gathered)), gathered[first][0])[1] <= last:
            del gathered[first]
        self._turn = max(self._turn, last)
        return missing_above, last

    def _add(self, changed: Sequence[tuple[str, int]]) -> None:
        for topic, changed_at in changed:
            self._turn += 1
            self._gathered.pop(topic, None)
            self._gathered[topic] = self._turn, changed_at

    def _append(self, cursor: Cursor, missing_above: int | None) -> None:
        if self._gathered:
            rows = [(turn, topic, changed_at) for topic, (turn, changed_at) in self._gathered.items()]
            self._bulk.upsert(cursor, layouts.retained_changes, rows)
        if missing_above is not None and not self.searching:
            cursor.execute(_MISSING, (None,))
        self._appended_at = self._seconds()
