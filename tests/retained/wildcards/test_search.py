"""A search for a Topic Filter with wildcards, by jumps and by walks, reads exactly the matches of the plain matcher.

Bounds are so small here that every statement reaches them. The cost of a search is counted in rows and in instructions
of SQLite's virtual machine, which are the same in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count, product
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.core.messages import RetainedChange
from holdfast.core.topics import matches
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.retained.store.statements_postgres import PostgresStatements
from holdfast.retained.store.wildcards import (
    FEWEST_JUMPS,
    FEWEST_TOPICS,
    WALKS_WITHOUT_JUMPS,
    Plan,
    ScanSize,
    plan,
    successor,
)
from tests.retained.store import test_postgres, test_sql
from tests.retained.store.contract import NOW, clear, message, put, selection, topics_read
from tests.retained.store.slice_topics import topics_of
from tests.retained.strategies import levels, topic_filters, topics
from tests.storage.doubles import Bench, result_of

Opened = Callable[..., AbstractContextManager[SQLRetainedStore]]


@contextmanager
def sqlite(**options: Any) -> Iterator[SQLRetainedStore]:
    """Open an empty store in a file."""
    with test_sql.opened(**options) as (_, store):
        yield store


STORES: dict[str, Opened] = {"sqlite": sqlite, "postgres": test_postgres.opened}
searching = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])


@pytest.fixture(params=list(STORES))
def opened(request: pytest.FixtureRequest) -> Opened:
    """Each database."""
    return STORES[request.param]


@st.composite
def trees(draw: st.DrawFn) -> set[str]:
    """Topics that share levels, so that a search can jump to siblings, and a few other topics."""
    alphabets = [draw(st.lists(levels, min_size=1, max_size=4, unique=True)) for _ in range(draw(st.integers(1, 4)))]
    grown = {"/".join(names) for names in product(*alphabets)} - {""}
    return set(sorted(grown)[:80]) | draw(st.sets(topics, max_size=10))


@st.composite
def filters_of(draw: st.DrawFn, names: set[str]) -> str:
    """A Topic Filter made from an existing topic, or any Topic Filter."""
    if not names or draw(st.integers(0, 4)) == 0:
        return draw(topic_filters())
    wanted = draw(st.sampled_from(sorted(names))).split("/")
    for position in range(len(wanted)):
        if draw(st.booleans()):
            wanted[position] = "+"
    kept = draw(st.integers(1, len(wanted)))
    if draw(st.booleans()):
        wanted[kept:] = ["#"]
    return "/".join(wanted) or "/"


bounds = st.fixed_dictionaries(
    {
        "scan_rows": st.sampled_from([1, 2, 3, 5, 16, 8192]),
        "jump_rows": st.sampled_from([1, 2, 4, 64]),
        "read_time": st.sampled_from([2, 5, 1000]),
    }
)
pages = st.tuples(st.sampled_from([1, 2, 3, 7, 1000]), st.sampled_from([1, 2, 100]), st.sampled_from([1, 90, 1 << 20]))


@searching
@given(data=st.data())
@pytest.mark.parametrize("store_name", list(STORES))
def test_a_search_reads_exactly_the_matches_of_the_plain_matcher(store_name: str, data: st.DataObject) -> None:
    """In order, once, from every cursor, while topics are changed and cleared between the reads.

    A topic that changes before its read is left to the live message. All other matches up to the new cursor are read.
    """
    names = data.draw(trees())
    ticks = count()
    with STORES[store_name](seconds=lambda: float(next(ticks)), **data.draw(bounds)) as store:
        for topic in names:
            put(store, topic)
        start = store.next_revision()
        for topic_filter in data.draw(st.lists(filters_of(names), min_size=1, max_size=4)):
            wanted = selection(topic_filter, data.draw(st.sampled_from([4, 5])), not_after=start)
            unchanged = set(names)
            after, done = "", False
            while not done:
                rows, slice_rows, max_bytes = data.draw(pages)
                batch = result_of(store.read(wanted, after, rows, slice_rows, max_bytes, False))
                assert batch.done or batch.after > after, "a read without progress"
                found = [topic for one in batch.slices for topic in topics_of(one, wanted.protocol_version)]
                assert found == sorted(
                    topic
                    for topic in unchanged
                    if matches(topic_filter, topic) and after < topic and (batch.done or topic <= batch.after)
                )
                after, done = batch.after, batch.done
                for topic in data.draw(st.lists(st.sampled_from(sorted(names)), max_size=2)) if names else ():
                    if data.draw(st.booleans()):
                        put(store, topic)
                    else:
                        clear(store, topic)
                    unchanged.discard(topic)
            for topic in names - unchanged:  # as they were, for the next filter
                stored = message(topic, revision=store.next_revision())
                assert store.put(RetainedChange(topic, stored.revision, NOW, stored)).failure is None
            start = store.next_revision()


def test_a_topic_and_the_topics_below_it_are_read_one_by_one(opened: Opened) -> None:
    """``a/#`` has two ranges: the end of the first one does not hide the second one."""
    with opened() as store:
        for topic in ("a", "a!", "a/b", "a/c"):
            put(store, topic)
        assert topics_read(store, selection("a/#"), slice_rows=1) == ["a", "a/b", "a/c"]


