"""Flow control: what all replays share, and its settings, which may change while they run."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from holdfast.retained.replay.concurrency_limit import ConcurrencyLimit
from holdfast.retained.replay.flow_settings import FlowSettings
from holdfast.retained.replay.rate_limiter import RateLimiter
from holdfast.retained.replay.stalled import StalledReplays
from holdfast.retained.replay.turns import ReplayTurns

if TYPE_CHECKING:
    from holdfast.retained.replay.replay import Replay


class _Client:
    """One Client's limiter, and what it is kept for."""

    def __init__(self, limiter: RateLimiter) -> None:
        self.limiter = limiter
        self.replays: set[Replay] = set()
        self.forgetting: IDelayedCall | None = None


class FlowControl:
    """Which replays there are, whose turn it is, how many may run, and how much may be delivered now."""

    def __init__(self, clock: IReactorTime, flow: FlowSettings) -> None:
        self.flow = flow
        self.turns = ReplayTurns(clock)
        self.line = ConcurrencyLimit(flow.max_concurrent_replays)
        self.resting = StalledReplays(clock)
        #: all that are not over, by their number
        self.replays: dict[int, Replay] = {}
        #: whether any rate applies: where none does, replays need not ask
        self.limited = False
        self._clock = clock
        self._node = RateLimiter(clock, None)
        self._clients: dict[str, _Client] = {}
        self._last_number = 0
        #: replays that are over, since the start
        self.ended = 0
        self._delivered_by_ended = 0
        #: counts when reads begin and end, so that of two it can be told which has seen more
        self.moment = count(1).__next__
        self.change(flow)

    def change(self, flow: FlowSettings) -> None:
        """Go on with other settings, at once, also for the replays that run."""
        self.flow = flow
        self.limited = flow.delivery_rate is not None or flow.client_rate is not None
        self._node.change(flow.delivery_rate)
        for client in self._clients.values():
            client.limiter.change(flow.client_rate)
        self.line.change(flow.max_concurrent_replays)

    def begin(self, replay: Replay) -> int:
        """Take in a new replay; return its number."""
        client = self._clients.get(replay.client_id)
        if client is None:
            client = self._clients[replay.client_id] = _Client(RateLimiter(self._clock, self.flow.client_rate))
        elif client.forgetting is not None:
            client.forgetting.cancel()
            client.forgetting = None
        client.replays.add(replay)
        self._last_number += 1
        self.replays[self._last_number] = replay
        return self._last_number

    def end(self, replay: Replay) -> None:
        """Forget a replay that is over: it waits for nothing any more."""
        del self.replays[replay.number]
        self.ended += 1
        self._delivered_by_ended += replay.delivered
        self.turns.leave(replay)
        self.line.leave(replay)
        self.resting.forget(replay)
        self.leave_queues(replay)
        client = self._clients[replay.client_id]
        client.replays.discard(replay)
        if not client.replays:  # what it has used up counts until it would be there again
            rest = client.limiter.rest()
            if rest:
                client.forgetting = self._clock.callLater(rest, self._clients.pop, replay.client_id)
            else:
                del self._clients[replay.client_id]

    def others(self, replay: Replay) -> list[Replay]:
        """Return the other replays of its Client that are not over."""
        replays = self._clients[replay.client_id].replays
        return [other for other in replays if other is not replay] if len(replays) > 1 else []

    def grant(self, replay: Replay, wanted: int) -> int:
        """Take as many of the messages wanted as the rates allow now; at 0 the replay is told when to ask again.

        A replay waits in one queue at a time: first for the rate of its Client, then for that of all.
        """
        own = self._clients[replay.client_id].limiter
        allowed = own.allows(replay, wanted)
        if not allowed:
            self._node.leave(replay)
            return 0
        allowed = self._node.allows(replay, allowed)
        if allowed:
            own.take(allowed)
            self._node.take(allowed)
        return allowed

    def leave_queues(self, replay: Replay) -> None:
        """Let a replay give up its place in the queue for a rate."""
        self._clients[replay.client_id].limiter.leave(replay)
        self._node.leave(replay)

    @property
    def delivered(self) -> int:
        """Messages delivered by all replays, since the start."""
        return self._delivered_by_ended + sum(replay.delivered for replay in self.replays.values())

    @property
    def waiting(self) -> int:
        """How many turns, places and tokens are waited for."""
        queues = (client.limiter for client in self._clients.values())
        return len(self.turns) + len(self.line) + len(self._node) + sum(map(len, queues))
