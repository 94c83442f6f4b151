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
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.extensions.bad_request import BadRequest
from holdfast.extensions.moments import moment_in
from holdfast.retained.since.horizon import LENGTH, BadToken, Horizon, horizon_of
from holdfast.retained.since.recording import SECONDS, IChangesRecorder
from holdfast.retained.since.source import SinceSource, count_expired, pinned_turn
from holdfast.retained.since.stored import (
    begin,
    begin_another,
    bury,
    count_since,
    end,
    ended,
    excess_turn,
    horizon_now,
    is_good,
    is_last_epoch,
    prune,
    time_of,
    turn_before,
)  # fmt: skip
from holdfast.retained.since.turns import turns_of
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.scheduling.periodic import PeriodicJob
from holdfast.storage.database import Database
from holdfast.storage.driver import Connection, Cursor
from holdfast.storage.store import DurableStore
from holdfast.tickets import StorageFailure

#: With more changes than this since a token, or more messages that have expired, everything is replayed.
MOST_CHANGES = 100_000
#: Seconds between two prunings, and changes that one transaction deletes.
_PRUNE_INTERVAL = 60.0
_PRUNED = 1000
#: Seconds between two looks for nodes that were killed: until then, no token is good.
_BURY_INTERVAL = 10.0
_PINNED = "SELECT min(replay_since) FROM session_subscriptions WHERE replay_since IS NOT NULL"


#: what a client knows: a token, or a time in milliseconds since the epoch
Known = Horizon | int


@frozen
class Since:
    """The answer to a request. ``token`` is for the next one, None while there is none.

    ``turn`` is that after which changes are to be replayed, None for everything.
    """

    token: str | None
    turn: int | None = None


NOTHING_KNOWN = Since(None)


def known_of(text: str, now: int) -> Known:
    """Return the token or the time of a text. Raises :class:`BadRequest`."""
    try:
        return horizon_of(text)
    except BadToken as bad_token:
        if len(text) == LENGTH:
            raise BadRequest(str(bad_token)) from None
    try:
        return moment_in(text, now)
    except BadRequest as bad_time:
        raise BadRequest(f"it is a token of a marker, or a time; {bad_time}") from None


class Epochs:
    """Begins an epoch of this node each time the store is opened.

    Unless they are ``recorded``, it notes that changes of this node are missing.
    """

    def __init__(self, durable: DurableStore, now: Callable[[], int], *, recorded: bool) -> None:
        self.turns = turns_of(durable.dialect)
        self.epoch = b""
        #: whether the process before was killed, so that all its tokens are void
        self.follows_kill = False
        self._node = durable.node
        self._now = now
        self._recorded = recorded
        durable.before_open(self._begin)

    def present(self, cursor: Cursor) -> bytes:
        """Return the epoch of this process: another one if another node has noted its end, while it was cut off."""
        if self.turns.living is not None and not is_last_epoch(cursor, self._node, self.epoch):
            self.epoch = secrets.token_bytes(8)
            begin_another(cursor, self.turns, self._node, self.epoch)
        return self.epoch

    def bury(self, cursor: Cursor) -> list[int]:
        """Make all tokens void if other nodes were killed. Return these nodes."""
        return bury(cursor, self.turns, self._node, self._now())

    def end(self, cursor: Cursor) -> None:
        """Note that this process ends in order. Call it behind the last change."""
        ended(cursor, self.turns, self._node)

    def _begin(self, database: Database, connection: Connection) -> None:
        cursor = connection.cursor()
        cursor.execute(database.begin_statement)
        self.epoch = secrets.token_bytes(8)
        if self._recorded:
            self.follows_kill = begin(cursor, self.turns, node=self._node, epoch=self.epoch, now=self._now())
        else:
            end(cursor, self.turns, self._node)
        connection.commit()


