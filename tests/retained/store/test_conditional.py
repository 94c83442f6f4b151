"""Compare-and-set in each store: what is decided, and that it is decided once, also between nodes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from hashlib import sha256
from threading import Thread
from typing import Any

import psycopg
import pytest
from twisted.python.failure import Failure

from holdfast.changes.recording import HistoryRecorder
from holdfast.core.extensions import Conditions
from holdfast.core.messages import RetainedChange
from holdfast.retained.compare_and_set import CompareAndSets, Decision
from holdfast.retained.store.conditional import ConditionalChange, Verdict
from holdfast.retained.store.interfaces import IRetainedStore
from holdfast.storage.postgres_values import PostgresBulk
from holdfast.storage.revisions import RevisionClock
from holdfast.storage.sqlite import SQLiteBulk
from holdfast.wire import NO_PROPERTIES, Properties
from tests.retained.store import test_postgres as on_postgres
from tests.retained.store import test_sql as on_sqlite
from tests.retained.store.contract import NOW, clear, message, put, statistics_of
from tests.retained.store.memory import MemoryRetainedStore
from tests.storage.doubles import Faults, FaultyConnection, Wall, result_of

ABSENT = Conditions(absent=True)


def change(
    store: IRetainedStore,
    topic: str,
    payload: bytes,
    conditions: Conditions,
    *,
    repeated: bool = False,
    now: int = NOW,
    properties: Properties = NO_PROPERTIES,
    **fields: Any,
) -> ConditionalChange:
    """Make a conditional change; an empty payload clears."""
    revision = store.next_revision()
    fields = {"client_id": "c", "stored_at": now, **fields}
    stored = message(topic, payload, revision, properties=properties, **fields) if payload else None
    return ConditionalChange(
        RetainedChange(topic, revision, now, stored, fields["client_id"]), conditions, properties, repeated
    )


def decision(store: IRetainedStore, *arguments: Any, **fields: Any) -> Decision:
    """Return the decision about a change."""
    found = result_of(CompareAndSets(store).submit(change(store, *arguments, **fields)))
    assert isinstance(found, Decision)
    return found


def payload_of(store: IRetainedStore, topic: str) -> bytes | None:
    """Return what is stored."""
    found = result_of(store.get(topic))
    return None if found is None else found.payload


class ConditionalContract:
    """The promises of :meth:`holdfast.retained.store.interfaces.IRetainedStore.put_if`."""

    def opened(self) -> AbstractContextManager[IRetainedStore]:
        """Open an empty store."""
        raise NotImplementedError

    def test_if_absent_only_the_first_is_stored(self) -> None:
        """The others are told the revision of the first, and change nothing."""
        with self.opened() as store:
            first = decision(store, "leader", b"a", ABSENT)
            assert (first.verdict, first.revision) == (Verdict.STORED, result_of(store.get("leader")).revision)
            assert decision(store, "leader", b"b", ABSENT) == Decision(Verdict.REFUSED, first.revision)
            assert payload_of(store, "leader") == b"a"
            assert store.statistics() == statistics_of(1, 1, 6)

    def test_tombstone_and_expired_message_are_absent(self) -> None:
        """Both have no revision for clients: a failed condition tells 0."""
        with self.opened() as store:
            put(store, "cleared")
            clear(store, "cleared")
            put(store, "expired", expires_at=NOW + 1)
            wrong = Conditions(revision=1)
            for topic in ("cleared", "expired", "never"):
                assert decision(store, topic, b"x", wrong, now=NOW + 1) == Decision(Verdict.REFUSED, 0)
                assert decision(store, topic, b"x", ABSENT, now=NOW + 1).succeeded
            assert decision(store, "other", b"x", Conditions(revision=0)).succeeded
            assert store.statistics().count == 4

    def test_refused_change_leaves_nothing(self) -> None:
        """A condition that fails on a topic without a message leaves no row behind."""
        with self.opened() as store:
            for conditions in (Conditions(revision=7), Conditions(payload_sha256="00" * 32)):
                assert decision(store, "t", b"x", conditions) == Decision(Verdict.REFUSED, 0)
            assert payload_of(store, "t") is None
            assert store.statistics().count == 0
            assert result_of(store.purge(NOW + 1, 10)) == 0

    def test_all_conditions_must_hold(self) -> None:
        """The revision and the digest of the present message are compared."""
        with self.opened() as store:
            stored = put(store, "t", b"old")
            digest = sha256(b"old").hexdigest()
            for conditions in (
                Conditions(stored.revision + 1, payload_sha256=digest),
                Conditions(stored.revision, payload_sha256=sha256(b"other").hexdigest()),
                Conditions(stored.revision, True, digest),
            ):
                assert decision(store, "t", b"new", conditions) == Decision(Verdict.REFUSED, stored.revision)
            found = decision(store, "t", b"new", Conditions(stored.revision, payload_sha256=digest))
            assert found.verdict is Verdict.STORED
            assert found.revision > stored.revision
            assert payload_of(store, "t") == b"new"

    def test_clear_under_a_condition(self) -> None:
        """An empty payload clears the topic if the condition holds."""
        with self.opened() as store:
            stored = put(store, "t")
            assert not decision(store, "t", b"", Conditions(revision=1)).succeeded
            assert decision(store, "t", b"", Conditions(stored.revision)).succeeded
            assert payload_of(store, "t") is None
            assert store.statistics().count == 0

    @pytest.mark.parametrize("payload", [b"a", b""])
    def test_repetition_of_the_present_change_succeeds(self, payload: bytes) -> None:
        """It has the revision of the first time. It stores nothing, whatever its condition says now."""
        properties = Properties(user_properties=(("holdfast-if-absent", ""), ("unit", "C")))
        with self.opened() as store:
            first = decision(store, "t", payload, ABSENT, properties=properties)
            again = decision(store, "t", payload, ABSENT, properties=properties, repeated=True)
            assert again == Decision(Verdict.PRESENT, first.revision)

    @pytest.mark.parametrize(
        "other",
        [
            {"client_id": "d"},
            {"payload": b"b"},
            {"properties": Properties(user_properties=(("holdfast-if-absent", ""),))},
            {"repeated": False},
        ],
    )
    def test_another_change_is_no_repetition(self, other: dict[str, Any]) -> None:
        """Another client, payload or property, or DUP 0: the condition counts."""
        with self.opened() as store:
            first = decision(store, "t", b"a", ABSENT)
            fields = {"payload": b"a", "repeated": True, **other}
            assert decision(store, "t", fields.pop("payload"), ABSENT, **fields) == Decision(
                Verdict.REFUSED, first.revision
            )

    def test_repetition_after_a_newer_change_is_refused(self) -> None:
        """The present revision tells the client that somebody has changed the topic since."""
        with self.opened() as store:
            decision(store, "t", b"a", ABSENT)
            newer = put(store, "t", b"b")
            assert decision(store, "t", b"a", ABSENT, repeated=True) == Decision(Verdict.REFUSED, newer.revision)


class TestMemory(ConditionalContract):
    @contextmanager
    def opened(self) -> Iterator[IRetainedStore]:
        yield MemoryRetainedStore(RevisionClock(1, 0, Wall()))


class TestSQLite(ConditionalContract):
    @contextmanager
    def opened(self) -> Iterator[IRetainedStore]:
        with on_sqlite.opened() as (_, store):
            yield store


class TestPostgres(ConditionalContract):
    @contextmanager
    def opened(self) -> Iterator[IRetainedStore]:
        with on_postgres.opened(recorder=HistoryRecorder(PostgresBulk())) as store:
            yield store


def test_changes_of_one_commit_are_decided_in_order() -> None:
    """None replaces another one: each has its decision, with the results of those before it in the same commit."""
    with on_sqlite.opened() as (bench, store):
        stored = put(store, "t", b"0")
        bench.executor.manual = True
        sets = CompareAndSets(store)
        found: list[Decision] = []
        first = change(store, "t", b"1", Conditions(stored.revision))
        for each in (
            first,
            change(store, "t", b"2", Conditions(stored.revision)),
            change(store, "t", b"3", Conditions(first.row.revision)),
            change(store, "u", b"4", ABSENT),
        ):
            sets.submit(each).addCallback(found.append)
        assert len(sets) == 4
        bench.clock.advance(0)
        bench.executor.stop()
        bench.executor.manual = False
        assert [each.verdict for each in found] == [
            Verdict.STORED, Verdict.REFUSED, Verdict.STORED, Verdict.STORED,
        ]  # fmt: skip
        assert found[1].revision == first.row.revision
        assert payload_of(store, "t") == b"3"
        assert not sets.pending


def test_clock_behind_another_node() -> None:
    """A change whose clock is behind the present revision is stamped anew, and stored."""
    with on_postgres.two_nodes() as (one, two):
        ahead = message("t", b"ahead", (NOW + 60_000) << 20 | two.node)
        two.put(RetainedChange("t", ahead.revision, NOW, ahead))
        found = decision(one, "t", b"mine", Conditions(ahead.revision))
        assert found.verdict is Verdict.STORED
        assert found.revision > ahead.revision
        assert payload_of(two, "t") == b"mine"


def test_nodes_at_once() -> None:
    """Of two nodes that set the same absent topics at once, one succeeds for each topic, and the other one fails."""
    with on_postgres.two_nodes() as nodes:
        found: list[list[Decision]] = [[], []]

        def work(number: int) -> None:
            store = nodes[number]
            found[number] = [decision(store, f"t/{topic}", b"%d" % number, ABSENT) for topic in range(40)]

        threads = [Thread(target=work, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        for topic, (one, two) in enumerate(zip(*found, strict=True)):
            assert one.succeeded is not two.succeeded
            assert one.revision == two.revision  # the loser is told the revision of the winner
            assert payload_of(nodes[0], f"t/{topic}") == (b"0" if one.succeeded else b"1")


def changes_told(bench_store: Any, topic: str) -> list[int]:
    """Return the revisions of the changes of a topic in the history."""
    return list(
        result_of(
            bench_store.ask_writer(
                lambda cursor: [
                    revision
                    for (revision,) in cursor.execute(
                        "SELECT revision FROM retained_history WHERE topic = ? ORDER BY seq", (topic,)
                    ).fetchall()
                ]
            )
        )
    )


@pytest.mark.parametrize("payload", [b"a", b""])
def test_fault_at_any_statement(payload: bytes) -> None:
    """Whatever statement or commit fails, the change is decided once: its repetition succeeds, and stores it once."""
    with on_sqlite.opened(recorder=HistoryRecorder(SQLiteBulk())) as (_, store):
        committer = store._parts.writer._committer
        faults = Faults()
        committer._connection = FaultyConnection(committer._connection, faults)  # type: ignore[arg-type]
        for number in range(100):
            topic = f"t/{number}"
            put(store, topic, b"old")
            stored = result_of(store.get(topic)).revision
            faults.calls, faults.fail_at = 0, number
            first = change(store, topic, payload, Conditions(stored))
            failures: list[Failure] = []
            CompareAndSets(store).submit(first).addErrback(failures.append)
            reached = faults.calls > number
            faults.fail_at = None
            again = decision(store, topic, payload, Conditions(stored), repeated=True)
            assert again.verdict is (Verdict.STORED if failures else Verdict.PRESENT)
            assert payload_of(store, topic) == (payload or None)
            assert len(changes_told(store, topic)) == 2
            if not reached:
                assert number > 5
                return
        raise AssertionError("a change has too many statements")


def test_commit_whose_answer_is_lost() -> None:
    """The writer does not know whether the commit took place, and does it again: the change finds itself, stored."""

    class Losing(FaultyConnection):
        def commit(self) -> None:
            self._connection.commit()
            self._connection.close()
            raise psycopg.errors.AdminShutdown("terminating connection due to administrator command")

    with on_postgres.opened(recorder=HistoryRecorder(PostgresBulk())) as store:
        committer = store._parts.writer._committer
        committer._connection = Losing(committer._connection, Faults())  # type: ignore[arg-type]
        found: list[Decision] = []
        CompareAndSets(store).submit(change(store, "lost", b"a", ABSENT)).addCallback(found.append)
        assert found == []  # the database is away for a moment
        store._parts.writer._reactor.advance(1)  # type: ignore[attr-defined]
        assert [each.verdict for each in found] == [Verdict.STORED]
        assert result_of(store.get("lost")).revision == found[0].revision
        assert changes_told(store, "lost") == [found[0].revision]
