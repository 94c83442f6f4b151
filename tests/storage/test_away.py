"""While the database is away, nothing is lost or refused and memory stays bounded; afterwards work goes on."""

from __future__ import annotations

import sqlite3
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.tickets import FailureKind, StorageFailure
from holdfast.storage.committer import Write
from holdfast.storage.driver import Connection
from holdfast.storage.executor import SynchronousExecutor
from holdfast.storage.readers import ThreadedReaders
from holdfast.storage.sqlite import SQLiteDatabase
from tests.sessions.restartable import RestartableBroker
from tests.storage.doubles import Faults, InjectedError, fresh_file, result_of
from tests.storage.writing.test_writer import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(fresh_file(tmp_path))


def test_changes_wait_and_are_acknowledged_when_they_are_stored(desk: Desk) -> None:
    """No ticket is settled before its commit, and the order is kept."""
    settled: list[str] = []
    desk.faults.away = True
    for key in "abc":
        desk.submit(key).when_settled(partial(_note, settled, key))
        desk.clock.advance(0)
    assert settled == []
    assert not desk.writer.available
    desk.clock.advance(1)
    assert settled == []
    desk.faults.away = False
    desk.clock.advance(5)
    assert settled == ["a None", "b None", "c None"]
    assert desk.stored() == {"a": "v", "b": "v", "c": "v"}
    assert desk.writer.available


def test_attempts_become_rarer_but_never_cease(desk: Desk) -> None:
    """The retries come after 0.1, 0.2, 0.4 s and so on, at most 5 s apart."""
    desk.faults.away = True
    desk.submit("a")
    delays = []
    for _ in range(9):
        (call,) = desk.clock.getDelayedCalls()
        delays.append(round(call.getTime() - desk.clock.seconds(), 3))
        desk.clock.advance(delays[-1])
    assert delays == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5]


def test_newer_values_take_the_place_of_waiting_ones(desk: Desk) -> None:
    """A thousand changes of one key wait as one write; all of them are acknowledged."""
    desk.faults.away = True
    tickets = [desk.submit("a", f"v{number}") for number in range(1000)]
    assert desk.writer.pending_bytes <= 2
    desk.faults.away = False
    desk.clock.advance(5)
    assert all(ticket.settled and ticket.failure is None for ticket in tickets)
    assert desk.stored() == {"a": "v999"}
    assert desk.writer.pending_bytes == 0


def test_publishers_are_paused_when_too_much_waits_and_go_on_after(desk: Desk) -> None:
    pressure: list[bool] = []
    desk.writer.on_pressure(pressure.append)
    desk.faults.away = True
    for number in range(11):
        desk.submit(f"k{number}", size=100)
    assert pressure == [True]
    desk.faults.away = False
    desk.clock.advance(5)
    assert pressure == [True, False]


def test_an_enqueue_whose_commit_is_unknown_does_not_cancel_out(desk: Desk) -> None:
    """A row that the unknown commit may have stored is deleted in the database, not only in the pending group."""
    desk.submit("a")
    desk.clock.advance(0)
    desk.faults.away = True
    desk.writer.submit(Write(desk.notes, "b", "v", 1, 0, True))
    desk.writer.add(Write(desk.notes, "b", None, 1))
    assert desk.writer.counters.cancelled == 0
    desk.faults.away = False
    desk.clock.advance(5)
    assert desk.stored() == {"a": "v"}


def test_closing_makes_one_last_attempt_and_then_reports_the_loss(desk: Desk) -> None:
    """A stop does not wait for a database that may never come back."""
    desk.faults.away = True
    ticket = desk.submit("a")
    closed = desk.writer.close()
    assert ticket.settled
    assert ticket.failure is not None
    assert ticket.failure.kind is FailureKind.UNAVAILABLE
    closed.addErrback(lambda _: None)  # nor can the files be brought in order


def test_closing_stores_the_waiting_changes_if_the_database_is_back(desk: Desk) -> None:
    desk.faults.away = True
    ticket = desk.submit("a")
    desk.faults.away = False
    result_of(desk.writer.close())
    assert ticket.failure is None
    assert desk.stored() == {"a": "v"}


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["set", "delete", "away", "back", "wait"])), max_size=40)
)
def test_whenever_it_goes_away_the_last_accepted_value_is_stored(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str]]
) -> None:
    """In any order of outages and changes, every change is acknowledged and the last one of each key wins."""
    desk = Desk(fresh_file(tmp_path_factory.mktemp("away")))
    kept: dict[str, str] = {}
    tickets = []
    for number, (key, step) in enumerate(steps):
        if step == "set":
            kept[key] = f"v{number}"
            tickets.append(desk.submit(key, kept[key]))
        elif step == "delete":
            kept.pop(key, None)
            tickets.append(desk.submit(key, None))
        elif step == "wait":
            desk.clock.advance(0.3)
        else:
            desk.faults.away = step == "away"
    desk.faults.away = False
    desk.clock.advance(10)
    assert all(ticket.settled and ticket.failure is None for ticket in tickets)
    assert desk.stored() == kept
    assert desk.writer.pending_bytes == 0


