"""The sweep: what has expired is removed, slice by slice, and what was stored under other limits is made to fit."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.retained.quota.limits import RetainerLimits
from holdfast.retained.store.interfaces import IRetainedStore
from holdfast.tickets import StorageFailure

#: rows changed by one statement, so that it never holds up the writer for long
_SLICE = 1000
#: seconds until what could not be prepared at start is tried again
_PREPARE_AGAIN = 60.0


class Sweep:
    """Removes expired messages and old tombstones every ``msg_clear_interval``, at most ``msg_clear_limit`` of each.

    ``now`` gives milliseconds since the epoch; ``expired`` is told the topics.
    """

    _log = Logger()

    def __init__(
        self,
        store: IRetainedStore,
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
        """Prepare what there is for the limits, and sweep at intervals."""
        self._running = True
        limits = self._limits
        if limits.msg_clear_interval:
            self._sweeping = LoopingCall(self._sweep)
            self._sweeping.clock = self._clock
            self._sweeping.start(limits.msg_clear_interval, now=False).addErrback(self._failed)
        if limits.client_quota or limits.topic_quotas or limits.msg_expiry_interval_override is not None:
            self._preparing = self._clock.callLater(0, self._prepare)

    def stop(self) -> None:
        """Sweep no more."""
        self._running = False
        if self._sweeping is not None and self._sweeping.running:
            self._sweeping.stop()
        if self._preparing is not None and self._preparing.active():
            self._preparing.cancel()

    @inlineCallbacks
    def make_room(self) -> Generator[Deferred[Any], Any, int]:
        """Remove a slice of what has expired; return how many messages that were."""
        try:
            topics = yield self._store.expire(self._now(), _SLICE)
        except StorageFailure as failure:
            self._log.error("sweeping expired messages failed: {failure}", failure=failure)
            return 0
        self._expired(topics)
        return len(topics)

    @inlineCallbacks
    def _prepare(self) -> Generator[Deferred[Any], Any, None]:
        """Count for new quotas, and apply ``msg_expiry_interval_override`` to what was stored before: in slices."""
        limits = self._limits
        try:
            while (yield self._store.count_usage(_SLICE)):
                pass
            after: str | None = ""
            while limits.msg_expiry_interval_override is not None and after is not None:
                lifetime = round(limits.msg_expiry_interval_override * 1000)
                after = yield self._store.cap_expiry(lifetime, not limits.allow_never_expire, after, _SLICE)
        except StorageFailure as failure:
            self._log.error("preparing what is retained for its limits failed: {failure}", failure=failure)
            if self._running:
                self._preparing = self._clock.callLater(_PREPARE_AGAIN, self._prepare)

    @inlineCallbacks
    def _sweep(self) -> Generator[Deferred[Any], Any, None]:
        left = self._limits.msg_clear_limit
        while left > 0:
            limit = min(left, _SLICE)
            topics = yield self._store.expire(self._now(), limit)
            self._expired(topics)
            if len(topics) < limit:
                break
            left -= limit
        left = self._limits.msg_clear_limit
        before = self._now() - round(self._limits.tombstone_ttl * 1000)
        while left > 0:
            limit = min(left, _SLICE)
            purged = yield self._store.purge(before, limit)
            if purged < limit:
                break
            left -= limit

    def _failed(self, failure: Failure) -> None:
        """Log, and go on sweeping at the next interval: expired messages are filtered on reading all the same."""
        self._log.error("sweeping expired messages failed: {error}", error=failure.getErrorMessage())
        if self._running and self._sweeping is not None:
            self._sweeping.start(self._limits.msg_clear_interval, now=False).addErrback(self._failed)
