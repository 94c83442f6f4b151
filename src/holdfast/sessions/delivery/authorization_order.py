"""Deliveries to one Session that wait for the authorizer: each keeps its place in the order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.auth.answer_in_time import in_time
from holdfast.log.lasting_failure import LastingFailure

_log = Logger()


class _Waiting:
    __slots__ = ("answer", "call")

    def __init__(self, answer: bool | None, call: Callable[[], None]) -> None:
        self.answer = answer
        self.call = call


def _log_late(failure: Failure) -> None:
    """Log an error of a Session that has ended."""
    _log.failure("a delivery of a Session that has ended failed", failure)


def _tell_none() -> None:
    """Tell no Session: it has ended."""


class AuthorizationOrder:
    """Makes calls in the order in which they were added, each once the authorizer has allowed it.

    ``on_empty`` is called when no call waits any more, ``on_error`` after an unexpected error in one of these calls;
    the calls behind it are still made. ``clock`` limits the time of each answer.
    """

    __slots__ = ("_clock", "_on_empty", "_on_error", "_report", "_waiting")

    def __init__(self, on_empty: Callable[[], None], on_error: Callable[[Failure], None], clock: IReactorTime) -> None:
        self._clock = clock
        self._on_empty = on_empty
        self._on_error = on_error
        self._report: LastingFailure | None = None  # made with the first failure: most Sessions never have one
        self._waiting: deque[_Waiting] = deque()

    def add(self, answer: bool | Deferred[bool], call: Callable[[], None]) -> bool | None:
        """Make the call once it is allowed and all earlier calls are decided. Return False if it is denied at once.

        An authorizer that fails, or does not answer in time, denies the delivery.
        """
        if not isinstance(answer, Deferred):
            if not answer:
                return False
            if not self._waiting:
                call()
                return True
            self._waiting.append(_Waiting(True, call))
            return None
        entry = _Waiting(None, call)
        self._waiting.append(entry)

        def answered(allowed: bool) -> None:
            entry.answer = allowed
            self._make_calls()

        in_time(answer, self._clock).addCallbacks(self._answered, self._denied_by_error).addCallback(answered)
        return None

    def close(self) -> None:
        """Tell the Session nothing any more: it has ended. Each refers to the other otherwise."""
        self._on_empty = _tell_none
        self._on_error = _log_late

    def _make_calls(self) -> None:
        waiting = self._waiting
        while waiting and waiting[0].answer is not None:
            entry = waiting.popleft()
            if entry.answer:
                self._make(entry.call)
        if not waiting:
            self._make(self._on_empty)

    def _make(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:  # noqa: BLE001 - the authorizer is not to blame
            self._on_error(Failure())

    def _answered(self, allowed: bool) -> bool:
        if self._report is not None:
            self._report.succeeded()
        return allowed

    def _denied_by_error(self, failure: Failure) -> bool:
        if self._report is None:
            self._report = LastingFailure("authorizing a delivery", "so it is denied", (Exception,))
        self._report.failed(failure)
        return False

    def __len__(self) -> int:
        return len(self._waiting)
