"""The writer acknowledges a change exactly if it is stored, and refuses exactly the bad rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.logger import ILogObserver, LogEvent, globalLogPublisher
from zope.interface import implementer

from holdfast.core.tickets import COMMITTED, CommitTicket, FailureKind, RunTicket, StorageFailure
from holdfast.storage.committer import MARK_AHEAD, IWriteKind, Write
from holdfast.storage.driver import Connection, Cursor
from holdfast.storage.executor import SynchronousExecutor
from holdfast.storage.revisions import RevisionClock
from holdfast.storage.writer import Writer
from tests.storage.doubles import Faults, FaultyDatabase, InjectedError, Wall, fresh_file, result_of

POISON = "poison"


@implementer(IWriteKind)
class Notes:
    """A kind for tests: one table of keys and values, which refuses the value ``poison``."""

    def __init__(self, name: str = "notes", order: int = 1) -> None:
        self.name = name
        self.order = order
        self.applied: list[list[str]] = []
        self.accounts: list[int] = []
        self.told: list[str] = []
        self.order_of_application: list[str] = []

    def apply(self, cursor: Cursor, writes: Sequence[Write]) -> int:
        self.applied.append([str(write.key) for write in writes])
        self.order_of_application.append(self.name)
        for write in writes:
            if write.row is None:
                cursor.execute(
                    f"DELETE FROM {self.name} WHERE rowid IN (SELECT rowid FROM {self.name} WHERE key = ?)",
                    (write.key,),
                )
            else:
                cursor.execute(f"INSERT OR REPLACE INTO {self.name} VALUES (?, ?)", (write.key, write.row))
        return len(writes)

    def committed(self, account: Any) -> None:
        self.accounts.append(account)

    def failed(self, writes: Sequence[Write], failure: StorageFailure) -> None:
        self.told += [f"{write.key} {failure.kind.value}" for write in writes]


@define(eq=False)
class Desk:
    """A writer over a real file, with faults that a test can order."""

    path: Path
    manual: bool = False
    max_pending: int = 1000
    flush_interval: float | None = None
    waits_for_turn: bool = False
    turn_ends: list[Callable[[], None]] = field(factory=list)
    faults: Faults = field(factory=Faults)
    clock: Clock = field(factory=Clock)
    notes: Notes = field(factory=Notes)
    database: FaultyDatabase = field(init=False)
    executor: SynchronousExecutor = field(init=False)
    revisions: RevisionClock = field(init=False)
    writer: Writer = field(init=False)

    def __attrs_post_init__(self) -> None:
        connection = sqlite3.connect(self.path, isolation_level=None)
        for table in ("notes", "others"):
            connection.execute(f"CREATE TABLE IF NOT EXISTS {table} (key PRIMARY KEY, value CHECK (value <> 'poison'))")
        connection.close()
        self.database = FaultyDatabase(self.path, self.faults)
        self.executor = SynchronousExecutor(self.manual)
        self.revisions = RevisionClock(1, 0, Wall(1000))
        self.writer = Writer(
            self.database,
            self.executor,
            self.revisions,
            self.clock,
            max_pending=self.max_pending,
            flush_interval=self.flush_interval,
            at_turn_end=self.turn_ends.append if self.waits_for_turn else None,
        )

    def submit(
        self, key: str, value: Any = "v", size: int = 1, rank: int = 0, kind: Notes | None = None
    ) -> CommitTicket:
        return self.writer.submit(Write(kind or self.notes, key, value, size, rank))

    def end_turn(self) -> None:
        """Call the functions that wait for the end of the reactor turn."""
        while self.turn_ends:
            self.turn_ends.pop(0)()

    def stored(self, table: str = "notes") -> dict[str, Any]:
        connection = sqlite3.connect(self.path)
        try:
            return dict(connection.execute(f"SELECT key, value FROM {table}").fetchall())
        finally:
            connection.close()

    def mark(self) -> int:
        connection = sqlite3.connect(self.path)
        try:
            return int(connection.execute("SELECT max(revision_mark) FROM nodes").fetchone()[0])
        finally:
            connection.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return fresh_file(tmp_path)


@pytest.fixture
def errors() -> Iterator[list[LogEvent]]:
    """The errors logged so far."""
    events: list[LogEvent] = []

    def observe(event: LogEvent) -> None:
        if event["log_level"].name in ("error", "critical"):
            events.append(event)

    observer = cast(ILogObserver, observe)
    globalLogPublisher.addObserver(observer)
    yield events
    globalLogPublisher.removeObserver(observer)


def kinds(tickets: Sequence[CommitTicket]) -> list[FailureKind | None]:
    """Return the failure kinds of tickets, which must all be settled."""
    assert all(ticket.settled for ticket in tickets)
    return [None if ticket.failure is None else ticket.failure.kind for ticket in tickets]


# --- group commit ---------------------------------------------------------------------------------------------------


def test_a_commit_group_has_all_changes_submitted_during_the_commit_before(path: Path) -> None:
    desk = Desk(path, manual=True)
    for key in "abcde":
        desk.submit(key)
    assert len(desk.executor.waiting) == 1
    desk.executor.step()
    desk.submit("f")
    desk.submit("g")
    desk.executor.stop()
    assert desk.notes.applied == [["a"], ["b", "c", "d", "e"], ["f", "g"]]
    assert desk.writer.counters.commits == len(desk.notes.applied)
    assert desk.writer.counters.rows == 7
    assert desk.notes.accounts == [len(keys) for keys in desk.notes.applied]


def test_the_database_is_maintained_after_each_commit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Maintenance is outside the transaction: another connection sees the change."""
    desk = Desk(path)
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(desk.database, "maintain", lambda _: seen.append(desk.stored()))
    desk.submit("a")
    desk.submit("b")
    result_of(desk.writer.close())
    assert seen == [{"a": "v"}, {"a": "v", "b": "v"}]


