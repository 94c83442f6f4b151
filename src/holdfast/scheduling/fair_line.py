"""Where work waits for its turn: in one line, fair between its owners, bounded, and to be left at any time.

How it works. A :class:`FairLine` keeps what waits by its owner: a Client, a caller of the API, a connection. The owner
whose item is taken goes behind all other owners, so nobody waits longer because another one asks for more. The items of
one owner stay in their order. Say that ``a`` adds 1, 2 and 3, then ``b`` adds 4:

    the line         taken
    a: 1 2 3, b: 4   1
    b: 4, a: 2 3     4
    a: 2 3           2

Two kinds of users take items from such a line: :class:`Turns` takes a few in each turn of the reactor, and
:class:`Places` takes one whenever one of a few places is free.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Container, Hashable
from typing import Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

T = TypeVar("T")


class LineFull(Exception):
    """As many items wait as may, of one owner or of all of them; the text tells the owner."""


class FairLine(Generic[T]):
    """What waits, by owner. At most ``most`` items wait, and ``most_of_owner`` of one owner; None for any number.

    An item is hashable, and is in the line once. Adding, removing or taking one takes the same short time, however many
    wait.
    """

    def __init__(self, most: int | None = None, most_of_owner: int | None = None) -> None:
        self._most = most
        self._most_of_owner = most_of_owner
        self._count = 0
        #: by owner, the next one first
        self._waiting: OrderedDict[Hashable, OrderedDict[T, None]] = OrderedDict()

    def add(self, owner: Hashable, item: T, *, first: bool = False) -> None:
        """Let an item wait behind the others of its owner, or before them. Raises :class:`LineFull`.

        An item that waits already keeps its place.
        """
        items = self._waiting.get(owner, ())
        if item in items:
            return
        if self._most_of_owner is not None and len(items) >= self._most_of_owner:
            raise LineFull(f"{self._most_of_owner} of your requests wait already; let one of them end first")
        if self._most is not None and self._count >= self._most:
            raise LineFull(f"{self._most} requests wait already; try again later")
        own = self._waiting.setdefault(owner, OrderedDict())
        own[item] = None
        if first:
            own.move_to_end(item, last=False)
        self._count += 1

    def remove(self, owner: Hashable, item: T) -> None:
        """Let an item wait no more, if it does."""
        items = self._waiting.get(owner)
        if items is not None and item in items:
            self._take(owner, items, item)

    def next(self, passed_over: Container[Hashable] = ()) -> tuple[Hashable, T] | None:
        """Take the next item; return its owner and the item, None if no owner waits but those that are passed over."""
        for owner, items in self._waiting.items():
            if owner not in passed_over:
                item = next(iter(items))
                self._take(owner, items, item)
                if items:
                    self._waiting.move_to_end(owner)
                return owner, item
        return None

    def waits(self, owner: Hashable) -> bool:
        """Return whether an item of this owner waits."""
        return owner in self._waiting

    def _take(self, owner: Hashable, items: OrderedDict[T, None], item: T) -> None:
        del items[item]
        self._count -= 1
        if not items:
            del self._waiting[owner]

    def __len__(self) -> int:
        """Return how many items wait."""
        return self._count


class Turns(Generic[T]):
    """Serves a line in turns of the reactor: ``most`` items in each, or as many as begin within ``seconds``.

    ``serve`` does a short piece of work for an item. It returns whether the item waits for another turn, before the
    others of its owner. An item is served once in a turn.
    """

    def __init__(
        self, clock: IReactorTime, serve: Callable[[T], bool], *, most: int = 1, seconds: float | None = None
    ) -> None:
        self._clock = clock
        self._serve = serve
        self._most = most
        self._seconds = seconds
        self._line: FairLine[T] = FairLine()
        self._is_due = False

    def enter(self, owner: Hashable, item: T, *, first: bool = False) -> None:
        """Let an item wait for a later turn, unless it does so already; ``first``: before the others of its owner."""
        self._line.add(owner, item, first=first)
        self._schedule()

    def leave(self, owner: Hashable, item: T) -> None:
        """Let an item wait no more, if it does."""
        self._line.remove(owner, item)

    def _schedule(self) -> None:
        if not self._is_due and self._line:
            self._is_due = True
            self._clock.callLater(0, self._turn)

    def _turn(self) -> None:
        self._is_due = False
        left = len(self._line) if self._seconds is not None else min(self._most, len(self._line))
        end = None if self._seconds is None else self._clock.seconds() + self._seconds
        try:
            while left:
                left -= 1
                found = self._line.next()
                if found is None:  # those served before have ended it
                    break
                owner, item = found
                if self._serve(item):
                    self._line.add(owner, item, first=True)
                if end is not None and self._clock.seconds() >= end:
                    break
        finally:
            self._schedule()

    def __len__(self) -> int:
        """Return how many items wait."""
        return len(self._line)


GoOn = Callable[[], None]


def turns_of_calls(clock: IReactorTime, *, most: int = 1, seconds: float | None = None) -> Turns[GoOn]:
    """Return turns whose items are functions without arguments, each of which is called in its turn."""

    def serve(go_on: GoOn) -> bool:
        go_on()
        return False

    return Turns(clock, serve, most=most, seconds=seconds)


class Places:
    """Lets ``number`` works run at a time, and ``number_of_owner`` of one owner; the others wait in a line.

    An owner that has its places already is passed over.
    """

    def __init__(self, number: int, number_of_owner: int, line: FairLine[Deferred[Callable[[], None]]]) -> None:
        self._number = number
        self._number_of_owner = number_of_owner
        self._line = line
        self._running: Counter[Hashable] = Counter()

    def take(self, owner: Hashable) -> Deferred[Callable[[], None]]:
        """Wait for a place; the result gives it back. The Deferred can be cancelled. Raises :class:`LineFull`."""
        turn: Deferred[Callable[[], None]] = Deferred(lambda turn: self._line.remove(owner, turn))
        self._line.add(owner, turn)
        self._begin()
        return turn

    def _begin(self) -> None:
        while self._running.total() < self._number:
            found = self._line.next({owner for owner, count in self._running.items() if count >= self._number_of_owner})
            if found is None:
                return
            owner, turn = found
            self._running[owner] += 1
            turn.callback(lambda owner=owner: self._leave(owner))  # type: ignore[misc]  # bound in the loop

    def _leave(self, owner: Hashable) -> None:
        self._running[owner] -= 1
        if not self._running[owner]:
            del self._running[owner]
        self._begin()

    def __len__(self) -> int:
        """Return how many wait for a place."""
        return len(self._line)
