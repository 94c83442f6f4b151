"""Metrics of the database, its writer and its disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from holdfast.metrics.metric import Metric, counter, gauge, histogram
from holdfast.monitoring.surroundings import Surroundings
from holdfast.storage.store import DurableStore, OpenStore
from holdfast.storage.writing.writer import Writer

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
            " (storage.max_pending).", writer(lambda one: one.pending_bytes + one.room),
        ),
    ]  # fmt: skip
