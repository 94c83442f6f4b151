"""Writing to the log: lines that clients cause, and faults that last, each bounded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from attrs import define, field
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger, LogLevel
from twisted.python.failure import Failure

from holdfast.core.terminal import counted, printable
from holdfast.watch.lazy_log import LineLimit

# The log lines that clients cause: bounded in number and length, with harmless text.
#
# How it works. A line has a *cause*, such as "malformed packet", and a *group*: the address that caused it, where all
# addresses of an IPv6 /64 count as one. Each pair of them may have one line a second, and all pairs together 100. Lines
# beyond that are counted. A second later the count of each pair is told in one line, which counts itself. For example:
#
#     10:00:00   'a' from 192.0.2.1:5555: broke the protocol: the packet type is 0
#                (40 more connections of 192.0.2.1 do the same)
#     10:00:01   192.0.2.1: 40 more lines like the last one were left out: broke the protocol
#
# The line with the count names the first ``MOST_NAMED`` other texts, such as topics, that the lines would have quoted:
#
#     10:00:00   'a' from 192.0.2.1:5555: may not publish this: to 'x/1'
#     10:00:01   192.0.2.1: 2 more lines like the last one were left out: may not publish this: 'x/2', 'x/3'
#
# At most 1024 pairs are remembered; the one that was used longest ago is forgotten first.
#
# Lines about clients that come and go have an account of their own: 100 a second, and one line with the count of the
# rest.


#: the most characters of a client's text in one line
LONGEST = 256
#: the most lines of all pairs in one second, and of clients that come and go
MOST_LINES = 100
#: the most pairs of a cause and a group that are remembered
MOST_PAIRS = 1024
#: the most different texts of lines that were left out, of one pair, that are named
MOST_NAMED = 5

_INTERVAL = 1.0


def client_text(text: object) -> str:
    """Return a client's text for the log: in quotes, cut, with escapes for characters that are not printable."""
    text = str(text)
    return repr(text[:LONGEST]) + _ending(text)


def client_sentence(text: object) -> str:
    """Return a sentence for the log that may quote a client's text: cut, and on one line."""
    text = str(text)
    return printable(text[:LONGEST]) + _ending(text)


def _ending(text: str) -> str:
    return "" if len(text) <= LONGEST else f"... ({len(text)} characters)"


@define(eq=False)
class _Pair:
    quiet_until: float
    left_out: int = 0
    told: str = ""  #: what the last line has quoted, cut
    named: list[str] = field(factory=list)  #: what lines that were left out have quoted, cut
    has_others: bool = False  #: whether they have quoted more than that

    def name(self, quoted: str) -> None:
        """Note what a line that is left out quotes."""
        if quoted == self.told or quoted in self.named:
            return
        if len(self.named) < MOST_NAMED:
            self.named.append(quoted)
        else:
            self.has_others = True

    def take_named(self) -> str:
        """Return the noted texts for the log."""
        named, others = ", ".join(map(client_text, self.named)), " and others" if self.has_others else ""
        self.named, self.has_others = [], False
        return f": {named}{others}" if named else ""


