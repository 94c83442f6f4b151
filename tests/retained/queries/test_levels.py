"""A level of the topic tree has each name once, in an order that changes of other topics do not affect."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.retained.store.values import Stop
from holdfast.retained.tree import LevelWalk, Node, position_behind
from tests.retained.strategies import topics


def naive_stops(stored: dict[str, bool], base: str, low: str, rows: int) -> list[Stop]:
    """Walk through the sorted topics."""
    stops: list[Stop] = []
    for topic in sorted(stored):
        if topic >= max(low, base) and topic.startswith(base) and len(stops) < rows:
            stops.append(Stop(topic, stored[topic], 1, 1))
            name, separator, _ = topic[len(base) :].partition("/")
            low = f"{base}{name}0" if separator else topic + "\1"
    return stops


def pages(states: list[dict[str, bool]], base: str, rows: int, limit: int) -> list[Node]:
    """Read a level page by page; each page finds the next state of the store, the last one stays."""
    found: list[Node] = []
    low: str | None = None
    for number in range(200):
        stored = states[min(number, len(states) - 1)]
        parents = [
            Stop(topic, stored[topic], 1, 1)
            for topic in sorted(stored)
            if low is not None and topic.startswith(base) and low.startswith(topic) and topic != low
        ]
        walk = LevelWalk(base, low, parents)
        nodes: list[Node] = []
        ended = False
        while not ended and len(nodes) < limit:
            stops = naive_stops(stored, base, walk.low, rows)
            ended = len(stops) < rows
            nodes += walk.take(stops, ended)
        found += nodes[:limit]
        if ended and len(nodes) <= limit:
            return found
        low = position_behind(nodes[limit - 1].topic) if len(nodes) >= limit else walk.low
    raise AssertionError("the level does not come to an end")


def names_in(stored: dict[str, bool], base: str) -> set[str]:
    """Return the names of a level: those with a topic below them, and those of live topics."""
    rests = {topic: topic[len(base) :] for topic in stored if topic.startswith(base)}
    return {rest.split("/")[0] for topic, rest in rests.items() if "/" in rest or stored[topic]}


bases = st.sampled_from(["", "a/", "/", "a//", "$SYS/"])
stores = st.dictionaries(topics, st.booleans(), max_size=15)


@given(stores, bases, st.integers(1, 4), st.integers(1, 3))
def test_pages_of_a_level_have_each_name_once(stored: dict[str, bool], base: str, rows: int, limit: int) -> None:
    """For walks and pages of any size, as a naive tree has them, with each topic's own message."""
    nodes = pages([stored], base, rows, limit)
    names = [node.topic[len(base) :] for node in nodes]
    assert sorted(names) == sorted(names_in(stored, base))
    assert names == sorted(names, key=lambda name: f"{name}/")
    for node in nodes:
        assert (node.own is not None) == stored.get(node.topic, False)
        assert node.has_below == any(topic.startswith(f"{node.topic}/") for topic in stored)


@given(st.lists(stores, min_size=2, max_size=5), bases, st.integers(1, 4), st.integers(1, 3))
def test_changes_between_pages_neither_hide_nor_repeat_a_name(
    states: list[dict[str, bool]], base: str, rows: int, limit: int
) -> None:
    """A name that is there all the time is found once; no other one is found twice."""
    names = [node.topic[len(base) :] for node in pages(states, base, rows, limit)]
    assert len(names) == len(set(names))
    always = set.intersection(*(names_in(state, base) for state in states))
    assert always <= set(names)