def test_a_level_with_the_sought_level_as_prefix_hides_no_match(opened: Opened) -> None:
    """``x/a!`` lies between ``x/a`` and the topics below it."""
    with opened(jump_rows=1) as store:
        for first, second in product("xyz", ("a", "a!", "a!/b", "a/b", "a/c", "b")):
            put(store, f"{first}/{second}")
        assert topics_read(store, selection("+/a/b")) == ["x/a/b", "y/a/b", "z/a/b"]
        assert topics_read(store, selection("+/a/#")) == [
            f"{x}/{below}" for x in "xyz" for below in ("a", "a/b", "a/c")
        ]


def test_a_search_that_jumps_all_the_way_reads_every_match(opened: Opened) -> None:
    """More matches than a slice, a read and a leap can have, and other topics between all of them."""
    with opened(jump_rows=1) as store:
        for site, device in product(range(12), range(8)):
            put(store, f"site/{site:02}/{device}/v")
        expected = [f"site/{site:02}/5/v" for site in range(12)]
        for rows in (1, 5, 100):
            for topic_filter in ("site/+/5/v", "site/+/5/#", "+/+/5/+"):
                assert topics_read(store, selection(topic_filter), rows=rows, slice_rows=3) == expected


@pytest.mark.parametrize("sites", [20, 90])
def test_a_search_that_walks_reads_every_match(opened: Opened, sites: int) -> None:
    """Few matches in a window, and also more than one statement lists; at the filter's last level and below it."""
    with opened() as store:
        for site, below in product(range(sites), ("a", "a/b", "b", "b/c/d", "c")):
            put(store, f"{site:02}/{below}")
        assert topics_read(store, selection("+/b")) == [f"{site:02}/b" for site in range(sites)]
        expected = [f"{site:02}/{below}" for site in range(sites) for below in ("b", "b/c/d")]
        assert topics_read(store, selection("+/b/#"), slice_rows=7) == expected


@given(topic_filters(), topics)
def test_the_successor_is_never_the_topic_and_passes_no_match(topic_filter: str, topic: str) -> None:
    planned = plan(topic_filter)
    if planned.levels is not None and any(one.after("") and found_in(one, topic) for one in planned.ranges):
        following = planned.successor(topic)
        assert following is None or following > topic


def found_in(key_range: Any, topic: str) -> bool:
    """Tell whether a topic is in a range."""
    return bool(key_range.low <= topic and (key_range.high is None or topic < key_range.high))


@searching
@given(data=st.data())
def test_postgres_jumps_to_the_same_topic_as_the_plan(data: st.DataObject) -> None:
    """The SQL expression and the plan's method have the same results."""
    topic_filter, names = data.draw(topic_filters()), data.draw(st.lists(topics, min_size=1, max_size=30))
    planned = plan(topic_filter)
    names = [topic for topic in names if any(found_in(one, topic) for one in planned.ranges)]
    if planned.levels is None or not names:
        return
    expression, bound = successor(planned.levels, planned.exact)
    with connected() as cursor:
        cursor.execute(
            f'SELECT array_agg({expression} ORDER BY number) FROM (SELECT number, topic COLLATE "C" AS topic, '
            "string_to_array(topic, '/') AS levels FROM unnest(CAST(:names AS text[])) "
            "WITH ORDINALITY AS each (topic, number)) AS visited",
            {"names": names, **bound},
        )
        assert cursor.fetchone()[0] == [planned.successor(topic) for topic in names]


