"""The audit log: its events, the limits on its lines, and its places. First: the events, each with its fields.

How it works. An event becomes a line of JSON at once, and the lines of a fifth of a second are written together. Fields
that the broker itself makes come first, texts of clients last: a filter such as fail2ban's can match the beginning of a
line. JSON escapes quotes, control characters and everything that is not ASCII, so no text of a client can add a line, a
field, or an escape sequence of a terminal.

Kinds of events that strangers can cause are limited. A line about the lines that were left out follows. If lines cannot
be written, that is logged once, they are lost and counted, and the broker goes on.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

from holdfast.core.units import date_of
from holdfast.watch.lazy_log import LineLimit
from holdfast.watch.log import LastingFailure

#: the kinds of events
CONNECTED, DISCONNECTED, REFUSED, REJECTED = "connected", "disconnected", "refused", "rejected"
DENIED, BANNED, OPERATED, ALARM, CLOCK = "denied", "banned", "operated", "alarm", "clock"
KINDS = (CONNECTED, DISCONNECTED, REFUSED, REJECTED, DENIED, BANNED, OPERATED, ALARM, CLOCK)

#: seconds of a window in which the lines of one kind are limited: in all, and a tenth of them for each group
WINDOW = 10.0
#: characters of the longest text of a client
LONGEST = 256

#: the most lines of a kind that strangers can cause, in a window
MOST_LINES = 1000
#: seconds for which lines are gathered, and their most bytes
_GATHERING = 0.2
_MOST_BYTES = 64 << 10


class IAudit(Protocol):
    """Takes events. ``fields`` are those that the broker makes, ``texts`` those of clients; None is left out."""

    def tell(self, kind: str, group: str | None, fields: Mapping[str, object], **texts: str | None) -> None:
        """Write an event. The lines of a ``group``, such as an address or a user, are limited; without one, not."""


class NoAudit:
    """Writes nothing."""

    def open(self) -> None:
        """Open nothing."""

    def close(self) -> None:
        """Close nothing."""

    def tell(self, kind: str, group: str | None, fields: Mapping[str, object], **texts: str | None) -> None:
        """Write nothing."""


class Audit:
    """Writes the wanted ``kinds`` of events to the sinks, at most ``most`` lines of each kind in a window.

    Operators' changes are not limited: they have no group. ``now`` returns milliseconds since the epoch.
    """

    def __init__(
        self,
        sinks: Sequence[Sink],
        *,
        clock: IReactorTime,
        now: Callable[[], int],
        kinds: Collection[str] = KINDS,
        most: int = MOST_LINES,
    ) -> None:
        self._clock = clock
        self._now = now
        #: lines so far: written, lost because a sink failed, and left out because there were too many
        self.written = self.lost = self.suppressed = 0
        self._lines: list[bytes] = []
        self._bytes = 0
        self._most = most
        self._set(sinks, kinds)
        self._flushing: IDelayedCall | None = None
        self._summing: IDelayedCall | None = None

    def _set(self, sinks: Sequence[Sink], kinds: Collection[str]) -> None:
        self._sinks = [
            (sink, LastingFailure("writing the audit log", "so its lines are lost until it works again", (OSError,)))
            for sink in sinks
        ]
        self._kinds = frozenset(kinds) if sinks else frozenset()
        self._limits = {kind: LineLimit(self._most, WINDOW, max(1, self._most // 10)) for kind in KINDS}
        self._lost = [0] * len(sinks)

    def change(self, sinks: Sequence[Sink], kinds: Collection[str]) -> None:
        """Write to these sinks, which are open, from now on. The lines so far go to the ones before."""
        self._sum_up()
        self._flush()
        for sink, _ in self._sinks:
            sink.close()
        self._set(sinks, kinds)

    def open(self) -> None:
        """Open the sinks. Raises OSError."""
        for sink, _ in self._sinks:
            sink.open()

    def close(self) -> None:
        """Write what is left, and close the sinks."""
        for timer in (self._flushing, self._summing):
            if timer is not None and timer.active():
                timer.cancel()
        self._sum_up()
        self._flush()
        for sink, _ in self._sinks:
            sink.close()

    def tell(self, kind: str, group: str | None, fields: Mapping[str, object], **texts: str | None) -> None:
        """Write an event. The lines of a ``group``, such as an address or a user, are limited; without one, not."""
        if kind not in self._kinds:
            return
        if group is not None and not self._limits[kind].allows(group, self._clock.seconds()):
            self.suppressed += 1
            if self._summing is None:
                self._summing = self._clock.callLater(WINDOW, self._summing_due)
            return
        cut = {name: text[:LONGEST] for name, text in texts.items() if text is not None}
        self._add(kind, {**{name: value for name, value in fields.items() if value is not None}, **cut})

    def _add(self, kind: str, fields: Mapping[str, Any]) -> None:
        line = {"time": date_of(self._now()), "event": kind, **fields}
        data = json.dumps(line, separators=(",", ":")).encode("ascii")
        self._lines.append(data)
        self._bytes += len(data)
        if self._bytes >= _MOST_BYTES:
            self._flush()
        elif self._flushing is None:
            self._flushing = self._clock.callLater(_GATHERING, self._flush_due)

    def _flush_due(self) -> None:
        self._flushing = None
        self._flush()

    def _flush(self) -> None:
        lines, self._lines, self._bytes = self._lines, [], 0
        if not lines:
            return
        for number, (sink, report) in enumerate(self._sinks):
            lost = self._lost[number]
            told = [json.dumps({"event": "lost", "count": lost}).encode("ascii")] if lost else []
            try:
                sink.write([*told, *lines])
            except OSError:
                self._lost[number] += len(lines)
                self.lost += len(lines)
                report.failed(Failure())
            else:
                self._lost[number] = 0
                self.written += len(lines)
                report.succeeded()

    def _summing_due(self) -> None:
        self._summing = None
        self._sum_up()

    def _sum_up(self) -> None:
        for kind, limit in self._limits.items():
            count = limit.take_left_out()
            if count:
                self._add("suppressed", {"of": kind, "count": count, "seconds": int(WINDOW)})


# The audit log with somebody who listens to its events, whatever of them is written.


#: takes the kind of an event, its fields, and its texts of clients
Listener = Callable[[str, Mapping[str, object], Mapping[str, str | None]], None]


class OverheardAudit:
    """Hands events on to an audit log, and to the ``listener`` while there is one."""

    def __init__(self, audit: IAudit) -> None:
        self.listener: Listener | None = None
        self._audit = audit

    def tell(self, kind: str, group: str | None, fields: Mapping[str, object], **texts: str | None) -> None:
        """Hand an event on."""
        self._audit.tell(kind, group, fields, **texts)
        if self.listener is not None:
            self.listener(kind, fields, texts)


# The places of the audit log: a file, and the journal of systemd.


JOURNAL = Path("/run/systemd/journal/socket")

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK


class Sink(Protocol):
    """Takes lines. Every method may raise OSError."""

    def open(self) -> None:
        """Begin."""

    def write(self, lines: Sequence[bytes]) -> None:
        """Write lines without their ends."""

    def close(self) -> None:
        """End."""


class FileSink:
    """A file that only its owner may write and its group may read.

    It is opened again when it was renamed or removed: each batch looks. So logrotate needs no signal.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def open(self) -> None:
        """Open the file, and create it if there is none."""
        self._descriptor = os.open(self._path, _FLAGS, 0o640)

    def write(self, lines: Sequence[bytes]) -> None:
        """Append lines."""
        if self._descriptor is None or not self._is_in_place(self._descriptor):
            self.close()
            self.open()
        assert self._descriptor is not None
        data = b"".join(line + b"\n" for line in lines)
        written = os.write(self._descriptor, data)
        if written < len(data):  # the disk is full
            with suppress(OSError):  # the next line must not continue this one
                os.write(self._descriptor, b"\n")
            raise OSError(28, "the file has taken only a part of the lines")

    def close(self) -> None:
        """Close the file."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _is_in_place(self, descriptor: int) -> bool:
        try:
            there, here = os.stat(self._path), os.fstat(descriptor)
        except FileNotFoundError:
            return False
        return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


class JournalSink:
    """The journal of systemd, one entry for each line, with SYSLOG_IDENTIFIER=holdfast-audit."""

    def __init__(self, path: Path = JOURNAL) -> None:
        self._path = path
        self._socket: socket.socket | None = None

    def open(self) -> None:
        """Connect with the journal."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            connection.connect(str(self._path))
        except OSError:
            connection.close()
            raise
        self._socket = connection

    def write(self, lines: Sequence[bytes]) -> None:
        """Send lines. An entry that the journal does not take at once is lost, with those after it."""
        if self._socket is None:
            self.open()
        assert self._socket is not None
        try:
            for line in lines:
                self._socket.send(b"PRIORITY=5\nSYSLOG_IDENTIFIER=holdfast-audit\nMESSAGE=" + line + b"\n")
        except OSError:
            self.close()  # a restarted journal has another socket
            raise

    def close(self) -> None:
        """Let go of the journal."""
        connection, self._socket = self._socket, None
        if connection is not None:
            connection.close()