class ChangesSince(Service):
    """Makes tokens, and finds what has changed since one.

    Changes are kept for ``keep`` milliseconds, the newest ``most`` at most.
    """

    _log = Logger()

    def __init__(
        self,
        store: SQLRetainedStore,
        epochs: Epochs,
        recorder: IChangesRecorder,
        *,
        clock: IReactorTime,
        now: Callable[[], int],
        keep: Callable[[], int],
        most: int,
    ) -> None:
        self._store = store
        self._epochs = epochs
        self._recorder = recorder
        self._now = now
        self._keep = keep
        self._most = most
        self._sources: WeakSet[SinceSource] = WeakSet()
        self._asking: list[Deferred[str]] = []  # those who wait for the next token
        self._making = False  # whether a transaction makes a token for others
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
        self._burying = PeriodicJob(
            self._bury,
            name="looking for killed nodes",
            interval=_BURY_INTERVAL,
            clock=clock,
            foreseen=(StorageFailure,),
        )

    def startService(self) -> None:
        """Prune at intervals, and append what is gathered."""
        Service.startService(self)
        self._pruning.start(_PRUNE_INTERVAL)
        if self._recorder.gathers:
            self._appending.start(SECONDS)
        if self._store.shared:
            self._burying.start(_BURY_INTERVAL)

    def stopService(self) -> None:
        """Have everything appended that is gathered, and note the end."""
        Service.stopService(self)
        self._pruning.stop()
        self._appending.stop()
        self._burying.stop()
        # If the database is away, the next start makes all tokens void.
        self._store.ask_writer(self._end).addErrback(_trap_storage_failure)

    @inlineCallbacks
    def _bury(self) -> Generator[Deferred[Any], Any, None]:
        buried = yield self._store.ask_writer(self._epochs.bury)
        if buried:
            self._log.warn(
                "nodes {nodes} have ended without a stop, and do not run: clients that ask for changes get all"
                " retained messages once",
                nodes=", ".join(map(str, buried)),
            )

    def _append(self) -> Deferred[None] | None:
        """Append what is gathered: other processes read the table too."""
        return self._store.ask_writer(self._recorder.append_gathered) if self._recorder.has_gathered else None

    def _end(self, cursor: Cursor) -> None:
        self._recorder.append_gathered(cursor)
        self._epochs.end(cursor)

    @inlineCallbacks
    def token(self) -> Generator[Deferred[Any], Any, str | None]:
        """Return a token for now, None while the database is away."""
        if not self._store.available:
            return None
        try:
            token: str = yield self._next_token()
        except StorageFailure:
            return None
        return token

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

    def _turn_after(self, cursor: Cursor, known: Known) -> int | None:
        """Return the turn after which all changes are known, None if everything has to be replayed."""
        turns = self._epochs.turns
        if isinstance(known, int):
            turn = turn_before(cursor, known, MOST_CHANGES)
        else:
            turn = known.turn if is_good(cursor, turns, known) else None
        if turn is None or count_since(cursor, turn, MOST_CHANGES + 1) > MOST_CHANGES:
            return None
        expired = count_expired(cursor, time_of(cursor, turn), self._now(), MOST_CHANGES + 1)
        return None if expired > MOST_CHANGES else turn

    def _next_token(self) -> Deferred[str]:
        waiting: Deferred[str] = Deferred(lambda _: None)
        self._asking.append(waiting)
        if not self._making:
            self._make_token()
        return waiting

    def _make_token(self) -> None:
        """Make a token for all who ask now. Those who ask before it is made need a later one, and share that."""
        asking, self._asking = self._asking, []
        self._making = True

        def work(cursor: Cursor) -> str:
            self._recorder.append_gathered(cursor)
            return horizon_now(cursor, self._epochs.turns, self._epochs.present(cursor)).token

        def answered(result: Any) -> None:
            self._making = False
            if self._asking:
                self._make_token()
            for each in asking:
                if not each.called:  # else its client has left
                    each.callback(result)

        self._store.ask_writer(work).addBoth(answered)

    @inlineCallbacks
    def _prune(self) -> Generator[Deferred[Any], Any, None]:
        """Delete changes that are too old or too many, in parts."""
        excess = yield self._store.scan(partial(excess_turn, most=self._most))
        before = self._now() - self._keep()
        deleted = _PRUNED
        while deleted == _PRUNED:
            deleted = yield self._store.ask_writer(partial(self._prune_part, before=before, excess=excess))

    def _prune_part(self, cursor: Cursor, before: int, excess: int | None) -> int:
        cursor.execute(_PINNED)
        ((stored,),) = cursor.fetchall()
        pins = [turn for turn in (stored, pinned_turn(tuple(self._sources))) if turn is not None]
        return prune(cursor, before, _PRUNED, min(pins, default=None), excess)


def _trap_storage_failure(failure: Failure) -> None:
    failure.trap(StorageFailure)
