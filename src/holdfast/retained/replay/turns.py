"""The turns of replays: one step per reactor turn, round-robin between the clients."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from twisted.internet.interfaces import IReactorTime


class Stepper(Protocol):
    """Something that advances by steps, for a client."""

    client_id: str

    def step(self) -> bool:
        """Do a bounded amount of work. Returns whether another step can follow at once."""


class ReplayTurns:
    """The replays that are ready for a step, first in, first out for each client.

    One step is taken per reactor turn, so live messages wait for at most one step, even if many replays run. The
    clients take turns, however many replays each has. A client's replay goes on until it has to wait: otherwise each of
    its replays would hold a batch.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        #: by client, the next one first
        self._ready: dict[str, deque[Stepper]] = {}
        self._members: set[int] = set()  # the ids of those in the queues: a deque is slow to search
        self._scheduled = False

    def join(self, stepper: Stepper, goes_on: bool = False) -> None:
        """Queue for a step, unless queued already. With ``goes_on``, before the client's other replays."""
        if id(stepper) in self._members:
            return
        self._members.add(id(stepper))
        queue = self._ready.setdefault(stepper.client_id, deque())
        if goes_on:
            queue.appendleft(stepper)
        else:
            queue.append(stepper)
        self._schedule()

    def leave(self, stepper: Stepper) -> None:
        """Leave the queue."""
        if id(stepper) in self._members:
            self._members.discard(id(stepper))
            queue = self._ready[stepper.client_id]
            queue.remove(stepper)
            if not queue:
                del self._ready[stepper.client_id]

    def _schedule(self) -> None:
        if self._ready and not self._scheduled:
            self._scheduled = True
            self._clock.callLater(0, self._run)

    def _run(self) -> None:
        self._scheduled = False
        if not self._ready:
            return
        client_id = next(iter(self._ready))
        queue = self._ready.pop(client_id)
        stepper = queue.popleft()
        self._members.discard(id(stepper))
        if queue:  # behind all other clients
            self._ready[client_id] = queue
        try:
            if stepper.step():
                self.join(stepper, goes_on=True)
        finally:
            self._schedule()

    def __len__(self) -> int:
        return len(self._members)
