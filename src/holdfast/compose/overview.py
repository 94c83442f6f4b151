"""Builds the calls that show the broker itself, and those about its backups."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from attrs import frozen
from twisted.internet.threads import deferToThreadPool

from holdfast.admin.broker.backups import BackupCalls, Copy
from holdfast.admin.broker.overview import OverviewCalls
from holdfast.admin.jobs.jobs import Jobs
from holdfast.admin.routing.route import Route
from holdfast.compose.listeners import ComposedListeners
from holdfast.compose.sessions import SessionParts
from holdfast.config import Config
from holdfast.retained.service import RetainedMessages
from holdfast.sessions.monitoring.process_memory import MemoryUnknown, resident_bytes
from holdfast.storage.database import Durability
from holdfast.storage.engine import database_at
from holdfast.storage.sqlite.backup import back_up
from holdfast.storage.sqlite.database import SQLiteDatabase
from holdfast.version import version

_TYPES = {(False, False): "tcp", (False, True): "ssl", (True, False): "ws", (True, True): "wss"}
#: seconds that a backup waits for a lock of the database
_LOCK_TIMEOUT = 5.0


def compose_overview_routes(
    *,
    config: Callable[[], Config],
    sessions: SessionParts,
    retained: RetainedMessages,
    listeners: ComposedListeners,
    jobs: Jobs,
    reactor: Any,
    now: Callable[[], int],
) -> tuple[Route, ...]:
    """Return the calls. ``config`` returns the present configuration, ``now`` milliseconds since the epoch."""
    overview = Overview(config, sessions, retained, listeners, reactor.seconds, reactor.seconds())
    backups = BackupCalls(
        Path(config().data_dir) / "backups", _copy_of(config().storage.url), jobs,
        lambda function: deferToThreadPool(reactor, reactor.getThreadPool(), function), now,
        retained.store.flushed,
    )  # fmt: skip
    return (*OverviewCalls(overview).routes, *backups.routes)


@frozen
class Overview:
    """Shows the broker as fields. ``seconds`` tells the time, and ``started`` the time of the start."""

    _config: Callable[[], Config]
    _sessions: SessionParts
    _retained: RetainedMessages
    _listeners: ComposedListeners
    _seconds: Callable[[], float]
    _started: float

    def listeners(self) -> Sequence[Mapping[str, Any]]:
        """Return the listeners."""
        closed, connections = self._listeners.closed(), self._listeners.open_connections()
        shown = []
        for name, section in self._config().listeners.items():
            kind = _TYPES[section.transport != "mqtt", section.tls is not None]
            running = name not in closed and name in connections
            shown.append({
                "id": f"{kind}:{name}",
                "name": name,
                "type": kind,
                "bind": section.endpoint,
                "tls": section.tls is not None,
                "zone": section.zone or "default",
                "running": running,
                "status": {
                    "running": running,
                    "current_connections": connections.get(name, 0),
                    "max_connections": "infinity" if section.max_connections is None else section.max_connections,
                },
            })  # fmt: skip
        return shown

    def node(self) -> Mapping[str, Any]:
        """Return this node."""
        registry = self._sessions.registry
        loads = dict(zip(("load1", "load5", "load15"), (round(load, 2) for load in os.getloadavg()), strict=True))
        node: dict[str, Any] = {
            "node": str(self._config().node.id),
            "node_status": "running",
            "version": version(),
            "uptime": round(1000 * (self._seconds() - self._started)),
            "connections": registry.session_count,
            "live_connections": registry.connection_count,
            "cluster_sessions": registry.session_count,
            "max_fds": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            "memory_total": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            **loads,
        }
        with suppress(MemoryUnknown):  # then the field is left out
            node["memory_used"] = resident_bytes()
        return node

    def stats(self) -> Mapping[str, int]:
        """Return the present numbers."""
        registry, holdings = self._sessions.registry, self._sessions.counters.holdings
        retained = self._retained.statistics()
        return {
            "connections.count": registry.session_count,
            "live_connections.count": registry.connection_count,
            "sessions.count": registry.session_count,
            "subscriptions.count": holdings.subscriptions - holdings.shared_subscriptions,
            "subscriptions.shared.count": holdings.shared_subscriptions,
            "suboptions.count": holdings.subscriptions,
            "retained.count": retained.count,
            "retained.bytes": retained.bytes,
            "queued_messages.count": holdings.queued_messages,
            "queued_messages.bytes": holdings.queued_bytes,
        }


def _copy_of(url: str) -> Copy | None:
    """Return the function that copies the database, None for Postgres."""
    if not url.startswith("sqlite:"):
        return None

    def copy(target: Path, report: Callable[[int, int], None]) -> None:
        database = database_at(url, Durability.FULL, 0, _LOCK_TIMEOUT)
        assert isinstance(database, SQLiteDatabase)
        back_up(database, target, report)

    return copy
