"""A lasting fault does not flood the log."""

from __future__ import annotations

from typing import cast

from twisted.internet.task import Clock
from twisted.logger import ILogObserver, LogEvent, Logger, formatEvent

from holdfast.watch.lazy_log import LogThrottle


def test_a_subject_is_logged_once_per_interval_and_omitted_entries_are_counted() -> None:
    events: list[LogEvent] = []
    clock = Clock()
    throttle = LogThrottle(Logger(observer=cast(ILogObserver, events.append)), clock.seconds, interval=10.0)
    for _ in range(3):
        throttle.log("full", "no space")
    throttle.log("locked", "busy")
    assert [formatEvent(event) for event in events] == ["no space", "busy"]
    clock.advance(10)
    throttle.log("full", "no space")
    throttle.log("locked", "busy")
    assert [formatEvent(event) for event in events[2:]] == ["no space (2 more like it before)", "busy"]
