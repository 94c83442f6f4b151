"""The totals that operators see: exact after their own changes, without expired messages, and at a bounded cost."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from holdfast.core.tickets import FailureKind, StorageFailure
from holdfast.retained.store.values import Census, ExpiredPosition, RetainedStatistics
from holdfast.retained.totals import MOST_PARTS, ROWS_IN_TURN, TOTALS_PATIENCE, TotalsReader
from tests.admin.doubles import Desk
from tests.storage.doubles import result_of

NOTHING = RetainedStatistics(0, 0)
KNOWN = RetainedStatistics(7, 70)


class CountedStore:
    """A store whose reads the test answers; it counts how many there are."""

    def __init__(self) -> None:
        self.reads: list[tuple[Deferred[Census], ExpiredPosition | None, int]] = []

    def census(self, now: int, after: ExpiredPosition | None, limit: int) -> Deferred[Census]:
        answer: Deferred[Census] = Deferred()
        self.reads.append((answer, after, limit))
        return answer

    def statistics(self) -> RetainedStatistics:
        return KNOWN

    def answer(self, total: int, expired: int = 0, after: ExpiredPosition | None = None) -> None:
        counted = RetainedStatistics(expired, 10 * expired)
        self.reads[-1][0].callback(Census(RetainedStatistics(total, 10 * total), counted, after))


@pytest.fixture
def store() -> CountedStore:
    return CountedStore()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def totals(store: CountedStore, clock: Clock) -> TotalsReader:
    return TotalsReader(store, clock, lambda: 0)  # type: ignore[arg-type]  # a part of the interface


def test_a_read_that_began_before_the_question_does_not_answer_it(store: CountedStore, totals: TotalsReader) -> None:
    """So an operator sees his own change, and all who ask meanwhile share one read."""
    first = totals.read()
    second, third = totals.read(), totals.read()
    assert len(store.reads) == 1
    store.answer(1)
    assert result_of(first).count == 1
    assert not second.called
    store.answer(2)
    assert result_of(second).count == result_of(third).count == 2
    assert len(store.reads) == 2


def test_a_database_that_is_away_delays_no_answer_for_long(
    store: CountedStore, clock: Clock, totals: TotalsReader
) -> None:
    """The totals known before are the answer, first those of the opening. The read that waits is not repeated."""
    asked = totals.read()
    clock.advance(TOTALS_PATIENCE)
    assert result_of(asked) == KNOWN
    again = totals.read()
    store.answer(3)
    store.answer(4)
    assert result_of(again).count == 4
    assert len(store.reads) == 2
    assert clock.getDelayedCalls() == []


def test_a_failed_read_leaves_the_totals_known_before(store: CountedStore, totals: TotalsReader) -> None:
    asked = totals.read()
    store.answer(3)
    asked = totals.read()
    store.reads[-1][0].errback(StorageFailure(FailureKind.UNAVAILABLE, "damaged"))
    assert result_of(asked).count == 3
    asked = totals.read()
    store.answer(5)
    assert result_of(asked).count == 5


def test_expired_messages_are_counted_in_parts_one_in_each_turn(
    store: CountedStore, clock: Clock, totals: TotalsReader
) -> None:
    asked = totals.read()
    store.answer(2000, ROWS_IN_TURN, (5, "a"))
    assert len(store.reads) == 1
    clock.advance(0)
    store.answer(2000, ROWS_IN_TURN, (6, "b"))
    clock.advance(0)
    store.answer(2000, 30)
    assert result_of(asked) == RetainedStatistics(970, 9700)
    assert [(after, limit) for _, after, limit in store.reads] == [
        (None, ROWS_IN_TURN),
        ((5, "a"), ROWS_IN_TURN),
        ((6, "b"), ROWS_IN_TURN),
    ]


def test_the_cost_of_a_count_is_bounded(store: CountedStore, clock: Clock, totals: TotalsReader) -> None:
    """Even if the sweep is off and a million messages have expired: those not counted stay in the total."""
    asked = totals.read()
    for _ in range(MOST_PARTS):
        assert not asked.called
        store.answer(1_000_000, ROWS_IN_TURN, (1, "t"))
        clock.advance(0)
    assert result_of(asked).count == 1_000_000 - MOST_PARTS * ROWS_IN_TURN
    assert len(store.reads) == MOST_PARTS


def test_a_sweep_during_the_count_makes_no_total_negative(
    store: CountedStore, clock: Clock, totals: TotalsReader
) -> None:
    asked = totals.read()
    store.answer(3, 3, (1, "t"))
    clock.advance(0)
    store.answer(0, 2)
    assert result_of(asked) == NOTHING


def test_no_figure_includes_expired_messages() -> None:
    """``info``, the list and ``$SYS`` agree with the listed messages before the sweep comes."""
    desk = Desk(sys_msg_interval=10)
    watcher = desk.broker.client("watcher", 5)
    watcher.subscribe("$SYS/broker/retained messages/count", "$SYS/broker/store/messages/bytes")
    for number in range(17):
        body = {"topic": f"t/{number:02}", "payload": "12"}
        if number >= 7:
            body["properties"] = {"message_expiry_interval": 20}  # type: ignore[assignment]
        desk.ask("POST", "/messages", body)
    desk.broker.advance(10)
    assert desk.ask("GET", "/info")["count"] == 17
    seen = {topic: data for topic, data, _, _ in watcher.messages()}
    assert seen["$SYS/broker/retained messages/count"] == b"17"
    desk.broker.advance(20)
    assert len(desk.topics()) == 7
    assert desk.broker.store.statistics().count == 17  # not swept yet
    info = desk.ask("GET", "/info")
    assert (info["count"], info["bytes"]) == (7, 7 * 207)
    assert desk.ask("GET", "/messages")["meta"]["count"] == 7
    seen = {topic: data for topic, data, _, _ in watcher.messages()}
    assert seen == {"$SYS/broker/retained messages/count": b"7", "$SYS/broker/store/messages/bytes": b"1449"}
