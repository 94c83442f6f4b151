"""Searches end after a bounded number of rows, and their pages together are one plain filter."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred, succeed

from holdfast.core.topics import EVERY_TOPIC
from holdfast.retained import searches
from holdfast.retained.searches import Searches, scan_places
from holdfast.retained.store.interfaces import IRetainedStore
from holdfast.retained.store.values import Order, Search, Sorting
from holdfast.scheduling.fair_line import LineFull, Places
from holdfast.storage.revisions import RevisionClock
from tests.retained.store.contract import NOW, clear, few, put
from tests.retained.store.memory import MemoryRetainedStore
from tests.retained.store.scan_contract import CONDITIONS, fields, fill, is_wanted
from tests.retained.strategies import topic_filters, topics
from tests.storage.doubles import Wall, result_of

_BYTES = 1 << 20


def memory() -> IRetainedStore:
    return MemoryRetainedStore(RevisionClock(1, 0, Wall()))


def searching(store: IRetainedStore) -> Searches:
    return Searches(store.scans, lambda: succeed(None))


@few
@given(
    st.lists(fields, max_size=12),
    st.lists(st.tuples(topics, st.booleans()), max_size=8),
    topic_filters() | st.just(EVERY_TOPIC),
    st.sampled_from(CONDITIONS),
    st.integers(1, 3),
)
def test_pages_together_find_each_unchanged_message_once_despite_changes(
    rows: list[Any],
    changes: list[tuple[str, bool]],
    topic_filter: str,
    conditions: dict[str, Any],
    limit: int,
) -> None:
    """Others set and clear topics between the pages. No topic is found twice."""
    store = memory()
    kept = fill(store, rows, [])
    search = Search(topic_filter, NOW, **conditions)
    changed = {topic for topic, _ in changes}
    found: list[str] = []
    after, done = "", False
    while not done:
        page = result_of(searching(store).page(search, after, limit, _BYTES))
        assert len(page.entries) <= limit
        found += [one.message.topic for one in page.entries]
        after, done = page.after, page.done
        if changes:
            topic, there = changes.pop()
            if there:
                put(store, topic, b"new")
            else:
                clear(store, topic)
    assert found == sorted(set(found))
    unchanged = {one.topic for one in kept if is_wanted(search, one) and one.topic not in changed}
    assert {topic for topic in found if topic not in changed} == unchanged


def test_a_search_with_rare_matches_ends_early_with_a_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says how many rows it has looked at, and goes on from there."""
    monkeypatch.setattr(searches, "MOST_SCANNED", 10)
    monkeypatch.setattr(searches, "_FIRST_ROWS", 4)
    store = memory()
    for number in range(30):
        put(store, f"{number:02}", client_id="rare" if number == 25 else None)
    search = Search("#", NOW, client_id="rare")
    first = result_of(searching(store).page(search, "", 5, _BYTES))
    assert (first.entries, first.done, first.scanned, first.after) == ([], False, 10, "09")
    second = result_of(searching(store).page(search, "19", 5, _BYTES))
    assert [one.message.topic for one in second.entries] == ["25"]


@few
@given(st.lists(fields, max_size=12), st.sampled_from(Order), st.booleans(), st.integers(1, 3))
def test_sorted_pages_together_have_every_message_in_order(
    rows: list[Any], by: Order, descending: bool, limit: int
) -> None:
    """Messages with equal values are in topic order, also across pages."""
    store = memory()
    search = Search(EVERY_TOPIC, NOW)
    wanted = [one for one in fill(store, rows, []) if is_wanted(search, one)]
    found: list[str] = []
    sorting = Sorting(by, descending)
    while True:
        page = result_of(searching(store).sorted(search, sorting, limit, "caller"))
        found += [one.message.topic for one in page.entries]
        if page.last is None:
            break
        sorting = Sorting(by, descending, page.last)
    places = [(one.stored_at if by is Order.TIME else len(one.payload), one.topic) for one in wanted]
    assert found == [topic for _, topic in sorted(places, key=Sorting(by, descending).rank)]


def test_a_count_of_many_rows_is_a_lower_bound_unless_it_must_be_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searches, "MOST_SCANNED", 4)
    monkeypatch.setattr(searches, "ROWS_OF_COUNT", 4)
    store = memory()
    for number in range(9):
        put(store, f"{number}", expires_at=NOW if number == 8 else None)
    for exact, count, scanned in ((False, 4, 4), (True, 8, 9)):
        counted = result_of(searching(store).count(Search("#", NOW), exact, "caller"))
        assert (counted.tally.count, counted.exact, counted.scanned) == (count, exact, scanned)
    assert result_of(searching(store).count(Search("+", NOW, most_size=0), False, "caller")).tally.count == 0


def test_a_cancelled_scan_stops_reading_and_gives_its_place_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the caller hangs up."""
    monkeypatch.setattr(searches, "ROWS_OF_COUNT", 1)
    store = memory()
    for topic in "abc":
        put(store, topic)
    pauses: list[Deferred[None]] = []

    def pause() -> Deferred[None]:
        pauses.append(Deferred())
        return pauses[-1]

    asking = Searches(store.scans, pause)
    running = asking.sorted(Search("#", NOW), Sorting(Order.TIME, True), 1, "caller")
    waiting = asking.count(Search("#", NOW), True, "caller")
    assert len(pauses) == 1
    running.cancel()
    with pytest.raises(CancelledError):
        result_of(running)
    assert len(pauses) == 2  # the second scan has the place now
    waiting.cancel()
    with pytest.raises(CancelledError):
        result_of(waiting)


class TestPlaces:
    def taken(self, places: Places, caller: Hashable, order: list[Any]) -> Deferred[Any]:
        turn = places.take(caller)
        turn.addCallbacks(lambda leave: order.append((caller, leave)), lambda _: None)
        return turn

    def test_each_caller_has_one_place_and_all_have_a_few(self) -> None:
        places, order = scan_places(), []  # type: ignore[var-annotated]
        for caller in "aabcdea":
            self.taken(places, caller, order)
        assert [caller for caller, _ in order] == ["a", "b", "c", "d"]
        order[1][1]()
        assert [caller for caller, _ in order] == ["a", "b", "c", "d", "e"]
        order[0][1]()
        assert [caller for caller, _ in order] == ["a", "b", "c", "d", "e", "a"]

    def test_a_waiting_scan_can_be_cancelled(self) -> None:
        places, order = scan_places(), []  # type: ignore[var-annotated]
        for caller in "aa":
            turn = self.taken(places, caller, order)
        turn.cancel()
        order[0][1]()
        assert len(order) == 1

    def test_the_line_is_bounded_for_one_caller_and_for_all(self) -> None:
        places = scan_places()
        for _ in range(9):
            places.take("a").addErrback(lambda _: None)
        with pytest.raises(LineFull, match="8 of your requests"):
            places.take("a")
        for number in range(59):
            places.take(number).addErrback(lambda _: None)
        with pytest.raises(LineFull, match="64 requests wait"):
            places.take("b")
