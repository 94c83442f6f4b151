"""The log lines of some modules, for tests of what is logged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from twisted.logger import ILogObserver, LogEvent, globalLogPublisher


@contextmanager
def logged(*sources: type) -> Iterator[list[LogEvent]]:
    """Collect the events that these classes log (without any: all events of Holdfast)."""
    names = tuple(f"{source.__module__}.{source.__qualname__}" for source in sources) or "holdfast."
    events: list[LogEvent] = []

    def observe(event: LogEvent) -> None:
        if event["log_namespace"].startswith(names):
            events.append(event)

    observer = cast("ILogObserver", observe)
    globalLogPublisher.addObserver(observer)
    try:
        yield events
    finally:
        globalLogPublisher.removeObserver(observer)
