"""The broker's figures, measured on demand for its own topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from holdfast.log.lasting_failure import LastingFailure
from holdfast.peers.limits import ProcessConnections
from holdfast.retained.service import RetainedMessages
from holdfast.sessions.counters import Counters
from holdfast.sessions.monitoring.load_average import LoadAverage
from holdfast.sessions.registry.registry import SessionRegistry

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
_OTHERS = {*_TOTALS.values(), *_LOADS.values(), "holdings", "tallies"}
_COUNTERS = [name for name in attrs.fields_dict(Counters) if name not in _OTHERS]
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
        retained: RetainedMessages,
        counters: Counters,
        connections: ProcessConnections,
        storage: Callable[[], Mapping[str, object]] = dict,
    ) -> None:
        self._version = version
        self._clock = clock
        self._registry = registry
        self._retained = retained
        self._counters = counters
        self._connections = connections
        self._storage = storage
        self._started = self._measured = clock.seconds()
        self._most_clients = 0
        self._loads: dict[str, LoadAverage] = {name: LoadAverage() for name in [*_LOADS, "publish/dropped"]}
        self._groups: dict[str, Callable[[], Mapping[str, object]]] = {
            "the broker": self._broker,
            "traffic": self._totals,
            "clients": self._clients,
            "Sessions and retained messages": self._sessions,
            "connections": self._transports,
            "memory": self._memory,
            "loads": self._averages,
            "counters": self._counts,
            "replays": self._replays,
            "the database": self._database,
        }
        self._reports = {
            name: LastingFailure(f"measuring the figures of {name}", "so their topics below $SYS keep older values")
            for name in self._groups
        }

    def measure(self) -> dict[str, str]:
        """Return every figure, as text, by its topic below ``$SYS/broker/``.

        A group of figures that cannot be measured now is left out, and does not keep the others from being measured.
        """
        figures: dict[str, object] = {}
        for name, measure in self._groups.items():
            report = self._reports[name]
            try:
                figures.update(measure())
            except Exception:  # noqa: BLE001 - whatever fails, the other figures are still true
                report.failed(Failure())
            else:
                report.succeeded()
        return {topic: str(value) for topic, value in figures.items()}

    # --- the groups

    def _broker(self) -> dict[str, object]:
        return {
            "version": f"holdfast version {self._version}",
            "uptime": f"{int(self._clock.seconds() - self._started)} seconds",
        }

    def _totals(self) -> dict[str, object]:
        figures: dict[str, object] = {topic: getattr(self._counters, name) for topic, name in _TOTALS.items()}
        figures["publish/messages/dropped"] = self._dropped()
        return figures

    def _clients(self) -> dict[str, object]:
        registry = self._registry
        total, connected = registry.session_count, registry.connection_count
        self._most_clients = max(self._most_clients, connected)
        return {
            "clients/total": total,
            "clients/connected": connected,
            "clients/active": connected,
            "clients/disconnected": total - connected,
            "clients/inactive": total - connected,
            "clients/maximum": self._most_clients,
        }

    def _sessions(self) -> dict[str, object]:
        """Return the numbers of subscriptions and stored messages."""
        present = self._counters.holdings
        shared, waiting = present.shared_subscriptions, present.queued_messages
        retained = self._retained.statistics()
        return {
            "subscriptions/count": present.subscriptions - shared,
            "shared_subscriptions/count": shared,
            "retained messages/count": retained.count,
            "messages/stored": retained.count + waiting,
            "store/messages/count": retained.count + waiting,
            "store/messages/bytes": retained.bytes + present.queued_bytes,
            "holdfast/retained/bytes": retained.bytes,
        }

    def _transports(self) -> dict[str, object]:
        most = self._connections.most
        return {
            "holdfast/connections/open": self._connections.open,
            "holdfast/connections/most": "infinity" if most is None else most,
        }

    def _memory(self) -> dict[str, object]:
        return {f"heap/{name}": size for name, size in resident_memory().items()}

    def _counts(self) -> dict[str, object]:
        """Return the broker's own counters."""
        figures: dict[str, object] = {f"holdfast/counters/{name}": getattr(self._counters, name) for name in _COUNTERS}
        for limit, refused in self._retained.refusals.items():
            figures[f"holdfast/counters/retained_over_{limit.value}"] = refused
        for kind, count in self._retained.changes.items():
            figures[f"holdfast/retained/{kind.value}"] = count
        return figures

    def _replays(self) -> dict[str, object]:
        replays, sources = self._retained.replays, self._retained.sources
        counts = replays.counts() | replays.totals()
        figures: dict[str, object] = {f"holdfast/replays/{name}": count for name, count in counts.items()}
        figures["holdfast/counters/replayed_source_not_authorized"] = 0 if sources is None else sources.withheld
        figures["holdfast/retained/withheld"] = (sources and sources.stored_withheld) or 0
        return figures

    def _database(self) -> dict[str, object]:
        return {f"holdfast/storage/{name}": value for name, value in self._storage().items()}

    def _dropped(self) -> int:
        return sum(getattr(self._counters, name) for name in _DROPPED)

    def _averages(self) -> dict[str, object]:
        dropped = self._dropped()
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
    except FileNotFoundError:
        return {}
    names = {"current": "VmRSS", "maximum": "VmHWM"}
    return {name: 1024 * int(lines[line].split()[0]) for name, line in names.items() if line in lines}
