"""The root service: starts and stops the parts of the broker in order, and reports this to the operator."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Protocol

from twisted.application.service import IService, Service
from twisted.internet.defer import Deferred, DeferredList, inlineCallbacks
from twisted.logger import FileLogObserver, ILogObserver, Logger

from holdfast.admin.http.control import ControlSocket, ControlUnusable
from holdfast.config import ConfigError
from holdfast.listening import CannotListen, Listening
from holdfast.process import complain, on_terminal
from holdfast.protocol import OpenConnections
from holdfast.reloading.reloads import Reloads
from holdfast.retained.history.history import RetainedHistory
from holdfast.retained.service import RetainedMessages
from holdfast.service_manager import ServiceManager
from holdfast.sessions.limits import Limits
from holdfast.sessions.monitoring.sys_topics import SysTopics
from holdfast.sessions.registry.registry import SessionRegistry
from holdfast.storage.errors import StoreUnusable
from holdfast.storage.lock import DirectoryLock, DirectoryUnusable

#: seconds that clients have to receive their last packets when the broker stops
DRAIN_TIME = 2.0


class Store(Protocol):
    """The methods of the durable store that the root service calls."""

    def open(self) -> None:
        """Open the store. Raises StoreUnusable."""

    def close(self) -> Deferred[None]:
        """Commit pending changes, and close."""


class AdminListener(Protocol):
    """The listener of the API."""

    def open(self) -> list[str]:
        """Begin to listen; return where the API is. Raises CannotListen."""

    def close(self) -> list[Deferred[None]]:
        """Stop listening, and abort all calls."""


class BrokerService(Service):
    """Starts and stops the broker.

    Start: lock the data directory, read the bans, open the store, restore Sessions, open the listeners, the control
    socket and the listener of the API. A problem in any of these steps ends the process with status 1 and one message
    on stderr, before the reactor runs.

    Stop: close the listeners and the control socket, disconnect clients, flush the writer, close the store.
    """

    _log = Logger()

    def __init__(
        self,
        *,
        reactor: Any,
        lock: DirectoryLock,
        load_bans: Callable[[], None],
        open_audit: Callable[[], None],
        close_audit: Callable[[], None],
        store: Store,
        retained: RetainedMessages,
        history: RetainedHistory,
        sys_topics: SysTopics,
        registry: SessionRegistry,
        limits_of: Callable[[str], Limits],
        listening: Listening,
        connections: OpenConnections,
        certificates: IService | None = None,
        reloads: Reloads,
        memory: IService | None = None,
        control: ControlSocket,
        admin: AdminListener,
        stop_jobs: Callable[[], None] = lambda: None,
        dashboard_link: Callable[[], str | None] = lambda: None,
        description: str,
        announce: Callable[[str], None],
        service_manager: ServiceManager,
        authentication: IService,
        monitoring: IService | None = None,
    ) -> None:
        self._reactor = reactor
        self._lock = lock
        self._load_bans = load_bans
        self._open_audit = open_audit
        self._close_audit = close_audit
        self._store = store
        self._retained = retained
        self._history = history
        self._sys_topics = sys_topics
        self._registry = registry
        self._limits_of = limits_of
        self._listening = listening
        self._connections = connections
        self._certificates = certificates
        self.reloads = reloads
        self._memory = memory
        self._control = control
        self._admin = admin
        self._stop_jobs = stop_jobs
        self._dashboard_link = dashboard_link
        self._description = description
        self._announce = announce
        self._service_manager = service_manager
        self._authentication = authentication
        self._monitoring = monitoring
        #: where the log goes; None leaves that to twistd
        self.log_observer: FileLogObserver | None = None
        self._lines: list[str] = []
        self._stopping = False

    def setServiceParent(self, parent: Any) -> None:
        """Become part of twistd's application, which then writes its log through ``log_observer``."""
        Service.setServiceParent(self, parent)
        if self.log_observer is not None:
            parent.setComponent(ILogObserver, self.log_observer)

    @property
    def is_stopping(self) -> bool:
        """Whether the broker has begun to stop."""
        return self._stopping

    def privilegedStartService(self) -> None:
        """Lock the directory, open the store and the listeners, or end the process with status 1."""
        try:
            self._lock.acquire()
            self._load_bans()
            self._open_audit()
            self._store.open()
            self._registry.restore(self._limits_of)
            self._lines = [f"listening {line}" for line in self._listening.open()]
            self._control.open()
            self._lines += [f"admin {line}" for line in self._admin.open()]
        except (ConfigError, DirectoryUnusable, StoreUnusable, CannotListen, ControlUnusable) as error:
            complain(str(error))
            self._lock.release()  # the store has nothing to commit, and closes with the process
            raise SystemExit(1) from None
        except KeyboardInterrupt:
            complain("interrupted before it was ready; nothing is lost")
            raise SystemExit(1) from None
        Service.privilegedStartService(self)

    def startService(self) -> None:
        """Start the services, and announce that the broker is ready once the reactor runs."""
        Service.startService(self)
        self._retained.startService()
        self._history.startService()
        self._sys_topics.startService()
        if self._certificates is not None:
            self._certificates.startService()
        if self._memory is not None:
            self._memory.startService()
        self._authentication.startService()
        if self._monitoring is not None:
            self._monitoring.startService()
        self._reactor.callWhenRunning(self._ready)

    @inlineCallbacks
    def stopService(self) -> Generator[Deferred[Any], Any, None]:
        """Stop in order; fires when everything acknowledged is on disk."""
        if self._stopping or not self.running:
            return
        self._stopping = True
        self._service_manager.stopping()
        self.reloads.stop()
        Service.stopService(self)
        if self._monitoring is not None:
            self._monitoring.stopService()
        self._sys_topics.stopService()
        if self._certificates is not None:
            self._certificates.stopService()
        if self._memory is not None:
            self._memory.stopService()
        self._stop_jobs()
        closing = [self._control.close(), *self._admin.close(), *self._listening.close()]
        yield self._registry.shut_down()
        yield self._authentication.stopService()
        yield DeferredList(closing)
        yield self._connections.all_closed(DRAIN_TIME)
        self._retained.stopService()
        self._history.stopService()
        self._close_audit()
        yield self._store.close()
        self._service_manager.close()
        self._lock.release()
        self._log.info("everything accepted is stored; stopped")

    def _ready(self) -> None:
        for line in self._lines:
            self._announce(line)
        link = self._dashboard_link() if on_terminal() else None
        if link is not None:  # only on a terminal: a file or a journal would keep it
            self._announce(f"dashboard {link}")
        self._announce("ready")
        self._service_manager.ready()
        self._log.info("{description}", description=self._description)
