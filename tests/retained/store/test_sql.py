"""The retained store in SQLite keeps the contract, and bounds each read."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zope.interface.verify import verifyObject

from holdfast.changes.recording import HistoryRecorder
from holdfast.core.messages import RetainedChange
from holdfast.core.tickets import FailureKind, StorageFailure
from holdfast.retained.store import bounded_read as reading
from holdfast.retained.store.bounded_read import SLICE_BYTES
from holdfast.retained.store.interfaces import IRetainedStore
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.retained.store.statements_sqlite import MOST_ROWS, SQLiteStatements
from holdfast.storage.sqlite import SQLiteBulk, SQLiteDatabase
from tests.retained.store.contract import (
    LATE,
    NOW,
    StoreContract,
    UsageContract,
    batches,
    clear,
    few,
    message,
    packet,
    put,
    selection,
    slices,
    statistics_of,
    topics_read,
)
from tests.retained.store.scan_contract import ScanContract
from tests.storage.doubles import Bench, fresh_file, result_of


@contextmanager
def opened(**options: Any) -> Iterator[tuple[Bench, SQLRetainedStore]]:
    """Open an empty store on a file. Its time stands still: on a busy machine, a read would end early."""
    with TemporaryDirectory() as directory:
        bench = Bench(fresh_file(Path(directory)))
        store = SQLRetainedStore(bench.store, **{"seconds": lambda: 0.0, **options})
        bench.store.open()
        yield bench, store
        bench.executor.manual = False
        bench.executor.stop()
        result_of(bench.store.close())


class TestSQLRetainedStore(StoreContract, ScanContract):
    @contextmanager
    def opened(self) -> Iterator[IRetainedStore]:
        with opened() as (_, store):
            verifyObject(IRetainedStore, store)
            yield store


class TestSQLUsage(UsageContract):
    @contextmanager
    def opened(
        self, topic_filters: Sequence[str] = (), clients: bool = False, payers: str | None = None
    ) -> Iterator[IRetainedStore]:
        with opened(counted_filters=topic_filters, counted_clients=clients, counted_payers=payers) as (
            self.bench,
            store,
        ):
            yield store

    @contextmanager
    def reopened(
        self, store: IRetainedStore, topic_filters: Sequence[str] = (), clients: bool = False, payers: str | None = None
    ) -> Iterator[IRetainedStore]:
        result_of(self.bench.store.close())
        self.bench = Bench(self.bench.path)
        again = SQLRetainedStore(
            self.bench.store, counted_filters=topic_filters, counted_clients=clients, counted_payers=payers
        )
        self.bench.store.open()
        yield again
        result_of(self.bench.store.close())


class TestRecordedSQLRetainedStore(StoreContract, varied=True):
    """The store records its changes in the history."""

    @contextmanager
    def opened(self) -> Iterator[IRetainedStore]:
        with opened(recorder=HistoryRecorder(SQLiteBulk())) as (_, store):
            yield store


class TestSQLRetainedStoreInSmallBites(StoreContract, varied=True):
    """Every bound is so small that each read reaches it."""

    @contextmanager
    def opened(self) -> Iterator[IRetainedStore]:
        ticks = count()
        with opened(scan_rows=2, read_time=3, seconds=lambda: float(next(ticks))) as (_, store):
            yield store


class TestSQLRetainedStoreWithoutGlob(StoreContract, ScanContract, varied=True):
    """SQL checks no filter: Python matches all topics."""

    @pytest.fixture(autouse=True)
    def _no_glob(self, monkeypatch: pytest.MonkeyPatch) -> None:
        check_of = SQLiteStatements.check_of
        monkeypatch.setattr(
            SQLiteStatements,
            "check_of",
            lambda self, plan, levels: None if plan.levels else check_of(self, plan, levels),
        )
        monkeypatch.setattr(reading, "_LISTED_ROWS", 3)

    @contextmanager
    def opened(self) -> Iterator[IRetainedStore]:
        with opened() as (_, store):
            yield store


def test_packets_are_concatenated_in_topic_order_for_any_order_of_insertion() -> None:
    with opened() as (_, store):
        payloads = {"m": b"\0", "a": b"\xff\xfe", "z": b"", "é": b"\xc3\x28", "b/c": b"\0" * 300}
        stored = {topic: put(store, topic, payload) for topic, payload in payloads.items()}
        for version in (3, 4, 5):
            (one,) = slices(store, selection("#", version))
            assert one.packets == b"".join(packet(stored[topic], version) for topic in sorted(payloads))


def test_ten_thousand_messages_keep_their_order_across_pages() -> None:
    with opened() as (_, store):
        topics = [f"{number * 7919 % 10_007:05}/x" for number in range(5000)]
        for topic in topics:
            put(store, topic)
        assert topics_read(store, selection("#"), rows=1000, slice_rows=100) == sorted(topics)
        assert topics_read(store, selection("+/x"), rows=1000, slice_rows=100) == sorted(topics)


def test_a_filter_too_long_for_glob_is_matched_in_python() -> None:
    with opened() as (_, store):
        long = "*" * 17_000  # three characters each once escaped
        for topic in (f"a/{long}/c", f"b/{long}/d", f"b/{long}/c/d", "b/c"):
            put(store, topic)
        assert topics_read(store, selection(f"+/{long}/c")) == [f"a/{long}/c"]
        assert topics_read(store, selection(f"+/{long}/c/#")) == [f"a/{long}/c", f"b/{long}/c/d"]


def test_a_filter_with_too_many_level_counts_is_matched_in_python() -> None:
    with opened() as (_, store):
        deep = ["/".join(["a", "b"] + ["x"] * depth) for depth in range(120)]
        for topic in [*deep, "a/c/x"]:
            put(store, topic)
        assert topics_read(store, selection("+/b/#")) == sorted(deep)


def test_a_filter_deeper_than_every_topic_finds_nothing() -> None:
    with opened() as (_, store):
        put(store, "a/b")
        assert topics_read(store, selection("+/b/+/d/#")) == []


def test_topics_for_a_match_in_python_are_listed_in_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few hundred topics at a time, because matching in Python takes longer."""
    listed: list[int] = []
    topics = SQLiteStatements.topics

    def listing(*arguments: Any) -> list[str]:
        found = topics(*arguments)
        listed.append(len(found))
        return found

    monkeypatch.setattr(SQLiteStatements, "topics", listing)
    with opened() as (bench, store):
        bench.executor.manual = True
        put_many(store, 1500)
        bench.executor.stop()
        long = "x" * 60_000  # longer than a pattern may be
        assert topics_read(store, selection(f"+/{long}/#")) == []
        assert topics_read(store, selection(f"+/+/{long}")) == []
    assert 0 < max(listed) <= 512


