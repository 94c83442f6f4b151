"""The retained store in Postgres keeps the contract, for one node and for several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count
from threading import Thread
from typing import Any
from unittest.mock import patch

import psycopg
import pytest
from sqlalchemy.engine import make_url
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from zope.interface.verify import verifyObject

from holdfast.changes.recording import HistoryRecorder
from holdfast.core.messages import RetainedChange
from holdfast.core.tickets import CommitTicket
from holdfast.retained.delayed_writes import DelayedWrites
from holdfast.retained.policies import NO_POLICIES, Policies, Policy
from holdfast.retained.store import bounded_read as reading
from holdfast.retained.store.interfaces import IRetainedStore
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.retained.store.statements_postgres import PostgresStatements
from holdfast.retained.store.values import Usage, UsageSnapshot
from holdfast.retained.totals import TotalsReader
from holdfast.storage import postgres
from holdfast.storage.location import StoreUnusable
from holdfast.storage.postgres_values import PostgresBulk
from tests.postgres import fresh_database, synchronous
from tests.retained.store.contract import (
    NOW,
    StoreContract,
    UsageContract,
    batches,
    clear,
    look,
    message,
    put,
    selection,
    statistics_of,
    topics_read,
)
from tests.retained.store.scan_contract import ScanContract
from tests.storage.doubles import result_of


@cache
def database() -> str:
    """Make one database for all these tests."""
    return fresh_database()


@cache
def emptying() -> psycopg.Connection:
    """Keep a connection: a new one for each example of Hypothesis takes longer than its work."""
    return psycopg.connect(database().replace("+psycopg", ""), autocommit=True)


@contextmanager
def opened(node: int = 1, empty: bool = True, **options: Any) -> Iterator[SQLRetainedStore]:
    """Open the store, after emptying it. Its schema, half of the work of opening, is known to be the newest."""
    if empty:
        emptying().execute("TRUNCATE retained, retained_levels, retained_usage, nodes")
    durable, executor = synchronous(database(), node)
    store = SQLRetainedStore(
        durable, **{"seconds": lambda: 0.0, **options}
    )  # on a busy machine, a read would end early
    with patch("holdfast.storage.store.prepare"):
        durable.open()
    try:
        yield store
    finally:
        executor.manual = False
        result_of(durable.close())


class TestPostgresRetainedStore(StoreContract, ScanContract):
    @contextmanager
    def opened(self) -> Iterator[IRetainedStore]:
        with opened() as store:
            verifyObject(IRetainedStore, store)
            yield store


class TestRecordedPostgresRetainedStore(StoreContract, varied=True):
    """The store records its changes in the history."""

    @contextmanager
    def opened(self) -> Iterator[IRetainedStore]:
        with opened(recorder=HistoryRecorder(PostgresBulk())) as store:
            yield store


class TestPostgresRetainedStoreInSmallBites(StoreContract, varied=True):
    """Every bound is so small that each read reaches it."""

    @contextmanager
    def opened(self) -> Iterator[IRetainedStore]:
        ticks = count()
        with opened(scan_rows=2, read_time=3, seconds=lambda: float(next(ticks))) as store:
            yield store


class TestPostgresRetainedStoreWithoutLike(StoreContract, ScanContract, varied=True):
    """SQL checks no filter: Python matches all topics."""

    @pytest.fixture(autouse=True)
    def _no_like(self, monkeypatch: pytest.MonkeyPatch) -> None:
        check_of = PostgresStatements.check_of
        monkeypatch.setattr(
            PostgresStatements,
            "check_of",
            lambda self, plan, levels: None if plan.levels else check_of(self, plan, levels),
        )
        monkeypatch.setattr(reading, "_LISTED_ROWS", 3)

    @contextmanager
    def opened(self) -> Iterator[IRetainedStore]:
        with opened() as store:
            yield store


class TestPostgresUsage(UsageContract):
    @contextmanager
    def opened(
        self, topic_filters: Sequence[str] = (), clients: bool = False, payers: str | None = None
    ) -> Iterator[IRetainedStore]:
        with opened(counted_filters=topic_filters, counted_clients=clients, counted_payers=payers) as store:
            yield store

    @contextmanager
    def reopened(
        self, store: IRetainedStore, topic_filters: Sequence[str] = (), clients: bool = False, payers: str | None = None
    ) -> Iterator[IRetainedStore]:
        with opened(
            store.node + 1, False, counted_filters=topic_filters, counted_clients=clients, counted_payers=payers
        ) as again:
            yield again


# --- several nodes on one database


class AheadWall:
    """A clock that is an hour ahead of the others."""

    def __call__(self) -> int:
        return NOW + 3_600_000


@contextmanager
def two_nodes() -> Iterator[tuple[SQLRetainedStore, SQLRetainedStore]]:
    """Open the store as node 1 and as node 2, whose clock is an hour ahead."""
    with opened() as one:
        durable, _ = synchronous(database(), 2, now=AheadWall())
        two = SQLRetainedStore(durable)
        durable.open()
        try:
            yield one, two
        finally:
            result_of(durable.close())


def test_a_second_broker_of_the_same_node_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error tells the reason and the remedy."""
    monkeypatch.setattr(postgres, "_LOCK_TIMEOUT", 50)
    with opened() as store:
        put(store, "a")
        durable, _ = synchronous(database(), 1)
        with pytest.raises(StoreUnusable, match=r"another broker with node\.id = 1 .* give each broker an id"):
            durable.open()