@searching
@given(data=st.data())
def test_a_leap_of_postgres_finds_what_a_leap_over_a_sorted_list_finds(data: st.DataObject) -> None:
    """Its jumps, whether they have won, and otherwise its walk."""
    names = data.draw(trees())
    planned = plan(data.draw(filters_of(names).filter(lambda topic_filter: plan(topic_filter).levels is not None)))
    assert planned.levels is not None
    jumps, topics_per_jump = data.draw(st.integers(2, 40)), data.draw(st.sampled_from([1, 2, 64]))
    offset = data.draw(st.integers(0, 100))
    with test_postgres.opened() as store, connected() as cursor:
        for topic in names:
            put(store, topic)
        for part in planned.ranges:
            inside = sorted(topic for topic in names if found_in(part, topic))
            bound = {"low": part.low, "high": part.high, "jumps": jumps, "offset": offset}
            bound["break_even"] = jumps * topics_per_jump - 1
            leap = PostgresStatements().leap(cursor, planned, part.high is not None, bound)
            visited = jumped(inside, planned, jumps)
            assert leap.complete == (visited[-1] is None)
            assert list(leap.visited) == [topic for topic in visited if topic is not None]
            assert (
                all(topic in leap.visited for topic in inside if matches(planned.topic_filter, topic))
                or not leap.complete
            )
            compared = min(jumps, 16)
            after = inside[inside.index(leap.visited[-compared]) :] if len(leap.visited) == jumps else []
            break_even = after[compared * topics_per_jump - 1 :][:1]
            assert leap.complete or leap.break_even == (break_even[0] if break_even else None)
            if not leap.complete and not (break_even and leap.visited[-1] > break_even[0]):
                walk = inside[: offset + 1]
                assert leap.end == (walk[-1] if len(walk) > offset else None)
                expected = {topic for topic in walk if matches(planned.topic_filter, topic)}
                assert leap.likely is None or expected <= set(leap.likely) <= set(walk)
                alone = PostgresStatements().walk_and_match(cursor, planned, part.high is not None, bound)
                assert alone == (leap.end, leap.likely)


def jumped(names: list[str], planned: Plan, jumps: int) -> list[str | None]:
    """Return the topics that jumps over sorted topics reach; the last one is None if no topic is left."""
    visited: list[str | None] = [names[0] if names else None]
    while len(visited) < jumps and visited[-1] is not None:
        following = planned.successor(visited[-1])
        visited.append(next((topic for topic in names if following is not None and topic >= following), None))
    return visited


@contextmanager
def connected() -> Iterator[Any]:
    """A cursor on Postgres."""
    from holdfast.storage.postgres import PostgresCursor

    url = test_postgres.database().replace("+psycopg", "")
    with psycopg.connect(url, autocommit=True, cursor_factory=PostgresCursor) as connection:
        yield connection.cursor()


# --- how far one statement goes


def test_the_winning_way_doubles_and_the_other_one_starts_anew() -> None:
    size = ScanSize(64, 8192)
    for _ in range(3):
        size.walked()
    assert (size.jumps, size.topics) == (FEWEST_JUMPS, 8 * FEWEST_TOPICS)
    size.jumped()
    assert (size.jumps, size.topics) == (2 * FEWEST_JUMPS, FEWEST_TOPICS)
    size.filled()
    assert (size.jumps, size.topics, size.dense) == (0, FEWEST_TOPICS, True)
    size.walked()
    assert (size.jumps, size.topics, size.dense) == (FEWEST_JUMPS, 2 * FEWEST_TOPICS, False)


def test_where_jumps_have_lost_at_the_largest_size_they_are_tried_in_every_eighth_statement() -> None:
    size = ScanSize(64, 2 * FEWEST_TOPICS)
    tried = []
    for _ in range(1 + 3 * 8):
        tried.append(size.jumps)
        size.walked()
    assert tried == [FEWEST_JUMPS] + 3 * [FEWEST_JUMPS, *[0] * WALKS_WITHOUT_JUMPS]
    for lost_or_won in (ScanSize.filled, ScanSize.jumped):
        lost_or_won(size)
        size.walked()
        assert size.jumps == FEWEST_JUMPS