def test_a_sparse_filter_jumps_over_topics_that_cannot_match() -> None:
    with opened(scan_rows=64) as (_, store):
        for site in range(5):
            for device in range(200):
                put(store, f"site/{site}/{device:03}/v")
        read = list(batches(store, selection("site/+/150/#")))
        assert [one.last for batch in read for one in batch.slices] == [f"site/{site}/150/v" for site in range(5)]


def test_a_read_ends_after_its_time_and_the_next_one_continues_there() -> None:
    ticks = count()
    with opened(read_time=2, seconds=lambda: float(next(ticks))) as (_, store):
        for number in range(10):
            put(store, f"{number}")
        read = list(batches(store, selection("#"), slice_rows=1))
        assert len(read) > 3
        assert [one.last for batch in read for one in batch.slices] == [f"{number}" for number in range(10)]


@few
@given(st.data())
def test_any_slices_joined_are_the_packets_of_the_rows(data: st.DataObject) -> None:
    """With messages of any length, bounds and speed of the database. No slice of several packets is over its bytes."""
    now = 0.0

    def seconds() -> float:
        nonlocal now
        now += data.draw(st.sampled_from([0, 0.0001, 0.0004, 0.003]))
        return now

    with opened(seconds=seconds) as (_, store):
        sizes = data.draw(st.lists(st.sampled_from([1, 20, 20, 20, 900, 5000, 70_000]), max_size=60))
        expiries = st.none() if data.draw(st.booleans()) else st.none() | st.sampled_from([LATE, LATE + 1])
        stored = [
            put(
                store, f"t/{number:03}", b"x" * size, qos=data.draw(st.integers(0, 2)),
                expires_at=data.draw(expiries),
            )
            for number, size in enumerate(sizes)
        ]  # fmt: skip
        detailed = data.draw(st.booleans())
        version = data.draw(st.sampled_from([4, 5]))
        read = slices(
            store, selection(data.draw(st.sampled_from(["#", "t/#", "t/+"])), version),
            rows=data.draw(st.sampled_from([1, 7, 1000])), slice_rows=data.draw(st.sampled_from([1, 3, 1000])),
            max_bytes=data.draw(st.sampled_from([1, 3000, 1 << 20])), detailed=detailed,
        )  # fmt: skip
        assert b"".join(one.packets for one in read) == b"".join(packet(one, version) for one in stored)
        assert all(one.count == 1 or len(one.packets) <= SLICE_BYTES for one in read)
        if detailed:
            assert b"".join(one.qos for one in read) == bytes(one.qos for one in stored)
            assert [expiry for one in read for expiry in one.expires_at] == [one.expires_at or 0 for one in stored]


