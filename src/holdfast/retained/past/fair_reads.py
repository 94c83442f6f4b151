"""The reads of all replays of the past: one at a time, and the Clients in turn.

How it works. The thread of long reads also works for operators, in the order of the calls. If each replay called it by
itself, a Client with many replays would get most of its time, and an operator would wait behind all of them. So at most
one read of a replay is handed to the thread, and the others wait here, by Client::

    c1: a b c d    c2: x        the thread reads a, then x, then b, and an operator's count between any two of them

A read has a key. A newer read with the same key cancels one that still waits: its replay has begun again, or has ended,
and nobody wants the answer. So a Client that comes back again and again leaves no more reads than it has replays.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Protocol, TypeVar, cast

from attrs import define, field
from twisted.internet.defer import Deferred

from holdfast.storage.driver import Cursor

T = TypeVar("T")


class LongReads(Protocol):
    """Runs work in the thread of long reads."""

    def __call__(self, work: Callable[[Cursor], T], /) -> Deferred[T]:
        """Run it with a reader's cursor."""


@define(eq=False)
class _Read:
    work: Callable[[Cursor], Any]
    answer: Deferred[Any] = field(factory=Deferred)


class FairReads:
    """Hands reads to the thread of long reads."""

    def __init__(self, read: LongReads) -> None:
        self._read = read
        self._is_reading = False
        #: by Client Identifier, the next one first; then by key, in the order of the calls
        self._waiting: dict[str, dict[Hashable, _Read]] = {}

    def read(self, client_id: str, key: Hashable, work: Callable[[Cursor], T]) -> Deferred[T]:
        """Run the work when it is the turn of the Client. It fails with :class:`CancelledError` if it is replaced."""
        reads = self._waiting.setdefault(client_id, {})
        replaced = reads.pop(key, None)
        read = reads[key] = _Read(work)
        if replaced is not None:
            replaced.answer.cancel()
        self._begin()
        return cast("Deferred[T]", read.answer)

    def _begin(self) -> None:
        if self._is_reading or not self._waiting:
            return
        client_id = next(iter(self._waiting))
        reads = self._waiting.pop(client_id)
        key = next(iter(reads))
        read = reads.pop(key)
        if reads:  # behind all other Clients
            self._waiting[client_id] = reads
        self._is_reading = True
        self._read(read.work).addBoth(self._ended, read.answer)

    def _ended(self, outcome: Any, answer: Deferred[Any]) -> None:
        self._is_reading = False
        answer.callback(outcome)  # a Failure begins the errbacks
        self._begin()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))