def test_a_ticket_is_settled_after_its_commit_and_not_before(path: Path) -> None:
    desk = Desk(path, manual=True)
    ticket = desk.submit("a", "value")
    assert not ticket.settled
    seen: list[dict[str, Any]] = []
    ticket.when_settled(lambda failure: seen.append(desk.stored()))
    desk.executor.step()
    assert seen == [{"a": "value"}]


@pytest.mark.parametrize("manual", [False, True])
def test_tickets_are_settled_in_order_of_submission(path: Path, manual: bool) -> None:
    desk = Desk(path, manual)
    submitted: list[str] = []
    settled: list[str] = []

    def follow(key: str, depth: int = 0) -> None:
        def done(_failure: StorageFailure | None) -> None:
            settled.append(key)
            if depth < 2:
                follow(f"{key}1", depth + 1)
                follow(f"{key}2", depth + 1)

        submitted.append(key)
        desk.submit(key).when_settled(done)

    for key in "abc":
        follow(key)
    desk.executor.stop()
    assert settled == submitted
    assert len(settled) == 21


def test_the_next_commit_runs_while_tickets_are_settled(path: Path) -> None:
    desk = Desk(path, manual=True)
    waiting: list[int] = []
    desk.submit("a").when_settled(lambda _failure: waiting.append(len(desk.executor.waiting)))
    desk.submit("b")
    desk.executor.step()
    assert waiting == [1]


def test_the_last_write_of_a_key_wins_and_every_ticket_is_settled_with_it(path: Path) -> None:
    desk = Desk(path, manual=True)
    desk.submit("first")
    tickets = [desk.submit("a", value) for value in ("1", "2", "3")]
    desk.executor.stop()
    assert kinds(tickets) == [None, None, None]
    assert desk.stored()["a"] == "3"
    assert desk.writer.counters.coalesced == 2
    assert desk.writer.counters.rows == 2


def test_a_write_of_lower_rank_does_not_replace_one_of_higher_rank(path: Path) -> None:
    desk = Desk(path, manual=True)
    desk.submit("first")
    tickets = [desk.submit("a", "high", rank=2), desk.submit("a", "low", rank=1)]
    desk.executor.stop()
    assert kinds(tickets) == [None, None]
    assert desk.stored()["a"] == "high"


def test_the_same_key_of_two_kinds_is_two_writes_and_kinds_are_applied_in_their_order(path: Path) -> None:
    desk = Desk(path, manual=True)
    order: list[str] = []
    others = Notes("others", order=0)
    others.order_of_application = desk.notes.order_of_application = order
    desk.submit("first")
    desk.submit("a", "note")
    desk.submit("a", "other", kind=others)
    desk.executor.stop()
    assert (desk.stored()["a"], desk.stored("others")["a"]) == ("note", "other")
    assert order == ["notes", "others", "notes"]


def test_each_commit_leaves_a_mark_that_is_not_below_the_highest_revision_stamped(path: Path) -> None:
    desk = Desk(path)
    highest = desk.revisions.next_revision()
    desk.submit("a")
    first = desk.mark()
    assert first == highest + MARK_AHEAD
    desk.revisions.observe(first - 256)
    desk.submit("b")
    assert desk.mark() == first
    desk.revisions.observe(first)
    desk.submit("c")
    assert desk.mark() == first
    highest = desk.revisions.next_revision()
    desk.submit("d")
    assert desk.mark() == highest + MARK_AHEAD


