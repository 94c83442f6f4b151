"""The statements about retained messages, for Postgres. Several nodes may write: rows are locked before they count."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

from psycopg import errors

from holdfast.retained.store.rows import Row, longest_packet, stored_row_size
from holdfast.retained.store.statements import (
    FIRST,
    INSERTED,
    ON_CONFLICT,
    Fragments,
    Leap,
    Statements,
    Totals,
    below,
    stored_size,
)
from holdfast.retained.store.values import Usage
from holdfast.retained.store.wildcards import LIKE, Plan, successor
from holdfast.storage import layouts
from holdfast.storage.driver import Connection, Cursor, split
from holdfast.storage.postgres_values import GIVE_SWEEP_BACK, TAKE_SWEEP, Integers, Texts, columns_of, parameter_of
from holdfast.storage.revisions import HIGHEST_NODE, after

# Built from constants and counts alone: values are always bound.
# ruff: noqa: S608

_STORED = (
    "SELECT topic, revision, tombstone, CASE tombstone WHEN 0 THEN {size} ELSE 0 END FROM retained "
    "WHERE topic = ANY(CAST(? AS text[])) ORDER BY topic "
    "FOR UPDATE"
)
# xmax is 0 for an inserted row, and not for an updated one.
_WRITE = (
    f"WITH written (new) AS (INSERT INTO retained ({INSERTED}) "
    f"SELECT * FROM unnest({', '.join(map(parameter_of, layouts.retained.columns.values()))}) {ON_CONFLICT} "
    "RETURNING xmax = 0) SELECT count(*), count(*) FILTER (WHERE new) FROM written"
)
_ADD_PLACES = (
    "INSERT INTO retained (topic, revision, levels, qos, size, stored_at, tombstone, prefix3, prefix5, properties5, "
    "payload) SELECT topic, 0, 1, 0, 0, 0, 1, '', '', '', '' FROM unnest(CAST(? AS text[])) AS topic ORDER BY topic "
    "ON CONFLICT (topic) DO NOTHING"
)
_REMOVE_PLACES = "DELETE FROM retained WHERE topic = ANY(CAST(? AS text[])) AND revision = 0 AND tombstone = 1"
_ADD_LEVELS = "INSERT INTO retained_levels SELECT * FROM unnest(CAST(? AS integer[])) ON CONFLICT (levels) DO NOTHING"
# A walk needs only the index. It also returns the topics that match the pattern, if they are few.
_WALKED = (
    "SELECT CASE WHEN count(*) > :offset THEN max(topic) END AS last, "
    "coalesce(array_agg(topic) FILTER (WHERE {likely}), '{{}}') AS likely "
    "FROM (SELECT topic FROM retained WHERE {wanted}topic >= :low{high} ORDER BY topic LIMIT :offset + 1) AS walk"
)
_WALK = f"SELECT last, CASE WHEN cardinality(likely) <= {{few}} THEN likely END FROM ({_WALKED}) AS walked"
# The topics between two jumps are counted for the last jumps only: to walk over all of them costs more than the jumps.
# The walk is left out if the jumps have won.
_LEAP = (
    "WITH RECURSIVE leap (jump, topic) AS (SELECT 1, ({first}) UNION ALL "
    "SELECT jump + 1, (SELECT topic FROM retained WHERE topic >= {following}{high} ORDER BY topic LIMIT 1) "
    "FROM (SELECT jump, topic, string_to_array(topic, '/') AS levels FROM leap OFFSET 0) AS visited "
    "WHERE jump < :jumps AND topic IS NOT NULL), "
    "jumped AS (SELECT array_agg(topic ORDER BY jump) AS visited, "
    "(SELECT topic FROM retained WHERE topic >= (SELECT topic FROM leap WHERE jump = :compared_from){high} "
    "ORDER BY topic LIMIT 1 OFFSET :compared) AS break_even, "
    "(SELECT topic FROM leap ORDER BY jump DESC LIMIT 1) AS reached FROM leap) "
    "SELECT visited, break_even, last, CASE WHEN cardinality(likely) <= {few} THEN likely END "
    f"FROM jumped, LATERAL ({_WALKED}) AS walked"
)
_LOST = "NOT (reached IS NULL OR coalesce(reached > break_even, false)) AND "
#: The last jumps of a leap, for which the topics between them are counted.
_COMPARED_JUMPS = 16
_FEW = 64

#: The most rows of one statement: it is built in memory.
MOST_ROWS = 2000

#: The present time limits of statements, by connection. The history and the telemetry read with the same connections.
_TIMEOUTS: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


class PostgresStatements(Statements):
    """Executes statements in Postgres."""

    def sweeps(self, cursor: Cursor, take: bool) -> bool:
        """Take the sweep by a lock of the writer's connection, or give it back."""
        cursor.execute(TAKE_SWEEP if take else GIVE_SWEEP_BACK)
        ((done,),) = cursor.fetchall()
        return bool(done)

    pattern_syntax = LIKE
    #: three to eight milliseconds of one of the readers
    most_scanned = 32_768
    fragments = Fragments(
        empty="CAST('' AS bytea)",
        # The bytes as they are, since the connection's encoding is UTF-8. convert_to() would check each topic again.
        topic_bytes="textsend(topic)",
        topic_length="octet_length(topic)",
        length="octet_length",
        differs="IS DISTINCT FROM",
        greatest="greatest",
        among="= ANY(CAST({} AS text[]))",
        list_of="coalesce(array_agg({}), '{{}}')",
        # The aggregates take the rows in the order of the subquery: nothing above its LIMIT sorts or joins them, and no
        # aggregate of the statement has an order of its own. An ORDER BY here would cost a third of the statement.
        packets="string_agg(packet, '')",
        details="array_agg(qos), array_agg(coalesce(expires_at, 0))",
        tuple="json_build_array({})",
        tuples="json_agg(json_build_array({}))",
        for_each=(
            "SELECT json_agg(({}) ORDER BY item.number) "
            "FROM unnest(CAST(:topics AS text[])) WITH ORDINALITY AS item (value, number)"
        ),
        contains="strpos(topic, :contains) > 0",
        separator_at="strpos({}, '/')",
        lowest="chr(1)",
        numbers="array_agg(length)",
        none_longer=" AND (SELECT coalesce(max(largest_packet), 0) FROM nodes) <= :longest",
        matches_pattern="topic LIKE :pattern",
        # All nodes lock rows in the same order, so two nodes never wait for each other.
        lock=" ORDER BY {} FOR UPDATE",
        lock_free=" FOR UPDATE SKIP LOCKED",
    )

    def __init__(self) -> None:
        #: the revision that a row of this node had before it was raised to win against another node, by topic
        self._raised: dict[str, int] = {}
        self._largest_packet = 0

    def bound_list(self, values: Sequence[str]) -> Texts:
        """Return an array."""
        return Texts(values)

    def list_from(self, value: Any) -> list[Any]:
        """Return the array, which the driver has decoded."""
        values: list[Any] = value
        return values

    def tuples_from(self, value: Any) -> list[Any]:
        """Return the JSON array, which the driver has parsed."""
        return value or []

    def numbers_from(self, value: Any) -> list[int]:
        """Return the array, which the driver has decoded."""
        return value or []

    def details_from(self, qos: Any, expires_at: Any) -> tuple[bytes, tuple[int, ...]]:
        """Convert the arrays."""
        return bytes(qos), tuple(expires_at)

    @contextmanager
    def interruptible(self, connection: Any, overdue: Callable[[], bool], read_time: float) -> Iterator[None]:
        """Let the server cancel a statement after fifty times as long: meanwhile it delays other readers only."""
        self._set_timeout(connection, max(1, round(50_000 * read_time)))
        yield

    def begin_search(self, connection: Connection) -> None:
        """Remove the time limit."""
        self._set_timeout(connection, 0)

    def _set_timeout(self, connection: Any, milliseconds: int) -> None:
        if _TIMEOUTS.get(connection) != milliseconds:
            connection.execute(f"SET statement_timeout = {milliseconds}")
            _TIMEOUTS[connection] = milliseconds

    def was_interrupted(self, error: Exception) -> bool:
        """Look at the driver's class."""
        return isinstance(error, errors.QueryCanceled)

    def levels_now(self, cursor: Cursor, totals: Totals) -> frozenset[int]:
        """Ask the database: other nodes write too."""
        return self.levels(cursor)

    def largest_known_packet(self, totals: Totals) -> int:
        """Return the greater one of this node's length and the last answer of the database."""
        return max(self._largest_packet, totals.largest_packet)

    def largest_packet_now(self, cursor: Cursor, totals: Totals) -> int:
        """Ask the database: other nodes store longer packets, and a batch is bounded in bytes."""
        cursor.execute("SELECT coalesce(max(largest_packet), 0) FROM nodes")
        self._largest_packet = cursor.fetchone()[0]
        return self._largest_packet

    def leap(self, cursor: Cursor, plan: Plan, bounded: bool, bound: dict[str, Any]) -> Leap:
        """Jump and walk in one round trip; the rule for jumps is part of the statement."""
        assert plan.levels is not None
        following, sought = successor(plan.levels, plan.exact)
        jumps: int = bound["jumps"]
        topics_per_jump, compared = (bound["break_even"] + 1) // jumps, min(jumps, _COMPARED_JUMPS)
        cursor.execute(
            _leap(following, plan.exact, bounded),
            {
                **bound,
                **sought,
                **_patterns(plan),
                "compared_from": jumps - compared + 1,
                "compared": topics_per_jump * compared - 1,
            },
        )
        visited, break_even, end, likely = cursor.fetchone()
        complete = visited[-1] is None
        return Leap(visited[:-1] if complete else visited, complete, break_even, end, likely)

    def walk_and_match(
        self, cursor: Cursor, plan: Plan, bounded: bool, bound: dict[str, Any]
    ) -> tuple[str | None, Sequence[str] | None]:
        """Compare the topics with the pattern while the index is read."""
        cursor.execute(_walk(plan.exact, bounded), {**bound, **_patterns(plan)})
        end, likely = cursor.fetchone()
        return end, likely

    def write(self, cursor: Cursor, rows: Sequence[Row], node: int, change: Totals) -> None:
        """Write rows, so that the change that was accepted last wins, even if the clock of another node is ahead.

        Such a node stamps its changes with higher revisions. A later change by this node would lose to them. So it gets
        a revision above the stored one. Raises SerializationFailure if another node inserts a row between the read and
        the write; the writer repeats the transaction.
        """
        for part in split(rows, MOST_ROWS):
            self._write(cursor, part, node, change)

    def add_levels(self, cursor: Cursor, levels: Collection[int]) -> None:
        """Record level counts."""
        cursor.execute(_ADD_LEVELS, (Integers(sorted(levels)),))

    def add_places(self, cursor: Cursor, topics: Sequence[str]) -> None:
        """Insert tombstones of revision 0 that hold the place of topics. In sorted order, so no two nodes deadlock."""
        cursor.execute(_ADD_PLACES, (Texts(topics),))

    def remove_places(self, cursor: Cursor, topics: Sequence[str]) -> None:
        """Delete the tombstones of revision 0."""
        cursor.execute(_REMOVE_PLACES, (Texts(topics),))

    def usages(self, cursor: Cursor, query: str, bound: Any) -> dict[str, Usage]:
        """Read the rows."""
        cursor.execute(query, bound)
        return {topic: Usage(1, *rest) for topic, *rest in cursor.fetchall()}

    def _write(self, cursor: Cursor, rows: Sequence[Row], node: int, change: Totals) -> None:
        cursor.execute(_STORED.format(size=stored_size(self.fragments)), (Texts([row.topic for row in rows]),))
        stored = {topic: rest for topic, *rest in cursor.fetchall()}
        winners = []
        for row in rows:
            before = stored.get(row.topic)
            if before is None or row.revision > before[0]:
                self._raised.pop(row.topic, None)
                winners.append(row)
                continue
            change.highest = max(change.highest, before[0])
            # The change is newer than the stored row in two cases: another node wrote the row, or this node wrote it
            # earlier with a raised revision.
            if before[0] & HIGHEST_NODE != node or row.revision > self._raised.get(row.topic, row.revision):
                self._raised[row.topic] = row.revision
                winners.append(row._replace(revision=after(before[0], node)))
                change.highest = max(change.highest, winners[-1].revision)
            else:
                change.lost |= {row.topic}
        if not winners:
            return
        cursor.execute(_WRITE, columns_of(layouts.retained, winners))
        replaced = [stored[row.topic] for row in winners if row.topic in stored] if stored else []
        # The stored rows are locked. So if the numbers differ, another node has inserted one of the new topics.
        if cursor.fetchone() != (len(winners), len(winners) - len(replaced)):
            raise errors.SerializationFailure("another node has written these topics at the same time")
        present = len(replaced) - sum(tombstone for _, tombstone, _ in replaced)
        change.count += len(winners) - sum(row.tombstone for row in winners) - present
        change.bytes += sum(map(stored_row_size, winners)) - sum(size for _, _, size in replaced)
        levels = frozenset(row.levels for row in winners)
        change.add(Totals(largest_packet=max(map(longest_packet, winners)), levels=levels))
        if change.written is not None:
            change.written += winners


@lru_cache(maxsize=256)
def _leap(following: str, exact: bool, bounded: bool) -> str:
    high = below(bounded)
    return _LEAP.format(
        first=FIRST.format(high=high),
        following=following,
        high=high,
        likely=_likely(exact),
        few=_FEW,
        wanted=_LOST,
    )


@lru_cache
def _walk(exact: bool, bounded: bool) -> str:
    return _WALK.format(high=below(bounded), likely=_likely(exact), few=_FEW, wanted="")


def _likely(exact: bool) -> str:
    return "topic LIKE :pattern" + ("" if exact else " OR topic LIKE :deeper")


def _patterns(plan: Plan) -> dict[str, str]:
    pattern = plan.pattern(LIKE)
    return {"pattern": pattern, "deeper": f"{pattern}/{LIKE.wild}"}
