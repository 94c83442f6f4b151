"""The turns of Twisted's reactor: their order, their bounds, and the job that gives freed memory back.

One turn, with epoll (:class:`Turns`):

    1  timed calls and the answers of threads, then the packets that they cause
    2  reading: all connected clients that have sent something
    3  writing: one piece for each client that gets something
    4  reading a few strangers, then the answers to them

A fleet's clients send one message each. When hundreds of them are readable in one turn, their messages leave for one
subscriber in one piece. That is why 3 comes after all of 2: to send each message by itself takes as long as all other
work for it.
"""

from __future__ import annotations

import ctypes
import select
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Protocol

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from holdfast.scheduling.deadlines import PeriodicJob
from holdfast.scheduling.twisted_internals import (
    before_timed_calls,
    disconnect,
    poller_of,
    reads,
    serve,
    use_poller,
    use_turn,
    waker_of,
    watched,
    writes,
)

if TYPE_CHECKING:
    from socket import socket

    from twisted.internet.tcp import Port


# What one turn of the reactor serves: every connected client, but few strangers and few lost connections.
#
# How it works. The reactor asks the kernel which sockets have something to say, and then serves all of them before it
# asks again. Two kinds of sockets may be many at once, and would let everybody else wait:
#
# *Strangers*: clients that are not admitted yet, and the listening ports. When 10,000 clients come back, each costs
# some 300 microseconds until its CONNACK. So their sockets are in an ``epoll`` object of their own. The kernel tells
# the reactor's about it as about a socket, and each turn takes at most :data:`MOST_STRANGERS` from it, after all
# others. The kernel puts those that it has told of behind the others, so each has its turn:
#
#     turn 1    12 connected clients, strangers 1 to 8
#     turn 2     9 connected clients, strangers 9 to 16
#     ...
#
# *Lost connections*, as when a network is cut: each costs some 70 microseconds to end. The reactor is shown at most
# :data:`MOST_LOST` of them at a time. The kernel tells of the others again, as long as they are not closed.
#
# A client that closes its end in order is not lost to the kernel: that looks like data. So the kernel is asked to tell
# such ends too (EPOLLRDHUP), but only of sockets that are read: otherwise it would tell them for ever.


#: strangers that are served in one turn of the reactor: two or three milliseconds; a handshake of TLS takes more
MOST_STRANGERS = 8

#: lost connections that are ended in one turn of the reactor: two or three milliseconds
MOST_LOST = 32

_IN, _OUT = getattr(select, "EPOLLIN", 0), getattr(select, "EPOLLOUT", 0)
_CLOSED = getattr(select, "EPOLLRDHUP", 0)
_LOST = getattr(select, "EPOLLHUP", 0) | getattr(select, "EPOLLERR", 0) | _CLOSED

_log = Logger()

#: a file's number, and its events
_Event = tuple[int, int]


class PatientPoller:
    """An ``epoll`` object that tells of few strangers and few lost connections at a time."""

    turns: Turns

    def __init__(self, epoll: Any) -> None:
        self._epoll = epoll
        self._poll = epoll.poll
        self._waiting_room = select.epoll()
        self._door = self._waiting_room.fileno()
        self._strangers: set[int] = set()
        self._knocks = False  # whether strangers have something to say
        epoll.register(self._door, _IN)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._epoll, name)

    def close(self) -> None:
        """Close both ``epoll`` objects."""
        self._waiting_room.close()
        self._epoll.close()

    def expect(self, file: int) -> None:
        """Let a file wait from its registration on, which follows: that is cheaper than to move it afterwards."""
        self._strangers.add(file)

    def register(self, file: int, events: int) -> None:
        """Tell of these events of a file, and of its end if it is read."""
        try:
            self._of(file).register(file, _with_end(events))
        except OSError:
            self._strangers.discard(file)
            raise

    def modify(self, file: int, events: int) -> None:
        """Tell of other events of a file."""
        self._of(file).modify(file, _with_end(events))

    def unregister(self, file: int) -> None:
        """Tell of this file no more. If it is registered again, it is no stranger."""
        self._of(file).unregister(file)
        self._strangers.discard(file)

    def let_wait(self, file: int, events: int) -> None:
        """Let a registered file wait for those that are no strangers."""
        if file not in self._strangers:
            self._epoll.unregister(file)
            self._waiting_room.register(file, _with_end(events))
            self._strangers.add(file)

    def wait_no_more(self, file: int, events: int) -> None:
        """Tell of a file as of those that are no strangers."""
        if file in self._strangers:
            self._waiting_room.unregister(file)
            self._strangers.discard(file)
            self._epoll.register(file, _with_end(events))

    def poll(self, timeout: float = -1, maxevents: int = -1) -> list[_Event]:
        """Return the events of all sockets of connected clients that have any, but of lost ones only the first."""
        # The waiting room may be told of too.
        events: list[_Event] = self._poll(timeout, maxevents + 1 if maxevents > 0 else maxevents)
        for place, (file, _) in enumerate(events):
            if file == self._door:
                del events[place]
                self._knocks = True
                break
        return _few_lost(events)

    def strangers(self) -> list[_Event]:
        """Return the events of the first strangers, if the last :meth:`poll` was told of any."""
        if not self._knocks:
            return []
        self._knocks = False
        return self._waiting_room.poll(0, MOST_STRANGERS)

    def _of(self, file: int) -> Any:
        """Return the ``epoll`` object that tells of a file."""
        return self._waiting_room if file in self._strangers else self._epoll


