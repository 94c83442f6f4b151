"""The promises of every retained store. The tests of each store inherit them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.core.clients import GUESTS, payers_of
from holdfast.core.messages import RetainedChange, RetainedMessage, stored_size
from holdfast.core.tickets import FailureKind
from holdfast.core.topics import EVERY_TOPIC, matches
from holdfast.retained.policies import Policies, Policy
from holdfast.retained.store.interfaces import IRetainedStore
from holdfast.retained.store.slices import cut, without
from holdfast.retained.store.usage import GUESTS_ONLY, USERS
from holdfast.retained.store.values import (
    Batch,
    Census,
    ListedMessage,
    Listing,
    QueuedRows,
    RetainedStatistics,
    Selection,
    Slice,
    Usage,
    UsageSnapshot,
)
from holdfast.retained.store.wildcards import ranges_of
from holdfast.wire.encoding import encode
from holdfast.wire.packets import Publish
from holdfast.wire.parser import PacketParser
from holdfast.wire.properties import NO_PROPERTIES, Properties
from tests.retained.store.slice_topics import topics_of
from tests.retained.strategies import messages, topic_filters, topics
from tests.storage.doubles import result_of

NOW = 1_700_000_000_000
LATE = 2**62
#: Nine kinds of stores run each property, so each of them runs with a part of the usual examples.
_EXAMPLES = settings().max_examples
shared = settings(
    max_examples=_EXAMPLES * 2 // 5,
    # one contract, several stores: the examples are not told apart by store
    suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow],
)
few = settings(shared, max_examples=_EXAMPLES // 8)


def message(topic: str, payload: bytes = b"x", revision: int = 1, **fields: Any) -> RetainedMessage:
    """Build a message with defaults."""
    defaults = RetainedMessage(topic, payload, 0, NO_PROPERTIES, None, None, NOW, None, revision)
    return evolve(defaults, **fields)


def put(store: IRetainedStore, topic: str, payload: bytes = b"x", **fields: Any) -> RetainedMessage:
    """Store a message with the next revision."""
    stored = message(topic, payload, store.next_revision(), **fields)
    ticket = store.put(RetainedChange(topic, stored.revision, NOW, stored))
    assert ticket.settled
    assert ticket.failure is None
    return stored


def clear(store: IRetainedStore, topic: str, at: int = NOW) -> None:
    """Clear a topic with the next revision."""
    assert store.put(RetainedChange(topic, store.next_revision(), at, None)).failure is None


def selection(topic_filter: str, protocol_version: int = 4, **fields: Any) -> Selection:
    """Build a selection that leaves out no message."""
    return evolve(Selection(topic_filter, protocol_version, LATE, 1, NOW), **fields)


def listed(store: IRetainedStore, wanted: Selection, payloads: bool) -> list[ListedMessage]:
    """List all messages, two at a time."""
    found: list[ListedMessage] = []
    listing = Listing([], "", False)
    while not listing.done:
        listing = result_of(store.listing(wanted, listing.after, 2, 1000, payloads))
        found += listing.entries
    return found


def batches(
    store: IRetainedStore,
    wanted: Selection,
    rows: int = 1000,
    slice_rows: int = 1000,
    max_bytes: int = 1 << 20,
    detailed: bool = False,
) -> Iterator[Batch]:
    """Read all batches."""
    after = ""
    for _ in range(10_000):
        batch = result_of(store.read(wanted, after, rows, slice_rows, max_bytes, detailed))
        yield batch
        if batch.done:
            return
        assert batch.after > after, "a read without progress"
        after = batch.after
    raise AssertionError("reading does not come to an end")


def slices(store: IRetainedStore, wanted: Selection, **bounds: Any) -> list[Slice]:
    """Read all slices."""
    return [one for batch in batches(store, wanted, **bounds) for one in batch.slices]


def topics_read(store: IRetainedStore, wanted: Selection, **bounds: Any) -> list[str]:
    """Read all topics."""
    return [topic for one in slices(store, wanted, **bounds) for topic in topics_of(one, wanted.protocol_version)]


def statistics_of(count: int, payloads: int, topics: int) -> RetainedStatistics:
    """Return the statistics of messages without properties; ``payloads`` and ``topics`` are their bytes together."""
    return RetainedStatistics(count, payloads + topics + count * stored_size("", NO_PROPERTIES, 0))


def packet(stored: RetainedMessage, protocol_version: int) -> bytes:
    """Encode with the codec the packet that a replay delivers with QoS 0."""
    properties = stored.properties if protocol_version == 5 else NO_PROPERTIES
    return encode(Publish(stored.topic, stored.payload, retain=True, properties=properties), protocol_version)


class StoreContract:
    """The promises of :class:`holdfast.retained.store.interfaces.IRetainedStore`."""

    def opened(self) -> AbstractContextManager[IRetainedStore]:
        """Open an empty store with node 1, for one test."""
        raise NotImplementedError

    def test_facts_are_told_within_the_bytes_of_a_read(self) -> None:
        """Facts are told of each message in its packet, in all kinds of reads, and count in the bytes of a batch."""
        with self.opened() as store:
            stored = [put(store, f"a/{number}", client_id=(None, "c")[number % 2]) for number in range(9)]
            wanted = selection("a/+", 5, facts=("stored-at", "revision", "publisher"))
            for publishers in (False, True):
                found = slices(store, evolve(wanted, publishers=publishers), max_bytes=400, detailed=True)
                assert [one.count for one in found if len(one.packets) > 400] == []
                parser = PacketParser(1 << 20, 5)
                parser.receive_data(b"".join(one.packets for one in found))
                for one in stored:
                    packet = parser.next_packet()
                    assert isinstance(packet, Publish)
                    assert packet.topic == one.topic
                    told = dict(packet.properties.user_properties)
                    assert told["holdfast-stored-at"] == "2023-11-14T22:13:20.000Z"
                    assert told["holdfast-revision"] == str(one.revision)
                    assert told.get("holdfast-publisher") == one.client_id
                assert sum(len(one.publishers) for one in found) == (9 if publishers else 0)

    def test_a_message_is_read_unchanged(self) -> None:
        with self.opened() as store:
            properties = Properties(content_type="t", correlation_data=b"\0", user_properties=(("a", "b"),))
            stored = put(
                store, "a/b", b"\0\xff", qos=2, properties=properties, client_id="c", username="u", expires_at=NOW + 1
            )
            assert result_of(store.get("a/b")) == stored
            (one,) = slices(store, selection("a/b", 5), detailed=True)
            assert one == Slice("a/b", 1, packet(stored, 5), b"\2", (NOW + 1,), NOW + 1)

    def test_a_message_is_listed_unchanged(self) -> None:
        """The payload is listed only if asked for, the size always."""
        with self.opened() as store:
            properties = Properties(content_type="t", correlation_data=b"\0", user_properties=(("a", "b"),))
            stored = put(
                store, "a/b", b"\0\xff", qos=2, properties=properties, client_id="c", username="u", expires_at=NOW + 1
            )
            assert listed(store, selection("#"), payloads=True) == [ListedMessage(stored, 2)]
            assert listed(store, selection("#"), payloads=False) == [ListedMessage(evolve(stored, payload=b""), 2)]

    def test_a_read_keeps_to_the_ranges_of_other_filters_and_to_an_end(self, data: st.DataObject) -> None:
        """All matches in the ranges are read, and none behind ``until``. A read that ends there is continued there."""
        with self.opened() as store:
            names = sorted(data.draw(st.sets(topics, max_size=15)))
            for name in names:
                put(store, name)
            topic_filter = data.draw(topic_filters())
            within = data.draw(st.none() | st.lists(topic_filters(), max_size=3).map(tuple))
            until = data.draw(st.none() | topics)
            wanted = selection(topic_filter, within=within, until=until)
            inside = ranges_of(topic_filter, within)
            expected = [
                name
                for name in names
                if matches(topic_filter, name)
                and any(one.low <= name and (one.high is None or name < one.high) for one in inside)
            ]
            found: list[str] = []
            rows, after, done = data.draw(st.integers(1, 4)), "", False
            while not done:
                batch = result_of(store.read(wanted, after, rows, 10, 1000, False))
                assert batch.done or batch.after > after
                found += [topic for one in batch.slices for topic in topics_of(one, 4)]
                done, after = batch.done, batch.after
                if until is not None and after >= until and not done:
                    assert found == [name for name in expected if name <= until]
                    wanted, until = evolve(wanted, until=None), None
            assert found == expected

    def test_publishers_are_read_with_their_messages(self, data: st.DataObject) -> None:
        """Also if slices are divided, cut, or without some messages; and a survey lists them by topic."""
        with self.opened() as store:
            some = st.sampled_from([None, "", "u", 'é"\\'])
            expected: dict[str, tuple[str | None, str | None]] = {}
            for name in sorted(data.draw(st.sets(topics, max_size=12))):
                expected[name] = (data.draw(some), data.draw(some))
                put(store, name, username=expected[name][0], client_id=expected[name][1])
            wanted = selection("#", data.draw(st.sampled_from([4, 5])), publishers=True)
            bounds = {"rows": data.draw(st.integers(1, 12)), "slice_rows": data.draw(st.integers(1, 5))}
            pieces = slices(store, wanted, detailed=data.draw(st.booleans()), **bounds)
            found: dict[str, tuple[str | None, ...]] = {}
            for piece in pieces:
                names = topics_of(piece, wanted.protocol_version)
                found.update(zip(names, (tuple(one) for one in piece.publishers if one is not None), strict=True))
                if piece.count > 1:
                    first, rest = cut(piece, 1, wanted.protocol_version)
                    assert [*first.publishers, *rest.publishers] == list(piece.publishers)
                assert list(without(piece, names[:1], wanted.protocol_version).publishers) == [*piece.publishers[1:]]
            assert found == {name: one for name, one in expected.items() if not name.startswith("$")}
            guests, limit = data.draw(st.booleans()), data.draw(st.integers(1, 5))
            surveyed: list[tuple[str | None, ...]] = []
            end: str | None = ""
            while end is not None:
                survey = result_of(store.survey(end, limit, guests))
                surveyed += map(tuple, survey.published)
                end = survey.end
            assert surveyed == [(name, *one) for name, one in expected.items() if guests or one[0] is not None]

    def test_every_topic_can_be_listed(self) -> None:
        """Also topics that # does not match. Tombstones, expired messages and later revisions are left out."""
        with self.opened() as store:
            for topic in ("$a", "a/b", "c", "d", "e"):
                put(store, topic)
            clear(store, "c")
            put(store, "d", expires_at=NOW)
            now = store.next_revision()
            put(store, "e")
            everything = selection(EVERY_TOPIC, not_after=now)
            assert [entry.message.topic for entry in listed(store, everything, payloads=False)] == ["$a", "a/b"]

    def test_a_listing_has_all_matches_in_bounded_parts(self, data: st.DataObject) -> None:
        """Parts are in topic order and have at most the given rows and bytes, or one longer message."""
        with self.opened() as store:
            stored = {topic: put(store, topic, b"x" * len(topic)) for topic in data.draw(st.lists(topics, max_size=20))}
            topic_filter = data.draw(topic_filters() | st.just(EVERY_TOPIC))
            rows, max_bytes = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 60))
            payloads = data.draw(st.booleans())
            expected = [topic for topic in stored if topic_filter == EVERY_TOPIC or matches(topic_filter, topic)]
            found: list[str] = []
            after, done = "", False
            while not done:
                listing = result_of(store.listing(selection(topic_filter), after, rows, max_bytes, payloads))
                entries = listing.entries
                weight = sum(len(entry.message.topic.encode()) + len(entry.message.payload) for entry in entries)
                assert len(entries) <= 1 or (len(entries) <= rows and weight <= max_bytes)
                found += [entry.message.topic for entry in entries]
                assert listing.done or listing.after > after
                after, done = listing.after, listing.done
            assert found == sorted(expected, key=str.encode)

    def test_an_unknown_or_cleared_topic_has_no_message(self) -> None:
        with self.opened() as store:
            put(store, "a")
            clear(store, "a")
            assert result_of(store.get("a")) is None
            assert result_of(store.get("b")) is None

    def test_an_expired_message_is_returned_by_get_but_not_read(self) -> None:
        with self.opened() as store:
            stored = put(store, "a", expires_at=NOW)
            assert result_of(store.get("a")) == stored
            assert topics_read(store, selection("a")) == []
            assert topics_read(store, selection("a", now=NOW - 1)) == ["a"]

    def test_a_message_expires_at_the_same_time_for_every_filter(self) -> None:
        """To the millisecond, with a wildcard, without one, and in a listing."""
        with self.opened() as store:
            put(store, "a/b", expires_at=NOW)
            for topic_filter in ("a/b", "a/+", "+/b", "a/#", "#"):
                assert topics_read(store, selection(topic_filter, now=NOW - 1)) == ["a/b"]
                for now in (NOW, NOW + 1):
                    assert topics_read(store, selection(topic_filter, now=now)) == []
                    assert listed(store, selection(topic_filter, now=now), False) == []

    def test_a_read_continues_behind_expired_messages(self) -> None:
        """With any number of them at the beginning, in between and at the end, and batches of any size."""
        with self.opened() as store:
            for number in range(40):
                put(store, f"t/{number:02}", expires_at=None if number in (13, 14, 38) else NOW)
            for rows in (1, 2, 7, 100):
                assert topics_read(store, selection("t/#"), rows=rows, slice_rows=2) == ["t/13", "t/14", "t/38"]

    def test_the_later_message_replaces_the_earlier_one(self) -> None:
        with self.opened() as store:
            put(store, "a", b"one")
            put(store, "a", b"three")
            assert store.statistics() == statistics_of(1, 5, 1)
            assert result_of(store.get("a")).payload == b"three"

    def test_an_older_revision_never_wins(self) -> None:
        with self.opened() as store:
            older = message("a", b"older", store.next_revision())
            put(store, "a", b"newer")
            assert store.put(RetainedChange("a", older.revision, NOW, older)).failure is None
            assert result_of(store.get("a")).payload == b"newer"
            assert store.statistics() == statistics_of(1, 5, 1)

    def test_the_same_revision_again_changes_nothing(self) -> None:
        with self.opened() as store:
            stored = put(store, "a", b"abc")
            store.put(RetainedChange("a", stored.revision, NOW, stored))
            assert store.statistics() == statistics_of(1, 3, 1)

    def test_the_last_change_of_a_topic_is_known(self) -> None:
        """A clear has a revision too. Of a topic without changes nothing is known."""
        with self.opened() as store:
            assert result_of(store.last_change("a")) == (0, None)
            stored = put(store, "a")
            assert result_of(store.last_change("a")) == (stored.revision, stored)
            clear(store, "a")
            revision, found = result_of(store.last_change("a"))
            assert revision > stored.revision
            assert found is None

    def test_an_older_message_does_not_come_back_after_a_clear(self) -> None:
        with self.opened() as store:
            older = message("a", b"older", store.next_revision())
            clear(store, "a")
            store.put(RetainedChange("a", older.revision, NOW, older))
            assert topics_read(store, selection("#")) == []
            assert store.statistics() == statistics_of(0, 0, 0)

    def test_a_topic_that_cannot_be_sent_is_refused(self) -> None:
        with self.opened() as store:
            for topic in ("x" * 65_536, "\ud800"):
                stored = message(topic, revision=store.next_revision())
                failure = store.put(RetainedChange(topic, stored.revision, NOW, stored)).failure
                assert failure is not None
                assert failure.kind is FailureKind.REFUSED
            assert store.statistics() == statistics_of(0, 0, 0)

    def test_a_cleared_topic_is_neither_counted_nor_read(self) -> None:
        with self.opened() as store:
            put(store, "a")
            put(store, "b")
            clear(store, "a")
            clear(store, "never/there")
            assert store.statistics() == statistics_of(1, 1, 1)
            assert topics_read(store, selection("#")) == ["b"]

    def test_later_changes_of_this_node_are_left_out_but_not_of_other_nodes(self) -> None:
        with self.opened() as store:
            start = put(store, "before").revision
            put(store, "ours")
            foreign = message("theirs", revision=(start >> 8) + (1 << 30) << 8 | 7)
            store.put(RetainedChange("theirs", foreign.revision, NOW, foreign))
            assert topics_read(store, selection("#", not_after=start)) == ["before", "theirs"]

    def test_no_local_leaves_out_messages_of_this_client(self) -> None:
        with self.opened() as store:
            put(store, "a", client_id="me")
            put(store, "b", client_id="you")
            put(store, "c")
            assert topics_read(store, selection("#", except_client="me")) == ["b", "c"]

    def test_packets_over_the_maximum_packet_size_are_left_out(self) -> None:
        with self.opened() as store:
            stored = put(store, "é", b"12345")
            put(store, "z", b"1")
            for version in (4, 5):
                length = len(packet(stored, version))
                assert topics_read(store, selection("#", version, max_packet_size=length)) == ["z", "é"]
                assert topics_read(store, selection("#", version, max_packet_size=length - 1)) == ["z"]

    @few
    @given(st.data())
    def test_packets_over_the_maximum_packet_size_are_counted_once_each(self, data: st.DataObject) -> None:
        """With every filter and bound. Those that are not selected for another reason are not counted."""
        with self.opened() as store:
            long, selected = set[str](), list[str]()
            topic_filter = data.draw(st.sampled_from(["#", "a/#", "a/+", "+/3", "a/3"]))
            for number in range(data.draw(st.integers(0, 12))):
                topic = f"{data.draw(st.sampled_from('aaab'))}/{number}"
                kind = data.draw(st.sampled_from(["short", "short", "long", "long and expired", "long and own"]))
                put(
                    store, topic, b"x" * (90 if kind.startswith("long") else 9),
                    expires_at=NOW if "expired" in kind else None, client_id="me" if "own" in kind else "you",
                )  # fmt: skip
                if matches(topic_filter, topic):
                    long |= {topic} if kind == "long" else set()
                    selected += [topic] if kind == "short" else []
            rows, slice_rows = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 5))
            wanted = selection(topic_filter, max_packet_size=50, except_client="me")
            read = list(batches(store, wanted, rows, slice_rows, max_bytes=data.draw(st.integers(1, 200))))
            found = [topic for batch in read for one in batch.slices for topic in topics_of(one, 4)]
            assert found == sorted(selected)
            assert sum(batch.left_out + sum(one.left_out for one in batch.slices) for batch in read) == len(long)
            for batch in read:  # a replay that goes on behind the last slice must not count the others again
                if batch.slices:
                    behind = {topic for topic in long if batch.slices[-1].last < topic <= batch.after}
                    assert batch.left_out == len(behind)

    @few
    @given(st.data())
    def test_queued_rows_are_left_out(self, data: st.DataObject) -> None:
        """Changes by this node between two revisions with at least a QoS; with and without the other bounds."""
        with self.opened() as store:
            stored = []
            for number in range(data.draw(st.integers(1, 12))):
                revision = store.next_revision() & ~255 | data.draw(st.sampled_from([1, 1, 7]))
                one = message(f"t/{number:02}", revision=revision, qos=data.draw(st.integers(0, 2)))
                store.put(RetainedChange(one.topic, revision, NOW, one))
                stored.append(one)
            revisions = [one.revision for one in stored]
            above, until = sorted((data.draw(st.sampled_from(revisions)), data.draw(st.sampled_from(revisions))))
            least_qos = data.draw(st.integers(0, 2))
            expected = [
                one.topic
                for one in stored
                if one.revision & 255 == 7 or not above < one.revision <= until or one.qos < least_qos
            ]
            topic_filter = data.draw(st.sampled_from(["#", "t/#", "t/+", "+/+"]))
            wanted = selection(
                topic_filter, data.draw(st.sampled_from([4, 5])), queued=QueuedRows(above, until, least_qos),
                max_packet_size=data.draw(st.sampled_from([None, 100])),
            )  # fmt: skip
            assert topics_read(store, wanted, rows=data.draw(st.integers(1, 5)), slice_rows=2) == expected
            topic = data.draw(st.sampled_from(stored)).topic
            assert topics_read(store, evolve(wanted, topic_filter=topic)) == [topic] * (topic in expected)

    def test_a_slice_with_an_expiry_has_qos_and_expiries_in_version_5(self) -> None:
        with self.opened() as store:
            put(store, "a", qos=1)
            assert slices(store, selection("#", 5))[0].qos == b""
            put(store, "b", qos=2, expires_at=NOW + 5)
            (one,) = slices(store, selection("#", 5))
            assert (one.qos, one.expires_at) == (b"\1\2", (0, NOW + 5))
            (one,) = slices(store, selection("#", 4))
            assert (one.qos, one.expires_at) == (b"", ())

    def test_a_message_longer_than_the_bound_is_a_batch_of_its_own(self) -> None:
        with self.opened() as store:
            for topic, size in (("a", 10), ("b", 1000), ("c", 10), ("d", 10)):
                put(store, topic, b"x" * size)
            read = [[one.count for one in batch.slices] for batch in batches(store, selection("#"), max_bytes=50)]
            assert [sum(counts) for counts in read if counts] == [1, 1, 2]

    def test_a_census_counts_expired_messages_apart(self) -> None:
        """In parts, in the order of their expiry and topics, and each one once."""
        with self.opened() as store:
            nothing = RetainedStatistics(0, 0)
            assert result_of(store.census(NOW, None, 10)) == Census(nothing, nothing, None)
            for number in range(7):
                put(store, f"t/{number}", b"x" * (number + 1), expires_at=NOW - number // 3)
            put(store, "later", b"later", expires_at=NOW + 1)
            put(store, "never", b"never")
            clear(store, "cleared")
            total = statistics_of(9, 38, 31)
            assert result_of(store.census(NOW, None, 10)) == Census(total, statistics_of(7, 28, 21), None)
            found, after = list[tuple[int, int]](), None
            for _ in range(4):
                census = result_of(store.census(NOW, after, 2))
                assert census.total == total
                found.append((census.expired.count, census.expired.bytes))
                after = census.after
            assert after is None
            assert found == [(2, 419), (2, 419), (2, 411), (1, 207)]
            result_of(store.expire(NOW, 5))
            assert result_of(store.census(NOW, None, 10)).total.count == 4

    def test_expired_messages_become_tombstones_in_parts(self) -> None:
        with self.opened() as store:
            for number in range(5):
                put(store, f"t/{number}", b"ab", expires_at=NOW - number)
            put(store, "later", expires_at=NOW + 1)
            put(store, "never")
            assert sorted(result_of(store.expire(NOW, 3))) == ["t/2", "t/3", "t/4"]
            assert store.statistics() == statistics_of(4, 6, 16)
            assert sorted(result_of(store.expire(NOW, 3))) == ["t/0", "t/1"]
            assert result_of(store.expire(NOW, 3)) == []
            assert store.statistics() == statistics_of(2, 2, 10)
            assert result_of(store.get("t/0")) is None
            assert topics_read(store, selection("#", now=0)) == ["later", "never"]

    def test_an_expired_topic_does_not_come_back_with_an_older_message(self) -> None:
        with self.opened() as store:
            stored = put(store, "a", expires_at=NOW)
            result_of(store.expire(NOW, 10))
            store.put(RetainedChange("a", stored.revision, NOW, evolve(stored, expires_at=None)))
            assert topics_read(store, selection("#")) == []

    def test_only_old_tombstones_are_purged_in_parts(self) -> None:
        with self.opened() as store:
            for number in range(4):
                put(store, f"t/{number}")
                clear(store, f"t/{number}", NOW + number)
            put(store, "kept")
            assert result_of(store.purge(NOW + 3, 2)) == 2
            assert result_of(store.purge(NOW + 3, 2)) == 1
            assert result_of(store.purge(NOW + 3, 2)) == 0
            assert store.statistics() == statistics_of(1, 1, 4)
            assert topics_read(store, selection("#")) == ["kept"]

    def test_flushed_waits_for_all_earlier_changes(self) -> None:
        with self.opened() as store:
            put(store, "a")
            assert store.flushed().settled

    def test_revisions_increase_and_carry_the_node(self) -> None:
        with self.opened() as store:
            stamps = [store.next_revision() for _ in range(10)]
            assert stamps == sorted(set(stamps))
            assert {stamp & 255 for stamp in stamps} == {store.node}

    def __init_subclass__(cls, varied: bool = False) -> None:
        """Give the tests of each store functions of their own: pytest-twisted changes the functions that it runs.

        A *varied* store is another one with bounds, history or searches of its own. Few examples show the difference.
        """
        for body in (
            StoreContract.test_a_read_keeps_to_the_ranges_of_other_filters_and_to_an_end,
            StoreContract.test_publishers_are_read_with_their_messages,
            StoreContract.test_a_listing_has_all_matches_in_bounded_parts,
            StoreContract.test_statistics_are_right_after_any_changes,
            StoreContract.test_reading_equals_matching,
        ):
            setattr(cls, body.__name__, (few if varied else shared)(given(st.data())(body)))

    def test_statistics_are_right_after_any_changes(self, data: st.DataObject) -> None:
        with self.opened() as store:
            kept: dict[str, RetainedMessage] = {}
            for _ in range(data.draw(st.integers(0, 30))):
                topic = data.draw(st.sampled_from(["a", "b", "c/d", "$x"]))
                step = data.draw(st.sampled_from(["set", "set", "clear", "expire", "purge"]))
                if step == "set":
                    made = data.draw(messages(topic, store.next_revision(), NOW))
                    store.put(RetainedChange(topic, made.revision, NOW, made))
                    kept[topic] = made
                elif step == "clear":
                    clear(store, topic)
                    kept.pop(topic, None)
                elif step == "expire":
                    for gone in result_of(store.expire(NOW, data.draw(st.integers(1, 3)))):
                        assert (kept.pop(gone).expires_at or LATE) <= NOW
                else:
                    result_of(store.purge(LATE, 2))
                assert store.statistics() == RetainedStatistics(len(kept), sum(map(_size_of, kept.values())))

    def test_reading_equals_matching(self, data: st.DataObject) -> None:
        """A read finds the matches of the plain matcher, in topic order and once, with any size of batches."""
        names = data.draw(st.sets(topics, max_size=40))
        filters = data.draw(st.lists(topic_filters(), min_size=1, max_size=6))
        with self.opened() as store:
            kept: dict[str, RetainedMessage] = {}
            for topic in names:
                made = data.draw(messages(topic, store.next_revision(), NOW))
                assert store.put(RetainedChange(topic, made.revision, NOW, made)).failure is None
                kept[topic] = made
            for topic in data.draw(st.sets(st.sampled_from(sorted(names)), max_size=3)) if names else ():
                clear(store, topic)
                del kept[topic]
            for topic_filter in filters:
                version = data.draw(st.sampled_from([3, 4, 5]))
                except_client = data.draw(st.sampled_from([None, "one"]))
                most = data.draw(st.sampled_from([None, None, 20, 60]))
                wanted = selection(topic_filter, version, except_client=except_client, max_packet_size=most)
                expected = [
                    one
                    for topic, one in sorted(kept.items(), key=lambda item: item[0].encode())
                    if matches(topic_filter, topic)
                    and (one.expires_at is None or one.expires_at > NOW)
                    and (except_client is None or one.client_id != except_client)
                    and (most is None or len(packet(one, version)) <= most)
                ]
                rows, slice_rows = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 8))
                max_bytes = data.draw(st.sampled_from([1, 60, 300, 1 << 20]))
                detailed = data.draw(st.booleans())
                found: list[Slice] = []
                for batch in batches(store, wanted, rows, slice_rows, max_bytes, detailed):
                    counts = [one.count for one in batch.slices]
                    size = sum(len(one.packets) for one in batch.slices)
                    assert sum(counts) <= rows
                    assert all(0 < count <= slice_rows for count in counts)
                    assert size <= max_bytes or counts == [1]
                    found += batch.slices
                self.check(found, expected, version, detailed)

    def check(self, found: list[Slice], expected: list[RetainedMessage], version: int, detailed: bool) -> None:
        """Compare slices with the expected messages."""
        assert b"".join(one.packets for one in found) == b"".join(packet(one, version) for one in expected)
        parser = PacketParser(1 << 20, version)
        position = 0
        for one in found:
            part = expected[position : position + one.count]
            position += one.count
            assert one.last == part[-1].topic
            parser.receive_data(one.packets)
            for made in part:
                decoded = parser.next_packet()
                assert isinstance(decoded, Publish)
                assert (decoded.topic, decoded.payload, decoded.retain) == (made.topic, made.payload, True)
            if detailed or (version == 5 and one.expires_at):
                assert one.qos == bytes(made.qos for made in part)
                assert one.expires_at == tuple(made.expires_at or 0 for made in part)
            elif version == 5:
                assert all(made.expires_at is None for made in part)
        assert position == len(expected)
        assert parser.next_packet() is None


