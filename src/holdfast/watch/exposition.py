"""The text of the metrics for Prometheus, and for OpenMetrics where a scraper asks for it.

This module alone imports ``prometheus_client``, and is imported by the first scrape, in a thread: it takes long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from math import inf

from prometheus_client import GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from holdfast.watch.metrics import Histogram, Kind, Metric, Reading

#: families of one piece of text: some hundred microseconds of work
_FAMILIES = 10
_END_OF_OPENMETRICS = b"# EOF\n"


class _Families(Collector):
    """Some families, as an encoder takes them."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        """Return them."""
        return self._families


def process_families() -> list[Family]:
    """Return what the library knows of the process, the interpreter and its garbage collector.

    It lists all open files, which takes some milliseconds for ten thousand connections: call it in a thread.
    """
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return list(registry.collect())


def family_of(metric: Metric, reading: Reading) -> Family:
    """Return a metric with its present values."""
    if metric.kind is Kind.HISTOGRAM:
        buckets = HistogramMetricFamily(metric.name, metric.help)
        if isinstance(reading, Histogram):
            buckets.add_metric((), _buckets(reading), sum_value=reading.total)
        return buckets
    family: CounterMetricFamily | GaugeMetricFamily
    if metric.kind is Kind.COUNTER:
        family = CounterMetricFamily(metric.name.removesuffix("_total"), metric.help, labels=metric.labels)
    else:
        family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    if isinstance(reading, int | float):
        family.add_metric((), reading)
    elif reading is not None and not isinstance(reading, Histogram):
        for labels, value in reading.items():
            family.add_metric(labels, value)
    return family


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    buckets: list[tuple[str, float]] = []
    passed = 0
    for bound, count in zip((*histogram.bounds, inf), histogram.counts, strict=True):
        passed += count
        buckets.append(("+Inf" if bound == inf else repr(float(bound)), passed))
    return buckets


def encoder_for(accept: str) -> tuple[Callable[[Iterable[Family], bool], bytes], str]:
    """Return what encodes some families (and whether they are the last), and the type of the text."""
    encode, content_type = choose_encoder(accept)
    is_open = content_type.startswith("application/openmetrics-text")

    def piece(families: Iterable[Family], is_last: bool) -> bytes:
        text = encode(_Families(families))
        return text.removesuffix(_END_OF_OPENMETRICS) if is_open and not is_last else text

    return piece, content_type


def pieces(
    families: Iterator[Family], encode: Callable[[Iterable[Family], bool], bytes], number: int = _FAMILIES
) -> Iterator[bytes]:
    """Yield the text in pieces of so many families."""
    present: Sequence[Family] = tuple(islice(families, number))
    while True:
        following = tuple(islice(families, number))
        yield encode(present, not following)
        if not following:
            return
        present = following