def test_most_commits_do_not_write_the_mark(path: Path) -> None:
    desk = Desk(path)
    desk.submit("first")
    before = desk.faults.calls
    desk.submit("a")
    assert desk.faults.calls - before == 3  # BEGIN, the row, COMMIT


def test_a_mark_that_was_rolled_back_is_written_by_the_next_commit(path: Path) -> None:
    desk = Desk(path)
    highest = desk.revisions.next_revision()
    assert kinds([desk.submit("a", POISON)]) == [FailureKind.REFUSED]
    assert not desk.mark()
    desk.submit("b")
    assert desk.mark() == highest + MARK_AHEAD


def test_a_new_connection_writes_the_mark_again(path: Path) -> None:
    desk = Desk(path)
    highest = desk.revisions.next_revision()
    desk.submit("a")
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("UPDATE nodes SET revision_mark = 0")  # as on a server that has not the last commits
    connection.close()
    desk.faults.also_rollback = True
    desk.submit("b", POISON)
    desk.submit("c")
    assert desk.database.opened == 2
    assert desk.mark() == highest + MARK_AHEAD


# --- the end of a turn ----------------------------------------------------------------------------------------------


def test_an_idle_writer_commits_at_the_end_of_the_turn(path: Path) -> None:
    """All changes of the turn are one commit group."""
    desk = Desk(path, waits_for_turn=True)
    tickets = [desk.submit(key) for key in "abc"]
    assert desk.notes.applied == []
    desk.end_turn()
    assert desk.notes.applied == [["a", "b", "c"]]
    assert kinds(tickets) == [None, None, None]
    assert desk.turn_ends == []


def test_a_busy_writer_does_not_wait_for_the_end_of_the_turn(path: Path) -> None:
    """Changes during a commit are committed right after it."""
    desk = Desk(path, manual=True, waits_for_turn=True)
    desk.submit("a")
    desk.end_turn()
    desk.submit("b")
    assert desk.turn_ends == []
    desk.executor.stop()
    assert desk.notes.applied == [["a"], ["b"]]


def test_an_errand_does_not_wait_for_the_end_of_the_turn(path: Path) -> None:
    """The changes before it are committed first; the end of the turn then begins nothing."""
    desk = Desk(path, waits_for_turn=True)
    desk.submit("a")
    assert result_of(desk.writer.run(lambda connection: desk.stored())) == {"a": "v"}
    desk.end_turn()
    assert desk.notes.applied == [["a"]]


def test_async_a_change_with_a_waiting_client_ends_the_flush_interval(path: Path) -> None:
    """Under pressure the commit begins at the end of the turn, and the timer is cancelled."""
    desk = Desk(path, max_pending=10, flush_interval=2.0, waits_for_turn=True)
    desk.submit("a")
    desk.end_turn()
    assert len(desk.clock.getDelayedCalls()) == 1
    desk.submit("b", size=11)
    desk.end_turn()
    assert set(desk.stored()) == {"a", "b"}
    assert desk.clock.getDelayedCalls() == []


def test_changes_submitted_while_tickets_are_settled_share_a_commit(path: Path) -> None:
    desk = Desk(path, manual=True)

    def submit_two(_failure: StorageFailure | None) -> None:
        desk.submit("b")
        desk.submit("c")

    desk.submit("a").when_settled(submit_two)
    desk.executor.stop()
    assert desk.notes.applied == [["a"], ["b", "c"]]


# --- flushed, run, close --------------------------------------------------------------------------------------------


def test_an_idle_writer_is_flushed(path: Path) -> None:
    assert Desk(path).writer.flushed() is COMMITTED


def test_flushed_waits_for_all_before_it_and_for_nothing_after(path: Path) -> None:
    desk = Desk(path, manual=True)
    running = desk.submit("a")
    during = desk.writer.flushed()
    pending = desk.submit("b")
    flushed = desk.writer.flushed()
    desk.executor.step()
    assert [ticket.settled for ticket in (running, during, pending, flushed)] == [True, True, False, False]
    desk.submit("c", POISON)
    desk.executor.step()
    assert [ticket.settled for ticket in (pending, flushed)] == [True, True]
    desk.executor.stop()


