"""Metrics: their description, and histograms, which are the only thing that is kept for them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from enum import Enum

from attrs import field, frozen

# Histograms that cost little: a list of counts, and one search for each observation.
#
# How it works. The bounds are the upper ends of the buckets; a last bucket takes everything above. A histogram of
# (0.01, 0.1, 1.0) that has observed 0.004, 0.05 and 7.0 has the counts [1, 1, 0, 1]. Observations are made for each
# commit, replay or heartbeat, not for each message; ``number`` lets one observation stand for many messages.


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


# A metric: its name, its meaning, and the function that reads it. Nothing is kept here: a scrape reads the broker.


class Kind(Enum):
    """The kinds of metrics, by Prometheus' names."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


#: A value; values by the values of the labels, in the order of the labels; None: it is not known now.
Reading = float | Histogram | Mapping[tuple[str, ...], float] | None

#: the only labels: their values come from the configuration or from this program, never from a client
LABELS = frozenset({"action", "bridge", "carrier", "cause", "kind", "listener", "member", "method", "name", "outcome",
                    "protocol", "reason", "shared", "state", "type", "version"})  # fmt: skip


@frozen(kw_only=True)
class Metric:
    """One metric. Its values are those of ``read``, by ``labels`` if there are any.

    ``topics`` are the topics below ``$SYS/broker/`` that show the same values, by the values of the labels.
    """

    name: str
    help: str
    kind: Kind
    read: Callable[[], Reading]
    labels: tuple[str, ...] = field(default=())
    topics: Mapping[tuple[str, ...], str] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        if not self.name.startswith("holdfast_"):
            raise ValueError(f"{self.name}: a metric's name begins with holdfast_")
        if (self.kind is Kind.COUNTER) is not self.name.endswith("_total"):
            raise ValueError(f"{self.name}: the names of counters, and no others, end with _total")
        if not LABELS.issuperset(self.labels):
            raise ValueError(f"{self.name}: a label that is not listed may have values of clients")


def _topics(topic: str) -> dict[tuple[str, ...], str]:
    return {(): topic} if topic else {}


def counter(name: str, text: str, read: Callable[[], float | None], topic: str = "") -> Metric:
    """Return a counter without labels."""
    return Metric(name=name, help=text, kind=Kind.COUNTER, read=read, topics=_topics(topic))


def gauge(name: str, text: str, read: Callable[[], float | None], topic: str = "") -> Metric:
    """Return a gauge without labels."""
    return Metric(name=name, help=text, kind=Kind.GAUGE, read=read, topics=_topics(topic))


def histogram(name: str, text: str, read: Callable[[], Histogram | None]) -> Metric:
    """Return a histogram without labels."""
    return Metric(name=name, help=text, kind=Kind.HISTOGRAM, read=read)
