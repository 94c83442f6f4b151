"""Deliveries that wait for an answer of the authorizer, kept in order per Session."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from twisted.internet.defer import Deferred


class _Waiting:
    __slots__ = ("answer", "call")

    def __init__(self, answer: bool | None, call: Callable[[], None]) -> None:
        self.answer = answer
        self.call = call


class Withheld:
    """Calls made in the order in which they were added, each once its answer is there and is True.

    ``on_empty`` is called when nothing waits any more.
    """

    __slots__ = ("_on_empty", "_waiting")

    def __init__(self, on_empty: Callable[[], None]) -> None:
        self._on_empty = on_empty
        self._waiting: deque[_Waiting] = deque()

    def add(self, answer: bool | Deferred[bool], call: Callable[[], None]) -> bool | None:
        """Make the call when allowed and when all before it are decided. False when it is denied at once."""
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
            self._drain()

        answer.addCallback(answered)
        return None

    def _drain(self) -> None:
        waiting = self._waiting
        while waiting and waiting[0].answer is not None:
            entry = waiting.popleft()
            if entry.answer:
                entry.call()
        if not waiting:
            self._on_empty()

    def __len__(self) -> int:
        return len(self._waiting)
