"""Handshakes take turns: each costs a signature, and the reactor must not wait for many of them.

A signature takes from 0.1 ms (ECDSA) to 5 ms (RSA with 4096 bits). A fleet that returns, or a stranger, may begin
hundreds of handshakes in one turn of the reactor. So their steps form a line. Each turn does steps until ``BUDGET``
seconds have passed, at least one.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from twisted.internet.interfaces import IReactorTime

#: seconds of one turn that handshakes may take
BUDGET = 0.003


class HandshakeStep(Protocol):
    """A connection whose handshake can go on."""

    def step(self) -> None:
        """Take the next step. It raises no exception."""


class HandshakeTurns:
    """The line of handshakes of all listeners."""

    def __init__(self, clock: IReactorTime, budget: float = BUDGET) -> None:
        self._clock = clock
        self._budget = budget
        self._line: deque[HandshakeStep] = deque()
        self._scheduled = False

    def line_up(self, handshake: HandshakeStep) -> None:
        """Let this handshake take a step after all others in the line."""
        self._line.append(handshake)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._clock.callLater(0, self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        end = self._clock.seconds() + self._budget
        while self._line:
            self._line.popleft().step()
            if self._clock.seconds() >= end:
                break
        if self._line:
            self._schedule()
