"""Connections that are lost together, as when a network is cut, are ended a few in each turn of the reactor.

How it works. The reactor asks the kernel which sockets have something to say, and then serves all of them before it
asks again. Of 10,000 clients that are lost at once, each costs some 20 microseconds to close: all others would wait for
a fifth of a second. So the reactor is shown at most :data:`MOST_LOST` of them at a time. The kernel tells of the others
again, as long as they are not closed.

A client that closes its end in order is not lost to the kernel: that looks like data. So the kernel is asked to tell
such ends too (EPOLLRDHUP), but only of sockets that are read: otherwise it would tell them for ever.
"""

from __future__ import annotations

import select
from typing import Any

from twisted.logger import Logger

#: lost connections that are ended in one turn of the reactor: a millisecond or two
MOST_LOST = 64

_IN, _CLOSED = getattr(select, "EPOLLIN", 0), getattr(select, "EPOLLRDHUP", 0)
_LOST = getattr(select, "EPOLLHUP", 0) | getattr(select, "EPOLLERR", 0) | _CLOSED

_log = Logger()

#: a file's number, and its events
_Event = tuple[int, int]


class PatientPoller:
    """An ``epoll`` object that tells of few lost connections at a time."""

    def __init__(self, epoll: Any) -> None:
        self._epoll = epoll
        self._poll = epoll.poll
        self._register = epoll.register
        self._modify = epoll.modify
        self.unregister = epoll.unregister

    def __getattr__(self, name: str) -> Any:
        return getattr(self._epoll, name)

    def register(self, file: int, events: int) -> None:
        """Tell of these events of a file, and of its end if it is read."""
        self._register(file, events | _CLOSED if events & _IN else events)

    def modify(self, file: int, events: int) -> None:
        """Tell of other events of a file."""
        self._modify(file, events | _CLOSED if events & _IN else events)

    def poll(self, timeout: float = -1, maxevents: int = -1) -> list[_Event]:
        """Return the events of all sockets that have any, but of lost ones only the first."""
        events: list[_Event] = self._poll(timeout, maxevents)
        if len(events) <= MOST_LOST:
            return events
        lost = [event for event in events if event[1] & _LOST]
        if len(lost) <= MOST_LOST:
            return events
        return [event for event in events if not event[1] & _LOST] + lost[:MOST_LOST]


def end_in_portions(reactor: Any) -> None:
    """Let the reactor end few lost connections in a turn. Other reactors than that of ``epoll`` stay as they are."""
    poller = getattr(reactor, "_poller", None)
    if isinstance(poller, getattr(select, "epoll", ())):
        reactor._poller = PatientPoller(poller)
    else:
        _log.debug("{reactor} ends all lost connections in one turn", reactor=type(reactor).__name__)
