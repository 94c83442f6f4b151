"""Metrics of the process: version, time, memory, and the lateness of the reactor."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.metrics.histogram import Histogram
from holdfast.metrics.metric import Kind, Metric, gauge, histogram
from holdfast.sessions.monitoring.memory_guard import MemoryGuard


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
