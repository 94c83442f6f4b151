"""The nodes that write the log: the epochs of this one, and whether others run, have ended or were killed."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from holdfast.changes.log import (
    begin,
    begin_another,
    buried_nodes,
    bury,
    end,
    ended,
    is_alone,
    is_last_epoch,
    set_gathering,
    take_back,
    turns_of,
)
from holdfast.changes.recording import AppendingRecorder
from holdfast.core.tickets import StorageFailure
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.scheduling.deadlines import PeriodicJob
from holdfast.scheduling.waiting import as_deferred
from holdfast.storage.database import Database, Durability
from holdfast.storage.driver import Connection, Cursor
from holdfast.storage.store import DurableStore

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
LOOK_INTERVAL = 10.0


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
            self._look, name="looking for other nodes", interval=LOOK_INTERVAL, clock=clock, foreseen=(StorageFailure,)
        )
        self.start: Callable[[float], None] = self._job.start
        self.stop: Callable[[], None] = self._job.stop

    @as_deferred
    async def _look(self) -> None:
        gone = {node for node, looks in self._missing.items() if looks >= _LOOKS}
        buried, down, alone = await self._store.ask_writer(partial(self._meet, gone=gone))
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
