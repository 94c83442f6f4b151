"""The broker's own topics, ``$SYS/broker/...`` and ``$SYS/cluster/...``: its figures, sent to their subscribers.

The values are kept here, not in the retained store. They are sent with QoS 0 past the Sessions' queues and windows, so
that watching the broker changes neither its state nor its counters.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from functools import partial
from math import exp
from pathlib import Path

import attrs
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from holdfast.changes.telemetry import Telemetry
from holdfast.core.connection_limits import ProcessConnections
from holdfast.core.messages import ApplicationMessage
from holdfast.core.topics import SYS_PREFIX, has_wildcard, matches
from holdfast.replay.registry import ReplayRegistry
from holdfast.retained.service import RetainedMessages
from holdfast.scheduling.deadlines import PeriodicJob
from holdfast.scheduling.long_work import LongWork, Meter
from holdfast.sessions.connection.connection import Connection
from holdfast.sessions.counters import Counters
from holdfast.sessions.delivery.outgoing import DeliveryOptions, OutgoingMessage
from holdfast.sessions.delivery.session import Session
from holdfast.sessions.registry import SessionRegistry
from holdfast.sessions.router import Router
from holdfast.watch.log import LastingFailure

_ROOT = f"{SYS_PREFIX}broker/"
#: where a member of a cluster tells of all members
CLUSTER_ROOT = f"{SYS_PREFIX}cluster/"
#: values that are sent in one step of long work: each takes some microseconds
_DELIVERIES_PER_STEP = 20
#: comparisons with a Topic Filter that take as long as a delivery
_COMPARED_FOR_A_DELIVERY = 10


class SysTopics(Service):
    """Publishes the figures that have changed, every ``interval`` seconds (0 for never).

    ``measure`` returns all figures by their topics below ``$SYS/broker/``. They are sent in parts
    (:mod:`holdfast.scheduling.long_work`), since many may watch. A member of a cluster sets :attr:`ask_members`.
    """

    def __init__(
        self,
        *,
        clock: IReactorTime,
        work: LongWork,
        router: Router,
        measure: Callable[[], Mapping[str, str]],
        interval: float,
    ) -> None:
        self._work = work
        self._router = router
        self._measure = measure
        #: further values, by their topics below ``$SYS/broker/``: those of bridges
        self.more: Callable[[], Mapping[str, str]] = dict
        self._clock = clock
        self._interval = interval
        self._values: dict[str, OutgoingMessage] = {}
        #: fires with figures of all members by their topics below ``$SYS/cluster/``
        self.ask_members: Callable[[], Deferred[Mapping[str, str]]] | None = None
        self._members_unknown = LastingFailure(
            "asking the other members", "so the topics below $SYS/cluster keep older values", (Exception,)
        )
        self._publishing = self._job()

    def _job(self) -> PeriodicJob:
        return PeriodicJob(
            self._publish, name="publishing the broker's own topics", interval=self._interval, clock=self._clock
        )

    def startService(self) -> None:
        """Begin to publish, the first time at once."""
        Service.startService(self)
        if self._interval:
            self._publishing.start()

    def stopService(self) -> None:
        """Stop publishing."""
        Service.stopService(self)
        self._publishing.stop()

    def change_interval(self, interval: float) -> None:
        """Publish every ``interval`` seconds from now on, 0 for never."""
        if interval == self._interval:
            return
        self._publishing.stop()
        self._interval = interval
        self._publishing = self._job()
        if interval and self.running:
            self._publishing.start(interval)

    def tell(self, session: Session, link: Connection, keys: Iterable[str]) -> Iterator[int]:
        """Send new subscriptions the present values that they match, in steps, as long as the connection lasts.

        The values have RETAIN 1, as retained messages have.
        """
        meter = Meter(_DELIVERIES_PER_STEP)
        for key in keys:
            named = self._values.get(key)
            values = tuple(self._values.items()) if has_wildcard(key) else () if named is None else ((key, named),)
            due = meter.add(1 + len(values) // _COMPARED_FOR_A_DELIVERY)
            if due:
                yield due
            for topic, value in values:
                subscription = session.subscriptions.get(key)
                if link.is_closed or subscription is None:
                    break
                if matches(subscription.topic_filter, topic):
                    due = meter.add(1)
                    if due:
                        yield due
                    identifiers = () if subscription.identifier is None else (subscription.identifier,)
                    checked = self._router.table.is_checked(session, subscription)
                    self._deliver(session, value, DeliveryOptions(0, True, identifiers), checked)

    def announce(self, topic: str, payload: bytes) -> None:
        """Send an event to the present subscribers of a topic below ``$SYS/``. It is no value: nobody gets it later."""
        self._work.do(self, self._announce_in_steps(OutgoingMessage(ApplicationMessage(topic, payload, 0, False))))

    def _announce_in_steps(self, event: OutgoingMessage) -> Iterator[int]:
        yield from self._send_all(event, 0)

    def _publish(self) -> Deferred[None] | None:
        if self.ask_members is None:
            return self._work.do(self, self._publish_in_steps({}))
        asking = self.ask_members()
        asking.addCallbacks(self._members_known, self._members_missing)
        return asking.addCallback(lambda found: self._work.do(self, self._publish_in_steps(found)))

    def _members_known(self, found: Mapping[str, str]) -> Mapping[str, str]:
        self._members_unknown.succeeded()
        return found

    def _members_missing(self, failure: Failure) -> Mapping[str, str]:
        self._members_unknown.failed(failure)
        return {}

    def _publish_in_steps(self, of_members: Mapping[str, str]) -> Iterator[int]:
        sent = 0
        figures = {_ROOT + name: text for name, text in {**self._measure(), **self.more()}.items()}
        for topic, text in (figures | {CLUSTER_ROOT + name: text for name, text in of_members.items()}).items():
            payload = text.encode()
            present = self._values.get(topic)
            if present is None or present.message.payload != payload:
                value = self._values[topic] = OutgoingMessage(ApplicationMessage(topic, payload, 0, True))
                sent = yield from self._send_all(value, sent)

    def _send_all(self, value: OutgoingMessage, sent: int) -> Generator[int, None, int]:
        """Send a message to all subscribers, ``sent`` of others before it. Returns how many are sent then."""
        for session, options, checked in self._router.online(value.message.topic):
            if not sent % _DELIVERIES_PER_STEP:
                yield 1
            sent += 1
            self._deliver(session, value, options, checked)
        return sent

    def _deliver(self, session: Session, value: OutgoingMessage, options: DeliveryOptions, checked: bool) -> None:
        self._router.if_allowed(session, value.message, partial(self._send, session, value, options), checked)

    def _send(self, session: Session, value: OutgoingMessage, options: DeliveryOptions) -> None:
        link = session.link
        if link is not None:
            retain = options.retain_as_published
            packet = value.packet(link.protocol_version, 0, retain, options.identifiers, 0, 0)
            if link.maximum_packet_size is None or len(packet) <= link.maximum_packet_size:
                link.send_uncounted(packet)


# The broker's figures, measured on demand for its own topics.


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
        replays: ReplayRegistry,
        counters: Counters,
        connections: ProcessConnections,
        storage: Callable[[], Mapping[str, object]] = dict,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._telemetry = telemetry
        self._version = version
        self._clock = clock
        self._registry = registry
        self._retained = retained
        self._replay_registry = replays
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
        retained = self._retained.totals.refreshed()
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
        for limit, refused in self._retained.admission.refusals.items():
            figures[f"holdfast/counters/retained_over_{limit.value}"] = refused
        for kind, count in self._retained.changes.items():
            figures[f"holdfast/retained/{kind.value}"] = count
        for name in ("stored", "dropped"):
            figures[f"holdfast/telemetry/{name}"] = getattr(self._telemetry, name, 0)
        return figures

    def _replays(self) -> dict[str, object]:
        replays, sources = self._replay_registry, self._retained.sources
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


# Load averages: the growth of a running total, averaged over the last minutes.


#: the time constant of each average, in seconds, by the name of its topic
PERIODS = {"1min": 60.0, "5min": 300.0, "15min": 900.0}


class LoadAverage:
    """The growth of one running total per minute, as exponentially weighted averages like those of mosquitto.

    An average moves towards the growth of the last interval by ``1 - exp(-interval / period)``. All begin at 0.
    """

    def __init__(self, total: int = 0) -> None:
        self._total = total
        self._averages = dict.fromkeys(PERIODS, 0.0)

    def update(self, total: int, interval: float) -> dict[str, float]:
        """Take the total ``interval`` seconds after the last one. Returns the averages by period."""
        if interval > 0:
            per_minute = 60 * (total - self._total) / interval
            self._total = total
            for name, period in PERIODS.items():
                self._averages[name] = per_minute + exp(-interval / period) * (self._averages[name] - per_minute)
        return self._averages