def test_a_slice_of_short_messages_has_more_rows_than_one_of_long_messages() -> None:
    with opened(seconds=lambda: 0.0) as (bench, store):
        bench.executor.manual = True
        for number in range(3000):
            stored = message(f"{number:05}", b"x" * (1 if number < 2000 else 1000), store.next_revision())
            store.put(RetainedChange(stored.topic, stored.revision, NOW, stored))
        bench.executor.stop()
        counts = [one.count for one in slices(store, selection("#"))]
        assert max(counts) > 500
        assert counts[-2] == SLICE_BYTES // (1000 + 10)


def test_a_statement_that_finds_nothing_for_long_is_interrupted() -> None:
    ticks = count()
    with opened(scan_rows=500, read_time=2, seconds=lambda: float(next(ticks))) as (bench, store):
        bench.executor.manual = True
        for number in range(4000):
            stored = message(f"{number:05}", revision=store.next_revision(), client_id="me")
            store.put(RetainedChange(stored.topic, stored.revision, NOW, stored))
        bench.executor.stop()
        read = list(batches(store, selection("#", except_client="me")))
        assert len(read) > 1
        assert all(not batch.slices for batch in read)


def test_messages_read_before_an_interrupted_statement_are_not_read_again() -> None:
    ticks = count()
    with opened(read_time=8, seconds=lambda: float(next(ticks))) as (bench, store):
        topics = [f"{number:05}" for number in range(200)]
        for topic in topics:
            put(store, topic)
        bench.executor.manual = True
        for number in range(200, 4000):
            stored = message(f"{number:05}", revision=store.next_revision(), client_id="me")
            store.put(RetainedChange(stored.topic, stored.revision, NOW, stored))
        bench.executor.stop()
        assert topics_read(store, selection("#", except_client="me"), slice_rows=100) == topics


def test_a_part_of_a_census_costs_the_same_wherever_it_begins() -> None:
    """The index on the expiry finds it; no message that has not expired is looked at."""
    with opened() as (bench, store):
        bench.executor.manual = True
        for number in range(2000):
            expires_at = NOW if number % 2 else None
            stored = message(f"t/{number:04}", revision=store.next_revision(), expires_at=expires_at)
            store.put(RetainedChange(stored.topic, stored.revision, NOW, stored))
        bench.executor.stop()
        steps = 0

        def step() -> int:
            nonlocal steps
            steps += 1
            return 0

        assert bench.store.parts is not None
        connection: Any = bench.store.parts.readers._connection  # type: ignore[attr-defined]
        connection.set_progress_handler(step, 10)
        costs, after = list[int](), None
        for _ in range(10):
            steps = 0
            census = result_of(store.census(NOW, after, 100))
            assert census.expired.count == 100
            costs.append(steps)
            after = census.after
        assert max(costs) * 10 < 100 * 60
        assert max(costs) < 2 * min(costs)


def test_any_number_of_rows_is_written_in_one_commit() -> None:
    for number in (1, MOST_ROWS - 1, MOST_ROWS, MOST_ROWS + 1, 2 * MOST_ROWS + 3):
        with opened() as (bench, store):
            bench.executor.manual = True
            expected = statistics_of(number, number, sum(len(f"t/{index}") for index in range(number)))
            put_many(store, number)
            bench.executor.stop()
            assert store.statistics() == expected
            put_many(store, number)
            bench.executor.stop()
            assert store.statistics() == expected
            assert len(topics_read(store, selection("#"))) == number


