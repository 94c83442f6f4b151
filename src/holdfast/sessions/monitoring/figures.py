"""The broker's figures, measured on demand for its own topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import attrs
from twisted.internet.interfaces import IReactorTime

from holdfast.retained.service import RetainedMessages
from holdfast.sessions.counters import Counters
from holdfast.sessions.monitoring.load_average import LoadAverage
from holdfast.sessions.registry.registry import SessionRegistry
from holdfast.sessions.routing.router import Router

#: counters by their topics, named as in mosquitto
_TOTALS = {
    "messages/received": "packets_received",
    "messages/sent": "packets_sent",
    "publish/messages/received": "messages_received",
    "publish/messages/sent": "messages_sent",
    "publish/bytes/received": "message_bytes_received",
    "publish/bytes/sent": "message_bytes_sent",
    "bytes/received": "bytes_received",
    "bytes/sent": "bytes_sent",
    "clients/expired": "sessions_expired",
}
#: counters whose load is published, by the topic of the load
_LOADS = {
    "messages/received": "packets_received",
    "messages/sent": "packets_sent",
    "publish/received": "messages_received",
    "publish/sent": "messages_sent",
    "bytes/received": "bytes_received",
    "bytes/sent": "bytes_sent",
    "connections": "connects",
    "sockets": "connections",
}
_COUNTERS = [name for name in attrs.fields_dict(Counters) if name not in {*_TOTALS.values(), *_LOADS.values()}]
_DROPPED = [name for name in _COUNTERS if name.startswith("messages_dropped_")]


class Figures:
    """Measures the broker.

    ``storage`` returns the figures of the database. The loads and the highest number of clients are known only as of
    each call of :meth:`measure`.
    """

    def __init__(
        self,
        *,
        version: str,
        clock: IReactorTime,
        registry: SessionRegistry,
        router: Router,
        retained: RetainedMessages,
        counters: Counters,
        storage: Callable[[], Mapping[str, object]] = dict,
    ) -> None:
        self._version = version
        self._clock = clock
        self._registry = registry
        self._router = router
        self._retained = retained
        self._counters = counters
        self._storage = storage
        self._started = self._measured = clock.seconds()
        self._most_clients = 0
        self._loads: dict[str, LoadAverage] = {name: LoadAverage() for name in [*_LOADS, "publish/dropped"]}

    def measure(self) -> dict[str, str]:
        """Return every figure, as text, by its topic below ``$SYS/broker/``."""
        counters = self._counters
        dropped = sum(getattr(counters, name) for name in _DROPPED)
        figures: dict[str, object] = {
            "version": f"holdfast version {self._version}",
            "uptime": f"{int(self._clock.seconds() - self._started)} seconds",
            "publish/messages/dropped": dropped,
        }
        for topic, name in _TOTALS.items():
            figures[topic] = getattr(counters, name)
        figures.update(self._sessions())
        figures.update({f"heap/{name}": size for name, size in resident_memory().items()})
        figures.update(self._averages(dropped))
        for name in _COUNTERS:
            figures[f"holdfast/counters/{name}"] = getattr(counters, name)
        for limit, refused in self._retained.refusals.items():
            figures[f"holdfast/counters/retained_over_{limit.value}"] = refused
        for name, count in (self._retained.replays.counts() | self._retained.replays.totals()).items():
            figures[f"holdfast/replays/{name}"] = count
        figures["holdfast/retained/bytes"] = self._retained.statistics().payload_bytes
        for kind, count in self._retained.changes.items():
            figures[f"holdfast/retained/{kind.value}"] = count
        for name, value in self._storage().items():
            figures[f"holdfast/storage/{name}"] = value
        return {topic: str(value) for topic, value in figures.items()}

    def _sessions(self) -> dict[str, object]:
        """Return the numbers of clients, subscriptions and stored messages."""
        registry = self._registry
        total, connected = registry.session_count, registry.connection_count
        self._most_clients = max(self._most_clients, connected)
        subscriptions = waiting = waiting_bytes = 0
        for session in registry:
            subscriptions += len(session.subscriptions)
            waiting += len(session.queue)
            waiting_bytes += session.queue.bytes
        shared = self._router.table.shared_count
        retained = self._retained.statistics()
        return {
            "clients/total": total,
            "clients/connected": connected,
            "clients/active": connected,
            "clients/disconnected": total - connected,
            "clients/inactive": total - connected,
            "clients/maximum": self._most_clients,
            "subscriptions/count": subscriptions - shared,
            "shared_subscriptions/count": shared,
            "retained messages/count": retained.count,
            "messages/stored": retained.count + waiting,
            "store/messages/count": retained.count + waiting,
            "store/messages/bytes": retained.payload_bytes + waiting_bytes,
        }

    def _averages(self, dropped: int) -> dict[str, object]:
        now = self._clock.seconds()
        interval, self._measured = now - self._measured, now
        averages: dict[str, object] = {}
        for name, load in self._loads.items():
            total = dropped if name == "publish/dropped" else getattr(self._counters, _LOADS[name])
            for period, value in load.update(total, interval).items():
                averages[f"load/{name}/{period}"] = f"{value:.2f}"
        return averages


def resident_memory(status: Path = Path("/proc/self/status")) -> dict[str, int]:
    """Return the process's memory in bytes, ``current`` and ``maximum``; nothing if the system does not tell."""
    try:
        lines = dict(line.partition(":")[::2] for line in status.read_text().splitlines())
    except OSError:
        return {}
    names = {"current": "VmRSS", "maximum": "VmHWM"}
    return {name: 1024 * int(lines[line].split()[0]) for name, line in names.items() if line in lines}
