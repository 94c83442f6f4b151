"""Flow control: the turns and rates that all replays share.

How replays share. The in-flight window of one client is shared by its replays and its live messages; that rule is in
``sessions/delivery/inflight.py``, and a replay sees it only as ``IDelivery.room()``. Here all replays share the broker:
one step per reactor turn (``turns``), and a number of messages per second, of one client and of all clients.

A replay that must wait is in one queue at a time, and the queue wakes it: no replay polls. Tokens are taken
only for messages that the client has room for, so a client without room holds none. Without any rate, no limiter is
asked (``is_limited``).

There is no limit on concurrent replays. A replay reads only what its client has room for, and with a limit clients that
stopped reading would keep other clients waiting.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from itertools import islice
from typing import Protocol

from attrs import define
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from holdfast.retained.limits import FlowSettings
from holdfast.scheduling.fair_line import Turns
from holdfast.scheduling.rate_limiter import RateLimiter, Waiter

# Replays that wait for room: after a second, each frees its held messages, and hears no more changes.
#
# A client that reads nothing then costs only the bytes that its transport holds, however large the messages are, and
# costs the publishers nothing.


_log = Logger()

#: the replays that are released in one turn of the reactor
_AT_ONCE = 100
#: Seconds without room after which held messages are given up. A slow client that still reads has room again sooner.
REST_PATIENCE = 1.0


class Releasable(Protocol):
    """Something that may hold messages which it cannot deliver."""

    def release(self) -> bool:
        """Give up the held messages if they still cannot be delivered. Returns whether there were any."""


class StalledReplays:
    """The replays that wait for room, and one timer for all of them."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._since: dict[Releasable, float] = {}  # in the order of the times
        self._timer: IDelayedCall | None = None

    def add(self, replay: Releasable) -> None:
        """Ask the replay to release its messages after a while. A replay that is added again waits anew."""
        self._since.pop(replay, None)
        self._since[replay] = self._clock.seconds()
        if self._timer is None:
            self._timer = self._clock.callLater(REST_PATIENCE, self._check)

    def remove(self, replay: Releasable) -> None:
        """Remove a replay that is over."""
        self._since.pop(replay, None)
        if not self._since and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        now = self._clock.seconds()
        released = False
        for replay, since in list(islice(self._since.items(), _AT_ONCE)):
            if since + REST_PATIENCE > now:
                break
            del self._since[replay]
            try:
                released = replay.release() or released
            except Exception:  # noqa: BLE001 - the others must still be released, now and later
                _log.failure("a replay that waits for room could not free its messages")
        if released:
            _malloc_trim(0)
        first = next(iter(self._since.values()), None)
        if first is not None and self._timer is None:
            self._timer = self._clock.callLater(max(0.0, first + REST_PATIENCE - now), self._check)


def _find_malloc_trim() -> Callable[[int], object]:
    """Return the function that gives freed memory back to the system.

    The GNU C library keeps large freed blocks resident as long as a younger block lies above them. A trim takes
    microseconds if little is free, milliseconds for tens of megabytes. Other C libraries give memory back themselves.
    """
    try:
        trim: Callable[[int], object] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return lambda _: None
    return trim


_malloc_trim = _find_malloc_trim()


class FlowControlled(Waiter, Releasable, Protocol):
    """A replay, as flow control sees it."""

    client_id: str

    def step(self) -> bool:
        """Do a bounded amount of work. Returns whether another step can follow at once."""


@define(eq=False)
class _ClientRate:
    """The limiter of one client. It outlives the client's last replay until its tokens are back."""

    limiter: RateLimiter
    forgetting: IDelayedCall | None = None


class FlowControl:
    """Decides whose turn it is, and how many messages each replay may deliver now."""

    def __init__(self, clock: IReactorTime, settings: FlowSettings) -> None:
        self.settings = settings
        #: One step is taken per reactor turn, so live messages wait for at most one step, even if many replays run. A
        #: client's replay goes on until it has to wait: otherwise each of its replays would hold a batch.
        self.turns: Turns[FlowControlled] = Turns(clock, lambda replay: replay.step())
        self.stalled = StalledReplays(clock)
        self._clock = clock
        self._all = RateLimiter(clock, settings.delivery_rate)
        self._clients: dict[str, _ClientRate] = {}

    @property
    def is_limited(self) -> bool:
        """Whether any rate applies: without one, replays need not ask."""
        return self.settings.delivery_rate is not None or self.settings.client_rate is not None

    def change(self, settings: FlowSettings) -> None:
        """Use other settings: the rates at once, the other settings from the next read or replay on."""
        self.settings = settings
        self._all.change(settings.delivery_rate)
        for client in self._clients.values():
            client.limiter.change(settings.client_rate)

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
        self.turns.leave(replay.client_id, replay)
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
        """How many replays wait for a turn or for tokens."""
        queues = (client.limiter for client in self._clients.values())
        return len(self.turns) + len(self._all) + sum(map(len, queues))
