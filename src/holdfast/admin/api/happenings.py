"""Happenings of the broker, for streams: kept for a short time, in bounded memory.

How it works. Each kind has a source, such as connections and ends of clients. The first stream that wants the kind
starts its source, and the end of the last such stream stops it. So without streams no happening is made. The newest
happenings are kept, and each stream reads them at its own pace; a stream that is too slow learns the number of missed
ones. Of very many happenings in one second, a stream gets the first ones, and then the number of the others.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from attrs import define, frozen
from twisted.internet.interfaces import IDelayedCall, IReactorTime

#: The happenings that are kept, and those of one kind that are told in a second.
MOST_HAPPENINGS = 1000
MOST_PER_SECOND = 100

#: tells of a happening
Tell = Callable[[Mapping[str, Any]], None]
#: begins to tell; returns what ends that
Source = Callable[[Tell], Callable[[], None]]


@frozen
class Happening:
    """One happening: its number, its kind, and its content as JSON."""

    number: int
    kind: str
    text: bytes


@define(eq=False)
class _Kind:
    source: Source
    watchers: int = 0
    stop: Callable[[], None] | None = None
    told: int = 0  #: in this second
    left_out: int = 0
    summing: IDelayedCall | None = None


class Happenings:
    """The latest happenings of some kinds, each with its source."""

    def __init__(
        self,
        clock: IReactorTime,
        sources: Mapping[str, Source],
        most: int = MOST_HAPPENINGS,
        most_per_second: int = MOST_PER_SECOND,
    ) -> None:
        self._clock = clock
        self._kinds = {kind: _Kind(source) for kind, source in sources.items()}
        self._latest: deque[Happening] = deque(maxlen=most)
        self._number = 0
        self._most_per_second = most_per_second
        self._news: list[Callable[[], None]] = []

    @property
    def kinds(self) -> Collection[str]:
        """All kinds."""
        return self._kinds.keys()

    @property
    def number(self) -> int:
        """The number of the last happening."""
        return self._number

    def join(self, kinds: Collection[str], news: Callable[[], None]) -> Callable[[], None]:
        """Watch some kinds: call ``news`` after each happening. Return the function that ends this; call it once."""
        self._news.append(news)
        for name in kinds:
            kind = self._kinds[name]
            kind.watchers += 1
            if kind.stop is None:
                kind.stop = kind.source(partial(self._tell, name))

        def leave() -> None:
            self._news.remove(news)
            for name in kinds:
                self._left(self._kinds[name])

        return leave

    def after(self, number: int, kinds: Collection[str], most_bytes: int) -> tuple[Sequence[Happening], int, int]:
        """Return the next happenings of these kinds, the number of the last one looked at, and how many are missed.

        Missed happenings of all kinds are counted.
        """
        first = self._latest[0].number if self._latest else self._number + 1
        missed = max(0, first - number - 1)
        found: list[Happening] = []
        for happening in self._latest:
            if happening.number <= number:
                continue
            if happening.kind in kinds:
                most_bytes -= len(happening.text)
                if most_bytes < 0 and found:
                    break
                found.append(happening)
            number = happening.number
        return found, number, missed

    def _tell(self, name: str, fields: Mapping[str, Any]) -> None:
        kind = self._kinds[name]
        if kind.told >= self._most_per_second:
            kind.left_out += 1
            return
        kind.told += 1
        if kind.summing is None:
            kind.summing = self._clock.callLater(1, self._second_over, name)
        self._add(name, fields)

    def _second_over(self, name: str) -> None:
        kind = self._kinds[name]
        kind.summing, kind.told = None, 0
        left_out, kind.left_out = kind.left_out, 0
        if left_out:
            self._tell(name, {"event": "more", "count": left_out})

    def _add(self, name: str, fields: Mapping[str, Any]) -> None:
        self._number += 1
        text = json.dumps(fields, separators=(",", ":")).encode()
        self._latest.append(Happening(self._number, name, text))
        for news in tuple(self._news):
            news()

    def _left(self, kind: _Kind) -> None:
        kind.watchers -= 1
        if kind.watchers == 0 and kind.stop is not None:
            stop, kind.stop = kind.stop, None
            stop()
            if kind.summing is not None:
                kind.summing.cancel()
            kind.summing, kind.told, kind.left_out = None, 0, 0
