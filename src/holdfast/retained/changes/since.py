"""Tokens, and the replays of what has changed since one: the service that the sessions use.

It also prunes old changes.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator
from functools import partial
from typing import Any
from weakref import WeakSet

from attrs import frozen
from twisted.application.service import Service
from twisted.internet.defer import Deferred, inlineCallbacks, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.core.extensions import BadRequest, moment_in
from holdfast.core.tickets import StorageFailure
from holdfast.retained.changes.recording import SECONDS, AppendingRecorder, IChangesRecorder
from holdfast.retained.changes.since_source import SinceSource, count_expired, pinned_turn
from holdfast.retained.changes.stored import (
    begin,
    begin_another,
    buried_nodes,
    bury,
    count_since,
    end,
    ended,
    excess_turn,
    is_alone,
    is_complete,
    is_good,
    is_last_epoch,
    prune,
    set_gathering,
    take_back,
    time_of,
    token_now,
    turn_before,
    turns_of,
)
from holdfast.retained.changes.tokens import LENGTHS, BadToken, Token, token_of
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.scheduling.deadlines import PeriodicJob
from holdfast.storage.database import Database, Durability
from holdfast.storage.driver import Connection, Cursor
from holdfast.storage.store import DurableStore

#: With more changes than this since a token, or more messages that have expired, everything is replayed.
MOST_CHANGES = 100_000
#: Seconds between two prunings, and changes that one transaction deletes.
_PRUNE_INTERVAL = 60.0
_PRUNED = 1000
#: Seconds for which a token is given again, while nothing has changed here. A change on another node comes again then.
_TOKEN_AGE = 1.0
_PINNED = "SELECT min(replay_since) FROM session_subscriptions WHERE replay_since IS NOT NULL"


#: what a client knows: a token, or a time in milliseconds since the epoch
Known = Token | int


@frozen
class Since:
    """The answer to a request. ``token`` is for the next one, None while there is none.

    ``turn`` is that after which changes are to be replayed, None for everything.
    """

    token: str | None
    turn: int | None = None


NOTHING_KNOWN = Since(None)


@frozen
class _Made:
    """A token, what the recorder had recorded then, and when it was made, in seconds."""

    token: Token
    recorded: int
    at: float


def known_of(text: str, now: int) -> Known:
    """Return the token or the time of a text. Raises :class:`BadRequest`."""
    try:
        return token_of(text)
    except BadToken as bad_token:
        if len(text) in LENGTHS:
            raise BadRequest(str(bad_token)) from None
    try:
        return moment_in(text, now)
    except BadRequest as bad_time:
        raise BadRequest(f"it is a token of a marker, or a time; {bad_time}") from None


#: the most changes that are kept
MOST_KEPT = 1_000_000


class ChangesSince(Service):
    """Makes tokens, and finds what has changed since one.

    Changes are kept for ``keep`` milliseconds, the newest ``most`` at most.
    """

    def __init__(
        self,
        store: SQLRetainedStore,
        epochs: Epochs,
        recorder: IChangesRecorder,
        *,
        clock: IReactorTime,
        now: Callable[[], int],
        keep: Callable[[], int],
        most: int = MOST_KEPT,
    ) -> None:
        self._store = store
        self._epochs = epochs
        self._recorder = recorder
        self._clock = clock
        self._now = now
        self._keep = keep
        self.most = most
        self._sources: WeakSet[SinceSource] = WeakSet()
        self._asking: list[Deferred[Token]] = []  # those who wait for the next token
        self._making = False  # whether a transaction makes a token for others
        self._made: _Made | None = None  # the last one
        self._pruning = PeriodicJob(
            self._prune,
            name="pruning stored changes",
            interval=_PRUNE_INTERVAL,
            clock=clock,
            foreseen=(StorageFailure,),
        )
        self._appending = PeriodicJob(
            self._append,
            name="storing which topics have changed",
            interval=SECONDS,
            clock=clock,
            foreseen=(StorageFailure,),
        )
        self._others: OtherNodes | None = None
        if isinstance(recorder, AppendingRecorder):
            self._others = OtherNodes(store, epochs, recorder, clock)

    def startService(self) -> None:
        """Prune, and append gathered changes, at intervals."""
        Service.startService(self)
        self._pruning.start(_PRUNE_INTERVAL)
        self._appending.start(SECONDS)
        if self._others is not None:
            self._others.start(INTERVAL)

    def stopService(self) -> None:
        """Append all gathered changes, and note the end."""
        Service.stopService(self)
        self._pruning.stop()
        self._appending.stop()
        if self._others is not None:
            self._others.stop()
        # If the database is away, the next start makes all tokens void.
        self._store.ask_writer(self._end).addErrback(_trap_storage_failure)

    def _append(self) -> Deferred[None] | None:
        """Append gathered changes: other processes read the table too."""
        return self._store.ask_writer(self._recorder.append_gathered) if self._recorder.has_gathered else None

    def _end(self, cursor: Cursor) -> None:
        self._recorder.append_gathered(cursor)
        self._epochs.end(cursor)

    def append(self) -> Deferred[None]:
        """Append gathered changes: fires when all that are committed are in the table."""
        return self._append() or succeed(None)

    @inlineCallbacks
    def token(self) -> Generator[Deferred[Any], Any, str | None]:
        """Return a token for now, None while the database is away."""
        if not self._store.available:
            return None
        made = self._made
        # A transaction for each of many Subscriptions at once would cost more than their replays.
        if made and made.recorded == self._recorder.recorded and self._clock.seconds() - made.at < _TOKEN_AGE:
            return made.token.text
        try:
            token: Token = yield self.now()
        except StorageFailure:
            return None
        return token.text

    @inlineCallbacks
    def since(self, known: Known) -> Generator[Deferred[Any], Any, Since]:
        """Find what a replay has to bring since a token or a time."""
        token = yield self.token()
        if token is None:
            return Since(None)
        find = partial(self._turn_after, known=known)
        try:
            turn = yield self._store.scan(find)
        except StorageFailure:
            return Since(None)
        return Since(token, turn)

    @property
    def follows_kill(self) -> bool:
        """Whether the process before was killed: replays that it began have to bring everything."""
        return self._epochs.follows_kill

    def source(self, turn: int, lost: Callable[[], None]) -> SinceSource:
        """Return the source of a replay. ``lost`` is called if the changes are not kept any more."""
        source = SinceSource(self._store, self._recorder, turn, lost)
        self._sources.add(source)
        return source

    def token_in(self, cursor: Cursor) -> Token:
        """Return a token for now, as a reader sees it: what is gathered comes after it, and may come again."""
        return token_now(cursor, self._epochs.turns, self._epochs.epoch)

    def is_known(self, cursor: Cursor, token: Token) -> bool:
        """Tell whether the changes after a token are all stored, and not too many."""
        return is_good(cursor, self._epochs.turns, token, self._epochs.node) and not _are_too_many(cursor, token.turn)

    def _turn_after(self, cursor: Cursor, known: Known) -> int | None:
        """Return the turn after which all changes are known, None if everything has to be replayed."""
        turns, node = self._epochs.turns, self._epochs.node
        if isinstance(known, int):
            turn = turn_before(cursor, known, MOST_CHANGES) if is_complete(cursor, turns, node) else None
        else:
            turn = known.turn if is_good(cursor, turns, known, node) else None
        if turn is None or _are_too_many(cursor, turn):
            return None
        expired = count_expired(cursor, time_of(cursor, turn), self._now(), MOST_CHANGES + 1)
        return None if expired > MOST_CHANGES else turn

    def now(self) -> Deferred[Token]:
        """Return a token for now. Fires behind the reports of all earlier commits; fails with StorageFailure."""
        waiting: Deferred[Token] = Deferred(lambda _: None)
        self._asking.append(waiting)
        if not self._making:
            self._make_token()
        return waiting

    def _make_token(self) -> None:
        """Make a token for all who ask now. Those who ask before it is made need a later one, and share that."""
        asking, self._asking = self._asking, []
        self._making = True
        at = self._clock.seconds()

        def work(cursor: Cursor) -> _Made:
            self._recorder.append_gathered(cursor)
            token = token_now(cursor, self._epochs.turns, self._epochs.present(cursor))
            return _Made(token, self._recorder.recorded, at)

        def made(result: _Made) -> Token:
            self._made = result
            return result.token

        def answered(result: Any) -> None:
            self._making = False
            if self._asking:
                self._make_token()
            for each in asking:
                if not each.called:  # else its client has left
                    each.callback(result)

        # What a transaction appends in Postgres is above its horizon, and would come again.
        appended = (self._append() if self._others is not None else None) or succeed(None)
        appended.addCallback(lambda _: self._store.ask_writer(work)).addCallback(made).addBoth(answered)

    @inlineCallbacks
    def _prune(self) -> Generator[Deferred[Any], Any, None]:
        """Delete changes that are too old or too many, in parts."""
        excess = yield self._store.scan(partial(excess_turn, most=self.most))
        before = self._now() - self._keep()
        deleted = _PRUNED
        while deleted == _PRUNED:
            deleted = yield self._store.ask_writer(partial(self._prune_part, before=before, excess=excess))

    def _prune_part(self, cursor: Cursor, before: int, excess: int | None) -> int:
        cursor.execute(_PINNED)
        ((stored,),) = cursor.fetchall()
        pins = [turn for turn in (stored, pinned_turn(tuple(self._sources))) if turn is not None]
        return prune(cursor, before, _PRUNED, min(pins, default=None), excess)


def _are_too_many(cursor: Cursor, turn: int) -> bool:
    return count_since(cursor, turn, MOST_CHANGES + 1) > MOST_CHANGES


def _trap_storage_failure(failure: Failure) -> None:
    failure.trap(StorageFailure)


# The epochs of this node: one for each start of the process. Tokens belong to an epoch.


class Epochs:
    """Begins an epoch of this node each time the store is opened.

    Unless they are ``recorded``, it notes that changes of this node are missing.
    """

    def __init__(self, durable: DurableStore, now: Callable[[], int], *, recorded: bool) -> None:
        self.turns = turns_of(durable.dialect)
        self.epoch = b""
        #: whether the process before was killed, so that all its tokens are void
        self.follows_kill = False
        self.node = durable.node
        self._now = now
        self._recorded = recorded
        self._loses_nothing = durable.durability is Durability.FULL
        durable.before_open(self._begin)

    def present(self, cursor: Cursor) -> bytes:
        """Return the epoch of this process.

        If another node has noted its end, while it was cut off, it takes that back. With a durability that lets a crash
        of the server lose commits, nobody knows what was lost: then it begins another epoch.
        """
        if self.turns.living is None or is_last_epoch(cursor, self.node, self.epoch):
            return self.epoch
        if not (self._loses_nothing and take_back(cursor, self.turns, self.node, self.epoch)):
            self.epoch = secrets.token_bytes(8)
            begin_another(cursor, self.turns, self.node, self.epoch)
        return self.epoch

    def bury(self, cursor: Cursor) -> list[int]:
        """Make all tokens void if other nodes were killed. Return these nodes."""
        return bury(cursor, self.turns, self.node, self._now())

    def end(self, cursor: Cursor) -> None:
        """Note that this process ends in order. Call it behind the last change."""
        ended(cursor, self.turns, self.node)

    def _begin(self, database: Database, connection: Connection) -> None:
        cursor = connection.cursor()
        cursor.execute(database.begin_statement)
        self.epoch = secrets.token_bytes(8)
        if self._recorded:
            self.follows_kill = begin(cursor, self.turns, node=self.node, epoch=self.epoch, now=self._now())
        else:
            end(cursor, self.turns, self.node)
        connection.commit()


# The other nodes on the same database: notices which were killed, and whether there are any.


#: Looks at which a node is found missing until it is told to have ended, and this node may gather without it. When the
#: database has restarted, the first node that is back finds all others missing; each of them comes back with its next
#: look, and has not ended.
_LOOKS = 3
#: Seconds between two looks. From the end of a killed node to the next look no token is good, and from the start of a
#: node to the next look of one that gathers, no token is good on the new one.
INTERVAL = 10.0


class OtherNodes:
    """Looks at intervals, while it is started, and lets the recorder gather changes while this node is alone.

    A node that gathers says so in the database, before it begins and until all is appended.
    """

    _log = Logger()

    def __init__(
        self, store: SQLRetainedStore, epochs: Epochs, recorder: AppendingRecorder, clock: IReactorTime
    ) -> None:
        self._store = store
        self._epochs = epochs
        self._recorder = recorder
        self._missing: dict[int, int] = {}  #: at how many looks, by node
        self._job = PeriodicJob(
            self._look, name="looking for other nodes", interval=INTERVAL, clock=clock, foreseen=(StorageFailure,)
        )
        self.start: Callable[[float], None] = self._job.start
        self.stop: Callable[[], None] = self._job.stop

    @inlineCallbacks
    def _look(self) -> Generator[Deferred[Any], Any, None]:
        gone = {node for node, looks in self._missing.items() if looks >= _LOOKS}
        buried, down, alone = yield self._store.ask_writer(partial(self._meet, gone=gone))
        if alone:
            self._recorder.alone = True
        missing = {**dict.fromkeys(buried, 0), **self._missing}
        self._missing = {node: looks + 1 for node, looks in missing.items() if node in down}
        ended = [node for node, looks in self._missing.items() if looks == _LOOKS]
        if ended:
            self._log.warn(
                "nodes {nodes} have ended without a stop, and do not run: clients that ask for changes get all"
                " retained messages once",
                nodes=", ".join(map(str, ended)),
            )

    def _meet(self, cursor: Cursor, gone: set[int]) -> tuple[list[int], set[int], bool]:
        buried = self._epochs.bury(cursor)
        down = buried_nodes(cursor)
        epoch = self._epochs.present(cursor)
        alone = down <= gone and is_alone(cursor, self._epochs.node)
        if not alone:
            self._recorder.alone = False
            self._recorder.append_gathered(cursor)
        set_gathering(cursor, self._epochs.node, epoch, alone)
        return buried, down, alone