def test_nodes_see_each_others_messages() -> None:
    """Also messages with level counts and sizes that the reading node has never written."""
    with two_nodes() as (one, two):
        put(one, "a/b", b"one")
        put(two, "a/b/c/d/e", b"x" * 3000)
        put(two, "z/b/c", b"two")
        for store in (one, two):
            assert topics_read(store, selection("#")) == ["a/b", "a/b/c/d/e", "z/b/c"]
            assert topics_read(store, selection("+/b/#")) == ["a/b", "a/b/c/d/e", "z/b/c"]
            assert topics_read(store, selection("a/b/+/d/+")) == ["a/b/c/d/e"]


def test_the_last_accepted_message_wins_with_any_clocks() -> None:
    """A change that loses to the revision of a fast clock gets a higher revision before its acknowledgement."""
    with two_nodes() as (one, two):
        put(two, "a", b"ahead")
        put(one, "a", b"later")
        for store in (one, two):
            assert result_of(store.get("a")).payload == b"later"
        put(one, "a", b"again")
        clear(two, "b")
        put(one, "b", b"set after it was cleared")
        clear(one, "a")
        for store in (one, two):
            assert topics_read(store, selection("#")) == ["b"]
        put(two, "a", b"back")
        assert result_of(one.get("a")).payload == b"back"
        assert result_of(one.get("a")).revision > result_of(one.get("b")).revision


def test_a_sweep_finds_expired_messages_while_others_wait() -> None:
    """A reader looks for them, and may lock nothing: the statement would fail, and hold up all reads."""
    with opened() as store:
        store.delayed = DelayedWrites(store.put, Clock(), store.flushed)
        put(store, "late", expires_at=NOW)
        assert store.delayed.add(RetainedChange("waits", 1, NOW, message("waits", revision=1)), 60)
        assert result_of(store.expire(NOW, 10)) == ["late"]


def test_a_slow_clock_catches_up_with_the_revisions_it_meets() -> None:
    """From then on, its revisions are above those that it has met, so no change needs a second one."""
    with two_nodes() as (one, two):
        ahead = put(two, "a", b"ahead")
        put(one, "a", b"later")
        assert one.next_revision() > ahead.revision


def test_usage_counts_the_messages_of_all_nodes() -> None:
    """Also after one node clears a message of another."""
    with two_nodes() as (one, two):
        put(one, "a", b"1234")
        put(two, "b", b"12")
        put(two, "c", b"1")
        clear(one, "c")
        for store in (one, two):
            assert look(store, ["b"]) == UsageSnapshot(Usage(2, 6 + 2 * 202), {"b": Usage(1, 2 + 202)}, {}, {}, {})