class AwayDatabase(SQLiteDatabase):
    """A database whose readers fail while it is away."""

    faults = Faults()

    def is_away(self, error: BaseException) -> bool:
        return self.faults.away

    def connect_reader(self) -> sqlite3.Connection:
        if self.faults.away:
            raise InjectedError
        return super().connect_reader()


def _note(settled: list[str], key: str, failure: StorageFailure | None) -> None:
    settled.append(f"{key} {failure}")


def _number(number: int, _connection: Connection) -> int:
    return number


@pytest.mark.parametrize("first", [None, 3])
@pytest.mark.parametrize("patience", [None, 3])
def test_reads_wait_too(desk: Desk, first: float | None, patience: float | None) -> None:
    """When the database is back, reads run in order. With limited patience, they fail after it. It may change."""
    database = AwayDatabase(desk.path, desk.database.durability)
    database.faults = Faults(away=True)
    readers = ThreadedReaders(database, [SynchronousExecutor(), SynchronousExecutor()], desk.clock, first)
    answers: list[object] = []
    for number in range(5):
        readers.read(partial(_number, number)).addBoth(answers.append)
    given_up = readers.read(partial(_number, 99))
    given_up.addErrback(lambda _: None)
    given_up.cancel()
    desk.clock.pump([0.5] * 4)
    assert answers == []
    assert not readers.available
    readers.patience = patience
    if patience is None:
        database.faults.away = False
    desk.clock.pump([0.5] * 4)
    if patience is None:
        assert answers == [0, 1, 2, 3, 4]
        assert readers.available
    else:
        assert [getattr(answer, "type", None) for answer in answers] == [StorageFailure] * 5
    readers.close()


@pytest.mark.parametrize("patience", [None, 3])
def test_the_end_of_an_outage_is_noticed_even_if_nobody_reads(desk: Desk, patience: float | None) -> None:
    """What is refused while the database is known to be away is not refused for ever."""
    database = AwayDatabase(desk.path, desk.database.durability)
    database.faults = Faults(away=True)
    readers = ThreadedReaders(database, [SynchronousExecutor()], desk.clock, patience)
    asked = readers.read(partial(_number, 1))
    asked.addErrback(lambda _: None)
    desk.clock.pump([0.5] * 20)
    asked.cancel()
    desk.clock.pump([0.5] * 20)
    assert not readers.available
    database.faults.away = False
    desk.clock.advance(0.5)
    assert readers.available
    assert desk.clock.getDelayedCalls() == []
    readers.close()


def test_closed_readers_begin_no_thread_again(desk: Desk) -> None:
    """Neither for the close, if they were never used, nor for a caller that goes on after it."""
    executors = [SynchronousExecutor(manual=True) for _ in range(2)]
    unused, used = (ThreadedReaders(desk.database, [executor], desk.clock) for executor in executors)
    unused.close()
    assert not executors[0].waiting
    answers: list[object] = []
    used.read(partial(_number, 1)).addCallback(lambda _: used.read(partial(_number, 2)).addCallback(answers.append))
    used.close()
    assert answers == []
    assert not executors[1].waiting


def test_a_connection_that_was_used_is_used_again(desk: Desk) -> None:
    """A single read uses the reader that is connected already."""
    executors = [SynchronousExecutor(manual=True) for _ in range(3)]
    readers = ThreadedReaders(desk.database, [*executors], desk.clock)
    used: list[Connection] = []
    for _ in range(3):
        readers.read(used.append)
        (asked,) = (executor for executor in executors if executor.waiting)
        asked.step()
    assert len(set(map(id, used))) == 1
    for executor in executors:
        executor.manual = False
    readers.close()


def test_another_patience_reaches_the_readers_of_an_open_store(tmp_path: Path) -> None:
    """A reload of ``retainer.when_unavailable`` changes it."""
    broker = RestartableBroker(fresh_file(tmp_path))
    for patience in (3.0, None):
        broker.durable.change_patience(patience)
        scanners = broker.parts.scanners
        assert isinstance(scanners, ThreadedReaders)
        assert scanners.patience == patience
    broker.stop()
