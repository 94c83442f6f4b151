"""The recent changes: the newest of each topic, in order, within their bounds."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from holdfast.changes.recent import LONGEST_PAYLOAD, RecentChanges, StoredChange
from holdfast.core.messages import ChangeKind


def change(topic: str, revision: int, payload: bytes = b"x") -> StoredChange:
    """Return a set."""
    return StoredChange(topic, revision, ChangeKind.SET, 0, size=len(payload), payload=payload)


def everything(_topic: str) -> bool:
    return True


def topics(recent: RecentChanges, position: int = 0) -> list[str] | None:
    """Return the topics of all changes after a position."""
    part = recent.read(position, everything, 10_000, 1 << 30)
    return None if part is None else [each.topic for each in part.changes]


def test_a_later_change_takes_the_place_of_an_earlier_one() -> None:
    """The order is that of the newest changes, and a change that is found late is left out."""
    recent = RecentChanges()
    for topic, revision in (("a", 1), ("b", 2), ("a", 3)):
        assert recent.add(change(topic, revision))
    assert not recent.add(change("a", 3))
    assert not recent.add(change("b", 1))
    assert topics(recent) == ["b", "a"]
    assert topics(recent, 2) == ["a"]


def test_a_reader_below_the_floor_learns_it() -> None:
    recent = RecentChanges(most=8)
    for number in range(20):
        recent.add(change(f"t/{number}", number + 1))
    assert len(recent) <= 8
    assert topics(recent, recent.floor - 1) is None
    assert topics(recent, recent.floor) == [f"t/{number}" for number in range(recent.floor, 20)]


def test_a_reader_of_forgotten_changes_learns_it() -> None:
    recent = RecentChanges()
    recent.add(change("a", 1))
    recent.forget()
    assert (topics(recent), topics(recent, recent.latest), recent.bytes) == (None, [], 0)
    recent.add(change("b", 2))
    assert topics(recent, recent.floor) == ["b"]


def test_bytes_are_bounded_and_the_newest_change_stays() -> None:
    """A payload beyond the longest one is not counted: it is not kept."""
    recent = RecentChanges(most_bytes=300_000)
    for number in range(10):
        recent.add(change(f"t/{number}", number + 1, bytes(60_000)))
        assert recent.bytes <= 300_000
    assert (topics(recent, recent.floor) or [])[-1] == "t/9"
    assert change("a", 1, bytes(10 * LONGEST_PAYLOAD)).weight < 3 * LONGEST_PAYLOAD


def test_a_topic_that_changes_all_the_time_takes_one_place() -> None:
    recent = RecentChanges()
    recent.add(change("calm", 1))
    for revision in range(2, 20_000):
        recent.add(change("busy", revision))
    assert topics(recent) == ["calm", "busy"]
    assert len(recent._positions) < 2_000


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 30))), st.integers(2, 6),
    st.integers(1, 4), st.integers(1, 3000),
)  # fmt: skip
def test_parts_bring_the_newest_change_of_each_topic(
    found: Sequence[tuple[str, int]], most: int, looked: int, most_bytes: int
) -> None:
    """Whatever the bounds of the parts are. The last position of each part is where the next one begins."""
    recent = RecentChanges(most)
    newest: dict[str, int] = {}
    for topic, revision in found:
        if recent.add(change(topic, revision)):
            newest[topic] = revision
    position, more, seen = recent.floor, True, {}
    while more:
        part = recent.read(position, lambda topic: topic != "f", looked, most_bytes)
        assert part is not None
        assert part.position > position or not part.more
        position, more = part.position, part.more
        seen.update({each.topic: each.revision for each in part.changes})
    assert seen == {topic: newest[topic] for topic in seen}
    assert set(seen) == set(recent._by_topic) - {"f"}
