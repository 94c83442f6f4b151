"""The stored changes: which topics changed, kept in the database beside the messages.

A change is a row of its topic, under a turn. It has no payload: a replay reads the present message, or
that there is none::

    turn  topic  changed_at
      41  a      9_100        set
      41  b      9_100        set
      42  a      9_180        cleared: the replay after horizon 41 brings an empty message for a

Rows are only appended, so a commit touches the last page, or none (:mod:`.recording`). They are pruned from the oldest
on. ``retained_changes_kept`` has the mark: every change after its turn is there. The last turn always stays, so that
turns never begin again.

A token is good if its epoch is known and no change is missing after it. Each start of a node begins an epoch::

    node 1, epoch X, started 0    tokens X/12, X/40
    backup at turn 30             restored later, and node 1 starts:
    node 1, epoch Y, started 30   X/12 is good; X/40 is above the start of Y: it knows changes that are lost

A killed process may have sent messages to subscribers that it had not committed: a client with a token of before then
may be ahead of the database, and may come to any node. So no token is good from such an end on, until the node starts
again, or another one notices (:func:`bury`): both make all earlier tokens void. After an orderly end, they stay good.

A node on Postgres is taken for killed while nobody holds its lock. A restart of the server, or a cut connection, takes
the lock too, but the process lives and will commit all that it has sent. So a burial is a mark of its own, with the
negative number of the node, beside the mark of what is kept. When the process is back, it takes its burial back
(:func:`take_back`), and the earlier tokens are good again::

    id   turn
     1     12    every change after 12 is kept
    -2    700    node 2 was buried by transaction 700: no token below 700 is good until node 2 is back

Tokens of another database have an unknown epoch. A node that does not record marks itself with an empty epoch; as long
as one does, no token is good. An epoch is forgotten when the mark of what is kept passes the beginning of the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, takewhile
from operator import itemgetter
from typing import Any

from attrs import frozen

from holdfast.changes.tokens import Token
from holdfast.storage.driver import Cursor
from holdfast.storage.postgres_values import LIVING_NODES, LOCKS

#: the epoch of a node that does not record
_ABSENT = ""
#: An epoch of this name follows each one that has ended in order, or whose process was killed.
_ENDED, _BURIED = "ended", "buried"
_NO_PROCESS = (_ABSENT, _ENDED, _BURIED)
#: The epochs that are kept of a node: one for each of its starts.
_MOST_EPOCHS = 1000
_EPOCHS = "SELECT node, started, epoch FROM retained_changes_epochs ORDER BY node, number"
_GATHERING = "SELECT node, epoch FROM retained_changes_epochs WHERE gathers = 1"
_GATHERED_AND_BURIED = (
    "SELECT 1 FROM retained_changes_epochs AS its JOIN retained_changes_epochs AS next ON next.node = its.node "
    "AND next.number = its.number + 1 WHERE its.gathers = 1 AND next.epoch = ? AND next.started > ?"
)
_SET_GATHERING = (
    "UPDATE retained_changes_epochs SET gathers = ? WHERE node = ? AND epoch = ? AND coalesce(gathers, 0) <> ?"
)
_LAST_NUMBER = "SELECT coalesce(max(number), 0) FROM retained_changes_epochs WHERE node = ?"
_LAST_EPOCH = "SELECT epoch FROM retained_changes_epochs WHERE node = ? ORDER BY number DESC LIMIT 1"
_LAST_TWO = "SELECT number, epoch, history FROM retained_changes_epochs WHERE node = ? ORDER BY number DESC LIMIT 2"
_OTHER_HISTORY = "SELECT count(*) FROM retained_changes_epochs WHERE history <> ?"
_BEGIN = "INSERT INTO retained_changes_epochs (node, number, started, epoch, history) VALUES (?, ?, ?, ?, ?)"
_DROP = "DELETE FROM retained_changes_epochs WHERE node = ? AND number <= ?"
_KEPT = "SELECT max(turn), max(changed_at) FROM retained_changes_kept"
_MARK_OF_KEPT = "SELECT turn, changed_at FROM retained_changes_kept WHERE id = 1"
_MARK = (
    "INSERT INTO retained_changes_kept (id, turn, changed_at) VALUES (?, ?, ?) "
    "ON CONFLICT (id) DO UPDATE SET turn = excluded.turn, changed_at = excluded.changed_at"
)
_KEEP_FROM_BURIAL = (
    "UPDATE retained_changes_kept SET turn = greatest(retained_changes_kept.turn, burial.turn), "
    "changed_at = greatest(retained_changes_kept.changed_at, burial.changed_at) "
    "FROM retained_changes_kept AS burial WHERE retained_changes_kept.id = 1 AND burial.id = ?"
)
_UNMARK = "DELETE FROM retained_changes_kept WHERE id = ?"
# The last turn is never pruned.
_PART = (
    "SELECT turn, changed_at FROM retained_changes WHERE turn < (SELECT max(turn) FROM retained_changes) AND turn <= ? "
    "ORDER BY turn, topic LIMIT ?"
)
_DELETE = (
    "DELETE FROM retained_changes WHERE (turn, topic) IN "
    "(SELECT turn, topic FROM retained_changes WHERE turn <= ? ORDER BY turn, topic LIMIT ?)"
)
_FORGET = (
    "DELETE FROM retained_changes_epochs WHERE epoch <> '' AND EXISTS (SELECT 1 FROM retained_changes_epochs AS next "
    "WHERE next.node = retained_changes_epochs.node AND next.number > retained_changes_epochs.number "
    "AND next.started < ?)"
)
_COUNT = "SELECT count(*) FROM (SELECT 1 FROM retained_changes WHERE turn > ? LIMIT ?) AS part"
_CHANGED = "SELECT DISTINCT topic FROM retained_changes WHERE turn > ? AND topic > ? ORDER BY topic LIMIT ?"
_LAST_CHANGES = (
    "SELECT topic, changed_at, expired FROM retained_changes JOIN (SELECT topic, max(turn) AS turn "
    "FROM retained_changes WHERE turn > ? AND topic IN ({places}) GROUP BY topic) AS newest USING (turn, topic)"
)
_TIME = "SELECT changed_at FROM retained_changes WHERE turn <= ? ORDER BY turn DESC, topic DESC LIMIT 1"
_NEWEST_TURN = "SELECT coalesce(max(turn), 0) FROM retained_changes"
# Clocks may step back, so all changes of the newest turns are looked at, not only their ends.
_SINCE = (
    "WITH newest AS (SELECT turn, changed_at FROM retained_changes ORDER BY turn DESC, topic DESC LIMIT ?) "
    "SELECT (SELECT min(turn) FROM newest WHERE changed_at >= ?), (SELECT min(turn) FROM newest), "
    "(SELECT count(*) FROM newest)"
)
_EXCESS = "SELECT turn FROM retained_changes ORDER BY turn DESC, topic DESC LIMIT 1 OFFSET ?"

_FOREVER = 2**62
#: An epoch that starts before all turns: no token of an earlier epoch is good.
_VOID = -1


@frozen
class Kept:
    """Every change after this turn, and every change at or after this time (milliseconds), is stored."""

    turn: int
    changed_at: int


def begin(cursor: Cursor, turns: Turns, *, node: int, epoch: bytes, now: int) -> bool:
    """Record from now on, in a new epoch of this node (8 bytes). Call it before the first change of a process.

    If a node did not record before, or turns are of another history, earlier changes are forgotten. If the process
    before did not call :func:`ended`, all earlier tokens become void: then the result is true.
    """
    history, horizon = _one(cursor, turns.history), _one(cursor, turns.horizon)
    cursor.execute(_LAST_EPOCH, (node,))
    before = cursor.fetchone()
    was_killed = before is not None and before[0] not in (_ABSENT, _ENDED)
    cursor.execute(_OTHER_HISTORY, (history,))
    ((others,),) = cursor.fetchall()
    cursor.execute("DELETE FROM retained_changes_epochs WHERE node = ? AND epoch = ''", (node,))
    was_absent = bool(cursor.rowcount)
    if others:
        cursor.execute("DELETE FROM retained_changes")
        cursor.execute("DELETE FROM retained_changes_kept WHERE id < 0")
        cursor.execute("DELETE FROM retained_changes_epochs WHERE epoch <> ''")
    if others or was_absent or was_killed or read_kept(cursor) is None:
        cursor.execute(_MARK, (1, _one(cursor, turns.newest), now))
    cursor.execute(_UNMARK, (-node,))
    _add_epoch(cursor, node, _VOID if was_killed else horizon, epoch.hex(), history)
    return was_killed


def bury(cursor: Cursor, turns: Turns, node: int, now: int) -> list[int]:
    """Make all tokens void if other nodes were killed and have not started again. Return these nodes."""
    if turns.living is None:
        return []
    buried = []
    for other, last in _last_epochs(cursor).items():
        if other == node or last in _NO_PROCESS:
            continue
        cursor.execute(turns.claim, (other,))
        ((claimed,),) = cursor.fetchall()
        if claimed and _last_epochs(cursor)[other] == last:
            newest = _one(cursor, turns.newest)
            _add_epoch(cursor, other, newest, _BURIED, _one(cursor, turns.history))
            cursor.execute(_MARK, (-other, newest, now))
            buried.append(other)
    return buried


def take_back(cursor: Cursor, turns: Turns, node: int, epoch: bytes) -> bool:
    """Make the tokens good again that the burial of this node has made void; tell whether that was possible.

    Its process has gone on in this epoch (8 bytes). It must not be called if the database may have lost committed
    changes meanwhile; a database that another one has replaced is noticed.
    """
    cursor.execute(_LAST_TWO, (node,))
    found = cursor.fetchall()
    if len(found) < 2 or found[0][1] != _BURIED or found[1][1:] != (epoch.hex(), _one(cursor, turns.history)):
        return False
    cursor.execute("DELETE FROM retained_changes_epochs WHERE node = ? AND number = ?", (node, found[0][0]))
    cursor.execute(_UNMARK, (-node,))
    return True


def buried_nodes(cursor: Cursor) -> set[int]:
    """Return the nodes that were taken for killed, and have not come back."""
    return {node for node, last in _last_epochs(cursor).items() if last == _BURIED}


def is_last_epoch(cursor: Cursor, node: int, epoch: bytes) -> bool:
    """Tell whether this is the last epoch of a node. Else the node was buried while it had no connection."""
    return _last_epochs(cursor).get(node) == epoch.hex()


def begin_another(cursor: Cursor, turns: Turns, node: int, epoch: bytes) -> None:
    """Begin another epoch (8 bytes) of a node that was buried and goes on. Its burial is not taken back any more."""
    cursor.execute(_KEEP_FROM_BURIAL, (-node,))
    cursor.execute(_UNMARK, (-node,))
    _add_epoch(cursor, node, _one(cursor, turns.horizon), epoch.hex(), _one(cursor, turns.history))


def ended(cursor: Cursor, turns: Turns, node: int) -> None:
    """Note that the process ends in order: what its clients were sent is committed."""
    _add_epoch(cursor, node, _one(cursor, turns.horizon), _ENDED, _one(cursor, turns.history))


def end(cursor: Cursor, turns: Turns, node: int) -> None:
    """Note that this node does not record, before its first change. No token is good until it records again."""
    history, horizon = _one(cursor, turns.history), _one(cursor, turns.horizon)
    cursor.execute("DELETE FROM retained_changes_epochs WHERE node = ? AND epoch = ''", (node,))
    _add_epoch(cursor, node, horizon, _ABSENT, history)


def token_now(cursor: Cursor, turns: Turns, epoch: bytes) -> Token:
    """Return a token for now: what is read later has every change up to its turn."""
    return Token(epoch, _one(cursor, turns.horizon))


def last_token(cursor: Cursor, turns: Turns) -> Token | None:
    """Return a token that is good now, for a reader that is no node; None while there is none.

    Its epoch is the last one of a node. After an epoch's orderly end, the turn stays at that end: the changes that
    commands make while no broker runs come again.
    """
    best: Token | None = None
    horizon = _one(cursor, turns.horizon)
    cursor.execute(_EPOCHS)
    for _, group in groupby(cursor.fetchall(), itemgetter(0)):
        upto, epochs = horizon, list(group)
        while epochs and epochs[-1][2] == _ENDED:
            upto = min(upto, epochs.pop()[1])
        if epochs and epochs[-1][2] not in _NO_PROCESS and (best is None or upto > best.turn):
            best = Token(bytes.fromhex(epochs[-1][2]), upto)
    return best if best is not None and is_good(cursor, turns, best) else None


def read_kept(cursor: Cursor) -> Kept | None:
    """Return the highest mark, of what is kept or of a burial; None before the first epoch."""
    cursor.execute(_KEPT)
    ((turn, changed_at),) = cursor.fetchall()
    return None if turn is None else Kept(turn, changed_at)


def is_alone(cursor: Cursor, node: int) -> bool:
    """Tell whether no other node runs, or was killed and is not buried yet."""
    return all(other == node or last in _NO_PROCESS for other, last in _last_epochs(cursor).items())


def set_gathering(cursor: Cursor, node: int, epoch: bytes, gathers: bool) -> None:
    """Note whether a node may keep committed changes in its memory."""
    cursor.execute(_SET_GATHERING, (int(gathers), node, epoch.hex(), int(gathers)))


def is_complete(cursor: Cursor, turns: Turns, node: int | None = None) -> bool:
    """Tell whether the changes of all nodes are stored: each stores them, none was killed, and no other one gathers."""
    if absent_nodes(cursor) or _any_was_killed(cursor, turns):
        return False
    return node is None or not _others_gather(cursor, node)


def absent_nodes(cursor: Cursor) -> list[int]:
    """Return the nodes that do not store which topics they change."""
    return [node for node, last in _last_epochs(cursor).items() if last == _ABSENT]


def lacks_changes(cursor: Cursor, turn: int) -> bool:
    """Tell whether changes after a turn may be missing: they were pruned, or a killed node had them in its memory."""
    cursor.execute(_MARK_OF_KEPT)
    if any(kept_turn > turn for kept_turn, _ in cursor.fetchall()):
        return True
    cursor.execute(_GATHERED_AND_BURIED, (_BURIED, turn))
    return bool(cursor.fetchall())


def is_good(cursor: Cursor, turns: Turns, token: Token, node: int | None = None) -> bool:
    """Tell whether every change after a token is stored, and none at or below it was lost.

    Changes that other nodes than ``node`` gather count as not stored. A reader that is no node (None) gets them later.
    """
    if not is_complete(cursor, turns, node):
        return False
    cursor.execute(_EPOCHS)
    epochs = cursor.fetchall()
    # Each statement sees the commits before it: a burial that was not looked for any more has moved this mark.
    kept = read_kept(cursor)
    if kept is None or token.turn < kept.turn or token.turn > _one(cursor, turns.horizon):
        return False
    for number, (node, _, epoch) in enumerate(epochs):
        if epoch == token.epoch.hex():
            # Each later epoch of the node began with all changes that are left of this one.
            later = (started for other, started, _ in epochs[number + 1 :] if other == node)
            return all(token.turn <= started for started in later)
    return False


def count_since(cursor: Cursor, turn: int, most: int) -> int:
    """Return the number of changes after a turn, at most ``most``."""
    cursor.execute(_COUNT, (turn, most))
    ((count,),) = cursor.fetchall()
    return int(count)


def changed_topics(cursor: Cursor, turn: int, after: str, limit: int) -> list[str]:
    """Return the next topics, after a topic, that changed after a turn; sorted."""
    cursor.execute(_CHANGED, (turn, after, limit))
    return [topic for (topic,) in cursor.fetchall()]


def last_changes(cursor: Cursor, turn: int, topics: Sequence[str]) -> dict[str, tuple[int, bool]]:
    """Return the time (milliseconds) of the last change of topics that changed after a turn, and if it is an expiry."""
    cursor.execute(_LAST_CHANGES.format(places=", ".join("?" * len(topics))), [turn, *topics])
    return {topic: (changed_at, bool(expired)) for topic, changed_at, expired in cursor.fetchall()}


def time_of(cursor: Cursor, turn: int) -> int:
    """Return a time (milliseconds) at which all changes up to a turn had been made."""
    cursor.execute(_TIME, (turn,))
    found = cursor.fetchall()
    kept = read_kept(cursor)
    return max(found[0][0] if found else 0, kept.changed_at if kept is not None and kept.turn <= turn else 0)


def turn_before(cursor: Cursor, at: int, most: int) -> int | None:
    """Return a turn before all changes since a time (milliseconds); None if they are too many, or not all are kept."""
    kept = read_kept(cursor)
    if kept is None or at < kept.changed_at:
        return None
    cursor.execute(_SINCE, (most, at))
    ((first, oldest, count),) = cursor.fetchall()
    if first is None:
        return _one(cursor, _NEWEST_TURN) if count else kept.turn
    if count == most and first == oldest:
        return None
    return int(first) - 1


def prune(cursor: Cursor, before: int, limit: int, pinned: int | None = None, excess: int | None = None) -> int:
    """Delete at most ``limit`` changes: from before a time (milliseconds), or up to the turn ``excess``.

    Old changes after the turn ``pinned`` stay, and so does the last turn. Nothing pins excess changes: else a Session
    whose Client never comes back would fill the disk. The mark moves in the same transaction. Returns the number of
    deleted changes.
    """
    upto = _FOREVER if pinned is None else pinned
    most = -1 if excess is None else excess
    cursor.execute(_PART, (max(upto, most), limit))
    old = list(
        takewhile(
            lambda change: change[0] <= most or (change[0] <= upto and change[1] < before),
            cursor.fetchall(),
        )
    )
    if not old:
        return 0
    turn, latest = old[-1][0], max(changed_at for _, changed_at in old)
    cursor.execute(_MARK_OF_KEPT)
    ((kept_turn, kept_at),) = cursor.fetchall() or ((0, 0),)
    # Clocks of nodes may disagree, and a kill has moved the mark over stored changes; the mark never moves back.
    cursor.execute(_MARK, (1, max(turn, kept_turn), max(latest + 1, kept_at)))
    cursor.execute(_DELETE, (turn, len(old)))
    deleted = int(cursor.rowcount)
    cursor.execute(_FORGET, (turn,))
    return deleted


def excess_turn(cursor: Cursor, most: int) -> int | None:
    """Return the turn up to which changes are more than the newest ``most`` ones, None if there are no more."""
    cursor.execute(_EXCESS, (most,))
    found = cursor.fetchall()
    return int(found[0][0]) if found else None


def _last_epochs(cursor: Cursor) -> dict[int, str]:
    """Return the last epoch of each node."""
    cursor.execute(_EPOCHS)
    return {node: epoch for node, _, epoch in cursor.fetchall()}


def _any_was_killed(cursor: Cursor, turns: Turns) -> bool:
    """Tell whether a node's process has ended without :func:`ended`."""
    if turns.living is None:
        return False
    cursor.execute(turns.living)
    living = {node for (node,) in cursor.fetchall()}
    return any(
        epoch == _BURIED if node in living else epoch not in _NO_PROCESS  # one that was only cut off may know more
        for node, epoch in _last_epochs(cursor).items()
    )