def _with_end(events: int) -> int:
    return events | _CLOSED if events & _IN else events


def _few_lost(events: list[_Event]) -> list[_Event]:
    if len(events) <= MOST_LOST:
        return events
    lost = [event for event in events if event[1] & _LOST]
    if len(lost) <= MOST_LOST:
        return events
    return [event for event in events if not event[1] & _LOST] + lost[:MOST_LOST]


class Reader(Protocol):
    """A file that is read without the detours of Twisted's own way, which takes as long as the reading."""

    def read(self) -> Exception | None:
        """Read once, and act on it. Return why nothing more is to be read, None if it is."""


class _Waker:
    """The pipe of the reactor. The writer's thread wakes it through this pipe after each commit."""

    def __init__(self, waker: Any) -> None:
        self.read: Callable[[], None] = waker.doRead


class Ending(Protocol):
    """The work that waits until all clients of a turn are read."""

    @property
    def due(self) -> Collection[object]:
        """The parts of the work that wait."""

    @property
    def rests(self) -> bool:
        """Whether parts have been added during the last run. They wait until all clients are read once more."""

    def run(self) -> None:
        """Do the work. Parts that are added meanwhile wait for the next turn."""


class Turns:
    """The turns of a reactor with epoll, in place of its own ``doPoll``.

    ``readers`` are by the number of their file. ``endings`` run when the connected clients are read, and once more when
    strangers are.
    """

    def __init__(self, reactor: Any, poller: PatientPoller) -> None:
        self._reactor = reactor
        self._poller = poller
        self._watched = watched(reactor)
        waker = waker_of(reactor)
        self.readers: dict[int, Reader] = {waker.fileno(): _Waker(waker)}
        self.endings: list[Ending] = []

    def take(self, timeout: float | None) -> None:
        """Wait for at most so many seconds (None: for ever) until something is to be done, and do it."""
        for ending in self.endings:
            if ending.due and not ending.rests:  # timed calls and answers of threads have caused it
                ending.run()
                own = self._reactor.timeout()
                if own is not None and (timeout is None or own < timeout):
                    timeout = own
        if any(ending.due for ending in self.endings):
            timeout = 0
        self._serve(self._poller.poll(-1 if timeout is None else timeout, len(self._watched)))
        for ending in self.endings:
            if ending.due:
                ending.run()
        strangers = self._poller.strangers()
        if strangers:
            self._serve(strangers)
            for ending in self.endings:
                if ending.due and not ending.rests:
                    ending.run()

    def _serve(self, events: list[_Event]) -> None:
        readers = self.readers
        for file, event in events:
            reader = readers.get(file) if event == _IN else None
            if reader is None:
                if file in self._watched:  # else one served before has ended it
                    serve(self._reactor, self._watched[file], file, event)
                continue
            try:
                why = reader.read()
            except Exception as error:  # noqa: BLE001 - the clients behind it must be read
                _log.failure("reading from a connection failed")
                why = error
            if why is not None and file in self._watched:
                disconnect(self._reactor, self._watched[file], why)


class Guard(Protocol):
    """Tells until when clients may be served, and holds the reactor's thread behind that."""

    deadline: float

    def hold(self) -> None:
        """Return when clients may be served, or when all their connections are closed."""


class GuardedTurns(Turns):
    """Turns that ask a guard before each connection, and before timed calls.

    A process that was stopped finds readable sockets before its timers. So no timer could tell it in time.
    """

    def __init__(self, turns: Turns, guard: Guard, seconds: Callable[[], float]) -> None:
        super().__init__(turns._reactor, turns._poller)
        self.readers, self.endings = turns.readers, turns.endings
        self._guard = guard
        self._seconds = seconds

    def check(self) -> bool:
        """Hold if the deadline has passed; return whether it had."""
        if self._seconds() < self._guard.deadline:
            return False
        self._guard.hold()
        return True

    def before_timed_calls(self) -> None:
        """Hold if the deadline has passed. Then read first: Keep Alive must not end for packets that have come."""
        if self.check():
            self.take(0)

    def take(self, timeout: float | None) -> None:
        """Take a turn, after the deadline is checked: packets are sent first."""
        self.check()
        super().take(timeout)

    def _serve(self, events: list[_Event]) -> None:
        seconds, guard, serve = self._seconds, self._guard, super()._serve
        for event in events:
            if seconds() >= guard.deadline:
                guard.hold()
            serve([event])


