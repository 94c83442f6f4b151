"""Executors run blocking work outside the reactor thread and bring the answers back into it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from twisted.internet.interfaces import IReactorFromThreads
from zope.interface import Attribute, Interface, implementer

T = TypeVar("T")
Job = tuple[Callable[[], Any], Callable[[Any], None], Callable[[], None]]


def _do_nothing() -> None:
    """Do nothing: most work needs nothing afterwards."""


class IExecutor(Interface):
    """Runs work in the given order, one piece at a time."""

    waits_for_turn = Attribute("Whether an idle writer waits for the end of the reactor turn before it commits.")

    def call(
        work: Callable[[], T], done: Callable[[T | BaseException], None], afterwards: Callable[[], None] = _do_nothing
    ) -> None:
        """Run ``work``; then call ``done`` in the reactor thread with its result or exception.

        Run ``afterwards``, which raises nothing, before the next work. ``done`` does not wait for it.
        """

    def stop() -> None:
        """Wait for the work given so far, then end the thread."""


def _outcome(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except BaseException as error:  # noqa: BLE001 - the caller in the other thread handles it
        return error


@implementer(IExecutor)
class ThreadExecutor:
    """A thread of its own. The first call starts it, after the fork of a process that goes to the background."""

    waits_for_turn = True

    def __init__(self, reactor: IReactorFromThreads, name: str = "holdfast-writer") -> None:
        self._reactor = reactor
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._name = name
        self._thread: Thread | None = None

    def call(
        self,
        work: Callable[[], T],
        done: Callable[[T | BaseException], None],
        afterwards: Callable[[], None] = _do_nothing,
    ) -> None:
        """Queue the work for the thread."""
        if self._thread is None:
            # A daemon thread does not keep the process from ending: if the start of the broker fails later, nothing
            # stops this thread.
            thread = Thread(target=self._run, name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # no thread is left: the work fails, and the next call tries again
                self._reactor.callFromThread(done, error)
                return
            self._thread = thread
        self._jobs.put((work, done, afterwards))

    def stop(self) -> None:
        """Wait until the queued work is done and the thread has ended. A later call starts a new thread."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, done, afterwards = job
            self._reactor.callFromThread(done, _outcome(work))
            afterwards()


@implementer(IExecutor)
class SynchronousExecutor:
    """For tools and tests: runs work in the calling thread, at once or, in manual mode, at each :meth:`step`."""

    def __init__(self, manual: bool = False, waits_for_turn: bool = False) -> None:
        self.manual = manual
        self.waits_for_turn = waits_for_turn
        self.waiting: deque[Job] = deque()

    def call(
        self,
        work: Callable[[], T],
        done: Callable[[T | BaseException], None],
        afterwards: Callable[[], None] = _do_nothing,
    ) -> None:
        """Run the work, or keep it for :meth:`step`."""
        self.waiting.append((work, done, afterwards))
        if not self.manual:
            self.step()

    def stop(self) -> None:
        """Run the waiting work."""
        while self.waiting:
            self.step()

    def step(self) -> None:
        """Run the oldest waiting work and hand over its answer. Raises IndexError if no work waits."""
        work, done, afterwards = self.waiting.popleft()
        outcome = _outcome(work)
        afterwards()  # before ``done``, which may begin other work in this thread
        done(outcome)
