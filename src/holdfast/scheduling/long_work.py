"""Long work in parts: no Control Packet holds the reactor longer than one part, and clients take turns.

How it works. Work is an iterator. Before each step it yields the number of steps for which the step counts, usually 1.
A step has a bounded cost: one subscription, or one queued message. Work of few steps is done at once, so usual packets
never wait. Longer work goes on in later turns of the reactor: one part each turn, round-robin between the owners,
first in, first out for each owner. Say that two clients send 1000 Topic Filters each:

    turn 1     25 filters of a, 25 filters of b: the first part of each is done at once
    turn 2     25 filters of a
    turn 3     25 filters of b
    ...
    turn 79    the last 25 filters of b

Every owner may do one part at once in a turn. So a client that sends a thousand short packets in one piece waits as
long as a client that sends one packet with the same content.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from itertools import islice

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from holdfast.scheduling.fair_line import FairLine

#: the steps of one part; a step takes at most 200 microseconds, so a part takes at most 5 milliseconds
STEPS_IN_PART = 25
#: the weight of the Topic Filters that are compared in one step (:class:`Meter`)
COMPARED_PER_STEP = 50
#: so many characters of a Topic Filter count as one more comparison; a level has one character at least
_CHARACTERS = 64


def weight_of_comparison(topic_filter: str) -> int:
    """Return for how many comparisons a Topic Filter counts: they look at each of its levels."""
    return 1 + len(topic_filter) // _CHARACTERS


@define(eq=False)
class _Work:
    """Unfinished work. ``announced`` counts the step that is due."""

    steps: Iterator[int]
    announced: int = 0
    is_done: bool = False
    done: Deferred[None] = field(factory=Deferred)

    def advance(self, most: int) -> int:
        """Do steps until the next one would exceed ``most``. Returns how many were done.

        A step that counts more than a whole part is not cut: it is done if it is the first one.
        """
        count = 0
        while not count or count + self.announced <= most:
            count += self.announced
            try:
                self.announced = next(self.steps)
            except StopIteration:
                self.is_done = True
                break
            except BaseException:
                self.is_done = True
                raise
        return count


class Meter:
    """Cuts many small pieces of long work into steps. ``size`` is the weight of one step.

    for each in pieces:
        due = meter.add(weight of each)
        if due:
            yield due
        work on each
    """

    __slots__ = ("_filled", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._filled = size  # so that the first piece begins a step

    def add(self, weight: int) -> int:
        """Add the next piece. Return for how many steps it counts; 0: the present step has room for it."""
        self._filled += weight
        if self._filled <= self._size:
            return 0
        steps = -(-weight // self._size)
        self._filled = weight - (steps - 1) * self._size
        return steps


class LongWork:
    """Does short work at once, and long work in parts of ``part`` steps."""

    def __init__(self, clock: IReactorTime, part: int = STEPS_IN_PART) -> None:
        self._clock = clock
        self._part = part
        #: by owner: the steps that it has done at once in this turn
        self._done_at_once: dict[Hashable, int] = {}
        self._line: FairLine[_Work] = FairLine()
        self._served: tuple[Hashable, ...] = ()  # the owner whose work goes on at this moment
        self._scheduled = False

    def do(self, owner: Hashable, steps: Iterator[int]) -> Deferred[None] | None:
        """Do the work after all earlier work of this owner. Returns None if it is done now.

        Otherwise the Deferred fires when it is done. An error that ends the work is raised here if it happens at once,
        and is given to the Deferred if it happens later.
        """
        work = _Work(steps)
        if not self._line.waits(owner) and owner not in self._served:
            left = self._part - self._done_at_once.get(owner, 0)
            if left > 0:
                done = work.advance(left)
                self._done_at_once[owner] = self._done_at_once.get(owner, 0) + done
                self._schedule()
                if work.is_done:
                    return None
        self._line.add(owner, work)
        self._schedule()
        return work.done

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._clock.callLater(0, self._next_turn)

    def _next_turn(self) -> None:
        """Do one part of the work of the owner whose turn it is."""
        self._scheduled = False
        self._done_at_once.clear()
        found = self._line.next()
        if found is None:
            return
        owner, work = found
        self._served = (owner,)
        failure: Failure | None = None
        try:
            work.advance(self._part)
        except Exception:  # noqa: BLE001 - the giver of the work handles its errors
            failure = Failure()
        if not work.is_done:
            self._line.add(owner, work, first=True)
        self._served = ()
        if self._line:
            self._schedule()
        if failure is not None:
            work.done.errback(failure)
        elif work.is_done:
            work.done.callback(None)

    def __len__(self) -> int:
        """Return how many pieces of work are not done yet."""
        return len(self._line)


# Frees large structures a part at a time: the last reference to one would free all of it in one turn of the reactor.
#
# How it works. Ten thousand rules are some hundred thousand small objects. So the objects are collected first, some in
# each turn, the larger ones before the smaller ones that they refer to. Then the structure itself is let go of, which
# frees little, since its parts are held. Then the parts are let go of in the same order, some in each turn:
#
#     structure        a -> (b -> (d, e), c)
#     collected        a, b, c, d, e
#     freed            a | b | c | d | e
#
# Nothing is changed, so whoever still uses the structure may do so; then the last reference is theirs.


#: parts that one turn collects or frees: about half a millisecond
FREED_IN_TURN = 500
#: Seconds between two turns with such work: it takes a tenth of the reactor at most.
FREEING_PAUSE = 0.005


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
            self._clock.callLater(FREEING_PAUSE, self._work)

    def _work(self) -> None:
        if self._waiting:
            before = len(self._held)
            self._held.extend(islice(self._waiting[0], FREED_IN_TURN))
            if len(self._held) - before < FREED_IN_TURN:
                self._waiting.popleft()
        else:
            for _ in range(min(FREED_IN_TURN, len(self._held))):
                self._held.popleft()
        self._working = bool(self._waiting or self._held)
        if self._working:
            self._clock.callLater(FREEING_PAUSE, self._work)