def guard_turns(reactor: Any, guard: Guard, seconds: Callable[[], float]) -> bool:
    """Let a guard stand before all work of the reactor; return False if this reactor has no turns of ours."""
    poller = poller_of(reactor)
    if not isinstance(poller, PatientPoller):
        return False
    turns = poller.turns = GuardedTurns(poller.turns, guard, seconds)
    use_turn(reactor, turns.take)
    before_timed_calls(reactor, turns.before_timed_calls)
    return True


def be_patient(reactor: Any) -> None:
    """Let the reactor serve few strangers, and end few lost connections, in a turn, and send once in each.

    Other reactors than that of ``epoll`` stay as they are.
    """
    epoll = poller_of(reactor)
    if isinstance(epoll, getattr(select, "epoll", ())):
        poller = PatientPoller(epoll)
        use_poller(reactor, poller)
        poller.turns = Turns(reactor, poller)
        use_turn(reactor, poller.turns.take)
    else:
        _log.debug(
            "{reactor} serves all strangers and all lost connections in one turn", reactor=type(reactor).__name__
        )


def turns_of(reactor: object) -> Turns | None:
    """Return the turns of a reactor, None if it stays as Twisted made it."""
    poller = poller_of(reactor)
    return poller.turns if isinstance(poller, PatientPoller) else None


def admit_strangers(port: Port) -> None:
    """Let the connections that a port accepts wait from the first moment on, until :func:`wait_no_more`."""
    poller = poller_of(port.reactor)
    if not isinstance(poller, PatientPoller):
        return
    make_transport: Callable[..., Any] = port.transport

    def make_stranger(accepted: socket, *arguments: Any) -> Any:
        poller.expect(accepted.fileno())
        return make_transport(accepted, *arguments)  # registers the socket

    port.transport = make_stranger  # type: ignore[assignment]


def let_wait(transport: Any) -> None:
    """Serve this port, or this connection, after those that are no strangers. One that is not read stays as it is."""
    poller = poller_of(getattr(transport, "reactor", None))
    if isinstance(poller, PatientPoller):
        file, events = _watched(transport)
        if events:
            poller.let_wait(file, events)


def wait_no_more(transport: Any) -> None:
    """Serve this connection with those that are no strangers."""
    poller = poller_of(getattr(transport, "reactor", None))
    if isinstance(poller, PatientPoller):
        poller.wait_no_more(*_watched(transport))


def _watched(transport: Any) -> _Event:
    """Return the number of a transport's file, and the events that the reactor waits for."""
    reactor, file = transport.reactor, transport.fileno()
    return file, (_IN if reads(reactor, file) else 0) | (_OUT if writes(reactor, file) else 0)


# Gives memory that was freed back to the system, so that a burst does not raise the broker's memory for good.
#
# How it works. The C library returns memory to the system from the end of the heap only. Say the packets of ten slow
# readers took 8 MB and are freed: one small block behind them that is still in use keeps all of it in the process.
# ``malloc_trim`` of glibc gives back every free page. It takes some tenths of a millisecond, more in a large process.
# So it is called every second at most, rests for a thousand times as long as it took, and for an hour after it took
# longer than :data:`TOO_LONG`.


#: seconds between two calls, where they are quick
FREEING_INTERVAL = 1.0
#: of the time, at most this share is spent
_SHARE = 0.001
#: seconds that nobody may wait for this
TOO_LONG = 0.005
_LONG_REST = 3600.0


def _malloc_trim() -> Callable[[int], int] | None:
    """Return the function of the C library; None if it has none."""
    try:
        function: Callable[[int], int] = ctypes.PyDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    return function


class FreedMemory:
    """The job that gives freed memory back. Without glibc it does nothing.

    ``trim`` and ``elapsed`` stand in for the C library and its time in tests.
    """

    def __init__(
        self,
        clock: IReactorTime,
        trim: Callable[[int], int] | None = None,
        elapsed: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._clock = clock
        self._trim = trim or _malloc_trim()
        self._elapsed = elapsed
        self._due = 0.0
        self._job = PeriodicJob(self._give_back, name="giving memory back", interval=FREEING_INTERVAL, clock=clock)

    def start(self) -> None:
        """Begin."""
        if self._trim is not None:
            self._job.start(FREEING_INTERVAL)

    def stop(self) -> None:
        """Stop."""
        self._job.stop()

    def _give_back(self) -> None:
        now = self._clock.seconds()
        if self._trim is None or now < self._due:
            return
        begun = self._elapsed()
        self._trim(0)
        took = self._elapsed() - begun
        self._due = now + (_LONG_REST if took > TOO_LONG else took / _SHARE)