def test_flushed_is_no_failure_when_an_earlier_change_fails(path: Path) -> None:
    desk = Desk(path, manual=True)
    ticket = desk.submit("a", POISON)
    flushed = desk.writer.flushed()
    desk.executor.stop()
    assert kinds([ticket, flushed]) == [FailureKind.REFUSED, None]


def test_work_runs_in_a_transaction_of_its_own_after_all_earlier_changes(path: Path) -> None:
    desk = Desk(path, manual=True)
    desk.submit("a", "1")
    desk.submit("a", "2")

    def work(connection: Connection) -> Any:
        cursor = connection.cursor()
        cursor.execute("SELECT value FROM notes WHERE key = 'a'")
        value = cursor.fetchone()[0]
        cursor.execute("UPDATE notes SET value = 'worked'")
        return value

    answer = desk.writer.run(work)
    after = desk.submit("b", "3")
    desk.executor.stop()
    assert result_of(answer) == "2"
    assert after.settled
    assert desk.stored() == {"a": "worked", "b": "3"}


def test_work_that_fails_is_undone_and_its_error_handed_back(path: Path) -> None:
    desk = Desk(path)
    desk.submit("a")

    def work(connection: Connection) -> None:
        connection.cursor().execute("DELETE FROM notes")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        result_of(desk.writer.run(work))
    assert desk.stored() == {"a": "v"}


def test_work_on_a_database_that_fails_is_a_storage_failure(path: Path) -> None:
    desk = Desk(path)
    with pytest.raises(StorageFailure) as raised:
        result_of(desk.writer.run(lambda connection: connection.cursor().execute("SELECT * FROM nowhere")))
    assert raised.value.kind is FailureKind.UNAVAILABLE


def test_work_may_do_without_a_transaction(path: Path) -> None:
    desk = Desk(path)
    answer = desk.writer.run(lambda connection: connection.cursor().execute("VACUUM"), in_transaction=False)
    assert result_of(answer) is not None


def test_closing_commits_all_pending_changes_and_refuses_later_ones(path: Path) -> None:
    desk = Desk(path, manual=True)
    tickets = [desk.submit(key) for key in "abc"]
    closed = desk.writer.close()
    late = desk.submit("d")
    desk.executor.stop()
    result_of(closed)
    assert kinds([*tickets, late]) == [None, None, None, FailureKind.UNAVAILABLE]
    assert set(desk.stored()) == {"a", "b", "c"}
    assert not path.with_name("store.db-wal").exists()
    for deferred in (desk.writer.run(lambda connection: None), desk.writer.close()):
        with pytest.raises(StorageFailure, match="closed"):
            result_of(deferred)


def test_closing_a_writer_that_never_wrote_opens_nothing(path: Path) -> None:
    desk = Desk(path)
    result_of(desk.writer.close())
    assert desk.database.opened == 0


# --- bytes pending --------------------------------------------------------------------------------------------------


def test_publishers_are_paused_above_the_bound_and_resumed_below_half_of_it(path: Path) -> None:
    desk = Desk(path, manual=True, max_pending=100)
    pressure: list[bool] = []
    desk.writer.on_pressure(pressure.append)
    desk.submit("a", size=60)
    desk.submit("b", size=40)
    assert (pressure, desk.writer.pending_bytes) == ([], 100)
    desk.submit("c", size=10)
    desk.submit("d", size=10)
    assert (pressure, desk.writer.pending_bytes) == ([True], 120)
    desk.executor.step()
    assert (pressure, desk.writer.pending_bytes) == ([True], 60)
    desk.executor.step()
    assert (pressure, desk.writer.pending_bytes) == ([True, False], 0)


def test_a_coalesced_write_counts_once(path: Path) -> None:
    desk = Desk(path, manual=True)
    desk.submit("first", size=1)
    desk.submit("a", size=500)
    desk.submit("a", size=20)
    assert desk.writer.pending_bytes == 21
    desk.submit("a", size=30, rank=-1)
    assert desk.writer.pending_bytes == 21
    desk.executor.stop()
    assert desk.writer.pending_bytes == 0


def test_a_failing_pressure_hook_prevents_no_acknowledgement(path: Path, logged_failures: list[LogEvent]) -> None:
    desk = Desk(path, max_pending=10)

    def fail(_paused: bool) -> None:
        raise ZeroDivisionError

    desk.writer.on_pressure(fail)
    ticket = desk.submit("a", size=20)
    assert kinds([ticket]) == [None]
    assert len(logged_failures) == 2
    logged_failures.clear()


