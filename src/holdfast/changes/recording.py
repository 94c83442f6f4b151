"""Recording, for replays of changes and for the history. First: the changed topics.

They are appended in the transaction that changes the retained messages, or soon after it.

A row in each transaction would nearly double the bytes that a single change writes: the last page of the table, again
and again. So a recorder may keep the newest changes in memory, and append a few hundred together. A token is only made
of changes that are in the table: those who ask for one have them appended first. A kill takes what was gathered, but
also makes all earlier tokens void (:mod:`holdfast.changes.log`), so nobody needs it.

In SQLite there is one writer, and it always gathers (:class:`GatheringRecorder`). In Postgres a node gathers while it
is the only one (:class:`AppendingRecorder`), since the others could not have its changes appended.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import islice, takewhile
from time import monotonic
from typing import Protocol
from weakref import ref

from holdfast.changes.entries import NO_RULES, WEIGHT, Entry, entry_of, expiry_of
from holdfast.changes.log import POSTGRES
from holdfast.changes.periods import Turn, advance, read_digest, read_rules, take_turn
from holdfast.core.messages import ChangeKind, ChangeOrigin
from holdfast.retained.store.interfaces import ChangedRow, Recorder
from holdfast.storage import layouts
from holdfast.storage.driver import MOST_ROWS, Bulk, Cursor, split
from holdfast.storage.layout import Layout
from holdfast.storage.postgres_values import BigIntegers, SmallIntegers, Texts

#: Gathered changes are appended once there are so many, or some seconds after the last time. Other processes read them.
MOST_GATHERED = 256
GATHERING_SECONDS = 10.0
#: In Postgres each row costs its bytes, however many one transaction appends. So more are gathered: a topic that
#: changes often has one row in that time. Their names have so many characters at most.
_MOST_ALONE, _MOST_CHARACTERS = 1024, 1 << 18
#: More than so many times that is gathered only while no commit succeeds. Then it is forgotten: all tokens become void.
_MOST_TIMES = 16
# One statement, so that it costs one round trip: the turn is that of the transaction.
_APPEND = (
    f"INSERT INTO retained_changes (turn, topic, changed_at, expired) SELECT ({POSTGRES.newest}), topic, changed_at, "
    "expired FROM unnest(CAST(? AS text[]), CAST(? AS bigint[]), CAST(? AS smallint[])) "
    "AS changed (topic, changed_at, expired) "
    "ON CONFLICT (turn, topic) DO UPDATE SET changed_at = excluded.changed_at, expired = excluded.expired"
)
_VOID = (
    f"UPDATE retained_changes_kept SET turn = ({POSTGRES.newest}), "
    "changed_at = greatest(changed_at, CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)) WHERE id = 1"
)
_IS_VOID = "SELECT 1 FROM retained_changes_kept WHERE id = 1 AND turn >= ?"
_IS_DURABLE = "SELECT 1 FROM retained_changes WHERE turn = ? LIMIT 1"
_LAST = "SELECT coalesce(max(turn), 0) FROM retained_changes"


_COLUMNS = layouts.retained_changes.columns
#: the table without its last column: nearly all changes leave it empty, and to write it costs each of them some percent
_WITHOUT_EXPIRY = Layout("retained_changes", 2, **{name: _COLUMNS[name] for name in ("turn", "topic", "changed_at")})
#: of a changed topic: the time of the change, and 1 if its message expired
_Noted = tuple[int, int | None]


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
        self._gathered: dict[str, _Noted] = {}
        self._characters = 0  # of their names
        self._appended: list[tuple[int, dict[str, _Noted]]] = []  #: by turn, what may not be durable yet
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
        self._take(cursor, {row.topic: (changed_at, None) for row, changed_at, *_ in changes})
        self._inner.record(cursor, changes)

    def record_stored(self, cursor: Cursor, topics: Sequence[str], changed_at: int, origin: ChangeOrigin) -> None:
        """Append or gather these topics."""
        self._take(cursor, dict.fromkeys(topics, (changed_at, None)))
        self._inner.record_stored(cursor, topics, changed_at, origin)

    def record_expired(self, cursor: Cursor, topics: Sequence[str], now: int, revision: int) -> None:
        """Append or gather these topics."""
        self._take(cursor, dict.fromkeys(topics, (now, 1)))
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

    def _take(self, cursor: Cursor, changed: dict[str, _Noted]) -> None:
        if not changed:
            return
        self.recorded += 1
        if not self.alone:
            _append(cursor, changed)
            return
        self._gather(changed)
        is_much = len(self._gathered) >= self._most or self._characters >= _MOST_CHARACTERS
        if is_much or self._seconds() - self._appended_at >= GATHERING_SECONDS:
            self.append_gathered(cursor)

    def _gather(self, changed: dict[str, _Noted]) -> None:
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


def _append(cursor: Cursor, changed: dict[str, _Noted]) -> None:
    topics = sorted(changed)
    times, expired = zip(*(changed[topic] for topic in topics), strict=True)
    cursor.execute(_APPEND, (Texts(topics), BigIntegers(times), SmallIntegers(expired)))


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
        #: by topic, in the order of turns: the turn of its newest change that may not be in the table, the time of the
        #: change, and 1 if the message expired
        self._gathered: dict[str, tuple[int, int, int | None]] = {}
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
        self._gather(cursor, [(topic, now) for topic in topics], 1)
        self._inner.record_expired(cursor, topics, now, revision)

    def append_gathered(self, cursor: Cursor) -> None:
        """Append all gathered changes."""
        self._begin(cursor)
        self._append(cursor)

    def _gather(self, cursor: Cursor, changed: Sequence[tuple[str, int]], expired: int | None = None) -> None:
        if not changed:
            return
        self.recorded += 1
        self._begin(cursor)
        turn, gathered = self._turn, self._gathered
        for topic, changed_at in changed:
            turn += 1
            gathered.pop(topic, None)
            gathered[topic] = turn, changed_at, expired
        self._turn = turn
        if len(self._gathered) >= self._most or self._seconds() - self._appended_at >= GATHERING_SECONDS:
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
            noted = self._gathered.items()
            rows = [(turn, topic, at) for topic, (turn, at, expired) in noted if not expired]
            self._bulk.upsert(cursor, _WITHOUT_EXPIRY, rows)
            if len(rows) < len(noted):
                rows_expired = [(turn, topic, at, 1) for topic, (turn, at, expired) in noted if expired]
                self._bulk.upsert(cursor, layouts.retained_changes, rows_expired)
            self._appended = self._turn
        self._appended_at = self._seconds()


def _no_cursor() -> None:
    """Tell that there was no transaction yet."""


# Recording: appends to the history in the transaction that changes the retained messages.
#
# How it works. Clients change topics faster than the store commits, so the writer commits changes in groups. The table
# ``retained`` needs only the newest change of a topic; the history needs all. An example: within one group, a client
# publishes ``1`` (revision 501) and ``2`` (revision 502) to ``t``. :meth:`HistoryRecorder.key_of` keeps both changes in
# the group. The store writes the row of 502, and the recorder appends two entries::
#
#     seq  topic  revision  changed_at
#      71  t           501       9_100
#      72  t           502       9_101
#
# The invariants: a change and its entry are committed together. ``seq`` is the order of commits, also with several
# nodes: a writer first updates the row of ``retained_history_state``, and so waits for the other's transaction.
# ``changed_at`` never decreases, even if the clocks of two nodes disagree, so bisection finds a moment.
#
# Which topics are recorded stands in the present period (:mod:`.entries`). The locked row has a digest of these rules,
# so that a writer learns of new ones with its lock, and from the same change on as all others. Rules are read and
# parsed only when the digest is another one. Without rules, this costs a comparison in each transaction.
#
# The outcome of a commit may be unknown; the writer then repeats the commit. It may write a row twice, but not an
# entry. So the recorder looks up changes that are not above the highest revision it has recorded. Looking up all
# changes would cost a read for each write, and a unique index on (topic, revision) would slow down every append.


# Built from constants and counts alone: values are always bound.
# ruff: noqa: S608

_MEASURE = f"SELECT CAST(coalesce(sum({WEIGHT}), 0) AS BIGINT) FROM retained WHERE topic IN ({{places}})"
_COPY = (
    f"INSERT INTO retained_history ({', '.join(Entry._fields)}) SELECT ? + row_number() OVER (ORDER BY topic), topic, "
    f"'{ChangeKind.SET.value}', ?, qos, size, ?, expires_at, revision, client_id, username, properties5, "
    "properties_json, payload, NULL FROM retained WHERE topic IN ({places})"
)


class HistoryRecorder:
    """Appends an entry for every change, in the transaction that changes the retained messages.

    So a change and its entry are committed together or not at all. The store has one recorder, and the recorder is
    told about a write only after it succeeded within the transaction.
    """

    def __init__(self, bulk: Bulk, shared: bool = True, recording: bool = True) -> None:
        """Record with ``bulk``. ``shared`` tells whether other nodes may write to this database at the same time."""
        #: Whether changes are recorded; may be set in any thread. It must be set while there is a present period: an
        #: entry outside of all periods harms nothing, but a change without an entry is a hole in its period.
        self.recording = recording
        self._bulk = bulk
        self._shared = shared
        self._rules = NO_RULES
        # The highest revision given to record(). A lower one may come from a commit that is repeated.
        self._highest_recorded = 0

    def key_of(self, topic: str, revision: int) -> Hashable:
        """Return topic and revision, so that no change replaces another before the commit: each gets an entry.

        While nothing is recorded, return the topic: only the newest waiting change of a topic is written.
        """
        return (topic, revision) if self.recording else topic

    def record(self, cursor: Cursor, changes: Sequence[ChangedRow]) -> None:
        """Append an entry for each change, unless the history has it."""
        if not (self.recording and changes) or self._excludes(cursor, [change.row.topic for change in changes]):
            return
        turn = self._take_turn(cursor)
        if self._rules.excludes:
            records = self._rules.records
            changes = [change for change in changes if records(change.row.topic)]
            if not changes:
                return
        entries = [entry_of(*change) for change in changes]
        revisions = [entry.revision for entry in entries]
        if min(revisions) <= self._highest_recorded:
            entries = _missing(cursor, entries)
        self._highest_recorded = max(self._highest_recorded, *revisions)
        self._append(cursor, turn, entries)

    def record_stored(self, cursor: Cursor, topics: Sequence[str], changed_at: int, origin: ChangeOrigin) -> None:
        """Append an entry for the present row of each topic, copied by the database."""
        if not self.recording or self._excludes(cursor, topics):
            return
        last_seq, last_at, _ = self._take_turn(cursor)
        changed_at = max(last_at, changed_at)
        for part in split(self._recorded(topics), MOST_ROWS):
            places = ", ".join("?" * len(part))
            cursor.execute(_MEASURE.format(places=places), list(part))
            ((weight,),) = cursor.fetchall()
            cursor.execute(_COPY.format(places=places), [last_seq, origin.value, changed_at, *part])
            last_seq += len(part)
            advance(cursor, last_seq, changed_at, weight)

    def record_expired(self, cursor: Cursor, topics: Sequence[str], now: int, revision: int) -> None:
        """Append an entry for each message that expired."""
        if not (self.recording and topics) or self._excludes(cursor, topics):
            return
        turn = self._take_turn(cursor)
        self._append(cursor, turn, [expiry_of(topic, now, revision) for topic in self._recorded(topics)])

    def _take_turn(self, cursor: Cursor) -> Turn:
        """Lock the history, and know its rules until the transaction ends."""
        turn = take_turn(cursor)
        if turn.digest != self._rules.digest:
            self._rules = read_rules(cursor)
        return turn

    def _excludes(self, cursor: Cursor, topics: Sequence[str]) -> bool:
        """Tell, without the lock, whether no topic is recorded: then a change costs no write to the history.

        Without the lock, another node could change the rules between this look and the commit. So a shared database
        needs the lock.
        """
        if self._shared or not self._rules.excludes or any(map(self._rules.records, topics)):
            return False
        return read_digest(cursor) == self._rules.digest

    def _recorded(self, topics: Sequence[str]) -> Sequence[str]:
        return [topic for topic in topics if self._rules.records(topic)] if self._rules.excludes else topics

    def _append(self, cursor: Cursor, turn: Turn, entries: Sequence[Entry]) -> None:
        """Number the entries in this order, behind the last one of the history, and write them.

        No entry is earlier than the one before it, even if the clocks of two nodes disagree.
        """
        if not entries:
            return
        last_seq, last_at, _ = turn
        placed = []
        for entry in entries:
            last_seq += 1
            last_at = max(last_at, entry.changed_at)
            placed.append(entry._replace(seq=last_seq, changed_at=last_at))
        self._bulk.upsert(cursor, layouts.retained_history, placed)
        advance(cursor, last_seq, last_at, sum(entry.weight for entry in entries))


def _missing(cursor: Cursor, entries: Sequence[Entry]) -> list[Entry]:
    """Leave out entries that the history has: a commit whose outcome was unknown had succeeded."""
    present: set[tuple[str, int]] = set()
    for part in split(entries, MOST_ROWS):
        pairs = ", ".join(["(?, ?)"] * len(part))
        cursor.execute(
            f"SELECT topic, revision FROM retained_history WHERE (topic, revision) IN (VALUES {pairs})",
            [value for entry in part for value in (entry.topic, entry.revision)],
        )
        present.update((topic, revision) for topic, revision in cursor.fetchall())
    return [entry for entry in entries if (entry.topic, entry.revision) not in present]