#: the names of publishers: a guest, users, a user with two Clients, and an operator
PUBLISHERS: list[dict[str, str | None]] = [
    {"client_id": "a", "username": None},
    {"client_id": "b", "username": ""},
    {"client_id": "a", "username": "a"},
    {"client_id": "b", "username": "a"},
    {"client_id": "b", "username": "b"},
    {"client_id": None, "username": None},
]


class UsageContract:
    """The store counts usage by Client and by Topic Filter if it is created so."""

    def opened(
        self, topic_filters: Sequence[str] = (), clients: bool = False, payers: str | None = None
    ) -> AbstractContextManager[IRetainedStore]:
        raise NotImplementedError

    def reopened(
        self,
        store: IRetainedStore,
        topic_filters: Sequence[str] = (),
        clients: bool = False,
        payers: str | None = None,
    ) -> AbstractContextManager[IRetainedStore]:
        """Close the store and open it again."""
        raise NotImplementedError

    def test_usage_of_topics_and_in_all(self) -> None:
        with self.opened() as store:
            put(store, "a", b"four", client_id="c")
            put(store, "b", b"xx")
            clear(store, "b")
            seen = look(store, ["a", "b", "c"])
            assert (seen.total, seen.topics) == (Usage(1, 206), {"a": Usage(1, 206, "c")})

    @shared
    @given(
        st.lists(
            st.one_of(
                st.tuples(topics, st.binary(max_size=5), st.sampled_from(PUBLISHERS), st.integers(0, 9)),
                st.sampled_from(["count", "expire", "reopen"]),
            ),
            max_size=30,
        ),
        st.lists(topic_filters(), max_size=3, unique=True),
        st.booleans(),
    )
    def test_usage_is_exact_from_its_configuration_on(
        self, steps: list[Any], topic_filters: list[str], names_proven: bool
    ) -> None:
        """After any order of changes, counting of earlier messages, restarts and sweeps."""
        with self.opened() as store:
            store = self._apply(store, steps[: len(steps) // 2], topic_filters)
            scope = USERS if names_proven else GUESTS_ONLY
            with self.reopened(store, topic_filters, True, scope) as counting:
                store = self._apply(counting, steps[len(steps) // 2 :], topic_filters)
                while result_of(store.count_usage(2)):
                    pass
                held = [
                    (topic, one)
                    for topic in sorted({step[0] for step in steps if isinstance(step, tuple)})
                    if (one := result_of(store.get(topic))) is not None
                ]
                names = ["a", "b", "nobody"]
                payers = [*(f"{kind} {name}" for kind in ("user", "client") for name in names), GUESTS]
                seen = look(store, [topic for topic, _ in held], topic_filters, names, payers)
                assert seen.total == usage(one for _, one in held)
                assert seen.topics == {
                    topic: Usage(1, _size_of(one), one.client_id, one.username) for topic, one in held
                }
                for topic_filter in topic_filters:
                    expected = usage(one for topic, one in held if matches(topic_filter, topic))
                    assert seen.filters[topic_filter] == expected, topic_filter
                for client_id in ("a", "b", "nobody"):
                    assert seen.clients[client_id] == usage(one for _, one in held if one.client_id == client_id)
                charged = [(one, payers_of(one.username, one.client_id, names_proven)) for _, one in held]
                for payer in payers:
                    assert seen.payers[payer] == usage(one for one, whose in charged if payer in whose), payer

    @few
    @given(
        st.lists(
            st.one_of(
                st.tuples(topics, st.binary(max_size=5), st.sampled_from(PUBLISHERS), st.integers(0, 9)),
                st.sampled_from(["count", "expire", "reload"]),
            ),
            max_size=30,
        ),
        st.lists(
            st.tuples(
                st.lists(topic_filters(), max_size=2, unique=True),
                st.booleans(),
                st.lists(st.tuples(topic_filters(), st.booleans()), max_size=4),
            ),
            min_size=2,
            max_size=2,
        ),
    )
    def test_the_usage_of_quotas_is_exact_from_a_reload_on(
        self, steps: list[Any], choices: list[tuple[list[str], bool, list[tuple[str, bool]]]]
    ) -> None:
        """Quotas of Topic Filters, of each Client, and of policies, whatever was before.

        Each topic counts for the first policy that matches it, if that has a quota.
        """
        with self.opened() as store:
            chosen = 0
            for step in [*steps, "reload"]:
                if step == "reload":
                    chosen = 1 - chosen
                    filters, clients, table = choices[chosen]
                    used = Policies(
                        [Policy(number, one, max_retained_bytes=has) for number, (one, has) in enumerate(table, 1)]
                    )
                    result_of(store.count_quotas(filters, clients, used))
                else:
                    self._apply(store, [step], ())
            while result_of(store.count_usage(2)):
                pass
            held = [
                (topic, one)
                for topic in sorted({step[0] for step in steps if isinstance(step, tuple)})
                if (one := result_of(store.get(topic))) is not None
            ]
            seen = look(store, [], [*filters, *used.counted_filters], ["a", "b"] if clients else [])
            for topic_filter in filters:
                expected = usage(one for topic, one in held if matches(topic_filter, topic))
                assert seen.filters[topic_filter] == expected, topic_filter
            for client_id, found in seen.clients.items():
                assert found == usage(one for _, one in held if one.client_id == client_id), client_id
            for scope in used.counted_filters:
                assert seen.filters[scope] == usage(one for topic, one in held if used.scope_of(topic) == scope), scope

    def _apply(self, store: IRetainedStore, steps: list[Any], topic_filters: Sequence[str]) -> IRetainedStore:
        for step in steps:
            if step == "count":
                result_of(store.count_usage(2))
            elif step == "expire":
                result_of(store.expire(NOW + 5, 2))
            elif step != "reopen" and step[1]:
                put(store, step[0], step[1], expires_at=NOW + step[3] if step[3] else None, **step[2])
            elif step != "reopen":
                clear(store, step[0])
        return store

    def test_a_quota_that_returns_is_counted_anew(self) -> None:
        with self.opened(["a/#"], True) as store:
            put(store, "a/1", b"xx", client_id="c")
            with self.reopened(store) as forgetful:
                put(forgetful, "a/2", b"xx", client_id="c")
                with self.reopened(forgetful, ["a/#"], True) as again:
                    result_of(again.count_usage(1))
                    put(again, "a/3", b"xx", client_id="c")
                    while result_of(again.count_usage(1)):
                        pass
                    seen = look(again, [], ["a/#"], ["c"])
                    assert seen.filters == {"a/#": Usage(3, 3 * 206)}
                    assert seen.clients == {"c": Usage(3, 3 * 206)}

    @few
    @given(st.booleans(), st.integers(1, 4))
    def test_the_expiry_of_stored_messages_can_be_capped(self, never_too: bool, limit: int) -> None:
        """The lifetime begins when a message is stored. Tombstones and earlier expiries do not change."""
        with self.opened() as store:
            put(store, "early", expires_at=NOW + 5)
            put(store, "late", expires_at=NOW + 500)
            put(store, "never")
            put(store, "older", stored_at=NOW - 100)
            put(store, "gone")
            clear(store, "gone")
            after: str | None = ""
            while after is not None:
                after = result_of(store.cap_expiry(50, never_too, after, limit))
            assert [message.expires_at for message in (result_of(store.get(topic)) for topic in ("early", "late"))] == [
                NOW + 5,
                NOW + 50,
            ]
            assert result_of(store.get("never")).expires_at == (NOW + 50 if never_too else None)
            assert result_of(store.expire(NOW, 10)) == (["older"] if never_too else [])

    @given(st.integers(1, 4))
    @settings(max_examples=4, suppress_health_check=[HealthCheck.differing_executors])
    def test_the_expiry_of_stored_messages_can_be_moved(self, limit: int) -> None:
        """Not of imported ones, nor of those that come meanwhile; messages that never expire keep their time too."""
        with self.opened() as store:
            put(store, "a", expires_at=NOW + 5)
            put(store, "imported", stored_at=NOW - 100, expires_at=NOW + 5)
            put(store, "never")
            put(store, "gone", expires_at=NOW + 5)
            clear(store, "gone")
            upto = store.next_revision()
            put(store, "later", expires_at=NOW + 5)
            after: str | None = ""
            while after is not None:
                after = result_of(store.move_expiry(1000, NOW, upto, after, limit))
            found = {topic: result_of(store.get(topic)) for topic in ("a", "imported", "never", "later")}
            assert {topic: (one.stored_at - NOW, one.expires_at) for topic, one in found.items()} == {
                "a": (1000, NOW + 1005), "imported": (-100, NOW + 5), "never": (0, None), "later": (0, NOW + 5),
            }  # fmt: skip
            assert result_of(store.get("gone")) is None


def look(
    store: IRetainedStore,
    topics: Sequence[str],
    topic_filters: Sequence[str] = (),
    clients: Sequence[str] = (),
    payers: Sequence[str] = (),
) -> UsageSnapshot:
    """Read the usage."""
    seen: UsageSnapshot = result_of(store.read_usage(topics, topic_filters, clients, payers))
    return seen


def usage(messages: Iterable[RetainedMessage]) -> Usage:
    """Sum up messages."""
    sizes = [_size_of(one) for one in messages]
    return Usage(len(sizes), sum(sizes))


def _size_of(message: RetainedMessage) -> int:
    return stored_size(message.topic, message.properties, len(message.payload))
