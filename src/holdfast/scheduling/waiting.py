"""Deferreds for commit tickets. Code that waits seldom uses them; tickets of the live path have callbacks alone."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from holdfast.core.tickets import CommitTicket, StorageFailure


def settled(*tickets: CommitTicket) -> Deferred[None]:
    """Fire when all tickets are settled, with or without a failure. The Deferred can be cancelled."""
    done: Deferred[None] = Deferred()
    left = len(tickets)

    def one(_failure: StorageFailure | None) -> None:
        nonlocal left
        left -= 1
        if not left and not done.called:
            done.callback(None)

    for ticket in tickets:
        ticket.when_settled(one)
    if not tickets:
        done.callback(None)
    return done


def durable(*tickets: CommitTicket) -> Deferred[None]:
    """Fire when all tickets are settled; fail with the first :class:`StorageFailure`, if any."""

    def look(_: None) -> None:
        for ticket in tickets:
            if ticket.failure is not None:
                raise ticket.failure

    return settled(*tickets).addCallback(look)