def test_the_usage_of_new_quotas_counts_the_messages_of_all_nodes() -> None:
    """Also those that a node changed between the reload of the other one and its own, and of concurrent changes."""
    policies = Policies([Policy(1, "a/#", max_retained_messages=9), Policy(2, "#", max_retained_messages=9)])
    with two_nodes() as (one, two):
        put(one, "a/1", client_id="c")
        result_of(one.count_quotas(["a/#"], True, policies))
        put(one, "a/0", client_id="c")
        while result_of(one.count_usage(2)):
            pass
        put(two, "a/2", client_id="c")
        put(two, "b", client_id="d")
        result_of(two.count_quotas(["a/#"], True, policies))
        put(two, "a/3", client_id="d")
        put(one, "a/4", client_id="d")
        while result_of(one.count_usage(2)) or result_of(two.count_usage(2)):
            pass
        clear(one, "a/2")
        for store in (one, two):
            seen = look(store, [], ["a/#", *policies.counted_filters], ["c", "d"])
            assert [each.messages for each in seen.filters.values()] == [4, 4, 1]
            assert [each.messages for each in seen.clients.values()] == [2, 3]


def test_a_count_of_new_quotas_that_failed_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another node counted the scope meanwhile, without the changes of this one."""
    with two_nodes() as (one, two):
        result_of(one.count_quotas(["a/#"], True, NO_POLICIES))
        while result_of(one.count_usage(2)):
            pass
        put(two, "a/1", client_id="c")
        with monkeypatch.context() as patch:
            patch.setattr("holdfast.retained.store.usage._SCOPES", "SELECT broken")
            failed = two.count_quotas(["a/#"], True, NO_POLICIES)
            failures: list[Failure] = []
            failed.addErrback(failures.append)
            assert failures
        result_of(two.count_quotas(["a/#"], True, NO_POLICIES))
        while result_of(two.count_usage(2)):
            pass
        seen = look(two, [], ["a/#"], ["c"])
        assert (seen.filters["a/#"].messages, seen.clients["c"].messages) == (1, 1)


def test_totals_after_a_restart_include_all_nodes() -> None:
    """Each node stores its own part of the totals. A node can clear a message of another."""
    with two_nodes() as (one, two):
        put(one, "a", b"1234")
        put(one, "b", b"12")
        put(two, "c", b"1")
        clear(two, "a")
    with opened(empty=False) as store:
        assert store.statistics() == statistics_of(2, 3, 2)


def test_every_node_knows_the_totals_of_all() -> None:
    """Node 1 sets 5 messages, and node 2 clears 3 of them: both tell 2, and so does a node that changed nothing."""
    with two_nodes() as (one, two):
        for number in range(5):
            put(one, f"t/{number}", b"0123456789")
        for number in range(3):
            clear(two, f"t/{number}")
        for store in (one, two):
            totals = TotalsReader(store, Clock(), lambda: NOW)
            assert result_of(totals.read()) == statistics_of(2, 20, 6)
            assert totals.latest == statistics_of(2, 20, 6)


def test_messages_of_another_node_that_are_too_long_are_counted() -> None:
    """Also by a node that has stored no long message since its start."""
    with two_nodes() as (one, two):
        put(one, "a", b"x")
        put(two, "b", bytes(1000))
        wanted = selection("#", max_packet_size=100)
        read = list(batches(one, wanted))
        assert [part.last for batch in read for part in batch.slices] == ["a"]
        assert sum(batch.left_out + sum(part.left_out for part in batch.slices) for batch in read) == 1


def test_a_batch_is_bounded_by_the_messages_of_all_nodes() -> None:
    """Another node stores messages that are longer than any message that this node has met."""
    with two_nodes() as (one, two):
        put(two, "t/0", b"x")
        for number in range(1, 20):
            put(one, f"t/{number:02}", bytes(1000))
        lengths: list[int] = []
        read = PostgresStatements.read

        def watched(self: PostgresStatements, *arguments: Any) -> Any:
            found = read(self, *arguments)
            lengths.append(0 if found is None else len(found.packets))
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PostgresStatements, "read", watched)
            assert len(topics_read(two, selection("#"), rows=30, slice_rows=30, max_bytes=4500)) == 20
        assert max(lengths) <= 4500


def test_packets_have_the_utf8_of_their_topics_whatever_encoding_the_url_names() -> None:
    """The broker's connections are always in UTF-8: the parameter of the URL is passed over."""
    topics = sorted(["a\\b", "a\\x41", "é/ü", "漢字", "\U0010ffff"])
    with opened() as store:
        for topic in topics:
            put(store, topic)
    url = make_url(database()).update_query_dict({"client_encoding": "latin1"})
    durable, _ = synchronous(url.render_as_string(hide_password=False))
    store = SQLRetainedStore(durable)
    durable.open()
    try:
        for version in (4, 5):
            assert topics_read(store, selection("#", version)) == topics
    finally:
        result_of(durable.close())


