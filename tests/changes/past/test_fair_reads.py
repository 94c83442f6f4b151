"""Replays of the past read one after the other, and their Clients take turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from holdfast.changes.past import FairReads
from holdfast.storage.driver import Cursor
from tests.storage.doubles import result_of


class Thread:
    """The thread of long reads: the test says when it has done a read."""

    def __init__(self) -> None:
        self.work: list[tuple[Callable[[Any], Any], Deferred[Any]]] = []
        self.reads = FairReads(self._read)
        self.answers: list[Any] = []

    def ask(self, client_id: str, key: str) -> Deferred[Any]:
        """Ask for a read that answers with its key."""
        answer = self.reads.read(client_id, key, lambda _: key)
        answer.addBoth(self.answers.append)
        return answer

    def done(self) -> None:
        """Do the one read that the thread has."""
        ((work, answer),) = self.work
        self.work.clear()
        try:
            found = work(None)
        except ArithmeticError:
            answer.errback(Failure())
        else:
            answer.callback(found)

    def _read(self, work: Callable[[Cursor], Any]) -> Deferred[Any]:
        answer: Deferred[Any] = Deferred()
        self.work.append((work, answer))
        return answer


@pytest.fixture
def thread() -> Thread:
    return Thread()


def test_clients_take_turns(thread: Thread) -> None:
    """A Client with many reads gets one, then another Client has its turn; the thread has one read at a time."""
    for key in "abcd":
        thread.ask("c1", key)
    for key in "xy":
        thread.ask("c2", key)
    thread.ask("c3", "z")
    for _ in range(7):
        thread.done()
    assert thread.answers == ["a", "b", "x", "z", "c", "y", "d"]
    assert not thread.reads
    assert thread.work == []


def test_newer_read_with_the_same_key_replaces_a_waiting_one(thread: Thread) -> None:
    """So a Client that comes back again and again leaves no more reads than it has keys."""
    thread.ask("c1", "under way")
    for _ in range(1000):
        thread.ask("c1", "a")
        thread.ask("c1", "under way")
    assert len(thread.reads) == 2
    assert len(thread.answers) == 2 * 999
    assert all(answer.check(CancelledError) for answer in thread.answers)
    thread.answers.clear()
    for _ in range(3):
        thread.done()
    assert thread.answers == ["under way", "a", "under way"]


def test_failure_reaches_its_caller_only(thread: Thread) -> None:
    """The next read follows a read that failed."""
    failed = thread.reads.read("c1", "a", lambda _: 1 // 0)
    thread.ask("c1", "b")
    thread.done()
    with pytest.raises(ZeroDivisionError):
        result_of(failed)
    thread.done()
    assert thread.answers == ["b"]