def _others_gather(cursor: Cursor, node: int) -> bool:
    """Tell whether other nodes than this one may have committed changes in their memory only."""
    last = _last_epochs(cursor)
    cursor.execute(_GATHERING)
    return any(other != node and last.get(other) == epoch for other, epoch in cursor.fetchall())


def _add_epoch(cursor: Cursor, node: int, started: int, epoch: str, history: str) -> None:
    cursor.execute(_LAST_NUMBER, (node,))
    ((number,),) = cursor.fetchall()
    cursor.execute(_BEGIN, (node, number + 1, started, epoch, history))
    cursor.execute(_DROP, (node, number + 1 - _MOST_EPOCHS))


def _one(cursor: Cursor, statement: str) -> Any:
    cursor.execute(statement)
    ((value,),) = cursor.fetchall()
    return value


# Turns: the order of stored changes, such that a horizon can be named below which nothing becomes visible any more.
#
# In SQLite there is one writer. It numbers the changes, so each has a turn of its own, and the last one is the horizon.
#
# In Postgres, transactions of several nodes end in any order. The turn is the number of the transaction (64 bits,
# without wrapping around). All transactions below ``pg_snapshot_xmin`` have ended, so the horizon is the number before
# it:
#
#     node 1: 700 ......... commits              a token made here has horizon 699: what 700 and 701 change comes again
#     node 2:   701 commits       ^


