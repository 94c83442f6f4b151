"""The counts of failed logins: free ones, delays, bans, and bounded memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.identity.failed_logins import FailureLimits, Record, Records

LIMITS = FailureLimits()


def delays(record: Record, times: list[float]) -> list[float]:
    """Return the delay after each failure."""
    found = []
    for time in times:
        record.add(LIMITS, time)
        found.append(record.delay(LIMITS))
    return found


def test_five_failures_are_free_then_delays_double_to_a_minute() -> None:
    record = Record(0, 0, 0)
    assert delays(record, [0.1 * n for n in range(14)]) == [0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_client_that_waits_for_each_answer_reaches_the_ban_within_the_window() -> None:
    record, now = Record(0, 0, 0), 0.0
    while record.count < LIMITS.most:
        record.add(LIMITS, now)
        now += record.delay(LIMITS)
    assert now < LIMITS.window + LIMITS.longest


def test_five_failures_in_each_minute_are_free_for_ever() -> None:
    """But they add up within the window."""
    record = Record(0, 0, 0)
    times = [60.0 * minute + n for minute in range(3) for n in range(5)]
    assert set(delays(record, times)) == {0}
    assert record.count == 15


def test_after_the_window_the_count_begins_anew() -> None:
    record = Record(0, 0, 0)
    delays(record, [0.0] * 19)
    assert delays(record, [LIMITS.window]) == [0]
    assert record.count == 1


@given(times=st.lists(st.floats(0, 1e6), max_size=60))
def test_a_delay_is_never_longer_than_the_longest(times: list[float]) -> None:
    record = Record(0, 0, 0)
    assert all(0 <= delay <= LIMITS.longest for delay in delays(record, sorted(times)))


def test_after_very_many_failures_the_delay_is_the_longest() -> None:
    record = Record(0, 0, 0)
    assert delays(record, [0.0] * 5000)[-1] == LIMITS.longest


def test_a_table_never_grows_beyond_its_bound_and_keeps_the_latest() -> None:
    records = Records(LIMITS, most=100)
    for number in range(1000):
        records.add(number, 0.0)
    assert len(records) == 100
    assert records.add(999, 1.0).count == 2
    assert records.add(0, 1.0).count == 1


def test_records_that_are_over_become_fewer_as_others_come() -> None:
    records = Records(LIMITS)
    for number in range(100):
        records.add(number, 0.0)
    for number in range(60):
        records.add(("new", number), LIMITS.window)
    assert len(records) == 60


def test_what_is_taken_back_counts_no_more() -> None:
    records = Records(LIMITS)
    for _ in range(7):
        records.add("a", 0.0)
    records.take_back("a", 3)
    assert records.add("a", 0.0).count == 5
    records.take_back("a", 5)
    records.take_back("unknown", 5)
    assert len(records) == 0
