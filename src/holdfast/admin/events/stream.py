"""One stream of events: pieces of bytes. Each is made when the client has taken the previous one.

How it works. The transport asks for a piece (:meth:`EventStream.more`). If there is something, the piece has as much of
it as fits; if not, the stream waits for news, and sends a comment every 15 seconds, so that no proxy considers
the connection dead. News of a tenth of a second go in one piece. A slow client asks late, and gets the newest
change of each topic: nothing is queued for it, since all streams read the same recent changes and happenings.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.admin.events.happenings import Happenings
from holdfast.admin.events.lines import beginning, event, ping
from holdfast.retained.changes.interfaces import IFollower, Taken
from holdfast.retained.changes.token import Place
from holdfast.tickets import StorageFailure

#: Seconds between two comments, and between two pieces.
PING = 15.0
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
        self._follower: IFollower | None = None
        self._place: Place | None = None
        self._answer: Deferred[bytes] | None = None
        self._taking: Deferred[Any] | None = None
        self._timer: IDelayedCall | None = None
        self._waits = False  #: for news
        self._begun = False
        self._next = 0.0  #: when the next piece may be sent
        self._ping_at = 0.0

    def follow(self, follower: IFollower) -> None:
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
        self._place = taken.place
        pieces = []
        if taken.reset is not None:
            # Changes before this place are missing, and a list that begins now has them.
            data = json.dumps({"reason": taken.reset}).encode()
            pieces.append(event("reset", data, taken.place.token))
        last = len(taken.changes) - 1
        for number, change in enumerate(taken.changes):
            # Only the last one is at the place: who goes on from there has all of them.
            token = taken.place.token if number == last else None
            pieces.append(event("retained", change.json(), token))
        self._send(b"".join(pieces), taken.more)

    def _send(self, changes: bytes, more: bool = False) -> None:
        """Send changes and happenings, or wait."""
        now = self._clock.seconds()
        found, self._number, missed = self._happenings.after(self._number, self._kinds, _BYTES)
        pieces = [changes, *(event(each.kind, each.text) for each in found)]
        if missed and self._kinds:
            pieces.insert(1, event("missed", b'{"count":%d}' % missed))
        token = None if self._place is None else self._place.token
        if not self._begun:
            self._begun = True
            pieces.insert(0, beginning(_RETRY, token if not changes else None))
        piece = b"".join(pieces)
        if not piece and now >= self._ping_at:
            piece = ping(token)
        if piece:
            self._next = now + (0 if more else _GATHERING)
            self._ping_at = now + PING
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
            if failure.check(StorageFailure) is None:
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
