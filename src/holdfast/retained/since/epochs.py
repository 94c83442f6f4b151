"""The epochs of this node: one for each start of the process. Tokens belong to an epoch."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from holdfast.retained.since.stored import begin, begin_another, bury, end, ended, is_last_epoch
from holdfast.retained.since.turns import turns_of
from holdfast.storage.database import Database
from holdfast.storage.driver import Connection, Cursor
from holdfast.storage.store import DurableStore


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
        durable.before_open(self._begin)

    def present(self, cursor: Cursor) -> bytes:
        """Return the epoch of this process: another one if another node has noted its end, while it was cut off."""
        if self.turns.living is not None and not is_last_epoch(cursor, self.node, self.epoch):
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
