"""Recording: appends to the history in the transaction that changes the retained messages.

How it works. Clients change topics faster than the store commits, so the writer commits changes in groups. The table
``retained`` needs only the newest change of a topic; the history needs all. An example: within one group, a client
publishes ``1`` (revision 501) and ``2`` (revision 502) to ``t``. :meth:`HistoryRecorder.key_of` keeps both changes in
the group. The store writes the row of 502, and the recorder appends two entries::

    seq  topic  revision  changed_at
     71  t           501       9_100
     72  t           502       9_101

The invariants: a change and its entry are committed together. ``seq`` is the order of commits, also with several
nodes: a writer first updates the row of ``retained_history_state``, and so waits for the other's transaction.
``changed_at`` never decreases, even if the clocks of two nodes disagree, so bisection finds a moment.

Which topics are recorded stands in the present period (:mod:`.rules`). The locked row has a digest of these rules, so
that a writer learns of new ones with its lock, and from the same change on as all others. Rules are read and parsed
only when the digest is another one. Without rules, this costs a comparison in each transaction.

The outcome of a commit may be unknown; the writer then repeats the commit. It may write a row twice, but not an entry.
So the recorder looks up changes that are not above the highest revision it has recorded. Looking up all changes would
cost a read for each write, and a unique index on (topic, revision) would slow down every append.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from holdfast.messages import ChangeKind, ChangeOrigin
from holdfast.retained.history.entries import WEIGHT, Entry, entry_of, expiry_of
from holdfast.retained.history.periods import Turn, advance, read_digest, read_rules, take_turn
from holdfast.retained.history.rules import NO_RULES
from holdfast.retained.store.recorder import ChangedRow
from holdfast.storage import layouts
from holdfast.storage.driver import Cursor
from holdfast.storage.writing.bulk import MOST_ROWS, Bulk, split

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
