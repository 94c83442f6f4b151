"""Metrics of connections, clients, Sessions and subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from holdfast.metrics.metric import Kind, Metric, counter, gauge
from holdfast.peers.limits import ProcessConnections, Refusal
from holdfast.sessions.counters import Counters
from holdfast.sessions.registry.registry import SessionRegistry

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