@given(st.integers(1, 100), st.integers(1, 10_000), st.lists(st.sampled_from([ScanSize.jumped, ScanSize.walked])))
def test_scan_sizes_stay_within_their_limits(
    topics_per_jump: int, most: int, steps: list[Callable[[ScanSize], None]]
) -> None:
    size = ScanSize(topics_per_jump, most)
    for step in steps:
        step(size)
        assert 1 <= size.topics <= most
        assert size.jumps == 0 or 2 <= size.jumps <= max(2, most / topics_per_jump)


# --- the cost of a search


class Meter:
    """Counts the instructions of each statement that a bench's reader runs."""

    def __init__(self, bench: Bench) -> None:
        assert bench.store.parts is not None
        self.statements: list[int] = []
        connection: Any = result_of(bench.store.parts.readers.read(lambda connection: connection))
        connection.set_trace_callback(lambda _: self.statements.append(0))
        connection.set_progress_handler(self._count, 10)

    def _count(self) -> None:
        self.statements[-1] += 10

    def reading(self, store: SQLRetainedStore, topic_filter: str) -> int:
        """Return the instructions for reading all matches."""
        self.statements.clear()
        topics_read(store, selection(topic_filter))
        return sum(self.statements)

    def of(self, bench: Bench, statement: str) -> int:
        """Return the instructions of a statement."""
        assert bench.store.parts is not None
        self.statements.clear()
        bench.store.parts.readers.read(lambda connection: connection.cursor().execute(statement).fetchall())
        return sum(self.statements)


@contextmanager
def filled(sites: int, devices: int, **options: Any) -> Iterator[tuple[Bench, SQLRetainedStore, Meter]]:
    """Open a store with topics of sites and their devices, written in few commits."""
    with test_sql.opened(seconds=lambda: 0.0, **options) as (bench, store):
        bench.executor.manual = True
        for site, device in product(range(sites), range(devices)):
            topic = f"site/{site}/dev/{device}/temp"
            stored = message(topic, revision=store.next_revision())
            store.put(RetainedChange(topic, stored.revision, NOW, stored))
        bench.executor.stop()
        bench.executor.manual = False
        yield bench, store, Meter(bench)


def test_the_cost_of_a_selective_search_hardly_depends_on_the_rows_between_matches() -> None:
    """With five times as many rows between the siblings, it takes less than 1.5 times as long."""
    costs = []
    for devices in (400, 2000):
        with filled(10, devices) as (_, store, meter):
            costs.append(meter.reading(store, "site/+/dev/77/#"))
            assert topics_read(store, selection("site/+/dev/77/#")) == [
                f"site/{site}/dev/77/temp" for site in range(10)
            ]
    few, many = costs
    assert many < 1.5 * few


@pytest.mark.parametrize("topic_filter", ["+/+/+/+/hum", "site/+/dev/+/hum", "site/+/+/+/hum/#"])
def test_a_search_without_matches_costs_little_more_than_one_scan(topic_filter: str) -> None:
    """A search seldom tries jumps that gain nothing: it costs 1.5 times one statement over the whole table."""
    with filled(40, 500) as (bench, store, meter):
        pattern = topic_filter.replace("+", "*").replace("/#", "")
        scan = meter.of(
            bench,
            "SELECT count(*) FROM retained WHERE tombstone = 0 AND (expires_at IS NULL OR expires_at > 0) "
            f"AND (revision <= {2**62} OR revision & 255 <> 1) AND levels = 5 AND +topic GLOB '{pattern}'",
        )
        assert meter.reading(store, topic_filter) < 1.5 * scan


@pytest.mark.parametrize("topic_filter", ["+/+/+/+/hum", "site/+/dev/77/#", "site/+/dev/+/temp", "+/+/#", "site/+/+"])
def test_every_statement_scans_a_bounded_number_of_topics(topic_filter: str) -> None:
    """For any content of the table: so one statement never blocks other reads for long."""
    with filled(40, 500, scan_rows=512) as (_, store, meter):
        meter.reading(store, topic_filter)
        assert 0 < max(meter.statements) < 512 * 40
