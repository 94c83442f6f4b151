"""Executors run work in order and bring its outcome back."""

from __future__ import annotations

from functools import partial
from queue import SimpleQueue
from threading import Event, Thread, current_thread
from typing import Any, cast

import pytest
from twisted.internet.interfaces import IReactorFromThreads
from zope.interface.verify import verifyObject

from holdfast.storage.executor import IExecutor, SynchronousExecutor, ThreadExecutor
from tests.processes import PATIENCE


class Turns:
    """A reactor for tests: calls from a thread wait here."""

    def __init__(self) -> None:
        self.calls: SimpleQueue[tuple[Any, ...]] = SimpleQueue()

    def callFromThread(self, *call: Any) -> None:
        self.calls.put(call)

    def turn(self) -> None:
        function, *arguments = self.calls.get(timeout=PATIENCE)
        function(*arguments)


def test_a_thread_does_the_work_in_order_and_the_reactor_thread_hears_of_it() -> None:
    turns = Turns()
    executor = ThreadExecutor(cast(IReactorFromThreads, turns))
    verifyObject(IExecutor, executor)
    workers: list[Any] = []
    outcomes: list[tuple[Any, Any]] = []

    def work(number: int) -> int:
        workers.append(current_thread())
        return number

    for number in range(5):
        executor.call(partial(work, number), lambda done: outcomes.append((done, current_thread())))
    for _ in range(5):
        turns.turn()
    executor.stop()
    assert [done for done, _ in outcomes] == [0, 1, 2, 3, 4]
    assert {thread for _, thread in outcomes} == {current_thread()}
    assert len(set(workers)) == 1
    assert workers[0] is not current_thread()
    assert workers[0].daemon  # a start that fails after it began must not be kept from ending the process
    assert not workers[0].is_alive()


def test_an_exception_of_the_work_is_its_outcome_and_the_thread_goes_on() -> None:
    turns = Turns()
    executor = ThreadExecutor(cast(IReactorFromThreads, turns))
    outcomes: list[Any] = []
    executor.call(lambda: 1 // 0, outcomes.append)
    executor.call(lambda: "fine", outcomes.append)
    turns.turn()
    turns.turn()
    executor.stop()
    assert isinstance(outcomes[0], ZeroDivisionError)
    assert outcomes[1] == "fine"


def test_a_stopped_executor_has_done_its_work_and_may_be_used_again() -> None:
    turns = Turns()
    executor = ThreadExecutor(cast(IReactorFromThreads, turns))
    executor.stop()
    done: list[int] = []
    for number in range(3):
        executor.call(partial(done.append, number), lambda _: None)
    executor.stop()
    assert done == [0, 1, 2]
    executor.call(lambda: done.append(3), lambda _: None)
    executor.stop()
    assert done == [0, 1, 2, 3]


def test_the_outcome_does_not_wait_for_the_work_afterwards_and_the_next_work_does() -> None:
    turns = Turns()
    executor = ThreadExecutor(cast(IReactorFromThreads, turns))
    begun, ended = Event(), Event()
    seen: list[Any] = []

    def afterwards() -> None:
        begun.set()
        assert ended.wait(PATIENCE)
        seen.append("afterwards")

    executor.call(lambda: "work", seen.append, afterwards)
    executor.call(lambda: seen.append("next work"), lambda _: None)
    turns.turn()
    assert begun.wait(PATIENCE)
    assert seen == ["work"]
    ended.set()
    executor.stop()
    assert seen == ["work", "afterwards", "next work"]


def test_work_afterwards_comes_before_work_that_the_outcome_begins() -> None:
    executor = SynchronousExecutor()
    seen: list[str] = []
    executor.call(
        lambda: None,
        lambda _: executor.call(lambda: seen.append("next work"), lambda _: None),
        lambda: seen.append("afterwards"),
    )
    assert seen == ["afterwards", "next work"]


def test_the_synchronous_executor_works_at_once() -> None:
    executor = SynchronousExecutor()
    verifyObject(IExecutor, executor)
    outcomes: list[Any] = []
    executor.call(lambda: 7, outcomes.append)
    executor.call(lambda: 1 // 0, outcomes.append)
    assert outcomes[0] == 7
    assert isinstance(outcomes[1], ZeroDivisionError)


def test_in_manual_mode_work_waits_for_its_step() -> None:
    executor = SynchronousExecutor(manual=True)
    outcomes: list[Any] = []
    for number in range(3):
        executor.call(partial(int, number), outcomes.append)
    assert outcomes == []
    executor.step()
    assert outcomes == [0]
    executor.stop()
    assert outcomes == [0, 1, 2]
    with pytest.raises(IndexError):
        executor.step()


def test_a_thread_that_cannot_be_started_is_an_outcome_and_the_next_call_tries_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = Turns()
    executor = ThreadExecutor(cast(IReactorFromThreads, turns))
    outcomes: list[Any] = []

    def start(_thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(Thread, "start", start)
        executor.call(lambda: 1, outcomes.append)
    executor.call(lambda: 2, outcomes.append)
    turns.turn()
    turns.turn()
    executor.stop()
    assert [str(outcome) for outcome in outcomes] == ["can't start new thread", "2"]
