"""Recording: appends the changed topics in the transaction that changes the retained messages, or soon after it.

A row in each transaction would nearly double the bytes that a single change writes: the last page of the table, again
and again. So a recorder may keep the newest changes in memory, and append a few hundred together. A token is only made
of changes that are in the table: those who ask for one have them appended first. A kill takes what was gathered, but
also makes all earlier tokens void (:mod:`holdfast.retained.since.stored`), so nobody needs it.

In SQLite there is one writer, and it always gathers (:class:`GatheringRecorder`). In Postgres a node gathers while it
is the only one (:class:`AppendingRecorder`), since the others could not have its changes appended.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import islice, takewhile
from time import monotonic
from typing import Protocol
from weakref import ref

from holdfast.messages import ChangeOrigin
from holdfast.retained.since.turns import POSTGRES
from holdfast.retained.store.recorder import ChangedRow, Recorder
from holdfast.storage import layouts
from holdfast.storage.driver import Cursor
from holdfast.storage.postgres.arrays import BigIntegers, Texts
from holdfast.storage.writing.bulk import Bulk

#: Gathered changes are appended once there are so many, or some seconds after the last time. Other processes read them.
MOST_GATHERED = 256
SECONDS = 10.0
#: In Postgres each row costs its bytes, however many one transaction appends. So more are gathered: a topic that
#: changes often has one row in that time. Their names have so many characters at most.
_MOST_ALONE, _MOST_CHARACTERS = 1024, 1 << 18
#: More than so many times that is gathered only while no commit succeeds. Then it is forgotten: all tokens become void.
_MOST_TIMES = 16
# One statement, so that it costs one round trip: the turn is that of the transaction.
_APPEND = (
    f"INSERT INTO retained_changes (turn, topic, changed_at) SELECT ({POSTGRES.newest}), topic, changed_at "  # noqa: S608
    "FROM unnest(CAST(? AS text[]), CAST(? AS bigint[])) AS changed (topic, changed_at) "
    "ON CONFLICT (turn, topic) DO UPDATE SET changed_at = excluded.changed_at"
)
_VOID = (
    f"UPDATE retained_changes_kept SET turn = ({POSTGRES.newest}), "  # noqa: S608
    "changed_at = greatest(changed_at, CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint))"
)
_IS_VOID = "SELECT 1 FROM retained_changes_kept WHERE turn >= ?"
_IS_DURABLE = "SELECT 1 FROM retained_changes WHERE turn = ? LIMIT 1"
_LAST = "SELECT coalesce(max(turn), 0) FROM retained_changes"


class IChangesRecorder(Recorder, Protocol):
    """A recorder of changed topics."""

    @property
    def has_gathered(self) -> bool:
        """Whether committed changes may not be in the table yet. May be asked in any thread."""

    @property
    def recorded(self) -> int:
        """A number that grows with each change, before its commit. May be asked in any thread."""

    def append_gathered(self, cursor: Cursor) -> None:
        """Append everything that is not in the table yet. Called in the writer's thread, in a transaction."""


class AppendingRecorder:
    """For Postgres: appends the changed topics of each transaction; then the ``inner`` recorder has its turn.

    While it is ``alone``, it gathers them instead. What it appends has the turn of the appending transaction, which is
    above all earlier tokens. That transaction may fail, so what was appended is kept until its turn is in the table.
    What is gathered in transactions that fail stays: it comes once too often in a replay of changes.
    ``alone`` may be set in any thread; all methods run in the writer's.
    """

    def __init__(self, inner: Recorder, most: int = _MOST_ALONE, seconds: Callable[[], float] = monotonic) -> None:
        self.alone = False
        self.recorded = 0
        self._inner = inner
        self._most = most
        self._seconds = seconds
        self._appended_at = seconds()
        self._gathered: dict[str, int] = {}  #: the time of the change by topic
        self._characters = 0  # of their names
        self._appended: list[tuple[int, dict[str, int]]] = []  #: by turn, what may not be durable yet
        self._forgot = False  # whether tokens have to become void
        self._voided = 0  # the turn that has made them void, if it is committed; 0 for none

    @property
    def has_gathered(self) -> bool:
        """Whether there are such changes, or were some at the last look."""
        return bool(self._gathered or self._appended or self._forgot)

    def key_of(self, topic: str, revision: int) -> Hashable:
        """Return the key of the inner recorder."""
        return self._inner.key_of(topic, revision)

    def record(self, cursor: Cursor, changes: Sequence[ChangedRow]) -> None:
        """Append or gather the topics of these changes."""
        self._take(cursor, {row.topic: changed_at for row, changed_at, *_ in changes})
        self._inner.record(cursor, changes)

    def record_stored(self, cursor: Cursor, topics: Sequence[str], changed_at: int, origin: ChangeOrigin) -> None:
        """Append or gather these topics."""
        self._take(cursor, dict.fromkeys(topics, changed_at))
        self._inner.record_stored(cursor, topics, changed_at, origin)

    def record_expired(self, cursor: Cursor, topics: Sequence[str], now: int, revision: int) -> None:
        """Append or gather these topics."""
        self._take(cursor, dict.fromkeys(topics, now))
        self._inner.record_expired(cursor, topics, now, revision)

    def append_gathered(self, cursor: Cursor) -> None:
        """Append all gathered changes."""
        if not self.has_gathered:
            return
        cursor.execute(POSTGRES.newest)
        ((turn,),) = cursor.fetchall()
        self._look(cursor, turn)
        if self._forgot and not self._voided:
            cursor.execute(_VOID)
            self._voided = turn
        if self._gathered:
            gathered, self._gathered, self._characters = self._gathered, {}, 0
            self._appended.append((turn, gathered))
            _append(cursor, gathered)
        self._appended_at = self._seconds()

    def _take(self, cursor: Cursor, changed: dict[str, int]) -> None:
        if not changed:
            return
        self.recorded += 1
        if not self.alone:
            _append(cursor, changed)
            return
        self._gather(changed)
        is_much = len(self._gathered) >= self._most or self._characters >= _MOST_CHARACTERS
        if is_much or self._seconds() - self._appended_at >= SECONDS:
            self.append_gathered(cursor)

    def _gather(self, changed: dict[str, int]) -> None:
        new = changed.keys() - self._gathered.keys()
        self._characters += sum(map(len, new))
        topics, characters = len(self._gathered) + len(new), self._characters
        if topics > _MOST_TIMES * self._most or characters > _MOST_TIMES * _MOST_CHARACTERS:
            self._gathered, self._characters, self._appended = {}, 0, []
            self._forgot, self._voided = True, 0
        else:
            self._gathered |= changed

    def _look(self, cursor: Cursor, present: int) -> None:
        """Forget what earlier transactions have appended, or gather it again where they have failed."""
        if self._voided and self._voided != present:
            cursor.execute(_IS_VOID, (self._voided,))
            self._forgot, self._voided = not cursor.fetchall(), 0
        appended, self._appended = self._appended, []
        for turn, changed in appended:
            if turn == present:
                self._appended.append((turn, changed))
                continue
            cursor.execute(_IS_DURABLE, (turn,))
            if not cursor.fetchall():
                self._gather({topic: at for topic, at in changed.items() if topic not in self._gathered})