@pytest.mark.parametrize("value", ["v", POISON])
def test_a_kind_that_fails_prevents_no_later_commit(path: Path, value: str, logged_failures: list[LogEvent]) -> None:
    """Neither after a commit nor after a refusal."""

    class Failing(Notes):
        def committed(self, account: Any) -> None:
            raise OSError

        def failed(self, writes: Sequence[Write], failure: StorageFailure) -> None:
            raise OSError

    desk = Desk(path)
    ticket = desk.submit("a", value, kind=Failing())
    assert ticket.settled
    assert desk.submit("b").failure is None
    assert [event["log_failure"].type for event in logged_failures] == [OSError]
    logged_failures.clear()


def test_a_failing_acknowledgement_prevents_no_other_one(path: Path, logged_failures: list[LogEvent]) -> None:
    desk = Desk(path, manual=True)
    desk.submit("first")
    tickets = [desk.submit(key) for key in "ab"]

    def fail(_failure: StorageFailure | None) -> None:
        raise ZeroDivisionError

    tickets[0].when_settled(fail)
    desk.executor.stop()
    assert kinds(tickets) == [None, None]
    assert len(logged_failures) == 1
    logged_failures.clear()


# --- failures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [{0}, {3}, {6}, {1, 5}, {0, 1, 2, 3, 4, 5, 6}])
@pytest.mark.parametrize("value", [POISON, object(), 1 << 70, "\ud800"])
def test_only_the_row_to_blame_is_refused(path: Path, bad: set[int], value: Any) -> None:
    desk = Desk(path, manual=True)
    desk.submit("first")
    tickets = [desk.submit(f"{number}", value if number in bad else "v") for number in range(7)]
    desk.executor.stop()
    assert kinds(tickets) == [FailureKind.REFUSED if number in bad else None for number in range(7)]
    assert set(desk.stored()) == {"first"} | {f"{number}" for number in range(7) if number not in bad}
    assert desk.writer.counters.failed == len(bad)
    following = desk.submit("next")
    desk.executor.stop()
    assert kinds([following]) == [None]


@pytest.mark.parametrize("bad", [set(), {0}, {1, 5}, {0, 1, 2, 3, 4, 5, 6}])
def test_a_ticket_of_several_writes_knows_which_are_refused(path: Path, bad: set[int]) -> None:
    desk = Desk(path, manual=True)
    desk.submit("first")
    ticket = together(desk, *(POISON if number in bad else "v" for number in range(7)))
    after = desk.submit("after")
    assert not ticket.settled
    desk.executor.stop()
    assert [failure_kind(ticket, number) for number in range(7)] == [
        FailureKind.REFUSED if number in bad else None for number in range(7)
    ]
    assert (ticket.failure is None) is not bool(bad)
    assert kinds([after]) == [None]


def test_a_ticket_of_several_writes_waits_for_those_that_are_left(path: Path) -> None:
    """The database goes away between two transactions. A later write of a stored key does not change its outcome."""
    desk = Desk(path, manual=True)
    desk.submit("first")
    ticket = together(desk, "v", POISON, "v", "v")
    desk.executor.step()
    work = desk.notes.apply

    def apply(cursor: Cursor, writes: Sequence[Write]) -> int:
        if [write.key for write in writes] == ["2", "3"]:
            desk.faults.away = True
        return work(cursor, writes)

    desk.notes.apply = apply  # type: ignore[method-assign]
    desk.executor.step()
    assert desk.faults.away
    assert not ticket.settled
    later = desk.submit("0", POISON)
    desk.notes.apply = work  # type: ignore[method-assign]
    desk.faults.away = False
    desk.clock.advance(0.1)
    desk.executor.stop()
    assert [failure_kind(ticket, number) for number in range(4)] == [None, FailureKind.REFUSED, None, None]
    assert kinds([later]) == [FailureKind.REFUSED]
    assert desk.stored() == {"first": "v", "0": "v", "2": "v", "3": "v"}


def test_several_writes_for_a_closed_writer_fail(path: Path) -> None:
    desk = Desk(path)
    result_of(desk.writer.close())
    ticket = together(desk, "v", "v")
    assert [failure_kind(ticket, number) for number in range(2)] == [FailureKind.UNAVAILABLE] * 2


def test_async_several_writes_are_acknowledged_ahead_of_the_disk(path: Path) -> None:
    desk = Desk(path, flush_interval=0.25)
    assert desk.writer.submit_together([Write(desk.notes, "a", "v", 1)]) is COMMITTED
    assert desk.writer.room == 999
    desk.clock.advance(0.25)
    assert desk.stored() == {"a": "v"}
    assert desk.writer.room == 1000


