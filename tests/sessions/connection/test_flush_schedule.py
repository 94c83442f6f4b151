"""The flushes of a turn."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.logger import LogEvent

from holdfast.sessions.connection.outbox import FlushSchedule


def test_a_flush_that_fails_keeps_no_other_connection_from_being_written(logged_failures: list[LogEvent]) -> None:
    clock = Clock()
    schedule = FlushSchedule(clock)
    written: list[str] = []

    def fails() -> None:
        raise OSError(24, "Too many open files")

    schedule.schedule(lambda: written.append("a"))
    schedule.schedule(fails)
    schedule.schedule(lambda: written.append("b"))
    clock.advance(0)
    assert written == ["a", "b"]
    schedule.schedule(lambda: written.append("c"))
    clock.advance(0)
    assert written == ["a", "b", "c"]
    assert len(logged_failures) == 1
    logged_failures.clear()
