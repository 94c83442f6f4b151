"""Waits until a change is durable."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from holdfast.tickets import CommitTicket, StorageFailure


def committed(ticket: CommitTicket) -> Deferred[None]:
    """Return a Deferred that fires when the change is durable, or fails with its StorageFailure."""
    done: Deferred[None] = Deferred()

    def settled(failure: StorageFailure | None) -> None:
        if done.called:  # the caller has left
            return
        if failure is None:
            done.callback(None)
        else:
            done.errback(failure)

    ticket.when_settled(settled)
    return done
