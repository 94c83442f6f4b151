"""The call that streams events."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web import http

from holdfast.admin.api.happenings import Happenings
from holdfast.admin.arguments import FLAG, STRING, TOPIC_FILTER, flag_of, optional_filter_of
from holdfast.admin.call import Answer, Call, RefusedCall, Scope, bad_request
from holdfast.admin.routing import Content, Route, query, routes_of
from holdfast.changes.recent import Taken
from holdfast.changes.tokens import TOKEN_LENGTHS, BadToken, Token, token_of
from holdfast.changes.watch import ChangeWatch, Follower, NotStored
from holdfast.core.tickets import StorageFailure
from holdfast.scheduling.waiting import as_deferred

# The lines of ``text/event-stream``. All data is JSON in ASCII, so no text of a client can add a line.


CONTENT_TYPE = "text/event-stream"


def event(name: str, data: bytes, identifier: str | None = None) -> bytes:
    """Return an event."""
    lines = [b"event: " + name.encode(), b"data: " + data]
    if identifier is not None:
        lines.insert(1, b"id: " + identifier.encode())
    return b"\n".join(lines) + b"\n\n"


def beginning(retry: int, identifier: str | None) -> bytes:
    """Return the first lines: the milliseconds after which a browser connects again, and its token."""
    return b"retry: %d\n" % retry + _without_data(identifier)


def ping(identifier: str | None) -> bytes:
    """Return a comment that keeps the connection open, and the client's token."""
    return b": ping\n" + _without_data(identifier)


def _without_data(identifier: str | None) -> bytes:
    return b"\n" if identifier is None else b"id: " + identifier.encode() + b"\n\n"


# One stream of events: pieces of bytes. Each is made when the client has taken the previous one.
#
# How it works. The transport asks for a piece (:meth:`EventStream.more`). If there is something, the piece has as much
# of it as fits; if not, the stream waits for news, and sends a comment every 15 seconds, so that no proxy considers the
# connection dead. News of a tenth of a second go in one piece. A slow client asks late, and gets the newest change of
# each topic: nothing is queued for it, since all streams read the same recent changes and happenings.


#: Seconds between two comments, and between two pieces.
PING_INTERVAL = 15.0
_GATHERING = 0.1
#: The bytes of a piece, about.
_BYTES = 1 << 16
#: Milliseconds after which a browser connects again.
_RETRY = 3000


