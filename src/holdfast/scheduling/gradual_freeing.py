"""Frees large structures a part at a time: the last reference to one would free all of it in one turn of the reactor.

How it works. Ten thousand rules are some hundred thousand small objects. So the objects are collected first, some in
each turn, the larger ones before the smaller ones that they refer to. Then the structure itself is let go of, which
frees little, since its parts are held. Then the parts are let go of in the same order, some in each turn:

    structure        a -> (b -> (d, e), c)
    collected        a, b, c, d, e
    freed            a | b | c | d | e

Nothing is changed, so whoever still uses the structure may do so; then the last reference is theirs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

from twisted.internet.interfaces import IReactorTime

#: parts that one turn collects or frees: about half a millisecond
PARTS = 500
#: Seconds between two turns with such work: it takes a tenth of the reactor at most.
PAUSE = 0.005


class GradualFreeing:
    """Frees structures one after the other."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._waiting: deque[Iterator[object]] = deque()
        self._held: deque[object] = deque()
        self._working = False

    def free(self, parts: Iterator[object]) -> None:
        """Free a structure that nobody uses any more. ``parts`` yields its objects, each after those that refer to it.

        The iterator refers to the structure; the caller does not any more.
        """
        self._waiting.append(parts)
        if not self._working:
            self._working = True
            self._clock.callLater(PAUSE, self._work)

    def _work(self) -> None:
        if self._waiting:
            before = len(self._held)
            self._held.extend(islice(self._waiting[0], PARTS))
            if len(self._held) - before < PARTS:
                self._waiting.popleft()
        else:
            for _ in range(min(PARTS, len(self._held))):
                self._held.popleft()
        self._working = bool(self._waiting or self._held)
        if self._working:
            self._clock.callLater(PAUSE, self._work)
