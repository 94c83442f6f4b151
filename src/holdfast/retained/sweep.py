"""The sweep: it removes expired messages and old tombstones, and adapts stored messages to changed limits.

Every statement is bounded to some rows, so the writer is never blocked for long.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.retained.quota.limits import RetainerLimits
from holdfast.retained.store.interfaces import IRetainedStore
from holdfast.tickets import StorageFailure

#: rows changed by one statement
_ROWS = 1000
#: seconds until preparations that failed at start are tried again
_PREPARE_AGAIN = 60.0


class Sweep:
    """Removes expired messages and old tombstones every ``msg_clear_interval``, at most ``msg_clear_limit`` of each.

    ``now`` returns milliseconds since the epoch. ``expired`` is called with the topics of removed messages.
    """

    _log = Logger()

    def __init__(
        self,
        store: IRetainedStore,
        *,
        clock: IReactorTime,
        now: Callable[[], int],
        limits: RetainerLimits,
        expired: Callable[[Sequence[str]], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._now = now
        self._limits = limits
        self._expired = expired
        self._sweeping: LoopingCall | None = None
        self._preparing: IDelayedCall | None = None
        self._running = False

    def start(self) -> None:
        """Adapt stored messages to the limits, and sweep at intervals."""
        self._running = True
        limits = self._limits
        if limits.msg_clear_interval:
            self._sweeping = LoopingCall(self._sweep)
            self._sweeping.clock = self._clock
            self._sweeping.start(limits.msg_clear_interval, now=False).addErrback(self._failed)
        if limits.client_quota or limits.topic_quotas or limits.msg_expiry_interval_override is not None:
            self._preparing = self._clock.callLater(0, self._prepare)

    def stop(self) -> None:
        """Stop sweeping."""
        self._running = False
        if self._sweeping is not None and self._sweeping.running:
            self._sweeping.stop()
        if self._preparing is not None and self._preparing.active():
            self._preparing.cancel()

    @inlineCallbacks
    def make_room(self) -> Generator[Deferred[Any], Any, int]:
        """Remove some expired messages, so that a quota has room. Returns how many were removed."""
        try:
            removed: int = yield self._expire(_ROWS)
        except StorageFailure as failure:
            self._log.error("sweeping expired messages failed: {failure}", failure=failure)
            return 0
        return removed

    @inlineCallbacks
    def _expire(self, limit: int) -> Generator[Deferred[Any], Any, int]:
        topics = yield self._store.expire(self._now(), limit)
        self._expired(topics)
        return len(topics)

    @inlineCallbacks
    def _prepare(self) -> Generator[Deferred[Any], Any, None]:
        """Count stored messages for new quotas, and apply ``msg_expiry_interval_override`` to them."""
        limits = self._limits
        try:
            while (yield self._store.count_usage(_ROWS)):
                pass
            after: str | None = ""
            while limits.msg_expiry_interval_override is not None and after is not None:
                lifetime = round(limits.msg_expiry_interval_override * 1000)
                after = yield self._store.cap_expiry(lifetime, not limits.allow_never_expire, after, _ROWS)
        except StorageFailure as failure:
            self._log.error("adapting stored messages to the limits failed: {failure}", failure=failure)
            if self._running:
                self._preparing = self._clock.callLater(_PREPARE_AGAIN, self._prepare)

    @inlineCallbacks
    def _sweep(self) -> Generator[Deferred[Any], Any, None]:
        before = self._now() - round(self._limits.tombstone_ttl * 1000)
        for remove in (self._expire, partial(self._store.purge, before)):
            left = self._limits.msg_clear_limit
            while left > 0:
                limit = min(left, _ROWS)
                if (yield remove(limit)) < limit:
                    break
                left -= limit

    def _failed(self, failure: Failure) -> None:
        """Log, and sweep again at the next interval. Reads leave out expired messages in any case."""
        self._log.error("sweeping expired messages failed: {error}", error=failure.getErrorMessage())
        if self._running and self._sweeping is not None:
            self._sweeping.start(self._limits.msg_clear_interval, now=False).addErrback(self._failed)
