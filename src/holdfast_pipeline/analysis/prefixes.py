"""The totals below each prefix, from the rows of an SQLite database: counted here, without Spark.

How it works. The database returns the topics in the order of their bytes. So the topics below ``a/b/`` are neighbours,
and the rows with the prefix ``a/b`` are one run of equal prefixes, or two: the topic ``a/b`` itself comes before
``a/b!``, and that before ``a/b/c``. NumPy cuts all topics to the prefixes of a depth at once and compares neighbours.
Then it adds the runs, and the few figures of a prefix that has two. Spark would make, exchange and compare a text for
each topic and depth, which takes ten times as long.

The figures are those of :func:`holdfast_pipeline.analysis.messages.branches`, but medians are exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import evolve, frozen

from holdfast_pipeline.choices import TREE_ORDERS
from holdfast_pipeline.report.figures import PrefixTotals

#: With more messages, or bytes of their columns, Spark counts: here, a million messages take about 700 MB of memory.
MOST_ROWS = 2_000_000
MOST_BYTES = 256 << 20
_SLASH = ord("/")
_NEVER = np.iinfo(np.int64).max


@frozen
class CountedPrefixes:
    """The number of all ``prefixes``, the ``messages`` and their ``bytes``, and the ``leading`` prefixes."""

    prefixes: int
    messages: int
    bytes: int
    leading: tuple[PrefixTotals, ...]


def count_prefixes(rows: pa.Table, taken_at: int, depth: int, top: int, order: str) -> CountedPrefixes:
    """Count the messages below each prefix of 1 to ``depth`` levels; return the first ``top`` prefixes by ``order``.

    ``rows`` have the columns ``topic``, ``size``, ``stored_at`` and ``expires_at``, in the order of the bytes of their
    topics. ``taken_at`` is in milliseconds since the epoch. ``order`` is one of ``TREE_ORDERS``.
    """
    if not rows.num_rows:
        return CountedPrefixes(0, 0, 0, ())
    topics, sizes = rows.column("topic").combine_chunks(), rows.column("size").to_numpy()
    ages = np.maximum(0, (taken_at - _milliseconds(rows.column("stored_at"))) // 1000)
    expiries = _milliseconds(rows.column("expires_at"))
    count, leading = 0, list[PrefixTotals]()
    for level, names, inside in _depths(topics, depth):
        found = _Depth(level, names, sizes[inside], ages[inside], expiries[inside])
        count += len(found.names)
        leading += found.leading(top, order)
    leading.sort(key=lambda one: (-getattr(one, TREE_ORDERS[order]), one.depth, one.prefix.encode()))
    return CountedPrefixes(count, rows.num_rows, int(sizes.sum()), tuple(leading[:top]))


def _milliseconds(times: pa.ChunkedArray) -> Any:
    """Return times in milliseconds since the epoch, ``_NEVER`` for NULL."""
    known = pc.fill_null(times.cast(pa.int64()), _NEVER).to_numpy()
    return np.where(known == _NEVER, _NEVER, known // 1000)


def _depths(topics: pa.StringArray, depth: int) -> Iterator[tuple[int, pa.Array, Any]]:
    """Give the prefixes of each depth: the number of their levels, the prefixes, and which topics have one."""
    _, offsets, data = topics.buffers()
    begins = np.frombuffer(offsets, np.int32)[topics.offset : topics.offset + len(topics) + 1]
    text = np.frombuffer(data, np.uint8)[begins[0] : begins[-1]] if data is not None else np.zeros(0, np.uint8)
    begins = (begins - begins[0]).astype(np.int64)
    at = np.flatnonzero(text == _SLASH)
    # For each topic, the number of slashes before it; and the end of its prefix of so many levels.
    before = np.searchsorted(at, begins)
    levels = np.diff(before) + 1
    at = np.append(at, 0)
    for level in range(1, min(depth, int(levels.max())) + 1):
        last = np.minimum(before[:-1] + level - 1, len(at) - 1)
        ends = np.where(levels > level, at[last], begins[1:])
        bounds = np.zeros(len(topics) + 1, np.int32)
        np.cumsum(ends - begins[:-1], out=bounds[1:])
        # Each byte is in a prefix or in the rest of a topic, in turn.
        parts = np.empty(2 * len(topics), np.int64)
        parts[0::2], parts[1::2] = ends - begins[:-1], begins[1:] - ends
        kept = np.repeat(np.tile(np.array([True, False]), len(topics)), parts)
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(text[kept])]
        names, inside = pa.Array.from_buffers(pa.binary(), len(topics), buffers), levels >= level
        yield level, names.filter(pa.array(inside)), inside


class _Depth:
    """The figures of the prefixes with so many levels, each at the place of its name in ``names``."""

    def __init__(self, depth: int, prefixes: pa.Array, sizes: Any, ages: Any, expiries: Any) -> None:
        self._depth = depth
        self._ages = ages
        differs = np.ones(len(prefixes), bool)
        differs[1:] = pc.not_equal(prefixes.slice(1), prefixes.slice(0, len(prefixes) - 1)).to_numpy(False)
        starts = np.flatnonzero(differs)
        runs = prefixes.take(pa.array(starts)).dictionary_encode()
        #: names in the order of their first runs; the place of the name of each row
        self.names = runs.dictionary
        places = runs.indices.to_numpy()
        self._place = places[np.cumsum(differs) - 1]

        def added(values: Any, function: Any, first: int) -> Any:
            whole = np.full(len(self.names), first, np.int64)
            function.at(whole, places, function.reduceat(values, starts))
            return whole

        self._columns = {
            "messages": added(np.ones(len(prefixes), np.int64), np.add, 0),
            "bytes": added(sizes, np.add, 0),
            "oldest_age": added(ages, np.maximum, 0),
            "newest_age": added(ages, np.minimum, _NEVER),
            "expiring": added((expiries != _NEVER).astype(np.int64), np.add, 0),
            "expires_first": added(expiries, np.minimum, _NEVER),
        }

    def leading(self, top: int, order: str) -> list[PrefixTotals]:
        """Return the first prefixes by an order."""
        column = TREE_ORDERS[order]
        known = column in self._columns
        values = self._columns[column] if known else self._medians(np.arange(len(self.names)))
        table = pa.table({"value": values, "name": self.names})
        by = [("value", "descending"), ("name", "ascending")]
        chosen = pc.select_k_unstable(table, top, by).to_numpy()  # no two prefixes are equal
        found = [self._totals(place) for place in chosen]
        medians = self._medians(chosen) if known else values[chosen]
        return [evolve(one, median_age=int(median)) for one, median in zip(found, medians, strict=True)]

    def _totals(self, place: int) -> PrefixTotals:
        figures = {name: int(values[place]) for name, values in self._columns.items()}
        expires_first = figures.pop("expires_first")
        return PrefixTotals(
            depth=self._depth, prefix=self.names[int(place)].as_py().decode(), median_age=0, **figures,
            expires_first=None if expires_first == _NEVER else expires_first,
        )  # fmt: skip

    def _medians(self, places: Any) -> Any:
        """Return the lower median of the ages at some places."""
        wanted = np.zeros(len(self.names), bool)
        wanted[places] = True
        rows = wanted[self._place]
        at, ages = self._place[rows], self._ages[rows]
        in_order = ages[np.lexsort((ages, at))]
        counts = np.where(wanted, self._columns["messages"], 0)
        begins = np.cumsum(counts) - counts
        return in_order[(begins + (counts - 1) // 2)[places]]
