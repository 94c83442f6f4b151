"""Where the log goes: the form of its lines, its files, and the choice among them."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from datetime import datetime
from typing import IO, Any, cast

from attrs import frozen
from twisted.logger import FileLogObserver, LogEvent, LogLevel, formatEvent, globalLogPublisher
from twisted.python.logfile import BaseLogFile, LogFile

from holdfast.core.terminal import printable
from holdfast.core.units import date_of

# The lines of the log: short ones to read on a terminal, and JSON objects for programs.
#
# A line of JSON is one flat object: ``time`` (ISO 8601, UTC), ``level``, ``logger`` (the module or class), ``message``,
# and ``failure``, the traceback, where there is one. A line of text begins with the local time; more lines of the same
# event are indented.


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
        line = {
            "time": date_of(1000 * (event.get("log_time") or time.time())),
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


# The files of the log. Twistd opens them; tools such as logrotate rename them while the broker runs.


@frozen
class Reopened:
    """The paths of the log files that were opened again, and the reasons of those that could not be."""

    paths: tuple[str, ...]
    failures: tuple[str, ...]


def reopen_log_files() -> Reopened:
    """Open each log file again by its path, so that a file that was renamed or deleted gets no further lines.

    A file that cannot be opened again stays in use as it is, so that no line is lost.
    """
    paths, failures = [], []
    for file in _log_files():
        try:
            # Tried first: Twisted closes the old file before it opens the new one, and would be left without any.
            with open(file.path, "ab"):
                pass
            file.reopen()
        except OSError as error:
            failures.append(f"{file.path}: {error.strerror or error}")
        else:
            paths.append(file.path)
    return Reopened(tuple(paths), tuple(failures))


def _log_files() -> list[BaseLogFile]:
    """Return the open files that Twisted's log is written to."""
    # Twisted has no public way from the log to its files, and twistd keeps the file that it opens to itself.
    written = [getattr(observer, "_outFile", None) for observer in globalLogPublisher._observers]
    return [file for file in written if isinstance(file, BaseLogFile) and not file.closed]


# Where the log goes, in which form: readable lines on a terminal, otherwise JSON.
#
# Twistd decides by its options ``--logfile``, ``--syslog`` and ``--logger``. The last two keep the forms of Twisted.


_STDOUT = "-"
#: the name that twistd gives to the log of a daemon
_DAEMON_LOG = "twistd.log"


def log_observer(formatter: str, level: str, twistd: Mapping[str, Any], reactor: Any) -> FileLogObserver | None:
    """Return the observer that writes the log where the options of ``twistd`` say.

    ``formatter`` is ``text``, ``json`` or ``auto``; ``level`` is one of :data:`holdfast.watch.log_output.LEVELS`.
    Returns None where the options name an observer of their own.
    """
    daemon = not twistd.get("nodaemon")
    name = twistd.get("logfile") or (_DAEMON_LOG if daemon else _STDOUT)
    if twistd.get("syslog") or twistd.get("logger") or (daemon and name == _STDOUT):
        return None
    # Bound now: later `sys.stdout` is Twisted's, which leads into this log.
    out = cast("IO[str] | None", sys.__stdout__)
    if name != _STDOUT:
        return FileLogObserver(_rotating(name, reactor), _lines(formatter, level, terminal=False))
    if out is None:
        return None
    return FileLogObserver(out, _lines(formatter, level, terminal=out.isatty()))


def _lines(formatter: str, level: str, *, terminal: bool) -> JSONLines | TextLines:
    if formatter == "json" or (formatter == "auto" and not terminal):
        return JSONLines(level)
    return TextLines(level, coloured=terminal and not os.environ.get("NO_COLOR"))


def _rotating(name: str, reactor: Any) -> Any:
    """Open a file that twistd would open: a new one is begun every million bytes, and on SIGUSR1."""
    file = LogFile.fromFullPath(name)
    if not signal.getsignal(signal.SIGUSR1):
        signal.signal(signal.SIGUSR1, lambda _number, _frame: reactor.callFromThread(file.rotate))
    return file
