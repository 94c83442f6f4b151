"""Bridges: how blocking work gets out of the reactor thread, and its answer back in."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from twisted.internet.interfaces import IReactorFromThreads
from zope.interface import Attribute, Interface, implementer

T = TypeVar("T")
Job = tuple[Callable[[], Any], Callable[[Any], None]]


class IExecutor(Interface):
    """Runs work one after the other, in the order given, away from the reactor thread."""

    waits_for_turn = Attribute("Whether an idle writer waits for the end of the reactor turn before it begins.")

    def call(work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Run ``work``; then, in the reactor thread, call ``done`` with what it returned or raised."""

    def stop() -> None:
        """Release what the executor holds, once the work given to it is done."""


def _outcome(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to the caller in the other thread
        return error


@implementer(IExecutor)
class ThreadExecutor:
    """One thread of its own, started by the first call (a process that forks to the background does so before)."""

    waits_for_turn = True

    def __init__(self, reactor: IReactorFromThreads, name: str = "holdfast-writer") -> None:
        self._reactor = reactor
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._name = name
        self._thread: Thread | None = None

    def call(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Queue the work for the thread."""
        if self._thread is None:
            # Where a start fails after this, nobody is left to stop it, and the process is to end all the same.
            self._thread = Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put((work, done))

    def stop(self) -> None:
        """Finish the work queued so far, end the thread and wait for it; a later call starts a new one."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, done = job
            self._reactor.callFromThread(done, _outcome(work))


@implementer(IExecutor)
class SynchronousExecutor:
    """For tools and tests: runs work in the calling thread, at once or, in manual mode, when the test says so."""

    def __init__(self, manual: bool = False, waits_for_turn: bool = False) -> None:
        self.manual = manual
        self.waits_for_turn = waits_for_turn
        self.waiting: deque[Job] = deque()

    def call(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Run the work, or keep it for :meth:`step`."""
        self.waiting.append((work, done))
        if not self.manual:
            self.step()

    def stop(self) -> None:
        """Run what still waits."""
        while self.waiting:
            self.step()

    def step(self) -> None:
        """Run the oldest work that waits, and hand over its answer. Raises IndexError when none does."""
        work, done = self.waiting.popleft()
        done(_outcome(work))
