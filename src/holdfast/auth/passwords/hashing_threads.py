"""The threads that hash passwords: two, with a short line before them.

How it works. A hash takes long on purpose: 20 ms of a processor and 19 MiB with the default parameters. So it is
computed in threads of its own, without Python's lock, and the reactor serves other clients meanwhile. The threads have
a lower priority than the reactor: where both want the same processor, clients that are connected come first. At most
200 passwords wait. A client beyond them is refused as busy, and returns by itself: a longer line would only let all of
them wait until their time for CONNECT is over.

A verified password is remembered (:mod:`holdfast.auth.passwords.verified`), so a client that returns to a running
broker costs no hash.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool

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
        self._most = threads + most_waiting
        self._pool = ThreadPool(minthreads=0, maxthreads=threads, name="passwords")
        self._own = threading.local()
        self._stopped = False
        #: calls that run or wait, with those whose caller waits no more and that are not skipped yet
        self.pending = 0

    def run(self, work: Callable[[], T]) -> Deferred[T]:
        """Call a function in a thread; fires with its result. A cancelled call that still waits is skipped.

        Raises Busy.
        """
        if self.pending >= self._most or self._stopped:
            raise Busy(f"{self.pending} passwords wait to be hashed")
        if not self._pool.started:
            self._pool.start()
        self.pending += 1
        cancelled = threading.Event()
        answer: Deferred[T] = Deferred(lambda _: cancelled.set())
        self._pool.callInThread(self._work, work, cancelled, answer)
        return answer

    def stopService(self) -> None:
        """End the threads after their present hash. Nobody waits for the others."""
        Service.stopService(self)
        self._stopped = True
        if self._pool.started:
            self._pool.stop()

    def _work(self, work: Callable[[], T], cancelled: threading.Event, answer: Deferred[T]) -> None:
        """Work in a thread, and hand the result to the reactor."""
        self._step_back()
        result: T | Failure | None = None
        if not (cancelled.is_set() or self._stopped):
            try:
                result = work()
            except BaseException:  # noqa: BLE001 - the caller gets it
                result = Failure()
        self._reactor.callFromThread(self._done, result, cancelled, answer)

    def _done(self, result: T | Failure, cancelled: threading.Event, answer: Deferred[T]) -> None:
        self.pending -= 1
        if not (cancelled.is_set() or self._stopped):
            answer.callback(result)  # a Failure calls the errbacks

    def _step_back(self) -> None:
        """Lower the priority of this thread, once. On Linux each thread has its own."""
        if not getattr(self._own, "stepped_back", False):
            self._own.stepped_back = True
            if sys.platform == "linux":
                thread = threading.get_native_id()
                os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _NICENESS)