@frozen
class Turns:
    """The statements of a dialect.

    ``horizon`` reads the turn up to which all transactions have ended. ``newest`` reads a turn that no transaction that
    has ended is above: in Postgres, that of this transaction. ``history`` reads the name of the succession of turns:
    turns of another one cannot be compared. ``living`` reads the nodes whose processes are connected; None: there is
    one node. ``claim`` reads whether this transaction takes the place of a node (its parameter): then no process is
    that node, and none becomes it before the end of the transaction.
    """

    horizon: str
    newest: str
    history: str
    living: str | None = None
    claim: str = ""


_LAST = "SELECT coalesce(max(turn), 0) FROM retained_changes"

SQLITE = Turns(
    horizon=_LAST,
    newest=_LAST,
    history="SELECT ''",
)
POSTGRES = Turns(
    horizon="SELECT CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint) - 1",
    newest="SELECT CAST(CAST(pg_current_xact_id() AS text) AS bigint)",
    # Another cluster, or another time line of this one after a recovery, numbers its transactions anew.
    history=(
        "SELECT (SELECT system_identifier FROM pg_control_system()) || '/' || "
        "substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)"
    ),
    living=LIVING_NODES,
    claim=f"SELECT pg_try_advisory_xact_lock({LOCKS}, ?)",
)


def turns_of(dialect: str) -> Turns:
    """Return the turns of a database's dialect."""
    return SQLITE if dialect == "sqlite" else POSTGRES
