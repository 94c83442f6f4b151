"""The root service: starts and stops the broker's parts in order, and tells the operator how that went."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Generator
from typing import Any, Protocol

from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList, inlineCallbacks
from twisted.internet.interfaces import IReactorCore, IReactorTime
from twisted.logger import Logger

from holdfast.admin.control import ControlSocket, ControlUnusable
from holdfast.listening import CannotListen, Listening
from holdfast.retained.history.history import RetainedHistory
from holdfast.retained.service import RetainedMessages
from holdfast.sessions.limits import Limits
from holdfast.sessions.monitoring.sys_topics import SysTopics
from holdfast.sessions.registry.registry import SessionRegistry
from holdfast.storage.database import StoreUnusable
from holdfast.storage.lock import DirectoryLock, DirectoryUnusable


class Store(Protocol):
    """The durable store as the root service sees it."""

    def open(self) -> None:
        """Open the store. Raises StoreUnusable."""

    def close(self) -> Deferred[None]:
        """Commit what is pending, and close."""


class IBrokerReactor(IReactorCore, IReactorTime):
    """What the root service needs of a reactor."""


#: seconds clients are given to take their last packets when the broker stops
DRAIN_TIME = 2.0


class BrokerService(Service):
    """Store open -> listeners open ... listeners closed -> sessions drained -> writer flushed -> store closed.

    The control socket is open while the listeners are.

    Everything that can go wrong at the start goes wrong before the reactor runs: one message on stderr, and the
    process ends with status 1.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        lock: DirectoryLock,
        store: Store,
        retained: RetainedMessages,
        history: RetainedHistory,
        sys_topics: SysTopics,
        registry: SessionRegistry,
        limits_of: Callable[[str], Limits],
        listening: Listening,
        control: ControlSocket,
        description: str,
        announce: Callable[[str], None] | None = None,
    ) -> None:
        self._reactor = reactor
        self._lock = lock
        self._store = store
        self._retained = retained
        self._history = history
        self._sys_topics = sys_topics
        self._registry = registry
        self._limits_of = limits_of
        self._listening = listening
        self._control = control
        self._description = description
        self._announce = announce or announce_on_stdout
        self._lines: list[str] = []
        self._stopping = False

    def privilegedStartService(self) -> None:
        """Lock the directory, open the store and the listeners, or end the process with status 1."""
        try:
            self._lock.acquire()
            self._store.open()
            self._registry.restore(self._limits_of)
            self._lines = self._listening.open()
            self._control.open()
        except (DirectoryUnusable, StoreUnusable, CannotListen, ControlUnusable) as error:
            complain(str(error))
            self._lock.release()  # the store has nothing to commit, and closes with the process
            raise SystemExit(1) from None
        Service.privilegedStartService(self)

    def startService(self) -> None:
        """Begin to serve, and say so once the reactor runs."""
        Service.startService(self)
        self._retained.startService()
        self._history.startService()
        self._sys_topics.startService()
        self._reactor.callWhenRunning(self._ready)

    @inlineCallbacks
    def stopService(self) -> Generator[Deferred[Any], Any, None]:
        """Stop in order; fires when everything acknowledged is on disk."""
        if self._stopping or not self.running:
            return
        self._stopping = True
        Service.stopService(self)
        self._sys_topics.stopService()
        closing = [self._control.close(), *self._listening.close()]
        self._registry.shut_down()
        yield DeferredList(closing)
        yield self._drained()
        self._retained.stopService()
        self._history.stopService()
        yield self._store.close()
        self._lock.release()
        self._log.info("everything accepted is stored; stopped")

    def _drained(self) -> Deferred[None]:
        """Give clients a moment to take their last packets; fires early when none is left."""
        waiting: Deferred[None] = Deferred()
        deadline = self._reactor.seconds() + DRAIN_TIME

        def look() -> None:
            left = [reader for reader in self._reactor.getWriters() if hasattr(reader, "getPeer")]
            if left and self._reactor.seconds() < deadline:
                self._reactor.callLater(0.02, look)
            else:
                waiting.callback(None)

        self._reactor.callLater(0, look)
        return waiting

    def _ready(self) -> None:
        self._catch_signals()
        for line in self._lines:
            self._announce(f"listening {line}")
        self._announce("ready")
        self._log.info("{description}", description=self._description)

    def _catch_signals(self) -> None:
        """End with status 0 on SIGTERM and SIGINT: twistd's own handlers end the process by the signal."""

        def stop(number: int, _frame: object) -> None:
            signal.signal(number, signal.SIG_DFL)  # a second one ends the process at once
            self._reactor.callFromThread(self._reactor.stop)

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)


def announce_on_stdout(line: str) -> None:
    """Print a line for whoever waits for the broker, past the log that twistd makes of stdout."""
    out = sys.__stdout__
    if out is not None:
        print(line, file=out, flush=True)


def complain(message: str) -> None:
    """Print one message for the operator on stderr, past the log that twistd makes of it."""
    print(f"holdfast: {message}", file=sys.__stderr__, flush=True)
