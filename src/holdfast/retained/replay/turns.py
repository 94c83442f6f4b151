"""The turns of replays: one step per reactor turn, round-robin."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from twisted.internet.interfaces import IReactorTime


class Stepper(Protocol):
    """Something that advances by steps."""

    def step(self) -> bool:
        """Do a bounded amount of work. Returns whether another step can follow at once."""


class ReplayTurns:
    """A first-in first-out queue of the replays that are ready for a step.

    One step is taken per reactor turn, so live messages wait for at most one step, even if many replays run.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._ready: deque[Stepper] = deque()
        self._members: set[int] = set()  # the ids of those in the queue: a deque is slow to search
        self._scheduled = False

    def join(self, stepper: Stepper) -> None:
        """Queue for a step, unless queued already."""
        if id(stepper) in self._members:
            return
        self._members.add(id(stepper))
        self._ready.append(stepper)
        self._schedule()

    def leave(self, stepper: Stepper) -> None:
        """Leave the queue."""
        if id(stepper) in self._members:
            self._members.discard(id(stepper))
            self._ready.remove(stepper)

    def _schedule(self) -> None:
        if self._ready and not self._scheduled:
            self._scheduled = True
            self._clock.callLater(0, self._run)

    def _run(self) -> None:
        self._scheduled = False
        if self._ready:
            stepper = self._ready.popleft()
            self._members.discard(id(stepper))
            if stepper.step():
                self.join(stepper)
        self._schedule()

    def __len__(self) -> int:
        return len(self._ready)
