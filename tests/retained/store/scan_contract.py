"""The promises of scans, on every store. The tests of each store inherit them."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import succeed

from holdfast.core.messages import RetainedMessage, stored_size
from holdfast.core.topics import EVERY_TOPIC, matches
from holdfast.identity.interfaces import Grant
from holdfast.retained.permitted import PermittedMessages, PermittedTree
from holdfast.retained.permitted import Place as Stopped
from holdfast.retained.store.interfaces import IRetainedScans, IRetainedStore
from holdfast.retained.store.scans import first_places
from holdfast.retained.store.values import ListedMessage, Order, Place, Search, Sorting, Stop, Tally
from tests.retained.store.contract import NOW, clear, few, put
from tests.retained.strategies import topic_filters, topics
from tests.storage.doubles import result_of

#: the conditions of a Search, one example of each
CONDITIONS: list[dict[str, Any]] = [
    {},
    {"expired": True},
    {"client_id": "one"},
    {"username": "user"},
    {"stored_from": NOW - 5},
    {"stored_before": NOW - 5},
    {"least_size": 2},
    {"most_size": 1},
    {"contains": "a"},
    {"contains": "%"},
    {"client_id": "one", "least_size": 1, "stored_before": NOW},
]

fields = st.tuples(
    topics,
    st.binary(min_size=1, max_size=3),
    st.sampled_from([None, "one", "two"]),
    st.sampled_from([None, "user"]),
    st.integers(NOW - 9, NOW),
    st.sampled_from([None, None, NOW - 1, NOW, NOW + 1]),
)


def fill(store: IRetainedStore, rows: list[Any], cleared: list[int]) -> list[RetainedMessage]:
    """Store messages, clear some of their topics, and return the others in topic order, expired ones too."""
    kept: dict[str, RetainedMessage] = {}
    for topic, payload, client_id, username, stored_at, expires_at in rows:
        kept[topic] = put(
            store,
            topic,
            payload,
            client_id=client_id,
            username=username,
            stored_at=stored_at,
            expires_at=expires_at,
        )
    for number in cleared:
        if number < len(rows) and rows[number][0] in kept:
            clear(store, rows[number][0])
            del kept[rows[number][0]]
    return [kept[topic] for topic in sorted(kept)]


class Asker:
    """May receive what Topic Filters match. Is granted one of these as a whole."""

    def __init__(self, allowed: list[str]) -> None:
        self._allowed = allowed

    def grant(self, topic_filter: str) -> Grant:
        return Grant.GRANTED if topic_filter in self._allowed else Grant.FILTERED

    def may_receive(self, topic: str) -> bool:
        return any(matches(one, topic) for one in self._allowed)


def is_wanted(search: Search, message: RetainedMessage) -> bool:
    """Tell whether a search selects a message, condition by condition."""
    size = len(message.payload)
    return all(
        (
            search.topic_filter == EVERY_TOPIC or matches(search.topic_filter, message.topic),
            (message.expires_at is not None and message.expires_at <= search.now) == search.expired,
            search.client_id in (None, message.client_id),
            search.username in (None, message.username),
            search.stored_from is None or message.stored_at >= search.stored_from,
            search.stored_before is None or message.stored_at < search.stored_before,
            search.least_size is None or size >= search.least_size,
            search.most_size is None or size <= search.most_size,
            search.contains is None or search.contains in message.topic,
        )
    )


def found(scans: IRetainedScans, search: Search, rows: int, limit: int, payloads: bool = True) -> list[ListedMessage]:
    """Find all messages, part by part."""
    messages: list[ListedMessage] = []
    after, done = "", False
    for _ in range(1000):
        part = result_of(scans.search(search, after, rows, limit, 1000, payloads))
        assert len(part.entries) <= limit
        assert part.passed.scanned <= rows
        assert part.passed.done or part.passed.after > after, "a part without progress"
        messages += part.entries
        after, done = part.passed.after, part.passed.done
        if done:
            return messages
    raise AssertionError("the search does not come to an end")


def counted(scans: IRetainedScans, search: Search, rows: int) -> Tally:
    """Count part by part."""
    tally, after, done = Tally(), "", False
    while not done:
        part = result_of(scans.tally(search, after, rows))
        tally, after, done = tally.plus(part.tally), part.passed.after, part.passed.done
    return tally


def ranked(scans: IRetainedScans, search: Search, sorting: Sorting, rows: int, limit: int) -> list[Place]:
    """Sort part by part."""
    places: list[Place] = []
    after, done = "", False
    while not done:
        part = result_of(scans.rank(search, sorting, after, rows, limit))
        places = first_places([*places, *part.places], sorting, limit)
        after, done = part.passed.after, part.passed.done
    return places


class ScanContract:
    """The promises of :class:`holdfast.retained.store.interfaces.IRetainedScans`."""

    def opened(self) -> AbstractContextManager[IRetainedStore]:
        """Open an empty store with node 1, for one test."""
        raise NotImplementedError

    @few
    @given(
        st.lists(fields, max_size=12),
        st.lists(st.integers(0, 11), max_size=3),
        topic_filters() | st.just(EVERY_TOPIC),
        st.sampled_from(CONDITIONS),
        st.integers(1, 5),
        st.integers(1, 3),
    )
    def test_scans_find_count_and_sort_what_a_plain_filter_selects(
        self,
        rows: list[Any],
        cleared: list[int],
        topic_filter: str,
        conditions: dict[str, Any],
        most: int,
        limit: int,
    ) -> None:
        """In parts of any size: each message exactly once, the same tally, and the same first places."""
        search = Search(topic_filter, NOW, **conditions)
        with self.opened() as store:
            expected = [one for one in fill(store, rows, cleared) if is_wanted(search, one)]
            scans = store.scans
            assert [one.message for one in found(scans, search, most, limit)] == expected
            sizes = [stored_size(one.topic, one.properties, len(one.payload)) for one in expected]
            newest = max((one.stored_at for one in expected), default=None)
            assert counted(scans, search, most) == Tally(len(expected), sum(sizes), newest)
            for by, descending in ((Order.TIME, True), (Order.TIME, False), (Order.SIZE, True), (Order.SIZE, False)):
                places = [(one.stored_at if by is Order.TIME else len(one.payload), one.topic) for one in expected]
                sorting = Sorting(by, descending)
                inorder = sorted(places, key=sorting.rank)
                assert ranked(scans, search, sorting, most, limit) == inorder[:limit]
                if inorder:
                    further = evolve(sorting, beyond=inorder[0])
                    assert ranked(scans, search, further, most, limit) == inorder[1 : limit + 1]
            among = [row[0] for row in rows if topic_filter == EVERY_TOPIC or matches(topic_filter, row[0])]
            listed = result_of(scans.listed(search, among))
            assert [one.message.topic for one in listed] == [one.topic for one in expected]

    @pytest.mark.parametrize("allowed", [["a/#", "$x/#"], ["+/b", "a"], ["#", "+/+/#", "/+/#", "a/+/#", "b/+/#"], []])
    def test_clients_see_what_they_may_receive(self, allowed: list[str]) -> None:
        """All pages together have each message that is allowed, once; counts and levels have the same messages."""
        topics = ["/e", "a", "a!", "a!/b", "a/b", "a/b/c", "a/c", "b", "b/b", "$x/y"]
        asker = Asker(allowed)
        with self.opened() as store:
            for topic in (*topics, "gone"):
                put(store, topic)
            clear(store, "gone")
            messages = PermittedMessages(store, None, lambda: NOW, lambda: succeed(None))
            tree = PermittedTree(messages)
            for topic_filter in ("#", "a/#", "+/b", "$x/#"):
                expected = [t for t in sorted(topics) if matches(topic_filter, t) and asker.may_receive(t)]
                for limit in (1, 3):
                    seen: list[str] = []
                    place: Stopped | None = Stopped("")
                    while place is not None:

                        def take(entry: ListedMessage, seen: list[str] = seen) -> bool:
                            seen.append(entry.message.topic)
                            return True

                        place = result_of(messages.page(asker, topic_filter, place.topic, limit, False, take))
                    assert seen == expected
                    total, place = 0, Stopped("")
                    while place is not None:
                        counted = result_of(messages.count(asker, topic_filter, place.topic, limit))
                        total, place = total + counted.tally.count, counted.place
                    assert total == len(expected)
            for parent, base in ((None, ""), ("a", "a/"), ("a/b", "a/b/")):
                below = [t for t in topics if t.startswith(base) and asker.may_receive(t)]
                below = [t for t in below if base or t[0] != "$"]
                for limit in (1, 2, 9):
                    shown: dict[str, int] = {}
                    low: str | None = ""
                    while low is not None:
                        level = result_of(tree.level(asker, parent, low or None, limit))
                        shown |= {node.topic: node.tally.count for node in level.nodes}
                        low = None if level.place is None else level.place.topic
                    assert shown == Counter(base + t[len(base) :].partition("/")[0] for t in below)

    def test_listed_messages_have_the_beginnings_of_their_payloads(self) -> None:
        """As many bytes as asked for, none by default; the size is that of the whole payload."""
        with self.opened() as store:
            stored = put(store, "a", b"\x00\xff3")
            for most, payload in ((0, b""), (2, b"\x00\xff"), (9, b"\x00\xff3")):
                (one,) = result_of(store.scans.listed(Search("#", NOW), ["a", "b"], most))
                assert one == ListedMessage(evolve(stored, payload=payload), 3)
            (one,) = result_of(store.scans.listed(Search("#", NOW), ["a"]))
            assert one == ListedMessage(evolve(stored, payload=b""), 3)

    def test_found_messages_have_payloads_only_if_asked_for(self) -> None:
        """The size is always there."""
        with self.opened() as store:
            stored = put(store, "a", b"12")
            for payloads, payload in ((True, b"12"), (False, b"")):
                (one,) = found(store.scans, Search("#", NOW), 9, 9, payloads)
                assert one == ListedMessage(evolve(stored, payload=payload), 2)

    def test_a_part_has_few_bytes_but_at_least_one_message(self) -> None:
        with self.opened() as store:
            for topic in "abc":
                put(store, topic, b"x" * 600)
            part = result_of(store.scans.search(Search(EVERY_TOPIC, NOW), "", 9, 9, 700, True))
            assert [one.message.topic for one in part.entries] == ["a"]
            assert (part.passed.after, part.passed.done) == ("a", False)
            part = result_of(store.scans.search(Search(EVERY_TOPIC, NOW), "a", 9, 9, 10, True))
            assert [one.message.topic for one in part.entries] == ["b"]

    def test_later_changes_of_a_node_can_be_left_out(self) -> None:
        with self.opened() as store:
            put(store, "old")
            stamp = store.next_revision()
            put(store, "new")
            search = Search("#", NOW, not_after=stamp, node=1)
            assert [one.message.topic for one in found(store.scans, search, 9, 9)] == ["old"]

    def test_a_walk_stops_at_each_topic_of_a_level_and_once_below_each_name(self) -> None:
        """An empty level is a name. A stop at a tombstone is not live."""
        with self.opened() as store:
            for topic in ("a", "a!", "a!/x", "a/b", "a/c", "a//d", "b/c/d", "/e", "$SYS/x", "gone"):
                put(store, topic)
            clear(store, "gone")
            scans = store.scans

            def stops(base: str, low: str = "", rows: int = 99) -> list[str]:
                return [one.topic for one in result_of(scans.level(base, low, rows, NOW)) if one.live]

            assert stops("") == ["$SYS/x", "/e", "a", "a!", "a!/x", "a//d", "b/c/d"]
            assert stops("a/") == ["a//d", "a/b", "a/c"]
            assert stops("a//") == ["a//d"]
            assert stops("/") == ["/e"]
            assert stops("b/") == ["b/c/d"]
            assert stops("c/") == []
            assert stops("", "a!/", 2) == ["a!/x", "a//d"]

    def test_parents_are_the_topics_that_a_topic_begins_with(self) -> None:
        """A tombstone is not live."""
        with self.opened() as store:
            for topic in ("a", "a!", "a!!!", "a!!a", "a!/b", "s", "s/", "s/t", "s/t!", "s/u"):
                put(store, topic)
            clear(store, "a!")
            scans = store.scans

            def parents(base: str, topic: str) -> list[str]:
                return [one.topic for one in result_of(scans.parents(base, topic, NOW)) if one.live]

            assert parents("", "a!!b") == ["a"]
            assert parents("", "a!!!!") == ["a", "a!!!"]
            assert parents("", "a") == []
            assert parents("", "zzz") == []
            assert parents("s/", "s/t!!") == ["s/", "s/t", "s/t!"]
            assert parents("s/", "s/") == []

    def test_messages_below_topics_are_counted_up_to_a_bound(self) -> None:
        with self.opened() as store:
            put(store, "a", stored_at=NOW + 9)
            put(store, "a/1", stored_at=NOW - 2)
            put(store, "a/2", stored_at=NOW - 1, expires_at=NOW)
            put(store, "a/3/4", stored_at=NOW - 3)
            put(store, "a!")
            one, two, three, none = result_of(store.scans.below(["a", "a/3", "a!", ""], 3, NOW))
            size = 200 + len("a/1") + 1 + 1
            assert (one.tally, one.scanned, one.exact) == (Tally(2, 2 * size + 2, NOW - 2), 3, False)
            assert (two.tally, two.scanned, two.exact) == (Tally(1, size + 2, NOW - 3), 1, True)
            assert (three.tally, none.tally) == (Tally(), Tally())

    def test_a_stop_has_the_bytes_and_the_time_of_its_message(self) -> None:
        with self.opened() as store:
            stored = put(store, "é/b", b"12345", stored_at=NOW - 7)
            size = stored_size(stored.topic, stored.properties, 5)
            assert result_of(store.scans.level("", "", 9, NOW)) == [Stop("é/b", True, size, NOW - 7)]