class ClientLog:
    """Writes lines about clients to Twisted's log. ``connections`` tells whether to log clients that come and go."""

    _log = Logger()

    def __init__(self, clock: IReactorTime, connections: bool = True) -> None:
        self._clock = clock
        self.connections = connections
        self._pairs: OrderedDict[tuple[str, str], _Pair] = OrderedDict()
        self._all = LineLimit(MOST_LINES, _INTERVAL)
        self._comings = LineLimit(MOST_LINES, _INTERVAL)
        self._forgotten = 0  # lines left out of pairs that are forgotten
        self._timer: IDelayedCall | None = None

    def write(self, cause: str, group: str, line: Callable[[], str], level: str = "info", quoted: str = "") -> None:
        """Log a line, unless there are too many. ``line`` makes its text, with all clients' text made harmless.

        ``quoted`` is the client's text in it that is named if the line is left out.
        """
        if self._may_write(cause, group, quoted[:LONGEST]):
            self._log.emit(LogLevel.lookupByName(level), "{text}", text=line())

    def failure(self, cause: str, group: str, line: Callable[[], str], failure: Failure) -> None:
        """Log a line and the traceback of an unexpected error, unless there are too many."""
        if self._may_write(cause, group):
            self._log.failure("{text}", failure, text=line())

    def coming(self, line: Callable[[], str]) -> None:
        """Log that a client comes or goes, unless that is switched off or there are too many."""
        if not self.connections:
            return
        if self._comings.allows("", self._clock.seconds()):
            self._log.info("{text}", text=line())
        else:
            self._tell_later()

    def _may_write(self, cause: str, group: str, quoted: str = "") -> bool:
        now = self._clock.seconds()
        key = cause, group
        pair = self._pairs.get(key)
        if pair is None:
            pair = self._pairs[key] = _Pair(now)
            if len(self._pairs) > MOST_PAIRS:
                _, oldest = self._pairs.popitem(last=False)
                self._forgotten += oldest.left_out
        else:
            self._pairs.move_to_end(key)
        if now >= pair.quiet_until and not pair.left_out and self._all.allows("", now):
            pair.quiet_until, pair.told = now + _INTERVAL, quoted
            return True
        pair.left_out += 1
        if quoted:
            pair.name(quoted)
        self._tell_later()
        return False

    # --- the counts of lines that were left out

    def _tell_later(self) -> None:
        if self._timer is None:
            self._timer = self._clock.callLater(_INTERVAL, self._tell)

    def _tell(self) -> None:
        self._timer = None
        now = self._clock.seconds()
        waiting = False
        for (cause, group), pair in self._pairs.items():
            if not pair.left_out:
                continue
            if now < pair.quiet_until or not self._all.allows("", now):
                waiting = True
                continue
            self._log.info(
                "{group}: {lines} like the last one left out: {cause}{named}",
                group=group,
                lines=counted(pair.left_out, "more line"),
                count=pair.left_out,
                cause=cause,
                named=pair.take_named(),
            )
            pair.left_out = 0
            pair.quiet_until = now + _INTERVAL
        if self._forgotten and self._all.allows("", now):
            lines = counted(self._forgotten, "more line")
            self._log.info("{lines} about other addresses left out", lines=lines, count=self._forgotten)
            self._forgotten = 0
        unlisted = self._comings.take_left_out()
        if unlisted:
            clients = counted(unlisted, "more client")
            self._log.info("not listed: {clients} that came or went", clients=clients, count=unlisted)
        if waiting or self._forgotten:
            self._tell_later()


# Reports a failure that lasts: its beginning and its end, not its repetitions.


class LastingFailure:
    """One thing that may fail many times in a row. The first failure is logged, and the first success after it.

    ``name`` is the subject of these lines, such as "the sweep of expired messages", ``consequence`` their end, such as
    "and is tried again every 60 s". Failures of the types ``foreseen`` are logged as a sentence, others with their
    traceback.
    """

    _log = Logger()

    def __init__(self, name: str, consequence: str, foreseen: tuple[type[Exception], ...] = ()) -> None:
        self._name = name
        self._consequence = consequence
        self._foreseen = foreseen
        self._count = 0

    def failed(self, failure: Failure) -> None:
        """Note a failure."""
        self._count += 1
        if self._count > 1:
            return
        text = f"{self._name} failed, {self._consequence}"
        if self._foreseen and failure.check(*self._foreseen):
            self._log.error("{text}: {error}", text=text, error=failure.getErrorMessage())
        else:
            self._log.failure("{text}", failure, text=text)

    def succeeded(self) -> None:
        """Note a success."""
        if self._count:
            self._log.info(
                "{name} works again, after {failures}",
                name=self._name, failures=counted(self._count, "failure"), count=self._count,
            )  # fmt: skip
            self._count = 0
