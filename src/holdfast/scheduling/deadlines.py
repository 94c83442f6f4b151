"""Deadlines by key: very many may be due at one moment, and are then acted on in portions.

How it works. Keys are kept by the tenth of a second in which they are due, so ten thousand keys of one moment share one
timer. When it fires, they form a line, and :mod:`long_work` takes them from it, some each turn. Until its turn
comes, a key can still be taken out of the line. A timer of the reactor for each key would call all of them in one turn.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from math import ceil

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from holdfast.log.client_log import client_text
from holdfast.scheduling.long_work import LongWork

#: deadlines are met up to a tenth of a second late
_PER_SECOND = 10


class Deadlines:
    """Calls ``act`` for each key when it is due. ``act`` works in steps, like all long work.

    Keys are texts of clients, such as Client Identifiers. An act that fails is logged with the ``name``, and keeps no
    other key from its turn.
    """

    _log = Logger()

    def __init__(self, name: str, clock: IReactorTime, work: LongWork, act: Callable[[str], Iterator[int]]) -> None:
        self._name = name
        self._clock = clock
        self._work = work
        self._act = act
        self._moments: dict[str, int] = {}
        self._keys: dict[int, dict[str, None]] = {}
        self._order: list[int] = []  # a heap of the moments in ``_keys``, and of some that are not there any more
        self._timer: IDelayedCall | None = None
        self._due: OrderedDict[str, None] = OrderedDict()
        self._working = False

    def set(self, key: str, delay: float) -> None:
        """Let a key be due after ``delay`` seconds, at once if that is 0. An older deadline of the key is forgotten."""
        self.discard(key)
        if delay <= 0:
            self._due[key] = None
            self._begin()
            return
        # Rounded to milliseconds first: else an error of 1e-7 seconds would cost a tenth of a second.
        moment = ceil(round((self._clock.seconds() + delay) * 1000) * _PER_SECOND / 1000)
        self._moments[key] = moment
        keys = self._keys.get(moment)
        if keys is None:
            keys = self._keys[moment] = {}
            heappush(self._order, moment)
            self._set_timer()
        keys[key] = None

    def discard(self, key: str) -> bool:
        """Forget the deadline of a key. Return False if it has none."""
        if key in self._due:
            del self._due[key]
            return True
        moment = self._moments.pop(key, None)
        if moment is None:
            return False
        keys = self._keys[moment]
        del keys[key]
        if not keys:
            del self._keys[moment]
            if len(self._order) > 2 * len(self._keys) + 100:
                self._order = sorted(self._keys)
        return True

    def hurry(self, key: str) -> None:
        """Let a key that has a deadline be due now."""
        if key in self._moments:
            self.set(key, 0)

    def left(self, key: str) -> float | None:
        """Return the seconds until a key is due; None if it has no deadline, or is in the line already."""
        moment = self._moments.get(key)
        return None if moment is None else max(0.0, moment / _PER_SECOND - self._clock.seconds())

    def is_due(self, key: str) -> bool:
        """Tell whether the key is in the line of those that are due."""
        return key in self._due

    def stop(self) -> None:
        """Forget all deadlines."""
        self._moments.clear()
        self._keys.clear()
        self._order.clear()
        self._due.clear()
        self._set_timer()

    def __len__(self) -> int:
        return len(self._moments) + len(self._due)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._order:
            delay = max(0.0, self._order[0] / _PER_SECOND - self._clock.seconds())
            self._timer = self._clock.callLater(delay, self._fired)

    def _fired(self) -> None:
        self._timer = None
        now = round(self._clock.seconds() * 1000) * _PER_SECOND / 1000
        while self._order and self._order[0] <= now:
            for key in self._keys.pop(heappop(self._order), {}):
                del self._moments[key]
                self._due[key] = None
        self._set_timer()
        self._begin()

    def _begin(self) -> None:
        if self._due and not self._working:
            self._working = True
            self._work.do(self, self._steps())

    def _steps(self) -> Iterator[int]:
        while self._due:
            yield 1
            if not self._due:  # the last one was taken out of the line meanwhile
                break
            key, _ = self._due.popitem(last=False)
            try:
                yield from self._act(key)
            except Exception:  # noqa: BLE001 - the others must have their turn
                self._log.failure("{name}: failed for {key}", name=self._name, key=client_text(key))
        self._working = False
