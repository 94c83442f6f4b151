"""Windows from windows: whatever the order in which values come, their figures are those of a plain computation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pytest
from attrs import Factory, define
from hypothesis import given
from hypothesis import strategies as st

from holdfast_pipeline.rollup import (
    DAY,
    HOUR,
    LENGTHS,
    MINUTE,
    Event,
    Key,
    Series,
    Window,
    WindowLength,
    changed_windows,
    time_mean,
)
from tests.pipeline.rollup.plain_figures import Figures, plain_figures

_LARGER = {MINUTE: HOUR, HOUR: DAY}


@define
class Memory:
    """The tables, in dictionaries."""

    values: dict[Series, list[Event]] = Factory(dict)
    rows: dict[WindowLength, dict[Key, Window]] = Factory(lambda: {of: {} for of in LENGTHS})

    def events(self, minutes: Iterable[Key]) -> Mapping[Key, Sequence[Event]]:
        """Return the events in these minutes."""
        return {
            (series, start): [
                event for event in sorted(self.values[series], key=_time) if MINUTE.start(event[0]) == start
            ]
            for series, start in minutes
        }

    def windows(self, of: WindowLength, within: Iterable[Key] | None, series: Iterable[Series]) -> dict[Key, Window]:
        """Return the windows of these series in these larger ones, and nothing that was not asked for."""
        known, wanted = set(series), None if within is None else set(within)
        return {
            key: window
            for key, window in self.rows[of].items()
            if key[0] in known and (wanted is None or (key[0], _LARGER[of].start(key[1])) in wanted)
        }


def _time(event: Event) -> int:
    return event[0]


def figures(of: WindowLength, start: int, window: Window) -> Figures:
    """Return what a row would tell."""
    part = window.segment
    mean = part.total / part.count if part.count else None
    by_time = time_mean(part, window.opening, start, start + of.length)
    return Figures(part.count, part.first, part.last, part.least, part.most, mean, by_time)


#: Quarters of minutes in three days, often near each other, and each at most once for a series.
_TIMES = st.one_of(st.integers(0, 12), st.integers(230, 250), st.integers(5750, 5770), st.integers(0, 17280))
_VALUES = st.one_of(st.none(), st.integers(-40, 40).map(lambda number: number / 4))
_EVENTS = st.dictionaries(st.tuples(st.sampled_from("ab"), _TIMES), _VALUES, max_size=25)


@given(events=_EVENTS, order=st.randoms(use_true_random=False), size=st.integers(1, 6))
def test_any_order_gives_the_figures_of_all_values(
    events: dict[tuple[str, int], float | None], order: object, size: int
) -> None:
    """In batches of any size; after each, all windows are right, also those that it did not write."""
    listed = list(events.items())
    order.shuffle(listed)  # type: ignore[attr-defined]
    memory = Memory()
    for first in range(0, len(listed), size):
        touched = set()
        for (name, quarter), value in listed[first : first + size]:
            at, series = quarter * 15_000_000, (name, "topic")
            memory.values.setdefault(series, []).append((at, value))
            touched.add((series, MINUTE.start(at)))
        for of, windows in changed_windows(touched, memory).items():
            memory.rows[of] |= windows
        for of in LENGTHS:
            expected = {
                (series, start): found
                for series, some in memory.values.items()
                for start, found in plain_figures(sorted(some, key=_time), of).items()
            }
            told = {key: figures(of, key[1], window) for key, window in memory.rows[of].items()}
            assert told.keys() == expected.keys()
            for key, found in told.items():
                wanted = expected[key]
                assert (found.count, found.first, found.last, found.least, found.most) == (
                    wanted.count, wanted.first, wanted.last, wanted.least, wanted.most
                )  # fmt: skip
                assert found.mean == pytest.approx(wanted.mean)
                assert found.time_mean == pytest.approx(wanted.time_mean, abs=1e-9)


def test_a_value_in_order_writes_three_windows() -> None:
    """Neither older windows nor windows of other series are written again."""
    memory = Memory()
    for at in (0, 70, 4000, 90_000):
        memory.values.setdefault(("a", "t"), []).append((at * 1_000_000, float(at)))
        changed = changed_windows([(("a", "t"), MINUTE.start(at * 1_000_000))], memory)
        for of, windows in changed.items():
            assert list(windows) == [(("a", "t"), of.start(at * 1_000_000))]
            memory.rows[of] |= windows