def put_many(store: SQLRetainedStore, number: int) -> None:
    """Put a message to each of ``number`` topics."""
    for index in range(number):
        stored = message(f"t/{index}", revision=store.next_revision())
        store.put(RetainedChange(stored.topic, stored.revision, NOW, stored))


def test_totals_are_written_only_when_they_change() -> None:
    """Most changes replace a value by one of the same length."""
    with opened() as (bench, store):
        assert bench.store.parts is not None
        statements: list[str] = []
        bench.store.parts.writer.run(
            lambda connection: cast(sqlite3.Connection, connection).set_trace_callback(statements.append),
            in_transaction=False,
        )
        for payload, written in ((b"21.5", True), (b"22.0", False), (b"9.5", True), (b"", True), (b"", False)):
            statements.clear()
            if payload:
                put(store, "a/b", payload)
            else:
                clear(store, "a/b")
            assert any("retained_count +" in statement for statement in statements) is written, payload
        assert store.statistics() == statistics_of(0, 0, 0)


def test_one_commit_can_have_older_and_newer_rows() -> None:
    with opened() as (bench, store):
        old = [message(f"t/{index}", b"old", store.next_revision()) for index in range(10)]
        for index in range(0, 10, 2):
            put(store, f"t/{index}", b"newer")
        bench.executor.manual = True
        tickets = [store.put(RetainedChange(one.topic, one.revision, NOW, one)) for one in old]
        bench.executor.stop()
        assert all(ticket.settled and ticket.failure is None for ticket in tickets)
        assert store.statistics() == statistics_of(10, 5 * 5 + 5 * 3, 30)
        assert result_of(store.get("t/1")).payload == b"old"
        assert result_of(store.get("t/2")).payload == b"newer"


def test_within_one_commit_the_highest_revision_wins() -> None:
    with opened() as (bench, store):
        bench.executor.manual = True
        first, second = (message("a", payload, store.next_revision()) for payload in (b"1", b"2"))
        put_many(store, 1)  # keeps the writer busy: the next two wait for the same commit
        tickets = [store.put(RetainedChange("a", one.revision, NOW, one)) for one in (second, first)]
        bench.executor.stop()
        assert all(ticket.settled and ticket.failure is None for ticket in tickets)
        assert result_of(store.get("a")).payload == b"2"


def test_ten_thousand_values_of_a_topic_in_a_burst_are_written_a_few_times() -> None:
    """During a commit, changes wait for the next one, and only the newest change of a topic is written."""
    with opened() as (bench, store):
        bench.executor.manual = True
        tickets = []
        for number in range(10_000):
            new = message("busy", b"%d" % number, store.next_revision())
            tickets.append(store.put(RetainedChange("busy", new.revision, NOW, new)))
        assert not any(ticket.settled for ticket in tickets)
        while bench.executor.waiting:
            bench.executor.step()
        assert all(ticket.settled and ticket.failure is None for ticket in tickets)
        bench.executor.manual = False
        assert result_of(store.get("busy")).payload == b"9999"
        assert bench.store.parts is not None
        counters = bench.store.parts.writer.counters
        assert (counters.rows, counters.commits, counters.coalesced) == (2, 2, 9998)
        assert store.statistics() == statistics_of(1, 4, 4)


def test_the_steps_of_opening_do_not_depend_on_the_number_of_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in steps of SQLite's virtual machine, in all connections: the start reads no retained message."""

    def steps_to_open(retained: int) -> int:
        with opened() as (bench, store):
            for number in range(retained):
                put(store, f"t/{number:04}", expires_at=NOW if number % 2 else None)
            result_of(bench.store.close())
            steps = count()
            connect = SQLiteDatabase._open

            def counted(self: SQLiteDatabase, *arguments: Any) -> sqlite3.Connection:
                connection = connect(self, *arguments)
                connection.set_progress_handler(lambda: next(steps) < 0, 1)
                return connection

            with monkeypatch.context() as patched:
                patched.setattr(SQLiteDatabase, "_open", counted)
                bench.store.open()
            return next(steps)

    few = steps_to_open(10)
    assert few > 100
    assert steps_to_open(3000) == few


