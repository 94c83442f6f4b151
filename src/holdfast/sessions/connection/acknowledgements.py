"""Answers to one Client, each sent once what it promises is durable, in the order of the packets they answer.

PUBACKs and PUBRECs go out in the order in which the PUBLISH packets came in [MQTT5-4.6.0-2], [MQTT5-4.6.0-3].
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from holdfast.tickets import CommitTicket, StorageFailure

#: makes the packet that tells a failure, or returns None when it has closed the connection instead
Refusal = Callable[[StorageFailure], bytes | None]


class _Entry:
    __slots__ = ("counted", "packet", "ready", "then")

    def __init__(self, packet: bytes, counted: bool) -> None:
        self.packet: bytes | None = packet
        self.counted = counted
        self.ready = False
        self.then: Callable[[], None] | None = None


class Acknowledgements:
    """The answers that still wait, oldest first."""

    __slots__ = ("_closed", "_entries", "_send", "publishes")

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._entries: deque[_Entry] = deque()
        self._closed = False
        #: PUBLISH packets not yet acknowledged, which count against our Receive Maximum
        self.publishes = 0

    def add(self, ticket: CommitTicket, packet: bytes, refusal: Refusal, counted: bool = False) -> None:
        """Send ``packet`` once the ticket is settled and all earlier answers are out."""
        if ticket.settled and ticket.failure is None and not self._entries:
            if not self._closed:
                self._send(packet)
            return
        entry = _Entry(packet, counted)
        self._entries.append(entry)
        self.publishes += counted

        def settled(failure: StorageFailure | None) -> None:
            if failure is not None:
                entry.packet = None if self._closed else refusal(failure)
            entry.ready = True
            self._drain()

        ticket.when_settled(settled)

    def then(self, call: Callable[[], None]) -> None:
        """Call this once all answers so far are out; never, if the Network Connection is gone by then."""
        if self._closed:
            return
        if not self._entries:
            call()
            return
        entry = _Entry(b"", False)
        entry.then = call
        entry.ready = True
        self._entries.append(entry)

    def close(self) -> None:
        """Send nothing any more: the Network Connection is gone. What is being stored still gets stored."""
        self._closed = True

    def _drain(self) -> None:
        entries = self._entries
        while entries and entries[0].ready:
            entry = entries.popleft()
            self.publishes -= entry.counted
            if entry.packet is not None and not self._closed:
                if entry.then is None:
                    self._send(entry.packet)
                else:
                    entry.then()