def test_a_page_of_short_messages_takes_one_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    """The statement that reads checks the lengths of other nodes. Only where it finds nothing, they are asked for."""
    asked: list[int] = []
    largest_packet_now = PostgresStatements.largest_packet_now

    def watched(self: PostgresStatements, *arguments: Any) -> int:
        asked.append(largest_packet_now(self, *arguments))
        return asked[-1]

    with two_nodes() as (one, two):
        for number in range(20):
            put(one, f"t/{number:02}")
        longest = "t/" + "x" * 100
        put(two, longest)
        monkeypatch.setattr(PostgresStatements, "largest_packet_now", watched)
        for store in (one, two):
            assert len(topics_read(store, selection("#"), rows=5)) == 21
            assert len(asked) == 1  # no topic is in the range before "$"
            asked.clear()
        # Both nodes know of the longer packet now, so they read lengths where it would not fit.
        for store in (one, two):
            assert len(topics_read(store, selection("#"), rows=5, max_bytes=400)) == 21
        assert asked == []


def test_two_nodes_write_the_same_topics_at_once_without_loss_or_deadlock() -> None:
    """Two threads write the same new topics in opposite order."""
    with two_nodes() as nodes:
        tickets: list[CommitTicket] = []
        failures: list[BaseException] = []

        def write(store: SQLRetainedStore, number: int) -> None:
            try:
                for turn in range(30):
                    topics = [f"t{topic}" for topic in range(turn, turn + 20)]
                    for topic in topics if number else reversed(topics):
                        stored = message(topic, b"%d" % number, store.next_revision())
                        tickets.append(store.put(RetainedChange(topic, stored.revision, NOW, stored)))
            except BaseException as error:
                failures.append(error)

        threads = [Thread(target=write, args=(store, number)) for number, store in enumerate(nodes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert failures == []
        assert all(ticket.settled and ticket.failure is None for ticket in tickets)
        assert len(topics_read(nodes[0], selection("#"))) == 49
    with opened(empty=False) as store:
        assert store.statistics() == statistics_of(49, 49, 10 * 2 + 39 * 3)


def test_the_time_limit_of_a_replay_ends_for_all_readers_of_its_connection() -> None:
    """The history and the telemetry read by statements of their own, with the connections of the replays."""
    replays, history = PostgresStatements(), PostgresStatements()
    with psycopg.connect(database().replace("+psycopg", ""), autocommit=True) as connection:
        for _ in range(2):
            history.begin_search(connection)
            with replays.interruptible(connection, lambda: False, 0.002):
                assert connection.execute("SHOW statement_timeout").fetchall() == [("100ms",)]
            history.begin_search(connection)
            assert connection.execute("SHOW statement_timeout").fetchall() == [("0",)]
