"""Whose turn it is: running replays take steps one at a time, round-robin, one per reactor turn."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from twisted.internet.interfaces import IReactorTime


class Stepper(Protocol):
    """Something that advances by steps."""

    def step(self) -> bool:
        """Do a bounded amount of work; return whether another step can follow at once."""


class ReplayTurns:
    """A first-in first-out queue of those ready for a step.

    One step is taken per reactor turn, so that live traffic waits for at most one of them however many replays run.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._ready: deque[Stepper] = deque()
        self._members: set[int] = set()
        self._scheduled = False

    def join(self, steps: Stepper) -> None:
        """Queue for a step, unless queued already."""
        if id(steps) in self._members:
            return
        self._members.add(id(steps))
        self._ready.append(steps)
        self._schedule()

    def leave(self, steps: Stepper) -> None:
        """Give up the place in the queue."""
        if id(steps) in self._members:
            self._members.discard(id(steps))
            self._ready.remove(steps)

    def _schedule(self) -> None:
        if self._ready and not self._scheduled:
            self._scheduled = True
            self._clock.callLater(0, self._run)

    def _run(self) -> None:
        self._scheduled = False
        if self._ready:
            steps = self._ready.popleft()
            self._members.discard(id(steps))
            if steps.step():
                self.join(steps)
        self._schedule()

    def __len__(self) -> int:
        return len(self._ready)
