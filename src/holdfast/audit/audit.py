"""The events of the audit log, each with its fields.

How it works. An event becomes a line of JSON at once, and the lines of a fifth of a second are written together. Fields
that the broker itself makes come first, texts of clients last: a filter such as fail2ban's can match the beginning of a
line. JSON escapes quotes, control characters and everything that is not ASCII, so no text of a client can add a line, a
field, or an escape sequence of a terminal.

Kinds of events that strangers can cause are limited (:mod:`holdfast.audit.limits`). A line about the lines that were
left out follows. If lines cannot be written, that is logged once, they are lost and counted, and the broker goes on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

from holdfast.audit.limits import WINDOW, LineLimit
from holdfast.audit.sinks import Sink
from holdfast.log.lasting_failure import LastingFailure

#: the kinds of events
CONNECTED, DISCONNECTED, REFUSED, REJECTED = "connected", "disconnected", "refused", "rejected"
DENIED, BANNED, OPERATED, ALARM, CLOCK = "denied", "banned", "operated", "alarm", "clock"
KINDS = (CONNECTED, DISCONNECTED, REFUSED, REJECTED, DENIED, BANNED, OPERATED, ALARM, CLOCK)

#: characters of the longest text of a client
LONGEST = 256

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
        most: int = 1000,
    ) -> None:
        self._clock = clock
        self._now = now
        #: lines so far: written, lost because a sink failed, and left out because there were too many
        self.written = self.lost = self.suppressed = 0
        self._lines: list[bytes] = []
        self._bytes = 0
        self._set(sinks, kinds, most)
        self._flushing: IDelayedCall | None = None
        self._summing: IDelayedCall | None = None

    def _set(self, sinks: Sequence[Sink], kinds: Collection[str], most: int) -> None:
        self._sinks = [
            (sink, LastingFailure("writing the audit log", "so its lines are lost until it works again", (OSError,)))
            for sink in sinks
        ]
        self._kinds = frozenset(kinds) if sinks else frozenset()
        self._limits = {kind: LineLimit(most) for kind in KINDS}
        self._lost = [0] * len(sinks)

    def change(self, sinks: Sequence[Sink], kinds: Collection[str], most: int) -> None:
        """Write to these sinks, which are open, from now on. The lines so far go to the ones before."""
        self._sum_up()
        self._flush()
        for sink, _ in self._sinks:
            sink.close()
        self._set(sinks, kinds, most)

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
        time = datetime.fromtimestamp(self._now() / 1000, UTC)
        line = {"time": f"{time:%Y-%m-%dT%H:%M:%S}.{time.microsecond // 1000:03}Z", "event": kind, **fields}
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
            count = limit.take_suppressed()
            if count:
                self._add("suppressed", {"of": kind, "count": count, "seconds": int(WINDOW)})