def together(desk: Desk, *values: Any) -> RunTicket:
    """Submit values together; their keys are their numbers."""
    ticket = desk.writer.submit_together([Write(desk.notes, f"{key}", value, 1) for key, value in enumerate(values)])
    assert isinstance(ticket, RunTicket)
    return ticket


def failure_kind(ticket: RunTicket, place: int) -> FailureKind | None:
    assert ticket.settled
    failure = ticket.failure_of(place)
    return None if failure is None else failure.kind


def test_superseded_writes_share_the_refusal_of_the_last(path: Path) -> None:
    desk = Desk(path, manual=True)
    desk.submit("first")
    tickets = [desk.submit("a", "fine"), desk.submit("a", POISON)]
    desk.executor.stop()
    assert kinds(tickets) == [FailureKind.REFUSED, FailureKind.REFUSED]
    assert "a" not in desk.stored()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_FULL, FailureKind.FULL),
        (sqlite3.SQLITE_BUSY, FailureKind.UNAVAILABLE),
        (sqlite3.SQLITE_READONLY, FailureKind.UNAVAILABLE),
    ],
)
def test_a_database_that_fails_fails_the_batch_and_the_next_is_tried_again(
    path: Path, code: int, kind: FailureKind, errors: list[LogEvent]
) -> None:
    desk = Desk(path, manual=True)
    desk.submit("first")
    tickets = [desk.submit(key) for key in "abc"]
    desk.executor.step()
    desk.faults.error, desk.faults.fail_at = InjectedError(code), desk.faults.calls + 2
    desk.executor.step()
    assert kinds(tickets) == [kind] * 3
    assert set(desk.stored()) == {"first"}
    assert len(errors) == 1
    ticket = desk.submit("next")
    desk.executor.stop()
    assert kinds([ticket]) == [None]


def test_a_full_disk_is_full_and_heals(path: Path) -> None:
    desk = Desk(path)
    desk.submit("first")

    def limit(connection: Connection, pages: int) -> None:
        connection.cursor().execute(f"PRAGMA max_page_count={pages}")

    result_of(desk.writer.run(lambda connection: limit(connection, 1), in_transaction=False))
    ticket = desk.submit("large", "x" * 1_000_000)
    assert kinds([ticket]) == [FailureKind.FULL]
    result_of(desk.writer.run(lambda connection: limit(connection, 1_000_000), in_transaction=False))
    assert kinds([desk.submit("large", "x" * 1_000_000)]) == [None]


def test_a_database_locked_by_another_process_is_unavailable(path: Path) -> None:
    desk = Desk(path)
    desk.submit("first")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert kinds([desk.submit("a")]) == [FailureKind.UNAVAILABLE]
    other.execute("ROLLBACK")
    other.close()
    assert kinds([desk.submit("a")]) == [None]


def test_a_database_that_fails_during_bisection_fails_only_uncommitted_changes(path: Path) -> None:
    desk = Desk(path, manual=True)
    desk.submit("first")
    tickets = [desk.submit(key, POISON if key == "d" else "v") for key in "abcd"]
    desk.executor.step()
    # first attempt: BEGIN and four rows, the last one fails; then "a" and "b" are committed: BEGIN, two, COMMIT
    desk.faults.fail_at = desk.faults.calls + 5 + 4
    desk.executor.step()
    assert kinds(tickets) == [None, None, FailureKind.UNAVAILABLE, FailureKind.UNAVAILABLE]
    assert set(desk.stored()) == {"first", "a", "b"}


def test_after_a_failed_rollback_a_new_connection_is_opened(path: Path) -> None:
    desk = Desk(path)
    desk.submit("first")
    desk.faults.also_rollback = True
    assert kinds([desk.submit("a", POISON), desk.submit("b")]) == [FailureKind.REFUSED, None]
    assert desk.database.opened == 2
    assert set(desk.stored()) == {"first", "b"}