def test_the_totals_are_stored_for_the_next_start() -> None:
    with TemporaryDirectory() as directory:
        path = fresh_file(Path(directory))
        for round_ in range(3):
            bench = Bench(path)
            store = SQLRetainedStore(bench.store)
            bench.store.open()
            if round_:
                assert store.statistics() == statistics_of(round_, 3 * round_, 3 * round_)
                assert topics_read(store, selection("+/+/#")) == ["r/0", "r/1"][:round_]
            put(store, f"r/{round_}", b"abc")
            put(store, "gone")
            clear(store, "gone")
            result_of(bench.store.close())


def test_revisions_increase_after_a_crash_even_if_the_clock_stepped_back() -> None:
    with TemporaryDirectory() as directory:
        bench = Bench(fresh_file(Path(directory)))
        store = SQLRetainedStore(bench.store)
        bench.store.open()
        last = put(store, "a").revision
        # no close: the process is gone, the file is as the last commit left it
        after = Bench(bench.path)
        after.wall.now = 1000
        again = SQLRetainedStore(after.store)
        after.store.open()
        assert again.next_revision() > last
        assert again.statistics() == statistics_of(1, 1, 1)
        result_of(after.store.close())


def test_a_grown_packet_does_not_break_the_byte_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened() as (bench, store):
        for topic in "abc":
            put(store, topic, b"x" * 50)
        assert bench.store.parts is not None
        # as after a commit that the totals do not include yet: its packets are larger than the known ones
        monkeypatch.setattr(store._upserts.totals, "largest_packet", 1)
        for slice_rows, max_bytes, counts in (
            (1000, 120, [[2], [1]]),
            (3, 120, [[2], [1]]),
            (2, 170, [[2, 1]]),
            (2, 122, [[2], [1]]),
            (3, 10, [[1], [1], [1]]),
            (1, 60, [[1], [1], [1]]),
        ):
            read = list(batches(store, selection("#"), slice_rows=slice_rows, max_bytes=max_bytes))
            assert [[one.count for one in batch.slices] for batch in read if batch.slices] == counts


def test_a_database_that_cannot_be_read_fails_the_read() -> None:
    with opened() as (bench, store):
        put(store, "a")
        connection = sqlite3.connect(bench.path)
        connection.execute("ALTER TABLE retained RENAME TO lost")
        for deferred in (store.read(selection("#"), "", 10, 10, 1000, False), store.get("a")):
            with pytest.raises(StorageFailure) as raised:
                result_of(deferred)
            assert raised.value.kind is FailureKind.UNAVAILABLE
        connection.execute("ALTER TABLE lost RENAME TO retained")
        connection.close()


def test_the_view_shows_retained_messages_in_plain_sql() -> None:
    with opened() as (bench, store):
        properties = message("x").properties
        put(store, "a", b"one", qos=1, client_id="c", username="u", properties=properties)
        put(store, "later", expires_at=LATE >> 20)
        put(store, "expired", expires_at=1)
        put(store, "gone")
        clear(store, "gone")
        connection = sqlite3.connect(bench.path)
        rows = connection.execute(
            "SELECT topic, payload, qos, client_id, username, stored_at, expires_at, size, properties_json "
            "FROM retained_messages ORDER BY topic"
        ).fetchall()
        assert rows == [
            ("a", b"one", 1, "c", "u", NOW, None, 3, None),
            ("later", b"x", 0, None, None, NOW, LATE >> 20, 1, None),
        ]
        connection.close()


@pytest.mark.parametrize("stored", [["a"], ["a", "b"], ["b", "d"], ["d"]])
@pytest.mark.parametrize("topic_filter", ["#", "+"])
def test_a_listing_misses_no_message_when_others_are_stored_meanwhile(
    monkeypatch: pytest.MonkeyPatch, stored: list[str], topic_filter: str
) -> None:
    """Other messages are committed between the statement that weighs the messages and the one that reads them."""
    weights = SQLiteStatements.weights
    with opened() as (_, store):
        put(store, "c")
        coming = iter([stored])

        def weighed(self: SQLiteStatements, *arguments: Any) -> list[int]:
            found = weights(self, *arguments)
            for topic in next(coming, []) if found else []:
                put(store, topic)
            return found

        monkeypatch.setattr(SQLiteStatements, "weights", weighed)
        listed: list[str] = []
        after, done = "", False
        while not done:
            listing = result_of(store.listing(selection(topic_filter), after, 100, 1 << 20, False))
            listed += [entry.message.topic for entry in listing.entries]
            after, done = listing.after, listing.done
        assert "c" in listed
        assert listed == sorted(set(listed))
