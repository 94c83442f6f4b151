"""Commit tickets: the result of every call that changes something durable.

A ticket is settled once, in the reactor thread: when the change is durable, or when it is refused. The broker makes one
for every acknowledged message, so a ticket is much lighter than a Deferred.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum


class FailureKind(Enum):
    """Why a change could not be made durable."""

    FULL = "full"  #: no space left, or a quota: Quota exceeded (0x97)
    UNAVAILABLE = "unavailable"  #: the store cannot be written at present: Implementation specific error (0x83)
    REFUSED = "refused"  #: this one row cannot be stored: Implementation specific error (0x83)


class StorageFailure(Exception):
    """A change could not be made durable; ``kind`` is the reason.

    The text begins with the ``location`` of the database, for the log and the local operator. ``detail`` is the text
    without it, for callers of the API.
    """

    def __init__(self, kind: FailureKind, message: str, location: str = "") -> None:
        super().__init__(f"{location}: {message}" if location else message)
        self.kind = kind
        self.detail = message


class Superseded(StorageFailure):
    """Nothing may be written any more: the database has another incarnation of this node."""


class CommitTicket:
    """The ticket of one change."""

    __slots__ = ("_callbacks", "failure", "settled")

    def __init__(self) -> None:
        self.settled = False
        self.failure: StorageFailure | None = None
        self._callbacks: list[Callable[[StorageFailure | None], None]] | None = None

    def when_settled(self, callback: Callable[[StorageFailure | None], None]) -> None:
        """Call back with None when the change is durable, or with its failure; at once if the ticket is settled."""
        if self.settled:
            callback(self.failure)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def settle(self, failure: StorageFailure | None = None) -> None:
        """Declare the change durable, or failed. A second call is a programming error.

        An error of a callback is raised once all callbacks are called: they may serve different Clients.
        """
        if self.settled:
            raise RuntimeError("a commit ticket is settled once")
        self.settled = True
        self.failure = failure
        callbacks, self._callbacks = self._callbacks, None
        if callbacks is not None:
            wrong: Exception | None = None
            for callback in callbacks:
                try:
                    callback(failure)
                except Exception as error:  # noqa: BLE001 - raised below
                    wrong = wrong or error
            if wrong is not None:
                raise wrong


class RunTicket(CommitTicket):
    """The ticket of several changes, settled when each of them is durable or refused.

    ``failures`` are by the place of the change. A failure that concerns all of them is in ``failure`` alone.
    """

    __slots__ = ("failures",)

    def __init__(self) -> None:
        super().__init__()
        self.failures: dict[int, StorageFailure] = {}

    def settle(self, failure: StorageFailure | None = None) -> None:
        """Declare all changes durable but those in ``failures``; or failed, all of them."""
        super().settle(failure or next(iter(self.failures.values()), None))

    def failure_of(self, place: int) -> StorageFailure | None:
        """Return the failure of the change at this place, None if it is durable. The ticket is settled."""
        return self.failures.get(place) if self.failures else self.failure


def both(first: CommitTicket, second: CommitTicket) -> CommitTicket:
    """Return a ticket that is settled when both are, with the first failure."""
    if first.settled and first.failure is None:
        return second
    if second is first or (second.settled and second.failure is None):
        return first
    together = CommitTicket()
    failures: list[StorageFailure | None] = []

    def settled(failure: StorageFailure | None) -> None:
        failures.append(failure)
        if len(failures) == 2:
            together.settle(failures[0] or failures[1])

    first.when_settled(settled)
    second.when_settled(settled)
    return together


class TicketsTogether:
    """Gathers the tickets of many changes, made in several turns, and gives one ticket for all of them."""

    __slots__ = ("_failure", "_open", "_together")

    def __init__(self) -> None:
        self._open = 0
        self._failure: StorageFailure | None = None
        self._together: CommitTicket | None = None

    def add(self, ticket: CommitTicket) -> None:
        """Add the ticket of one more change."""
        self._open += 1
        ticket.when_settled(self._settled)

    def ticket(self) -> CommitTicket:
        """Return a ticket that is settled when all added ones are, with the first failure. Called once, at the end."""
        self._together = CommitTicket()
        if not self._open:
            self._together.settle(self._failure)
        return self._together

    def _settled(self, failure: StorageFailure | None) -> None:
        self._open -= 1
        self._failure = self._failure or failure
        if not self._open and self._together is not None:
            self._together.settle(self._failure)


def _settled() -> CommitTicket:
    ticket = CommitTicket()
    ticket.settle()
    return ticket


#: the ticket of a change that needs no commit, or is already committed
COMMITTED = _settled()
