"""The messages of one time, changed by the entries of a span, are the messages of a later time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.changes.entries import HistoryEvent
from holdfast.changes.history import HistoryLimits
from holdfast.changes.moments import HistoryUnavailable, Span, check_span, find_span, page_of_events
from holdfast.core.messages import ChangeKind
from holdfast.storage.driver import Cursor
from tests.changes.history.past import START, Past, postgres, sqlite

TOPICS = ["a", "a/b", "b"]


@pytest.fixture(params=[sqlite, postgres], ids=["sqlite", "postgres"])
def make(request: pytest.FixtureRequest) -> Iterator[Callable[..., Past]]:
    with request.param() as made:
        yield made


def span_of(past: Past, since: int, until: int) -> Span:
    """Find the changes between two times."""
    found: Span = past.finish(past.history.read(lambda cursor: find_span(cursor, since, until, past.wall.now)))
    return found


def events_of(past: Past, span: Span, topic_filter: str = "#", entries: int = 2) -> list[HistoryEvent]:
    """Read the events of a span, page by page, each of which has to be whole."""
    found: list[HistoryEvent] = []
    done = False
    while not done:

        def work(cursor: Cursor) -> tuple[list[HistoryEvent], int, bool]:
            page = page_of_events(cursor, topic_filter, span.after, span.upto, entries, 1, 1)  # noqa: B023
            check_span(cursor, span)  # noqa: B023
            return list(page.events), page.cursor, page.done

        events, after, done = past.finish(past.history.read(work))
        found += events
        span = Span(after, span.upto)
    return found


@given(
    steps=st.lists(st.tuples(st.sampled_from(TOPICS), st.sampled_from([b"", b"1", b"2"]), st.integers(0, 2))),
    first=st.integers(0, 20),
    length=st.integers(0, 20),
    pruned=st.none() | st.integers(0, 20),
)
def test_a_span_leads_from_one_state_to_the_next(
    steps: list[tuple[str, bytes, int]], first: int, length: int, pruned: int | None
) -> None:
    """That holds after pruning too, from the first time on that the history answers for."""
    with sqlite() as make:
        past = make().open()
        for topic, payload, pause in steps:
            past.set(topic, payload)
            past.wall.now += pause
        if pruned is not None:
            past.history.limits = HistoryLimits(enable=True, keep=max(0, past.wall.now - START - pruned) / 1000)
            past.tend()
        since = START + first
        try:
            state = past.as_of(since)
        except HistoryUnavailable as refused:
            with pytest.raises(HistoryUnavailable, match=str(refused)[:20]):
                span_of(past, since, since + length)
            return
        for event in events_of(past, span_of(past, since, since + length)):
            assert since < event.changed_at <= since + length
            if event.kind is ChangeKind.SET:
                state[event.topic] = event.payload
            else:
                state.pop(event.topic, None)
        assert state == past.as_of(min(since + length, past.wall.now))


def test_span_ends_with_the_present(make: Callable[..., Past]) -> None:
    """A last time in the future adds nothing later, in both databases; a Topic Filter chooses."""
    past = make().open()
    for number in range(4):
        past.wall.now += 10
        past.set(TOPICS[number % 3], b"%d" % number)
    span = span_of(past, START + 10, START + 10_000)
    past.set("a", b"later")
    assert [event.payload for event in events_of(past, span)] == [b"1", b"2", b"3"]
    assert [event.payload for event in events_of(past, span, "a/#")] == [b"1", b"3"]
    assert [event.payload for event in events_of(past, span, "a", 1)] == [b"3"]
    assert events_of(past, span_of(past, START + 20, START + 10)) == []


def test_span_over_a_time_without_a_history_is_refused(make: Callable[..., Past]) -> None:
    """Changes between two periods are missing, so a span has to lie in one of them."""
    past = make().open()
    past.wall.now += 10
    past.set("a", b"1")
    past.close()
    past = make(limits=HistoryLimits(enable=False), wall=past.wall)
    past.wall.now += 10
    past.open(started=False)
    past.set("a", b"unknown")
    past.close()
    past = make(wall=past.wall)
    past.wall.now += 10
    past.open()
    past.set("a", b"2")
    assert [event.payload for event in events_of(past, span_of(past, START, START + 19))] == [b"1"]
    with pytest.raises(HistoryUnavailable, match="no history was kept"):
        span_of(past, START, START + 20)
    with pytest.raises(HistoryUnavailable, match="no history was kept"):
        span_of(past, START, START + 30)


def test_pruning_that_passes_a_page_is_noticed(make: Callable[..., Past]) -> None:
    """A page that begins before what was pruned is refused; one that begins behind it is whole."""
    past = make().open()
    for number in range(6):
        past.wall.now += 10
        past.set("a", b"%d" % number)
    span = span_of(past, START, past.wall.now)
    past.history.limits = HistoryLimits(enable=True, keep=0.025)
    past.tend()
    with pytest.raises(HistoryUnavailable, match="pruned meanwhile"):
        events_of(past, span)
    since = past.wall.now - 25
    assert [event.payload for event in events_of(past, span_of(past, since, past.wall.now))] == [b"3", b"4", b"5"]
