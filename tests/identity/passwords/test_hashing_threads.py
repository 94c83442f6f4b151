"""The threads: two at a time, a bounded line, and nobody's work for a client that has gone."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from queue import Queue
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from holdfast.identity.hashes import Busy, HashingThreads
from tests.processes import PATIENCE


class Turns:
    """A reactor whose turns are the test's."""

    def __init__(self) -> None:
        self._calls: Queue[Callable[[], None]] = Queue()

    def callFromThread(self, function: Callable[..., None], *arguments: object) -> None:
        self._calls.put(lambda: function(*arguments))

    def wait_for(self, *answers: Deferred[Any]) -> list[Any]:
        """Take turns until all answers are there; return results and failures."""
        found: dict[int, Any] = {}
        for number, answer in enumerate(answers):
            answer.addBoth(partial(found.__setitem__, number))
        while len(found) < len(answers):
            self._calls.get(timeout=PATIENCE)()
        return [found[number] for number in range(len(answers))]


@pytest.fixture
def turns() -> Turns:
    return Turns()


@pytest.fixture
def threads(turns: Turns) -> Iterator[HashingThreads]:
    made = HashingThreads(turns, threads=2, most_waiting=3)
    yield made
    made.stopService()


def test_beyond_the_line_there_is_no_place_and_later_there_is(threads: HashingThreads, turns: Turns) -> None:
    gate = threading.Event()
    running: list[str] = []

    def work() -> str:
        running.append(threading.current_thread().name)
        gate.wait(60)
        return "done"

    calls = [threads.run(work) for _ in range(5)]
    with pytest.raises(Busy):
        threads.run(work)
    assert threads.pending == 5
    gate.set()
    assert turns.wait_for(*calls) == ["done"] * 5
    assert len(set(running)) <= 2
    assert threads.pending == 0
    assert turns.wait_for(threads.run(lambda: 1)) == [1]


def test_a_call_that_nobody_waits_for_is_skipped(threads: HashingThreads, turns: Turns) -> None:
    gate = threading.Event()
    done: list[int] = []
    calls: list[Deferred[object]] = [threads.run(lambda: gate.wait(60)) for _ in range(2)]
    skipped = threads.run(lambda: done.append(1))
    failed = threads.run(lambda: 1 // 0)
    skipped.cancel()
    gate.set()
    outcomes = turns.wait_for(skipped, failed, *calls)
    assert [one.type for one in outcomes if isinstance(one, Failure)] == [CancelledError, ZeroDivisionError]
    assert not done


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has priorities of threads")
def test_the_reactor_comes_before_the_threads(threads: HashingThreads, turns: Turns) -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)

    def priority() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    assert turns.wait_for(threads.run(priority)) == [own + 10]
    assert os.getpriority(os.PRIO_PROCESS, 0) == own


def test_a_call_leaves_nothing_for_the_garbage_collector(threads: HashingThreads, turns: Turns) -> None:
    """The collector would stop the broker, and 10,000 clients that return to it make 10,000 calls."""
    gc.collect()
    turns.wait_for(*[threads.run(lambda: 1) for _ in range(5)])
    assert gc.collect() == 0


def test_after_the_end_there_are_no_threads_and_no_places() -> None:
    threads = HashingThreads(Turns())
    threads.stopService()
    with pytest.raises(Busy):
        threads.run(lambda: 1)
