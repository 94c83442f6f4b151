"""Coroutines that wait, and Deferreds for commit tickets.

Code that waits seldom is written as ``async def``. The live path uses neither: its tickets have callbacks alone.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from twisted.internet.defer import Deferred

from holdfast.core.tickets import CommitTicket, StorageFailure

P = ParamSpec("P")
T = TypeVar("T")


def as_deferred(function: Callable[P, Coroutine[Deferred[Any], Any, T]]) -> Callable[P, Deferred[T]]:
    """Make a coroutine function begin at its call and return a Deferred of its result, which can be cancelled."""

    @wraps(function)
    def begin(*args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        return Deferred.fromCoroutine(function(*args, **kwargs))

    return begin


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
