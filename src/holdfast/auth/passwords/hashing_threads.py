"""The threads that hash passwords: two, with a short line before them.

How it works. A hash takes long on purpose: 20 ms of a processor and 19 MiB with the default parameters. So it is
computed in threads of its own, without Python's lock, and the reactor serves other clients meanwhile. The threads have
a lower priority than the reactor: where both want the same processor, clients that are connected come first. They do
little besides the hash, since the reactor waits while one of them has Python's lock. At most 200 passwords wait. A
client beyond them is refused as busy, and returns by itself: a longer line would only let all of them wait until their
time for CONNECT is over.

A verified password is remembered (:mod:`holdfast.auth.passwords.verified`), so a client that returns to a running
broker costs no hash.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

T = TypeVar("T")

THREADS = 2
MOST_WAITING = 200

#: added to the priority value of the threads, as by nice(1)
_NICENESS = 10


class Busy(Exception):
    """Too many passwords wait to be hashed."""


class HashingThreads(Service):
    """Runs functions in its threads, in the order of their calls. The threads begin with the first call."""

    def __init__(self, reactor: Any, threads: int = THREADS, most_waiting: int = MOST_WAITING) -> None:
        self._reactor = reactor
        self._count = threads
        self._most = threads + most_waiting
        self._threads: list[threading.Thread] = []
        self._line: SimpleQueue[_Call | None] = SimpleQueue()
        self._stopped = False
        #: calls that run or wait, with those whose caller waits no more and that are not skipped yet
        self.pending = 0

    def run(self, work: Callable[[], T]) -> Deferred[T]:
        """Call a function in a thread; fires with its result. A cancelled call that still waits is skipped.

        Raises Busy.
        """
        if self.pending >= self._most or self._stopped:
            raise Busy(f"{self.pending} passwords wait to be hashed")
        if not self._threads:
            self._begin()
        self.pending += 1
        call = _Call(work)
        self._line.put(call)
        return call.answer

    def stopService(self) -> None:
        """End the threads after their present hash. Nobody waits for the others."""
        Service.stopService(self)
        self._stopped = True
        for _ in self._threads:
            self._line.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _begin(self) -> None:
        for number in range(self._count):
            thread = threading.Thread(target=self._serve, name=f"passwords {number}")
            self._threads.append(thread)
            thread.start()

    def _serve(self) -> None:
        """Work in a thread. What it does with Python's lock is short, since the reactor waits meanwhile."""
        _step_back()
        while (call := self._line.get()) is not None:
            result: Any = None
            if not (call.cancelled or self._stopped):
                try:
                    result = call.work()
                except BaseException:  # noqa: BLE001 - the caller gets it
                    result = Failure()
            self._reactor.callFromThread(self._done, call, result)

    def _done(self, call: _Call, result: object) -> None:
        self.pending -= 1
        if not (call.cancelled or self._stopped):
            call.answer.callback(result)  # a Failure calls the errbacks


class _Call:
    """A function to be called in a thread."""

    __slots__ = ("answer", "cancelled", "work")

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.cancelled = False
        self.answer: Deferred[Any] = Deferred(self._cancel)

    def _cancel(self, _answer: Deferred[Any]) -> None:
        self.cancelled = True


def _step_back() -> None:
    """Lower the priority of this thread. On Linux each thread has its own."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _NICENESS)
