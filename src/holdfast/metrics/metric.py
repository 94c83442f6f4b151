"""A metric: its name, its meaning, and the function that reads it. Nothing is kept here: a scrape reads the broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from attrs import field, frozen

from holdfast.metrics.histogram import Histogram


class Kind(Enum):
    """The kinds of metrics, by Prometheus' names."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


#: A value; values by the values of the labels, in the order of the labels; None: it is not known now.
Reading = float | Histogram | Mapping[tuple[str, ...], float] | None

#: the only labels: their values come from the configuration or from this program, never from a client
LABELS = frozenset({"action", "cause", "kind", "listener", "method", "name", "outcome", "protocol", "reason", "shared",
                    "state", "type", "version"})  # fmt: skip


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
