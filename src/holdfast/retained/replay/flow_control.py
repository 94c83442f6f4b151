"""Flow control: the turns, rates and places that all replays share.

How replays share. The in-flight window of one client is shared by its replays and its live messages; that rule is in
``sessions/delivery/window.py``, and a replay sees it only as ``IDelivery.room()``. Here all replays share the broker:
one step per reactor turn (``turns``), a number of replays at once (``concurrency``), and a number of messages per
second, of one client and of all clients.

A replay that must wait is in one queue at a time, and the queue wakes it: no replay polls. Tokens are taken
only for messages that the client has room for, so a client without room holds none. Without any rate, no limiter is
asked (``is_limited``).

By default there is no limit on concurrent replays. A replay reads only what its client has room for, and with a limit
clients that stopped reading keep other clients waiting.
"""

from __future__ import annotations

from typing import Protocol

from attrs import define
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from holdfast.retained.replay.concurrency_limit import ConcurrencyLimit
from holdfast.retained.replay.flow_settings import FlowSettings
from holdfast.retained.replay.rate_limiter import RateLimiter, Waiter
from holdfast.retained.replay.stalled import Releasable, StalledReplays
from holdfast.retained.replay.turns import ReplayTurns, Stepper


class FlowControlled(Stepper, Waiter, Releasable, Protocol):
    """A replay, as flow control sees it."""

    client_id: str


@define(eq=False)
class _ClientRate:
    """The limiter of one client. It outlives the client's last replay until its tokens are back."""

    limiter: RateLimiter
    forgetting: IDelayedCall | None = None


class FlowControl:
    """Decides whose turn it is, how many replays run, and how many messages each may deliver now."""

    def __init__(self, clock: IReactorTime, settings: FlowSettings) -> None:
        self.settings = settings
        self.turns = ReplayTurns(clock)
        self.concurrency = ConcurrencyLimit(settings.max_concurrent_replays)
        self.stalled = StalledReplays(clock)
        self._clock = clock
        self._all = RateLimiter(clock, settings.delivery_rate)
        self._clients: dict[str, _ClientRate] = {}

    @property
    def is_limited(self) -> bool:
        """Whether any rate applies: without one, replays need not ask."""
        return self.settings.delivery_rate is not None or self.settings.client_rate is not None

    def change(self, settings: FlowSettings) -> None:
        """Use other settings: the rates at once, the other settings from the next read or replay on.

        A lower number of concurrent replays ends no running replay.
        """
        self.settings = settings
        self._all.change(settings.delivery_rate)
        for client in self._clients.values():
            client.limiter.change(settings.client_rate)
        self.concurrency.change(settings.max_concurrent_replays)

    def add_client(self, client_id: str) -> None:
        """Keep a limiter for a client that starts a replay."""
        client = self._clients.get(client_id)
        if client is None:
            self._clients[client_id] = _ClientRate(RateLimiter(self._clock, self.settings.client_rate))
        elif client.forgetting is not None:
            client.forgetting.cancel()
            client.forgetting = None

    def remove_client(self, client_id: str) -> None:
        """Forget the limiter of a client without replays, but only when the tokens that it took are back.

        Otherwise a client would get a full bucket with every SUBSCRIBE.
        """
        client = self._clients[client_id]
        seconds = client.limiter.seconds_until_full()
        if seconds:
            client.forgetting = self._clock.callLater(seconds, self._clients.pop, client_id)
        else:
            del self._clients[client_id]

    def remove(self, replay: FlowControlled) -> None:
        """Remove a replay that is over from every queue."""
        self.turns.leave(replay)
        self.concurrency.leave(replay)
        self.stalled.remove(replay)
        self.leave_queues(replay)

    def grant(self, replay: FlowControlled, wanted: int) -> int:
        """Take tokens for at most ``wanted`` messages. At 0 the replay waits in a queue, and is told to proceed.

        A replay waits in one queue at a time: first for the rate of its client, then for that of all replays.
        """
        own = self._clients[replay.client_id].limiter
        allowed = own.allows(replay, wanted)
        if not allowed:
            # Otherwise a client above its own rate would block the queue of all clients.
            self._all.leave(replay)
            return 0
        allowed = self._all.allows(replay, allowed)
        if allowed:
            # Tokens are taken only when both rates allow them: none are lost while the replay waits for the other rate.
            own.take(allowed)
            self._all.take(allowed)
        return allowed

    def leave_queues(self, replay: FlowControlled) -> None:
        """Give up the replay's place in the queue for a rate."""
        self._clients[replay.client_id].limiter.leave(replay)
        self._all.leave(replay)

    @property
    def waiting(self) -> int:
        """How many replays wait for a turn, a place or tokens."""
        queues = (client.limiter for client in self._clients.values())
        return len(self.turns) + len(self.concurrency) + len(self._all) + sum(map(len, queues))
