"""The other nodes on the same database: notices which were killed, and whether there are any."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from holdfast.retained.since.epochs import Epochs
from holdfast.retained.since.recording import AppendingRecorder
from holdfast.retained.since.stored import buried_nodes, is_alone, set_gathering
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.scheduling.periodic import PeriodicJob
from holdfast.storage.driver import Cursor
from holdfast.tickets import StorageFailure

#: Looks at which a node is found missing until this is told. When the database has restarted, the first node that is
#: back finds all others missing; each of them comes back with its next look, and has not ended.
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
        buried, down, alone = yield self._store.ask_writer(self._meet)
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

    def _meet(self, cursor: Cursor) -> tuple[list[int], set[int], bool]:
        buried = self._epochs.bury(cursor)
        down = buried_nodes(cursor)
        epoch = self._epochs.present(cursor)
        alone = is_alone(cursor, self._epochs.node)
        if not alone:
            self._recorder.alone = False
            self._recorder.append_gathered(cursor)
        set_gathering(cursor, self._epochs.node, epoch, alone)
        return buried, down, alone
