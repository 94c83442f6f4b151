"""The root service: starts and stops the parts of the broker in order, and reports this to the operator.

What is *wrong* ends the start: a port in use, a refused password. What is only *late*, as after a power cut, is waited
for: the server of the database, and the address of a listener.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from twisted.application.service import IService, Service
from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.logger import FileLogObserver, ILogObserver, Logger

from holdfast.admin.http.control import ControlSocket, ControlUnusable
from holdfast.broker.process import complain, end_with_failure, on_terminal
from holdfast.broker.reloading import Reloads
from holdfast.broker.service_manager import ServiceManager
from holdfast.changes.history import RetainedHistory
from holdfast.changes.telemetry import Telemetry
from holdfast.config import ConfigError
from holdfast.retained.service import RetainedMessages
from holdfast.scheduling.deadlines import PeriodicJob
from holdfast.scheduling.waiting import as_deferred
from holdfast.sessions.limits import Limits
from holdfast.sessions.registry import SessionRegistry
from holdfast.sessions.sys_topics import SysTopics
from holdfast.storage.location import DirectoryLock, DirectoryUnusable, StoreLate, StoreUnusable
from holdfast.transports.listening import CannotListen, Listening
from holdfast.transports.protocol import OpenConnections

if TYPE_CHECKING:
    from holdfast.cluster.exchange import Exchange
    from holdfast.cluster.membership import Membership

#: seconds that clients have to receive their last packets when the broker stops
DRAIN_TIME = 2.0
#: seconds between two tries to open what is late
RETRY = 2.0

#: the status of a process that has lost its place in the cluster, as of a failure that does not last (EX_TEMPFAIL)
FENCED = 75

_WRONG = (ConfigError, DirectoryUnusable, StoreUnusable, CannotListen, ControlUnusable)


class Store(Protocol):
    """The methods of the durable store that the root service calls."""

    @property
    def is_open(self) -> bool:
        """Whether the store is open."""

    def open(self) -> None:
        """Open the store. Raises StoreUnusable, and StoreLate if its server is not up yet."""

    def reach(self) -> Deferred[None]:
        """Try in a thread whether the server can be reached. Fails as :meth:`open` does."""

    def close(self) -> Deferred[None]:
        """Commit pending changes, and close."""


class Startable(Protocol):
    """What begins when the parts of the broker run, and ends before its clients are disconnected."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """End."""


class AdminListener(Protocol):
    """The listener of the API."""

    @property
    def late(self) -> list[str]:
        """Why it is not open, if it waits for its address."""

    def open(self, wait: bool = False) -> list[str]:
        """Begin to listen; return where the API is. Raises CannotListen. With ``wait``, it may be late."""

    def open_late(self) -> list[str]:
        """Try again to listen if it is late; return where the API is, or nothing."""

    def close(self) -> list[Deferred[None]]:
        """Stop listening, and abort all calls."""


class BrokerService(Service):
    """Starts and stops the broker.

    Start: lock the data directory, read the bans, open the control socket and the store, restore Sessions, open the
    listeners and the listener of the API. A problem in any of these steps ends the process with status 1 and one
    message on stderr, before the reactor runs. If it ``waits``, it tries again what is late, while the reactor runs:
    without the database it opens no listener, and without the address of one listener it opens the others.

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
        membership: Membership | None = None,
        exchange: Exchange | None = None,
        retained: RetainedMessages,
        since: IService | None,
        history: RetainedHistory,
        telemetry: Telemetry,
        sys_topics: SysTopics,
        registry: SessionRegistry,
        limits_of: Callable[[str], Limits],
        bridges: Startable | None = None,
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
        waits: bool = True,
        warnings: Sequence[object] = (),
    ) -> None:
        self._reactor = reactor
        self._lock = lock
        self._load_bans = load_bans
        self._open_audit = open_audit
        self._close_audit = close_audit
        self._store = store
        self._membership = membership
        self._exchange = exchange
        self._retained = retained
        self._since = since
        self._history = history
        self._telemetry = telemetry
        self._sys_topics = sys_topics
        self._registry = registry
        self._limits_of = limits_of
        self._bridges = bridges
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
        self._waits = waits
        self._warnings = warnings
        self._is_restored = False  # the store is open, and the Sessions are restored
        self._is_open = False  # the listeners are opened, too
        self._has_started = False  # the parts run
        self._is_ready = False
        self._store_late = ""
        self._told_late: set[str] = set()
        self._trying = PeriodicJob(self._try_again, name="opening what is late", interval=RETRY, clock=reactor)
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

    @property
    def late_database(self) -> str | None:
        """Why the database cannot be reached, None if the broker does not wait for it."""
        return None if self._is_open else self._store_late

    def reload(self, by: str) -> Deferred[Any]:
        """Reload the configuration as :meth:`Reloads.reload` does, but nothing before the store is open."""
        if self._is_open:
            return self.reloads.reload(by)
        self._log.warn("{by}: nothing is reloaded while the broker waits for its database; restart it", by=by)
        return succeed(None)

    def privilegedStartService(self) -> None:
        """Lock the directory, open the store and the listeners, or end the process with status 1."""
        for warning in self._warnings:
            self._log.warn("{warning}", warning=warning)
        try:
            self._lock.acquire()
            self._load_bans()
            self._open_audit()
            self._control.open()
            self._open()
        except _WRONG as error:
            complain(str(error))
            if self._membership is not None:
                self._membership.withdraw()
            self._lock.release()  # the store has nothing to commit, and closes with the process
            raise SystemExit(1) from None
        except KeyboardInterrupt:
            complain("interrupted before it was ready; nothing is lost")
            if self._membership is not None:
                self._membership.withdraw()
            raise SystemExit(1) from None
        Service.privilegedStartService(self)

    def startService(self) -> None:
        """Start the services, and announce that the broker is ready once the reactor runs."""
        Service.startService(self)
        if self._is_open:
            self._start_parts()
        self._reactor.callWhenRunning(self._tell)
        if self._late:
            self._trying.start(RETRY)

    def _start_parts(self) -> None:
        self._has_started = True
        self._retained.startService()
        if self._since is not None:
            self._since.startService()
        self._history.startService()
        self._telemetry.startService()
        self._sys_topics.startService()
        if self._certificates is not None:
            self._certificates.startService()
        if self._memory is not None:
            self._memory.startService()
        self._authentication.startService()
        if self._monitoring is not None:
            self._monitoring.startService()
        if self._bridges is not None:
            self._bridges.start()

    @as_deferred
    async def stopService(self) -> None:
        """Stop in order; fires when everything acknowledged is on disk."""
        if self._stopping or not self.running:
            return
        self._stopping = True
        self._trying.stop()
        self._service_manager.stopping()
        self.reloads.stop()
        Service.stopService(self)
        closing = [self._control.close(), *self._admin.close(), *self._listening.close()]
        if self._has_started:
            await self._stop_parts()
        await DeferredList(closing)
        await self._connections.all_closed(DRAIN_TIME)
        if self._exchange is not None:
            await self._exchange.stop()
        if self._has_started:
            self._retained.stopService()
            if self._since is not None:
                self._since.stopService()
            self._history.stopService()
            self._telemetry.stopService()
        self._close_audit()
        await self._store.close()
        if self._membership is not None:
            await self._membership.leave()
        self._service_manager.close()
        self._lock.release()
        self._log.info("everything accepted is stored; stopped")

    def fence(self, why: str) -> None:
        """End all connections and the process, with status 75, and store nothing more: another process is this node.

        An orderly stop would store what is left. A process that begins anew holds nothing that is out of date.
        """
        if self._stopping:
            return
        self._stopping = True
        self._log.critical("{why}; all clients are disconnected, and the process ends with status 75", why=why)
        self._trying.stop()
        self._service_manager.stopping()
        self.reloads.stop()
        for each in (self._control.close(), *self._admin.close(), *self._listening.close()):
            each.addErrback(lambda failure: self._log.failure("a listener could not be closed", failure))
        if self._bridges is not None:
            self._bridges.stop()
        self._registry.cut_off()
        if self._exchange is not None:
            self._exchange.stop()
        self._connections.all_closed(DRAIN_TIME).addCallback(lambda _: end_with_failure(self._reactor, FENCED))

    async def _stop_parts(self) -> None:
        if self._bridges is not None:
            self._bridges.stop()
        if self._monitoring is not None:
            self._monitoring.stopService()
        self._sys_topics.stopService()
        if self._certificates is not None:
            self._certificates.stopService()
        if self._memory is not None:
            self._memory.stopService()
        self._stop_jobs()
        await self._registry.shut_down()
        await self._authentication.stopService()

    @property
    def _late(self) -> list[str]:
        """What the broker waits for."""
        return [*self._listening.late, *self._admin.late] if self._is_open else [self._store_late]

    def _open(self) -> bool:
        """Open the store, then the listeners; return False if the store is late. Raises one of ``_WRONG``."""
        try:
            if not self._is_restored:
                if not self._store.is_open:
                    self._store.open()
                self._registry.restore(self._limits_of)
                if self._membership is not None:
                    self._membership.begin()
                self._is_restored = True
            if self._exchange is not None:
                self._begin_exchange(self._exchange)
        except StoreLate as late:
            if self._membership is not None and not self._store.is_open:
                self._membership.withdraw()  # the next try joins again
            if not self._waits and not self._is_restored:
                raise
            if not self._store_late:  # a port in use ends the start at once
                self._listening.try_out()
            self._store_late = str(late)
            return False
        self._is_open = True
        self._lines = [f"listening {line}" for line in self._listening.open(self._waits)]
        self._lines += [f"admin {line}" for line in self._admin.open(self._waits)]
        return True

    def _begin_exchange(self, exchange: Exchange) -> None:
        """Begin to speak with the other members. Raises StoreLate as long as some of them are awaited."""
        exchange.start()
        late = exchange.why_not_ready()
        if late is not None:
            exchange.on_ready = self._try_again
            raise StoreLate(late)

    @as_deferred
    async def _try_again(self) -> None:
        if self._is_open:
            self._lines += [f"listening {line}" for line in self._listening.open_late()]
            self._lines += [f"admin {line}" for line in self._admin.open_late()]
        else:
            try:
                await self._store.reach()
                if self._stopping or self._is_open:
                    return
                if self._open():
                    self._start_parts()
            except StoreLate as late:
                self._store_late = str(late)
            except _WRONG as error:
                complain(str(error))
                if self._membership is not None:
                    self._membership.withdraw()
                end_with_failure(self._reactor)
                return
        if not self._stopping:
            self._tell()

    def _tell(self) -> None:
        """Tell the operator and the service manager of open listeners, and of a late database or address."""
        late, subject = self._late, "listeners" if self._is_open else "database"
        if late and subject not in self._told_late:
            self._told_late.add(subject)
            self._log.warn(
                "the broker waits, and tries again every {retry:g} s: {late}", retry=RETRY, late="; ".join(late)
            )
        lines, self._lines = self._lines, []
        for line in lines:
            self._announce(line)
        if not self._is_open or (self._listening.late and not self._listening.open_names):
            self._service_manager.waiting("; ".join(late))
        elif lines or not self._is_ready:
            self._ready("; ".join(late))
        if not late:
            self._trying.stop()

    def _ready(self, late: str) -> None:
        self._service_manager.ready(late)
        if self._is_ready:
            return
        self._is_ready = True
        link = self._dashboard_link() if on_terminal() else None
        if link is not None:  # only on a terminal: a file or a journal would keep it
            self._announce(f"dashboard {link}")
        self._announce("ready")
        self._log.info("{description}", description=self._description)