def _append(cursor: Cursor, changed: dict[str, int]) -> None:
    topics = sorted(changed)
    cursor.execute(_APPEND, (Texts(topics), BigIntegers([changed[topic] for topic in topics])))


class GatheringRecorder:
    """Gathers changed topics and appends them together; the ``inner`` recorder has its turn in each transaction.

    All methods run in the writer's thread, with one cursor in each transaction. A transaction may fail after any of
    them, so what is durable is looked up in the next one: gathered changes are kept until their turns are in the table.
    A transaction that has appended and failed leaves nothing behind. So there are never more than ``most`` of them, and
    those of one transaction, however many fail.
    """

    def __init__(
        self, inner: Recorder, bulk: Bulk, most: int = MOST_GATHERED, seconds: Callable[[], float] = monotonic
    ) -> None:
        self.recorded = 0
        self._inner = inner
        self._bulk = bulk
        self._most = most
        self._seconds = seconds
        self._appended_at = seconds()
        #: by topic, the turn and the time of its newest change that may not be in the table; in the order of turns
        self._gathered: dict[str, tuple[int, int]] = {}
        self._turn = 0
        self._cursor: Callable[[], Cursor | None] = _no_cursor  # of the present transaction; does not keep it open
        self._before = self._gathered  # when that transaction began
        self._appended = 0  # the highest turn that it has appended, 0 for none

    @property
    def has_gathered(self) -> bool:
        """Whether changes may not be in the table yet."""
        return bool(self._gathered)

    def key_of(self, topic: str, revision: int) -> Hashable:
        """Return the key of the inner recorder."""
        return self._inner.key_of(topic, revision)

    def record(self, cursor: Cursor, changes: Sequence[ChangedRow]) -> None:
        """Gather the topics of these changes."""
        self._gather(cursor, [(row.topic, changed_at) for row, changed_at, *_ in changes])
        self._inner.record(cursor, changes)

    def record_stored(self, cursor: Cursor, topics: Sequence[str], changed_at: int, origin: ChangeOrigin) -> None:
        """Gather these topics."""
        self._gather(cursor, [(topic, changed_at) for topic in topics])
        self._inner.record_stored(cursor, topics, changed_at, origin)

    def record_expired(self, cursor: Cursor, topics: Sequence[str], now: int, revision: int) -> None:
        """Gather these topics."""
        self._gather(cursor, [(topic, now) for topic in topics])
        self._inner.record_expired(cursor, topics, now, revision)

    def append_gathered(self, cursor: Cursor) -> None:
        """Append all gathered changes."""
        self._begin(cursor)
        self._append(cursor)

    def _gather(self, cursor: Cursor, changed: Sequence[tuple[str, int]]) -> None:
        if not changed:
            return
        self.recorded += 1
        self._begin(cursor)
        for topic, changed_at in changed:
            self._turn += 1
            self._gathered.pop(topic, None)
            self._gathered[topic] = self._turn, changed_at
        if len(self._gathered) >= self._most or self._seconds() - self._appended_at >= SECONDS:
            self._append(cursor)

    def _begin(self, cursor: Cursor) -> None:
        """In a new transaction, forget gathered changes that are durable.

        In a later call of the same transaction the table tells nothing: it shows rows that are not committed.
        """
        if self._cursor() is cursor:
            return
        cursor.execute(_LAST)
        ((last,),) = cursor.fetchall()
        if last < self._appended:  # the transaction before has failed, and none of its changes was made
            self._gathered = self._before
        durable = sum(1 for _ in takewhile(lambda change: change[0] <= last, self._gathered.values()))
        if durable:
            self._gathered = dict(islice(self._gathered.items(), durable, None))
        self._turn = max(self._turn, last)
        self._cursor, self._before, self._appended = ref(cursor), self._gathered.copy(), 0

    def _append(self, cursor: Cursor) -> None:
        if self._gathered:
            rows = [(turn, topic, changed_at) for topic, (turn, changed_at) in self._gathered.items()]
            self._bulk.upsert(cursor, layouts.retained_changes, rows)
            self._appended = self._turn
        self._appended_at = self._seconds()


def _no_cursor() -> None:
    """Tell that there was no transaction yet."""
