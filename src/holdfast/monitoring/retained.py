"""Metrics of retained messages, their replays and their history."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.metrics.metric import Kind, Metric, Reading, counter, gauge, histogram
from holdfast.monitoring.surroundings import Surroundings
from holdfast.retained.service import RetainedMessages
from holdfast.sessions.counters import Counters

#: what is done with messages that a limit refuses, by the names of the counters
_OUTCOMES = ("refused", "not_stored", "disconnected", "dropped_old", "delayed", "not_delivered")
_STATES = ("running", "throttled", "waiting")


def retained_metrics(
    counters: Counters, retained: RetainedMessages, surroundings: Callable[[], Surroundings]
) -> list[Metric]:
    """Return the metrics. ``surroundings`` returns what was measured last."""
    replays, sources = retained.replays, retained.sources

    def replay_counts() -> Reading:
        counts = replays.counts()
        return {(state,): counts[state] for state in _STATES}

    return [
        gauge(
            "holdfast_retained_messages", "Retained messages of all nodes, without expired ones.",
            lambda: retained.latest_statistics.count, "retained messages/count",
        ),
        gauge(
            "holdfast_retained_bytes", "Bytes of all retained messages.",
            lambda: retained.latest_statistics.bytes, "holdfast/retained/bytes",
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
            read=lambda: {(limit.value,): count for limit, count in retained.refusals.items()},
            topics={(limit.value,): f"holdfast/counters/retained_over_{limit.value}" for limit in retained.refusals},
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
    ]  # fmt: skip