def test_a_connection_that_cannot_be_opened_fails_the_batch(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(path)

    def refuse() -> Any:
        raise InjectedError(sqlite3.SQLITE_CANTOPEN)

    with monkeypatch.context() as patched:
        patched.setattr(desk.database, "connect", refuse)
        assert kinds([desk.submit("a")]) == [FailureKind.UNAVAILABLE]
    assert kinds([desk.submit("a")]) == [None]


def test_an_unforeseen_error_fails_the_group_and_not_the_writer(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(path)
    with monkeypatch.context() as patched:
        patched.setattr(desk.database, "failure", lambda error: 1 // 0)
        assert kinds([desk.submit("a", POISON)]) == [FailureKind.UNAVAILABLE]
    assert kinds([desk.submit("a")]) == [None]


@given(
    fail_at=st.integers(0, 40),
    code=st.sampled_from([sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, None]),
    batches=st.lists(st.lists(st.sampled_from(["a", "b", "c", "d", POISON]), max_size=6), min_size=1, max_size=4),
    also_rollback=st.booleans(),
)
def test_whichever_call_fails_only_stored_changes_are_acknowledged(
    fail_at: int, code: int | None, batches: list[list[str]], also_rollback: bool
) -> None:
    with TemporaryDirectory() as directory:
        error = sqlite3.IntegrityError("injected") if code is None else InjectedError(code)
        faults = Faults(fail_at, error, also_rollback)
        desk = Desk(fresh_file(Path(directory)), manual=True, faults=faults)
        expected: dict[str, str] = {}
        for number, keys in enumerate(batches):
            tickets = [(key, desk.submit(key, POISON if key == POISON else f"{number}")) for key in keys]
            desk.revisions.next_revision()
            desk.executor.stop()
            for key, ticket in tickets:
                assert ticket.settled
                if ticket.failure is None:
                    expected[key] = f"{number}"
            assert desk.stored() == expected
            assert desk.writer.pending_bytes == 0
        assert sum(desk.notes.accounts) == desk.writer.counters.rows


# --- durability "async" ---------------------------------------------------------------------------------------------


def test_async_changes_are_acknowledged_at_once_and_committed_after_the_interval(path: Path) -> None:
    desk = Desk(path, flush_interval=2.0)
    assert desk.submit("a") is COMMITTED
    desk.clock.advance(1)
    assert desk.submit("b") is COMMITTED
    assert desk.stored() == {}
    desk.clock.advance(1)
    assert set(desk.stored()) == {"a", "b"}
    desk.submit("c")
    desk.clock.advance(1.9)
    assert "c" not in desk.stored()
    desk.clock.advance(0.1)
    assert "c" in desk.stored()
    assert desk.clock.getDelayedCalls() == []


@given(st.lists(st.sampled_from([0.0, 0.3, 0.7, 1.1, 2.5]), max_size=15), st.sampled_from([0.5, 1.0, 2.0]))
def test_async_whenever_it_is_killed_only_the_last_interval_is_lost(pauses: list[float], interval: float) -> None:
    """The file always has all changes that were acknowledged an interval ago or earlier."""
    with TemporaryDirectory() as directory:
        desk = Desk(fresh_file(Path(directory)), flush_interval=interval)
        acknowledged: dict[str, float] = {}
        for number, pause in enumerate(pauses):
            assert desk.submit(f"{number:02}") is COMMITTED
            acknowledged[f"{number:02}"] = desk.clock.seconds()
            desk.clock.advance(pause)
            due = {key for key, at in acknowledged.items() if at + interval <= desk.clock.seconds()}
            assert due <= set(desk.stored())
        result_of(desk.writer.close())


def test_async_flushed_commits_now(path: Path) -> None:
    desk = Desk(path, flush_interval=2.0)
    desk.submit("a")
    assert desk.writer.flushed().settled
    assert set(desk.stored()) == {"a"}
    assert desk.clock.getDelayedCalls() == []


def test_async_commits_early_under_pressure(path: Path) -> None:
    desk = Desk(path, max_pending=10, flush_interval=2.0)
    desk.submit("a", size=11)
    assert set(desk.stored()) == {"a"}
    assert desk.writer.pending_bytes == 0


def test_async_closing_commits_now_and_leaves_no_timer(path: Path) -> None:
    desk = Desk(path, flush_interval=2.0)
    desk.submit("a")
    result_of(desk.writer.close())
    assert set(desk.stored()) == {"a"}
    assert desk.clock.getDelayedCalls() == []


def test_async_no_more_than_one_interval_of_changes_is_acknowledged_ahead_of_the_disk(path: Path) -> None:
    """During a long commit, changes after the interval wait; later changes are acknowledged at once again."""
    desk = Desk(path, manual=True, flush_interval=0.25)
    assert desk.submit("a").settled
    desk.clock.advance(0.2)
    assert desk.submit("b").settled
    desk.clock.advance(0.05)  # the commit begins, and takes its time
    late = [desk.submit("c")]
    desk.clock.advance(60)
    late.append(desk.submit("d"))
    assert not any(ticket.settled for ticket in late)
    desk.executor.step()
    assert desk.stored() == {"a": "v", "b": "v"}
    assert not any(ticket.settled for ticket in late)
    assert desk.submit("e").settled
    desk.executor.step()  # changes with waiting tickets are committed before the interval
    assert kinds(late) == [None, None]
    desk.clock.advance(0.25)
    desk.executor.step()
    assert set(desk.stored()) == set("abcde")


def test_async_after_a_commit_that_failed_nothing_is_acknowledged_ahead_until_one_succeeds(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk loses only changes that were acknowledged within one interval."""
    desk = Desk(path, flush_interval=0.25)
    desk.faults.error = InjectedError(sqlite3.SQLITE_FULL)
    desk.faults.away = True
    monkeypatch.setattr(desk.database, "is_away", lambda _error: False)
    assert desk.submit("lost").settled
    desk.clock.advance(0.25)
    assert kinds([desk.submit("told")]) == [FailureKind.FULL]
    desk.faults.away = False
    assert kinds([desk.submit("stored")]) == [None]
    assert desk.stored() == {"stored": "v"}
    assert desk.submit("ahead") is COMMITTED
    assert desk.stored() == {"stored": "v"}


def test_async_while_the_database_is_away_acknowledgements_wait_for_it(path: Path) -> None:
    """Changes acknowledged ahead wait with the others, and are stored with them."""
    desk = Desk(path, flush_interval=0.25)
    desk.faults.away = True
    assert desk.submit("ahead").settled
    desk.clock.advance(0.25)
    waiting = desk.submit("waiting")
    desk.clock.advance(1)
    assert not waiting.settled
    desk.faults.away = False
    desk.clock.advance(5)
    assert kinds([waiting]) == [None]
    assert desk.stored() == {"ahead": "v", "waiting": "v"}


def test_async_a_change_that_cannot_be_stored_is_logged_and_counted(path: Path, errors: list[LogEvent]) -> None:
    desk = Desk(path, flush_interval=2.0)
    desk.submit("a", POISON)
    desk.clock.advance(2)
    assert desk.writer.counters.failed == 1
    assert len(errors) == 1


# --- cancelled writes -----------------------------------------------------------------------------------------------


def test_a_fresh_row_deleted_while_it_waits_never_reaches_the_disk(path: Path) -> None:
    """Both writes are forgotten; their tickets are settled with the group, which has nothing to commit."""
    desk = Desk(path, manual=True)
    desk.submit("first")
    tickets = [desk.writer.submit(Write(desk.notes, "a", "v", 5, 0, fresh=True)), desk.submit("a", None)]
    assert desk.writer.pending_bytes == 1
    desk.executor.stop()
    assert kinds(tickets) == [None, None]
    assert desk.stored() == {"first": "v"}
    assert (desk.writer.counters.commits, desk.writer.counters.cancelled) == (1, 1)
    assert desk.writer.pending_bytes == 0


@pytest.mark.parametrize("again", [False, True])
def test_a_row_that_may_be_stored_is_deleted_in_the_database(path: Path, again: bool) -> None:
    """A row that is stored or being stored is deleted, even if it was written and deleted again meanwhile."""
    desk = Desk(path, manual=True)
    desk.writer.submit(Write(desk.notes, "a", "v", 1, 0, fresh=True))  # its commit runs
    desk.submit("a", None)
    if again:
        desk.writer.submit(Write(desk.notes, "a", "w", 1, 0, fresh=True))
        desk.submit("a", None)
    desk.executor.stop()
    assert desk.stored() == {}
    assert desk.writer.counters.cancelled == 0


def test_a_fresh_row_replaced_while_it_waits_is_still_fresh(path: Path) -> None:
    """After insert, replace and delete, nothing is left to write."""
    desk = Desk(path, manual=True)
    desk.submit("first")
    desk.writer.submit(Write(desk.notes, "a", "v", 1, 0, fresh=True))
    desk.submit("a", "w")
    desk.submit("a", None)
    desk.executor.stop()
    assert desk.stored() == {"first": "v"}
    assert desk.writer.counters.rows == 1


def test_writes_without_tickets_are_stored(path: Path) -> None:
    """``add`` takes writes without tickets, until the writer is closed."""
    desk = Desk(path)
    desk.writer.add(Write(desk.notes, "a", "v", 1))
    assert desk.stored() == {"a": "v"}
    result_of(desk.writer.close())
    desk.writer.add(Write(desk.notes, "b", "v", 1))
    assert desk.stored() == {"a": "v"}


def test_each_kind_gets_its_failed_writes(path: Path) -> None:
    """They are told once, with the kind of failure, before the tickets are settled."""
    desk = Desk(path)
    desk.submit("a", POISON)
    assert desk.notes.told == ["a refused"]
