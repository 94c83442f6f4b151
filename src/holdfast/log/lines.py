"""The lines of the log: short ones to read on a terminal, and JSON objects for programs.

A line of JSON is one flat object: ``time`` (ISO 8601, UTC), ``level``, ``logger`` (the module or class), ``message``,
and ``failure``, the traceback, where there is one. A line of text begins with the local time; more lines of the same
event are indented.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

from twisted.logger import LogEvent, LogLevel, formatEvent

from holdfast.terminal_text import printable

#: The levels by the names that the configuration has.
LEVELS = {"debug": LogLevel.debug, "info": LogLevel.info, "warning": LogLevel.warn, "error": LogLevel.error}

_NAMES: dict[Any, str] = {level: name for name, level in LEVELS.items()} | {LogLevel.critical: "critical"}
_ORDER = {level: number for number, level in enumerate(LogLevel.iterconstants())}
#: Of these an operator reads warnings and errors only: they tell of each port and each thread pool.
_CHATTY = ("twisted.", "log_legacy")
_COLOURS = {"warning": "33", "error": "31", "critical": "31;1"}
_INDENT = "\n         "


def _is_told(event: LogEvent, least: int) -> bool:
    """Tell whether an event has a line, if the lines are those from the level ``least`` on."""
    order = _ORDER.get(event.get("log_level", LogLevel.info), 0)
    if order == _ORDER[LogLevel.info] and str(event.get("log_namespace", "")).startswith(_CHATTY):
        order = _ORDER[LogLevel.debug]
    return order >= least


class JSONLines:
    """Makes one JSON object of each event from a level on; of Twisted's own events as :class:`TextLines`."""

    def __init__(self, level: str = "info") -> None:
        self._least = _ORDER[LEVELS[level]]

    def __call__(self, event: LogEvent) -> str | None:
        """Return the line of an event, None if it has none."""
        level = event.get("log_level", LogLevel.info)
        if not _is_told(event, self._least):
            return None
        moment = datetime.fromtimestamp(event.get("log_time") or time.time(), UTC)
        line = {
            "time": f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z",
            "level": _NAMES.get(level, "info"),
            "logger": str(event.get("log_namespace", "")),
            "message": formatEvent(event),
        }
        if "log_failure" in event:
            line["failure"] = _traceback(event)
        return json.dumps(line) + "\n"


class TextLines:
    """Makes lines for a reader of each event from a level on. Twisted's own events of level info count as debug."""

    def __init__(self, level: str = "info", *, coloured: bool = False) -> None:
        self._least = _ORDER[LEVELS[level]]
        self._coloured = coloured

    def __call__(self, event: LogEvent) -> str | None:
        """Return the lines of an event, None if it has none."""
        level = event.get("log_level", LogLevel.info)
        if not _is_told(event, self._least):
            return None
        text = formatEvent(event)
        if "log_failure" in event:
            text = f"{text}\n{_traceback(event)}" if text else _traceback(event)
        if not text:
            return None
        moment = datetime.fromtimestamp(event.get("log_time") or time.time())  # the reader's own time
        # Texts of clients are escaped where they are logged. Nothing that was forgotten there reaches the terminal.
        shown = _INDENT.join(map(printable, text.rstrip().split("\n")))
        return f"{moment:%H:%M:%S} {self._label(_NAMES.get(level, 'info'))}{shown}\n"

    def _label(self, name: str) -> str:
        """Return the name of a level that needs attention, "" for others."""
        colour = _COLOURS.get(name)
        if colour is None:
            return ""
        return f"\x1b[{colour}m{name}\x1b[0m: " if self._coloured else f"{name}: "


def _traceback(event: LogEvent) -> str:
    return str(event["log_failure"].getTraceback())