class EventStream:
    """Sends changes of the ``follower`` and happenings of some ``kinds``.

    Create it, give it its follower, then ask for pieces one after the other.
    ``stopped`` is called once.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        happenings: Happenings,
        kinds: Collection[str],
        stopped: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._happenings = happenings
        self._kinds = kinds
        self._stopped: Callable[[], None] | None = stopped
        self._number = happenings.number
        self._leave = happenings.join(kinds, self.news) if kinds else None
        self._follower: Follower | None = None
        self._token: Token | None = None
        self._answer: Deferred[bytes] | None = None
        self._taking: Deferred[Any] | None = None
        self._timer: IDelayedCall | None = None
        self._waits = False  #: for news
        self._begun = False
        self._next = 0.0  #: when the next piece may be sent
        self._ping_at = 0.0

    def follow(self, follower: Follower) -> None:
        """Send the changes of a follower, too."""
        self._follower = follower

    def more(self) -> Deferred[bytes]:
        """Return the next piece; b"" after the end of the stream."""
        if self._stopped is None:
            return succeed(b"")
        answer = self._answer = Deferred(lambda _: self._cancelled())
        self._attempt()
        return answer

    def stop(self) -> None:
        """End the stream, because its client has left."""
        stopped, self._stopped = self._stopped, None
        if stopped is None:
            return
        self._cancelled()
        if self._leave is not None:
            self._leave()
        if self._follower is not None:
            self._follower.close()
        self._leave = self._follower = None
        stopped()

    def news(self) -> None:
        """Look soon: something has happened."""
        if self._waits:
            self._waits = False
            self._look_at(max(self._next, self._clock.seconds() + _GATHERING / 2))

    def _attempt(self) -> None:
        self._timer = None
        self._waits = False
        now = self._clock.seconds()
        if now < self._next:
            self._look_at(self._next)
            return
        if self._follower is None:
            self._send(b"")
            return
        taking = self._taking = self._follower.take(_BYTES)
        taking.addCallbacks(self._took, self._failed)

    def _took(self, taken: Taken) -> None:
        self._taking = None
        if self._answer is None:
            return
        self._token = taken.token
        pieces = []
        if taken.reset is not None:
            # Changes before this token are missing, and a list that begins now has them.
            data = json.dumps({"reason": taken.reset}).encode()
            pieces.append(event("reset", data, taken.token.text))
        last = len(taken.changes) - 1
        for number, change in enumerate(taken.changes):
            # Only the last one is at the token: who goes on from there has all of them.
            token = taken.token.text if number == last else None
            pieces.append(event("retained", change.json(), token))
        self._send(b"".join(pieces), taken.more)

    def _send(self, changes: bytes, more: bool = False) -> None:
        """Send changes and happenings, or wait."""
        now = self._clock.seconds()
        found, self._number, missed = self._happenings.after(self._number, self._kinds, _BYTES)
        pieces = [changes, *(event(each.kind, each.text) for each in found)]
        if missed and self._kinds:
            pieces.insert(1, event("missed", b'{"count":%d}' % missed))
        token = None if self._token is None else self._token.text
        if not self._begun:
            self._begun = True
            pieces.insert(0, beginning(_RETRY, token if not changes else None))
        piece = b"".join(pieces)
        if not piece and now >= self._ping_at:
            piece = ping(token)
        if piece:
            self._next = now + (0 if more else _GATHERING)
            self._ping_at = now + PING_INTERVAL
            self._give(piece)
        elif more:
            self._look_at(now)
        else:
            self._waits = True
            self._look_at(self._ping_at)

    def _failed(self, failure: Failure) -> None:
        """End the stream: its client connects again, and continues from its token."""
        self._taking = None
        if failure.check(CancelledError) is None and self._answer is not None:
            if failure.check(StorageFailure, NotStored) is None:
                self._log.failure("a stream of events broke off", failure)
            self._give(b"")

    def _give(self, piece: bytes) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.callback(piece)

    def _look_at(self, time: float) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = self._clock.callLater(max(0.0, time - self._clock.seconds()), self._attempt)

    def _cancelled(self) -> None:
        self._answer = None
        self._waits = False
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
        if self._taking is not None:
            self._taking.cancel()


EVENTS_PATH = "/events"
#: The streams of one caller, and of all.
MOST_STREAMS_OF_ONE, MOST_STREAMS = 16, 64
_TOO_MANY = 429
#: By argument, the name of its events.
_KINDS = {"clients": "client", "replays": "replay", "alarms": "alarm", "monitor": "monitor"}


def not_stored(error: NotStored) -> RefusedCall:
    """Return the refusal of a stream of changes that nobody stores."""
    return RefusedCall(http.CONFLICT, "CHANGES_NOT_STORED", str(error))


class EventCalls:
    """Answers with streams of events, a bounded number at a time. Without ``changes``, none has retained messages."""

    def __init__(
        self,
        changes: ChangeWatch | None,
        happenings: Happenings,
        clock: IReactorTime,
        most_of_one: int = MOST_STREAMS_OF_ONE,
        most: int = MOST_STREAMS,
    ) -> None:
        self._changes = changes
        self._happenings = happenings
        self._clock = clock
        self._most_of_one = most_of_one
        self._most = most
        self._open: Counter[str] = Counter()
        self.routes = routes_of(self)

    @property
    def open(self) -> int:
        """The number of streams."""
        return self._open.total()

    @Route(
        method="GET",
        path=EVENTS_PATH,
        scope=Scope.READ,
        summary="Follow changes in an endless stream of server-sent events",
        parameters=(
            query("retained", TOPIC_FILTER, "changes of the retained messages that match this Topic Filter"),
            query("token", {**STRING, "maxLength": TOKEN_LENGTHS[-1]}, "all changes since meta.token of a list"),
            query("clients", FLAG, "clients that connect, disconnect and are refused"),
            query("replays", FLAG, "replays that begin, go on and end"),
            query("alarms", FLAG, "alarms that begin and end"),
            query("monitor", FLAG, "the newest figures, each second"),
        ),
        answers={200: Content(STRING, "the events", CONTENT_TYPE)},
        refusals={NotStored: not_stored},
        has_deadline=False,
    )
    @as_deferred
    async def events(self, call: Call) -> Answer:
        """Begin a stream."""
        arguments = call.arguments
        kinds = frozenset(kind for name, kind in _KINDS.items() if flag_of(arguments, name))
        topic_filter = optional_filter_of(arguments, "retained")
        token = arguments.get("token")
        if token is not None:
            if topic_filter is None:
                raise bad_request("token is only allowed together with retained", "token", "nothing without retained")
            try:
                token_of(token)
            except BadToken as error:
                raise bad_request(f"token: {error}", "token", "meta.token of a list, or the id of an event") from None
        if topic_filter is None and not kinds:
            names = ", ".join(("retained", *_KINDS))
            raise bad_request(f"name at least one of {names}", "retained", f"at least one of {names}")
        if topic_filter is not None and self._changes is None:
            raise NotStored("this broker does not store which topics change: retainer.changes.enable = false")
        stream = self._new_stream(call, kinds)
        if topic_filter is not None and self._changes is not None:
            try:
                # After a loss of its connection, a browser repeats the address and tells the last identifier.
                since = (call.head.last_event if call.head is not None else None) or token
                follower = await self._changes.follow(topic_filter, since, stream.news)
            except BaseException:
                stream.stop()
                raise
            stream.follow(follower)
        return Answer(
            content_type=CONTENT_TYPE,
            headers=(("X-Accel-Buffering", "no"),),  # nginx would gather the events
            more=stream.more,
            stopped=stream.stop,
        )

    def _new_stream(self, call: Call, kinds: frozenset[str]) -> EventStream:
        who = str(call.caller)
        for count, most, whose in (
            (self._open[who], self._most_of_one, f"of {who}"),
            (self.open, self._most, "in all"),
        ):
            if count >= most:
                raise RefusedCall(
                    _TOO_MANY, "TOO_MANY_STREAMS", f"there are {most} streams of events {whose} already; close one",
                    (("Retry-After", "10"),), allowed=f"{most} streams",
                )  # fmt: skip

        def stopped() -> None:
            self._open[who] -= 1
            if not self._open[who]:
                del self._open[who]

        self._open[who] += 1
        return EventStream(self._clock, self._happenings, kinds, stopped)
