"""Histograms that cost little: a list of counts, and one search for each observation.

How it works. The bounds are the upper ends of the buckets; a last bucket takes everything above. A histogram of
(0.01, 0.1, 1.0) that has observed 0.004, 0.05 and 7.0 has the counts [1, 1, 0, 1]. Observations are made for each
commit, replay or heartbeat, not for each message; ``number`` lets one observation stand for many messages.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

#: seconds of a commit, and of the wait for one
COMMIT_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
#: rows of a commit
COMMIT_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
#: seconds of a replay, and until its first message
REPLAY_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
#: seconds by which a turn of the reactor is late
LAG_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Histogram:
    """Counts observations by bucket. ``total`` is the sum of all observed values."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, number: int = 1) -> None:
        """Count a value, ``number`` times."""
        self.counts[bisect_left(self.bounds, value)] += number
        self.total += value * number

    @property
    def count(self) -> int:
        """The number of observations."""
        return sum(self.counts)


def quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float | None:
    """Return the value below which this share of the observations is, from their counts by bucket.

    Within a bucket, values count as evenly spread. Of the last bucket only its lower end is known. None without any
    observation.
    """
    rank = share * sum(counts)
    if not rank:
        return None
    passed = 0
    for number, count in enumerate(counts):
        if count and passed + count >= rank:
            if number == len(bounds):
                break
            low = bounds[number - 1] if number else 0.0
            return low + (bounds[number] - low) * (rank - passed) / count
        passed += count
    return bounds[-1]
