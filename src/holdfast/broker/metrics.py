"""The metrics of the process, of retained messages, security and storage, and the tables of all metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sized
from typing import TypeVar

from holdfast.broker.cluster import ClusterParts
from holdfast.broker.figures import Surroundings
from holdfast.changes.telemetry import Telemetry
from holdfast.replay.registry import ReplayRegistry
from holdfast.retained.limits import Limit
from holdfast.retained.service import RetainedMessages
from holdfast.sessions.counters import Counters
from holdfast.sessions.memory_guard import MemoryGuard
from holdfast.storage.store import DurableStore, OpenStore
from holdfast.storage.writer import Writer
from holdfast.watch.alarms import Condition
from holdfast.watch.audit import Audit
from holdfast.watch.metrics import Histogram, Kind, Metric, Reading, counter, gauge, histogram

# Metrics of the process: version, time, memory, and the lateness of the reactor.


def process_metrics(
    *,
    version: str,
    started: Callable[[], float],
    lag: Histogram,
    guard: MemoryGuard | None,
    resident_bytes: Callable[[], float | None],
    alarms: Callable[[], dict[tuple[str, ...], float]],
) -> list[Metric]:
    """Return the metrics.

    ``started`` returns seconds since the epoch; ``alarms`` has 1 for each active alarm, else 0.
    """
    return [
        Metric(
            name="holdfast_info", help="The version of the broker; always 1.", kind=Kind.GAUGE, labels=("version",),
            read=lambda: {(version,): 1},
        ),
        gauge("holdfast_start_time_seconds", "When the broker began, in seconds since the epoch.", started),
        gauge("holdfast_memory_bytes", "Memory of the process (resident).", resident_bytes),
        gauge(
            "holdfast_memory_most_bytes", "The memory that limits.memory allows.",
            lambda: None if guard is None else guard.most,
        ),
        gauge(
            "holdfast_memory_guard_refuses", "1 while clients are refused because of limits.memory, else 0.",
            lambda: 0.0 if guard is None else float(guard.refuses),
        ),
        histogram(
            "holdfast_reactor_lag_seconds",
            "Lateness of each heartbeat of the reactor. All clients wait for this time.",
            lambda: lag,
        ),
        Metric(
            name="holdfast_alarms_active", help="1 while an alarm is active, else 0, by its name.", kind=Kind.GAUGE,
            labels=("name",), read=alarms,
        ),
    ]  # fmt: skip


# Metrics of retained messages, their replays and their history, and of the telemetry.


#: what is done with messages that a limit refuses, by the names of the counters
_OUTCOMES = ("refused", "not_stored", "disconnected", "dropped_old", "delayed", "not_delivered")
_STATES = ("running", "throttled", "waiting")


def retained_metrics(
    counters: Counters,
    retained: RetainedMessages,
    replays: ReplayRegistry,
    telemetry: Telemetry,
    surroundings: Callable[[], Surroundings],
) -> list[Metric]:
    """Return the metrics. ``surroundings`` returns what was measured last."""
    sources = retained.sources

    def replay_counts() -> Reading:
        counts = replays.counts()
        return {(state,): counts[state] for state in _STATES}

    return [
        gauge(
            "holdfast_retained_messages", "Retained messages of all nodes, without expired ones.",
            lambda: retained.totals.latest.count, "retained messages/count",
        ),
        gauge(
            "holdfast_retained_bytes", "Bytes of all retained messages.",
            lambda: retained.totals.latest.bytes, "holdfast/retained/bytes",
        ),
        Metric(
            name="holdfast_retained_changes_total", kind=Kind.COUNTER, labels=("kind",),
            help="Changes of retained messages: set (new and replacing), clear, expire.",
            read=lambda: {(kind.value,): count for kind, count in retained.changes.items()},
            topics={(kind.value,): f"holdfast/retained/{kind.value}" for kind in retained.changes},
        ),
        Metric(
            name="holdfast_retained_refused_total", kind=Kind.COUNTER, labels=("cause",),
            help="Messages that a limit of the retainer refuses, by limit.",
            read=lambda: {(limit.value,): count for limit, count in retained.admission.refusals.items()},
            topics={(limit.value,): f"holdfast/counters/retained_over_{limit.value}" for limit in Limit},
        ),
        Metric(
            name="holdfast_retained_refused_outcomes_total", kind=Kind.COUNTER, labels=("outcome",),
            help="Messages over a limit of the retainer, by their treatment (retainer.on_limit).",
            read=lambda: {(outcome,): getattr(counters, f"retained_{outcome}") for outcome in _OUTCOMES},
            topics={(outcome,): f"holdfast/counters/retained_{outcome}" for outcome in _OUTCOMES},
        ),
        gauge(
            "holdfast_retained_withheld",
            "Stored messages that replays withhold because their publishers may no longer retain them.",
            lambda: (sources and sources.stored_withheld) or 0, "holdfast/retained/withheld",
        ),
        Metric(
            name="holdfast_replays", kind=Kind.GAUGE, labels=("state",), read=replay_counts,
            help="Replays that run, that a rate throttles (they run too), and that wait for a place.",
            topics={(state,): f"holdfast/replays/{state}" for state in _STATES},
        ),
        counter(
            "holdfast_replays_ended_total", "Replays that have ended, complete or not.",
            lambda: replays.totals()["ended"], "holdfast/replays/ended",
        ),
        counter(
            "holdfast_replays_denied_total", "Subscriptions that got no replay because of mqtt.min_replay_levels.",
            lambda: counters.replays_denied, "holdfast/counters/replays_denied",
        ),
        counter(
            "holdfast_replayed_messages_total", "Messages delivered by replays.",
            lambda: replays.totals()["messages"], "holdfast/replays/messages",
        ),
        counter(
            "holdfast_replayed_not_authorized_total", "Messages that replays have withheld from their subscribers.",
            lambda: counters.replayed_not_authorized, "holdfast/counters/replayed_not_authorized",
        ),
        counter(
            "holdfast_replayed_source_not_authorized_total",
            "Messages that replays have withheld because their publishers may no longer retain them.",
            lambda: 0 if sources is None else sources.withheld,
            "holdfast/counters/replayed_source_not_authorized",
        ),
        histogram(
            "holdfast_replay_duration_seconds", "Duration of complete replays.",
            lambda: replays.durations,
        ),
        histogram(
            "holdfast_replay_first_message_seconds", "Time from the beginning of a replay to its first message.",
            lambda: replays.first_messages,
        ),
        gauge(
            "holdfast_replay_idle_seconds", "The longest time for which a running replay has delivered nothing.",
            replays.oldest_stalled,
        ),
        counter(
            "holdfast_history_events_total", "Changes in the history, of all nodes and times, with pruned ones.",
            lambda: surroundings().history_events,
        ),
        gauge("holdfast_history_bytes", "Bytes of the history.", lambda: surroundings().history_bytes),
        counter(
            "holdfast_history_prunings_total", "Rounds of pruning the history that have ended without an error.",
            lambda: surroundings().history_prunings,
        ),
        counter(
            "holdfast_telemetry_messages_total", "Messages without RETAIN that were recorded.",
            lambda: telemetry.stored, "holdfast/telemetry/stored",
        ),
        counter(
            "holdfast_telemetry_dropped_total",
            "Messages without RETAIN that were not recorded: too many waited, or the database has failed.",
            lambda: telemetry.dropped, "holdfast/telemetry/dropped",
        ),
        gauge(
            "holdfast_telemetry_waiting_bytes", "Memory of the messages that wait until they are recorded.",
            lambda: telemetry.waiting_bytes,
        ),
        gauge(
            "holdfast_telemetry_bytes", "Bytes of all recorded messages without RETAIN.",
            lambda: surroundings().telemetry_bytes,
        ),
    ]  # fmt: skip


# Metrics of logins, permissions, bans, certificates and the audit log.


def security_metrics(
    counters: Counters,
    *,
    bans: Sized,
    waiting_refusals: Sized,
    audit: Audit,
    certificate_ends: Callable[[], Mapping[str, float]],
) -> list[Metric]:
    """Return the metrics. ``certificate_ends`` returns seconds since the epoch, by listener."""
    tallies = counters.tallies
    own = "holdfast/counters/"
    return [
        Metric(
            name="holdfast_logins_total",
            help="Judged logins, by authentication method and outcome: accepted, denied, or failed (not judged,"
            ' because a service was away). The method is "none" for guests and for users that no method knows.',
            kind=Kind.COUNTER, labels=("method", "outcome"),
            read=lambda: {cause: count for cause, count in tallies.logins.items()},  # noqa: C416
        ),
        counter(
            "holdfast_logins_failed_total", "Logins with wrong credentials.",
            lambda: counters.logins_failed, own + "logins_failed",
        ),
        counter(
            "holdfast_logins_delayed_total", "Failed logins with a delayed answer.",
            lambda: counters.logins_delayed, own + "logins_delayed",
        ),
        gauge(
            "holdfast_logins_waiting", "Failed logins whose answer is delayed now.", lambda: len(waiting_refusals)
        ),
        Metric(
            name="holdfast_authorization_denied_total", help="Denied actions: publish, retain, clear or subscribe.",
            kind=Kind.COUNTER, labels=("action",),
            read=lambda: {(action,): count for action, count in tallies.denials.items()},
        ),
        gauge("holdfast_bans", "Bans in force, and some that have ended recently.", lambda: len(bans)),
        counter(
            "holdfast_addresses_banned_total", "Addresses banned after failed logins.",
            lambda: counters.addresses_banned, own + "addresses_banned",
        ),
        Metric(
            name="holdfast_audit_lines_total",
            help="Lines of the audit log: written, lost because it could not be written, or suppressed because one"
            " kind had too many.",
            kind=Kind.COUNTER, labels=("outcome",),
            read=lambda: {("written",): audit.written, ("lost",): audit.lost, ("suppressed",): audit.suppressed},
        ),
        Metric(
            name="holdfast_certificate_expiry_timestamp_seconds",
            help="When the first certificate of a listener expires, in seconds since the epoch.",
            kind=Kind.GAUGE, labels=("listener",),
            read=lambda: {(name,): end for name, end in certificate_ends().items()},
        ),
    ]  # fmt: skip


# Metrics of the database, its writer and its disk.


T = TypeVar("T")


def storage_metrics(durable: DurableStore, surroundings: Callable[[], Surroundings]) -> list[Metric]:
    """Return the metrics. ``surroundings`` returns what was measured last."""
    own = "holdfast/storage/"

    def store(read: Callable[[OpenStore], float]) -> Callable[[], float | None]:
        return lambda: None if durable.parts is None else read(durable.parts)

    def writer(read: Callable[[Writer], T]) -> Callable[[], T | None]:
        return lambda: None if durable.parts is None else read(durable.parts.writer)

    return [
        gauge(
            "holdfast_database_available", "1, or 0 while the database is away or locked.",
            store(lambda parts: float(parts.available)),
            own + "available",
        ),
        gauge(
            "holdfast_database_damaged", "1 after damage was found and the broker has stopped storing, else 0.",
            store(lambda parts: float(parts.database.damage is not None)), own + "damaged",
        ),
        gauge(
            "holdfast_database_bytes", "Size of the database (SQLite: without its write-ahead log).",
            lambda: surroundings().database_bytes,
        ),
        gauge(
            "holdfast_database_wal_bytes", "Size of SQLite's write-ahead log.", lambda: surroundings().wal_bytes
        ),
        gauge(
            "holdfast_disk_free_bytes", "Free space on the disk of node.data_dir.",
            lambda: surroundings().disk_free_bytes,
        ),
        gauge(
            "holdfast_disk_bytes", "Size of the disk of node.data_dir.", lambda: surroundings().disk_bytes
        ),
        counter(
            "holdfast_commits_total", "Transactions committed.", writer(lambda one: one.counters.commits),
            own + "commits",
        ),
        counter(
            "holdfast_committed_rows_total", "Rows written by these transactions.",
            writer(lambda one: one.counters.rows), own + "rows",
        ),
        counter(
            "holdfast_coalesced_changes_total",
            "Changes that a newer change of the same topic replaced before they were written.",
            writer(lambda one: one.counters.coalesced), own + "coalesced",
        ),
        counter(
            "holdfast_cancelled_changes_total", "Rows that were inserted and deleted before they were written.",
            writer(lambda one: one.counters.cancelled),
        ),
        counter(
            "holdfast_failed_changes_total", "Changes that could not be stored.",
            writer(lambda one: one.counters.failed), own + "failed",
        ),
        histogram(
            "holdfast_commit_duration_seconds", "Time of a commit in the writer's thread.",
            writer(lambda one: one.counters.durations),
        ),
        histogram(
            "holdfast_commit_rows", "Rows of a commit.", writer(lambda one: one.counters.sizes)
        ),
        histogram(
            "holdfast_acknowledgement_seconds",
            "Time from a change until its commit lets the acknowledgement (PUBACK, PUBREC, SUBACK, CONNACK) leave."
            " Each counts with the time of the oldest change in its commit; those of a run count as one.",
            writer(lambda one: one.counters.waits),
        ),
        gauge(
            "holdfast_writer_queue_bytes", "Bytes of changes that wait for a commit.",
            writer(lambda one: one.pending_bytes), own + "pending_bytes",
        ),
        gauge(
            "holdfast_writer_queue_changes", "Changes that wait for a commit.",
            writer(lambda one: one.pending_changes),
        ),
        gauge(
            "holdfast_writer_queue_most_bytes", "Bytes of waiting changes above which publishers are held"
            ".", writer(lambda one: one.pending_bytes + one.room),
        ),
    ]  # fmt: skip


def cluster_metrics(cluster: ClusterParts) -> list[Metric]:
    """Return the metrics of a member of a cluster."""
    membership, exchange, carriers = cluster.membership, cluster.exchange, cluster.carriers

    def carried() -> dict[tuple[str, ...], float]:
        return {
            (str(node), each): float(each == carrier)
            for node, carrier in carriers.by_node.items()
            for each in ("nats", "database")
        }

    return [
        counter(
            "holdfast_cluster_rows_sent_total",
            "Messages for other members that were stored with their publishers' commits.",
            lambda: exchange.rows.sent,
        ),
        counter(
            "holdfast_cluster_rows_received_total",
            "Stored messages of other members that were given to the clients of this one.",
            lambda: exchange.rows.received,
        ),
        counter(
            "holdfast_cluster_runs_sent_total",
            "Messages with QoS 0 for other members.",
            lambda: exchange.runs.sent,
        ),
        counter(
            "holdfast_cluster_lost_total",
            "Messages for other members that found no room: with QoS 0, or for members that are dead.",
            lambda: exchange.lost,
        ),
        counter(
            "holdfast_cluster_corrections_total",
            "Retained messages that were sent once more, because two members have set their topic.",
            lambda: exchange.corrections.sent,
        ),
        counter(
            "holdfast_cluster_sessions_taken_total",
            "Stored Sessions that have come to this member: with their clients, or from members that are dead.",
            lambda: exchange.moved[0],
        ),
        counter(
            "holdfast_cluster_sessions_given_total",
            "Stored Sessions that have gone to other members with their clients.",
            lambda: exchange.moved[1],
        ),
        counter(
            "holdfast_cluster_sessions_lost_messages_total",
            "Messages with QoS 0 that waited in the queues of Sessions that have gone to other members.",
            lambda: exchange.moved[2],
        ),
        gauge(
            "holdfast_cluster_gates",
            "Subscriptions whose SUBACK waits for other members.",
            lambda: exchange.interest.waits,
        ),
        gauge(
            "holdfast_cluster_lease_seconds",
            "Time until the lease of this node ends; negative while no client is served.",
            lambda: None if math.isinf(membership.left()) else membership.left(),
        ),
        gauge(
            "holdfast_cluster_clock_offset_seconds",
            "By how much the machine's clock is ahead of the database's.",
            lambda: membership.offset,
        ),
        gauge(
            "holdfast_cluster_silent_members",
            "Members that may serve clients, and of which this one hears nothing.",
            lambda: len(exchange.silent),
        ),
        counter(
            "holdfast_cluster_gaps_total",
            "Times when a message of another member was missing, so that it has told everything anew.",
            lambda: exchange.breaks,
        ),
        gauge(
            "holdfast_cluster_other_configurations",
            "Members whose configuration differs from this one's, except for their own listeners, logs and the like.",
            lambda: len(membership.other_configurations),
        ),
        Metric(
            name="holdfast_cluster_carrier",
            kind=Kind.GAUGE,
            labels=("member", "carrier"),
            read=carried,
            help="With NATS: 1 for the carrier (nats or database) of the messages to each member now, else 0.",
        ),
        gauge(
            "holdfast_cluster_nats_connected",
            "With NATS: 1 while a server takes messages, else 0.",
            lambda: None if carriers.is_connected is None else float(carriers.is_connected),
        ),
        counter(
            "holdfast_cluster_fallbacks_total",
            "With NATS: times when a member was left to the database, because it did not answer over NATS.",
            lambda: None if carriers.fallback is None else carriers.fallback.fallbacks,
        ),
        counter(
            "holdfast_cluster_nats_lost_connections_total",
            "With NATS: connections to its servers that were lost.",
            lambda: None if carriers.nats is None else carriers.nats.losses,
        ),
        Metric(
            name="holdfast_cluster_nats_refused_total",
            kind=Kind.COUNTER,
            labels=("reason",),
            help="With NATS: messages that were dropped because they are not of a member or have another secret"
            " (unknown), of a process that has ended (old), came before (repeated), are too_large, or incomplete.",
            read=lambda: {} if carriers.nats is None else {(why,): n for why, n in carriers.nats.refused.items()},
        ),
    ]


# The tables of all metrics and of all alarms for the documentation, as Markdown.


def metrics_table(metrics: Iterable[Metric]) -> str:
    """Return the table of metrics, in the order of their names."""
    lines = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for metric in sorted(metrics, key=lambda one: one.name):
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind.value} | {labels} | {_cell(metric.help)} |")
    return "\n".join(lines) + "\n"


def alarms_table(conditions: Iterable[Condition]) -> str:
    """Return the table of alarms, in the order of their names."""
    lines = ["| alarm | severity | what is wrong | what to do |", "|---|---|---|---|"]
    for condition in sorted(conditions, key=lambda one: one.name):
        meaning, remedy = _cell(condition.meaning), _cell(condition.remedy)
        lines.append(f"| `{condition.name}` | {condition.severity.value} | {meaning} | {remedy} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
