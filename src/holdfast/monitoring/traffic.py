"""Metrics of packets and messages, in and out, and of those that wait or are dropped."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from holdfast.metrics.metric import Kind, Metric, Reading, counter, gauge
from holdfast.monitoring.session_walk import Walked
from holdfast.sessions.connection.backpressure import Pressure
from holdfast.sessions.counters import Counters

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
        counter(
            "holdfast_messages_unreleased_total",
            "QoS 2 messages without a PUBREL in time. The broker has forgotten their Packet Identifiers.",
            lambda: counters.unreleased_forgotten, "holdfast/counters/unreleased_forgotten",
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
            "Clients whose packets wait, because too many changes wait for a commit (storage.max_pending).",
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
