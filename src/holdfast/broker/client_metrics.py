"""The metrics of connections, clients, Sessions, packets and messages, and the walk that sums over clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import attrs
from attrs import define
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from holdfast.core.connection_limits import ProcessConnections, Refusal
from holdfast.scheduling.deadlines import PeriodicJob
from holdfast.scheduling.long_work import LongWork
from holdfast.sessions.connection.pressure import Pressure
from holdfast.sessions.counters import Counters
from holdfast.sessions.registry import SessionRegistry
from holdfast.watch.metrics import Kind, Metric, Reading, counter, gauge

# Sums over all connected clients, taken in small steps, so that no message pays for them.
#
# How it works. What each client has in flight or has not read is known to its own Session and connection only; a sum
# that every PUBLISH changes would cost every PUBLISH. So all clients are visited every ``WALK_INTERVAL`` seconds,
# some in each turn of the reactor (:mod:`holdfast.scheduling.long_work`). With many clients the walk takes longer, and
# the next one begins later: it never takes more than a small part of the time. The sums are those of the last
# complete walk.


#: seconds between two walks
WALK_INTERVAL = 10.0
#: clients that are visited in one step
_VISITS_PER_STEP = 50
#: A client that has not read so many bytes is slow: they are beyond the buffers of the network.
SLOW = 64 << 10


@define
class Walked:
    """The sums of one walk. ``unsent_bytes`` are packets that clients have not read."""

    inflight_messages: int = 0
    inflight_bytes: int = 0
    unsent_bytes: int = 0
    slow_clients: int = 0


class SessionWalk(Service):
    """Walks through the connected clients; ``latest`` has the last sums."""

    def __init__(self, registry: SessionRegistry, work: LongWork, clock: IReactorTime) -> None:
        self.latest = Walked()
        self._registry = registry
        self._work = work
        self._job = PeriodicJob(self.walk, name="looking at what clients hold", interval=WALK_INTERVAL, clock=clock)

    def startService(self) -> None:
        """Begin to walk."""
        Service.startService(self)
        self._job.start(WALK_INTERVAL)

    def stopService(self) -> None:
        """Stop the walks."""
        Service.stopService(self)
        self._job.stop()

    def walk(self) -> Deferred[None] | None:
        """Visit all clients once. Returns None if that is done now."""
        return self._work.do(self, self._steps())

    def _steps(self) -> Iterator[int]:
        sums = Walked()
        for number, client_id in enumerate(self._registry.connected()):
            if not number % _VISITS_PER_STEP:
                yield 1
            held = self._registry.held(client_id)
            if held is not None:
                sums.inflight_messages += held.inflight_messages
                sums.inflight_bytes += held.inflight_bytes
                sums.unsent_bytes += held.unsent
                sums.slow_clients += held.unsent >= SLOW
        self.latest = sums


# Metrics of connections, clients, Sessions and subscriptions.


_PROTOCOLS = {3: "3.1", 4: "3.1.1", 5: "5.0"}
#: the causes of connections closed before CONNECT, without the words that all of their counters have
_REFUSALS = {refusal: refusal.value.split("_", 2)[2] for refusal in Refusal}


def client_metrics(
    counters: Counters,
    registry: SessionRegistry,
    connections: ProcessConnections,
    of_listeners: Callable[[], Mapping[str, int]],
) -> list[Metric]:
    """Return the metrics of clients. ``of_listeners`` returns the open connections by listener."""
    holdings, tallies = counters.holdings, counters.tallies
    own = "holdfast/counters/"
    return [
        Metric(
            name="holdfast_connections", help="Open connections, by listener.", kind=Kind.GAUGE, labels=("listener",),
            read=lambda: {(name,): count for name, count in of_listeners().items()},
        ),
        gauge(
            "holdfast_connections_open", "Open connections of all listeners.",
            lambda: connections.open, "holdfast/connections/open",
        ),
        gauge(
            "holdfast_connections_most", "The connections that the limit of open files allows.",
            lambda: connections.most,
        ),
        counter(
            "holdfast_connections_accepted_total", "Network Connections accepted.", lambda: counters.connections,
        ),
        counter("holdfast_connects_total", "CONNECT packets received.", lambda: counters.connects),
        Metric(
            name="holdfast_connections_refused_total", help="Connections closed before CONNECT, by cause.",
            kind=Kind.COUNTER, labels=("cause",),
            read=lambda: {(cause,): getattr(counters, refusal.value) for refusal, cause in _REFUSALS.items()},
            topics={(cause,): own + refusal.value for refusal, cause in _REFUSALS.items()},
        ),
        Metric(
            name="holdfast_connects_refused_total",
            help="CONNECT packets refused, by the name of their Reason Code.",
            kind=Kind.COUNTER, labels=("reason",),
            read=lambda: {(reason,): count for reason, count in tallies.refusals.items()},
        ),
        counter(
            "holdfast_connects_refused_all_total", "CONNECT packets refused, for any reason.",
            lambda: counters.connections_refused, own + "connections_refused",
        ),
        Metric(
            name="holdfast_connects_over_limits_total", kind=Kind.COUNTER, labels=("cause",),
            help="CONNECT packets refused because of the limits of their user, or of the memory of the process.",
            read=lambda: {("user",): counters.connections_over_limits, ("memory",): counters.connections_over_memory},
            topics={("user",): own + "connections_over_limits", ("memory",): own + "connections_over_memory"},
        ),
        counter(
            "holdfast_clients_over_memory_total", "Clients disconnected because of limits.memory.",
            lambda: counters.clients_over_memory, own + "clients_over_memory",
        ),
        counter(
            "holdfast_connections_late_total", "Connections closed because CONNECT was not accepted in time.",
            lambda: counters.connections_not_admitted_in_time, own + "connections_not_admitted_in_time",
        ),
        counter(
            "holdfast_connections_shut_down_total",
            "Connections closed because their clients read too slowly (force_shutdown).",
            lambda: counters.connections_shut_down, own + "connections_shut_down",
        ),
        counter(
            "holdfast_protocol_errors_total", "Connections closed because of an error in the protocol.",
            lambda: counters.protocol_errors, own + "protocol_errors",
        ),
        counter(
            "holdfast_takeovers_total", "Connections closed because their client has connected again.",
            lambda: counters.takeovers, own + "takeovers",
        ),
        Metric(
            name="holdfast_clients_connected", help="Clients that are connected, by version of MQTT.", kind=Kind.GAUGE,
            labels=("protocol",),
            read=lambda: {(text,): tallies.protocols[level] for level, text in _PROTOCOLS.items()},
        ),
        gauge("holdfast_sessions", "Sessions, connected or not.", lambda: registry.session_count, "clients/total"),
        counter(
            "holdfast_sessions_expired_total", "Sessions that ended because their client did not come back in time.",
            lambda: counters.sessions_expired, "clients/expired",
        ),
        Metric(
            name="holdfast_subscriptions", help="Subscriptions of all Sessions.", kind=Kind.GAUGE, labels=("shared",),
            read=lambda: {
                ("false",): holdings.subscriptions - holdings.shared_subscriptions,
                ("true",): holdings.shared_subscriptions,
            },
            topics={("false",): "subscriptions/count", ("true",): "shared_subscriptions/count"},
        ),
        counter(
            "holdfast_subscriptions_not_authorized_total", "Topic Filters in SUBSCRIBE that were not allowed.",
            lambda: counters.subscriptions_not_authorized, own + "subscriptions_not_authorized",
        ),
        counter(
            "holdfast_subscriptions_revoked_total", "Subscriptions ended because permissions have changed.",
            lambda: counters.subscriptions_revoked, own + "subscriptions_revoked",
        ),
    ]  # fmt: skip


# Metrics of packets and messages, in and out, and of those that wait or are dropped.


_DROPPED = "messages_dropped_"
_REJECTED = "messages_rejected_"
_CONDITIONS = "conditions_"
_LEASES = "leases_"
_QUESTIONS = "questions_"


def traffic_metrics(counters: Counters, pressure: Pressure, walked: Callable[[], Walked]) -> list[Metric]:
    """Return the metrics of packets and messages. ``walked`` returns the sums of the last walk."""
    holdings = counters.holdings

    def packets(all_packets: str, messages: str) -> Callable[[], Reading]:
        def read() -> Reading:
            published = getattr(counters, messages)
            return {("publish",): published, ("other",): getattr(counters, all_packets) - published}

        return read

    return [
        Metric(
            name="holdfast_packets_received_total", help="Packets received, by type.", kind=Kind.COUNTER,
            read=packets("packets_received", "messages_received"), labels=("type",),
        ),
        Metric(
            name="holdfast_packets_sent_total", help="Packets sent, by type.", kind=Kind.COUNTER,
            read=packets("packets_sent", "messages_sent"), labels=("type",),
        ),
        counter(
            "holdfast_bytes_received_total", "Bytes received from clients, of packets of all types.",
            lambda: counters.bytes_received, "bytes/received",
        ),
        counter(
            "holdfast_bytes_sent_total", "Bytes sent to clients, of packets of all types.",
            lambda: counters.bytes_sent, "bytes/sent",
        ),
        counter(
            "holdfast_messages_received_total", "PUBLISH packets received.",
            lambda: counters.messages_received, "publish/messages/received",
        ),
        counter(
            "holdfast_messages_sent_total", "PUBLISH packets sent.",
            lambda: counters.messages_sent, "publish/messages/sent",
        ),
        counter(
            "holdfast_message_bytes_received_total", "Bytes of the PUBLISH packets received.",
            lambda: counters.message_bytes_received, "publish/bytes/received",
        ),
        counter(
            "holdfast_message_bytes_sent_total", "Bytes of the PUBLISH packets sent.",
            lambda: counters.message_bytes_sent, "publish/bytes/sent",
        ),
        _by_cause(
            counters, _DROPPED, "holdfast_messages_dropped_total",
            "Messages that were accepted or received and then dropped, by cause.",
        ),
        _by_cause(
            counters, _REJECTED, "holdfast_messages_rejected_total",
            "Messages refused with a Reason Code before anything was stored, by cause.",
        ),
        _by_cause(
            counters, _CONDITIONS, "holdfast_conditions_total",
            "Messages with a condition about the retained message, by cause: it held, or it failed.",
        ),
        _by_cause(
            counters, _LEASES, "holdfast_leases_total",
            "Leases of retained messages, by cause: the message was cleared, or the lease was refused as one too many.",
        ),
        _by_cause(
            counters, _QUESTIONS, "holdfast_questions_total",
            "Questions of clients about retained messages, by cause: answered, or refused with an error.",
        ),
        counter(
            "holdfast_deliveries_not_authorized_total", "Copies of messages withheld from subscribers by permissions.",
            lambda: counters.deliveries_not_authorized, "holdfast/counters/deliveries_not_authorized",
        ),
        counter(
            "holdfast_messages_conflated_total",
            "Copies of messages that newer ones of their topic have replaced before they were sent (conflation).",
            lambda: counters.messages_conflated, "holdfast/counters/messages_conflated",
        ),
        counter(
            "holdfast_messages_not_stored_total", "Messages refused because the broker could not store them.",
            lambda: counters.commits_failed, "holdfast/counters/commits_failed",
        ),
        gauge(
            "holdfast_messages_queued", "Messages that wait in the queues of all Sessions.",
            lambda: holdings.queued_messages,
        ),
        gauge(
            "holdfast_messages_queued_bytes", "Bytes of the messages that wait in the queues of all Sessions.",
            lambda: holdings.queued_bytes,
        ),
        gauge(
            "holdfast_messages_in_flight",
            "Messages sent with QoS 1 or 2 that connected clients have not acknowledged.",
            lambda: walked().inflight_messages,
        ),
        gauge(
            "holdfast_messages_in_flight_bytes",
            "Bytes of the messages in flight to connected clients.",
            lambda: walked().inflight_bytes,
        ),
        gauge(
            "holdfast_unsent_bytes", "Bytes that connected clients have not read yet.", lambda: walked().unsent_bytes
        ),
        gauge(
            "holdfast_slow_clients", "Connected clients with 64 KiB or more of unread data.",
            lambda: walked().slow_clients,
        ),
        counter(
            "holdfast_publishers_delayed_total",
            "How often a publisher had to wait because of limits.messages_rate, limits.bytes_rate or"
            " retainer.max_publish_rate.",
            lambda: counters.publishers_delayed, "holdfast/counters/publishers_delayed",
        ),
        gauge(
            "holdfast_publishers_held",
            "Clients whose packets wait, because too many changes wait for a commit.",
            lambda: len(pressure),
        ),
    ]  # fmt: skip


def _by_cause(counters: Counters, prefix: str, name: str, text: str) -> Metric:
    """Return one metric of all counters with this prefix. The rest of a counter's name is the value of ``cause``."""
    causes = [field.removeprefix(prefix) for field in attrs.fields_dict(Counters) if field.startswith(prefix)]
    return Metric(
        name=name, help=text, kind=Kind.COUNTER, labels=("cause",),
        read=lambda: {(cause,): getattr(counters, prefix + cause) for cause in causes},
        topics={(cause,): f"holdfast/counters/{prefix}{cause}" for cause in causes},
    )  # fmt: skip
