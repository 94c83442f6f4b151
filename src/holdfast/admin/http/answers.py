"""Sends a long answer piece by piece: a file, an export, or events as they happen."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

#: seconds in which a client must take what was sent to it
STALLED_SECONDS = 120.0
#: seconds after which it is asked again whether the caller may still have the answer
CHECK_INTERVAL = 1.0


class _State(Enum):
    READY = "may fetch the next piece"
    PAUSED = "waits until the client has received the pieces written so far"
    OVER = "finished or broken off, or the client is gone"


@implementer(IPushProducer)
class AnswerProducer:
    """Writes a long answer piece by piece. It fetches a piece only when the client has received the last one.

    ``stopped`` is called once, when the answer is over or its client is gone. A client that takes nothing for two
    minutes is disconnected; so is one whose key or session is over, as ``is_current`` tells.
    """

    _log = Logger()

    def __init__(
        self,
        request: Any,
        reactor: IReactorTime,
        more: Callable[[], Deferred[bytes]],
        stopped: Callable[[], None] | None = None,
        is_current: Callable[[], bool] = lambda: True,
    ) -> None:
        self._request = request
        self._reactor = reactor
        self._more = more
        self._stopped = stopped
        self._is_current = is_current
        self._state = _State.READY
        self._fetching: Deferred[None] | None = None
        self._stall: IDelayedCall | None = None
        self._check: IDelayedCall | None = reactor.callLater(CHECK_INTERVAL, self._check_caller)
        request.notifyFinish().addErrback(lambda _: self.stopProducing())
        request.registerProducer(self, True)
        self._fetch()

    def pauseProducing(self) -> None:
        """Fetch no more pieces, because the client is slow."""
        if self._state is _State.READY:
            self._state = _State.PAUSED
            self._stall = self._reactor.callLater(STALLED_SECONDS, self._abort)

    def resumeProducing(self) -> None:
        """Fetch the next piece."""
        self._forget_stall()
        if self._state is _State.PAUSED:
            self._state = _State.READY
            self._fetch()

    def stopProducing(self) -> None:
        """Stop, because the client is gone."""
        if self._fetching is not None:
            self._end()
            self._fetching.cancel()
        else:
            self._end()

    def _fetch(self) -> None:
        if self._state is _State.READY and self._fetching is None:
            fetching = self._fetching = self._more().addCallbacks(self._write, self._fail)
            if fetching.called:  # it answered at once, so _write ran before the assignment above
                self._fetching = None

    def _write(self, piece: bytes) -> None:
        self._fetching = None
        if self._state is _State.OVER:
            return
        if piece:
            self._request.write(piece)
            self._reactor.callLater(0, self._fetch)  # later, so that other connections have their turn
            return
        self._end()
        self._request.unregisterProducer()
        self._request.finish()

    def _fail(self, failure: Failure) -> None:
        """End the connection. The missing end mark tells the client that the answer is incomplete."""
        self._fetching = None
        if self._state is _State.OVER:
            failure.trap(CancelledError)
            return
        self._log.error("an answer broke off: {error}", error=failure.getErrorMessage())
        self._abort()

    def _abort(self) -> None:
        self._stall = None
        self._end()
        self._request.channel.transport.abortConnection()

    def _check_caller(self) -> None:
        """Break the answer off if its caller may not have it any more."""
        self._check = None
        if self._is_current():
            self._check = self._reactor.callLater(CHECK_INTERVAL, self._check_caller)
            return
        fetching = self._fetching
        self._abort()
        if fetching is not None:
            fetching.cancel()

    def _end(self) -> None:
        """Note that the answer is over, and tell its source once."""
        self._forget_stall()
        check, self._check = self._check, None
        if check is not None:
            check.cancel()
        self._state = _State.OVER
        stopped, self._stopped = self._stopped, None
        if stopped is not None:
            stopped()

    def _forget_stall(self) -> None:
        stall, self._stall = self._stall, None
        if stall is not None and stall.active():
            stall.cancel()
