"""Sums over all connected clients, taken in small steps, so that no message pays for them.

How it works. What each client has in flight or has not read is known to its own Session and connection only; a sum that
every PUBLISH changes would cost every PUBLISH. So all clients are visited every ``INTERVAL`` seconds, some in each turn
of the reactor (:mod:`holdfast.scheduling.long_work`). With many clients the walk takes longer, and the next one begins
later: it never takes more than a small part of the time. The sums are those of the last complete walk.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import define
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from holdfast.scheduling.long_work import LongWork
from holdfast.scheduling.periodic import PeriodicJob
from holdfast.sessions.registry.registry import SessionRegistry

#: seconds between two walks
INTERVAL = 10.0
#: clients that are visited in one step
_VISITS_PER_STEP = 50
#: A client that has not read so many bytes is slow: they are beyond the buffers of the network.
SLOW = 64 << 10


@define
class Walked:
    """The sums of one walk. ``unsent_bytes`` are packets that clients have not read."""

    inflight_messages: int = 0
    inflight_bytes: int = 0
    unsent_bytes: int = 0
    slow_clients: int = 0


class SessionWalk(Service):
    """Walks through the connected clients; ``latest`` has the last sums."""

    def __init__(self, registry: SessionRegistry, work: LongWork, clock: IReactorTime) -> None:
        self.latest = Walked()
        self._registry = registry
        self._work = work
        self._job = PeriodicJob(self.walk, name="looking at what clients hold", interval=INTERVAL, clock=clock)

    def startService(self) -> None:
        """Begin to walk."""
        Service.startService(self)
        self._job.start(INTERVAL)

    def stopService(self) -> None:
        """Stop the walks."""
        Service.stopService(self)
        self._job.stop()

    def walk(self) -> Deferred[None] | None:
        """Visit all clients once. Returns None if that is done now."""
        return self._work.do(self, self._steps())

    def _steps(self) -> Iterator[int]:
        sums = Walked()
        for number, client_id in enumerate(self._registry.connected()):
            if not number % _VISITS_PER_STEP:
                yield 1
            held = self._registry.held(client_id)
            if held is not None:
                sums.inflight_messages += held.inflight_messages
                sums.inflight_bytes += held.inflight_bytes
                sums.unsent_bytes += held.unsent
                sums.slow_clients += held.unsent >= SLOW
        self.latest = sums
