"""The broker's counters since its start."""

from __future__ import annotations

from collections import Counter

from attrs import define, field


@define
class Holdings:
    """What all Sessions have at present. The ``subscriptions`` include the shared ones."""

    subscriptions: int = 0
    shared_subscriptions: int = 0
    queued_messages: int = 0
    queued_bytes: int = 0


@define
class Tallies:
    """Counts by cause. The causes are few: none of them is a text of a client.

    ``refusals`` are refused CONNECT packets by the name of the Reason Code, ``logins`` the judged ones by
    authentication method and outcome, ``denials`` the denied actions by action. ``protocols`` are the clients that are
    connected now, by protocol level.
    """

    refusals: Counter[str] = field(factory=Counter)
    logins: Counter[tuple[str, str]] = field(factory=Counter)
    denials: Counter[str] = field(factory=Counter)
    protocols: Counter[int] = field(factory=Counter)


@define
class Counters:
    """Running totals. Every refusal, drop and forced close is counted.

    "messages" are PUBLISH packets, "packets" are packets of all types. A packet counts as sent when the transport gets
    it. Of the broker's own topics only the bytes on the wire count (``bytes_sent``).
    The ``holdings`` are no totals: they rise and fall, so that nobody has to walk through all Sessions to know them.
    The ``tallies`` are by cause.
    """

    connections: int = 0
    connections_refused: int = 0
    connections_not_admitted_in_time: int = 0
    connections_over_open_files: int = 0
    connections_over_max_connections: int = 0
    connections_that_gave_way: int = 0
    connections_over_max_connections_per_address: int = 0
    connections_over_max_half_open_per_address: int = 0
    connections_over_max_conn_rate: int = 0
    connections_over_max_conn_rate_per_address: int = 0
    connections_from_untrusted_proxies: int = 0
    connections_with_bad_proxy_header: int = 0
    connections_of_banned_addresses: int = 0
    connections_shut_down: int = 0
    logins_failed: int = 0
    logins_delayed: int = 0
    addresses_banned: int = 0
    connections_over_limits: int = 0
    connections_over_memory: int = 0
    clients_over_memory: int = 0
    publishers_delayed: int = 0
    messages_received: int = 0
    messages_sent: int = 0
    messages_dropped_queue_full: int = 0
    messages_rejected_queue_full: int = 0
    messages_rejected_properties: int = 0
    messages_dropped_too_large: int = 0
    messages_dropped_expired: int = 0
    messages_dropped_session_ended: int = 0
    messages_conflated: int = 0
    messages_dropped_not_authorized: int = 0
    deliveries_not_authorized: int = 0
    subscriptions_not_authorized: int = 0
    subscriptions_revoked: int = 0
    messages_dropped_retained: int = 0
    messages_dropped_conditional: int = 0
    leases_ended: int = 0
    leases_refused: int = 0
    conditions_held: int = 0
    conditions_failed: int = 0
    questions_answered: int = 0
    questions_refused: int = 0
    messages_dropped_bridge_state: int = 0
    retained_refused: int = 0
    retained_not_stored: int = 0
    retained_disconnected: int = 0
    retained_dropped_old: int = 0
    retained_delayed: int = 0
    retained_not_delivered: int = 0
    replays_denied: int = 0
    replayed_not_authorized: int = 0
    commits_failed: int = 0
    takeovers: int = 0
    protocol_errors: int = 0
    connects: int = 0
    sessions_expired: int = 0
    packets_received: int = 0
    packets_sent: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0
    message_bytes_received: int = 0
    message_bytes_sent: int = 0
    holdings: Holdings = field(factory=Holdings)
    tallies: Tallies = field(factory=Tallies)
