"""Where the log goes, in which form: readable lines on a terminal, otherwise JSON.

Twistd decides by its options ``--logfile``, ``--syslog`` and ``--logger``. The last two keep the forms of Twisted.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from typing import IO, Any, cast

from twisted.logger import FileLogObserver
from twisted.python.logfile import LogFile

from holdfast.log.lines import JSONLines, TextLines

_STDOUT = "-"
#: the name that twistd gives to the log of a daemon
_DAEMON_LOG = "twistd.log"


def log_observer(formatter: str, level: str, twistd: Mapping[str, Any], reactor: Any) -> FileLogObserver | None:
    """Return the observer that writes the log where the options of ``twistd`` say.

    ``formatter`` is ``text``, ``json`` or ``auto``; ``level`` is one of :data:`holdfast.log.lines.LEVELS`. Returns None
    where the options name an observer of their own.
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
