"""A scrape: reads the metrics and makes their text, piece by piece, so that a long one holds nobody up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from attrs import frozen
from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from holdfast.watch.log import LastingFailure
from holdfast.watch.metrics import Metric, Reading

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

#: runs a function in a thread, or at once, and returns its result
Run = Callable[[Callable[[], Any]], Deferred[Any]]


class Metrics:
    """All metrics. Reading one that fails is logged once, and leaves only this one out."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics: tuple[Metric, ...] = ()
        self._failures: dict[str, LastingFailure] = {}
        self.add(metrics)

    def add(self, metrics: Sequence[Metric]) -> None:
        """Add metrics. Raises ValueError if two have one name."""
        self._metrics += tuple(metrics)
        names = [metric.name for metric in self._metrics]
        if len(set(names)) < len(names):
            raise ValueError("two metrics have one name")
        for metric in metrics:
            failure = LastingFailure(f"reading the metric {metric.name}", "so scrapes leave it out")
            self._failures[metric.name] = failure

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._metrics)

    def __len__(self) -> int:
        return len(self._metrics)

    def readings(self) -> Iterator[tuple[Metric, Reading]]:
        """Yield each metric with its present values. They are read when the iterator comes to them."""
        for metric in self._metrics:
            failure = self._failures[metric.name]
            try:
                reading = metric.read()
            except Exception:  # noqa: BLE001 - whatever fails, the other metrics are still true
                failure.failed(Failure())
            else:
                failure.succeeded()
                yield metric, reading


@frozen
class Scrape:
    """The text of the metrics, in pieces: ``more`` returns the next one, and b"" after the last."""

    content_type: str
    more: Callable[[], Deferred[bytes]]


def scrape(metrics: Metrics, accept: str, run: Run) -> Deferred[Scrape]:
    """Begin a scrape. ``accept`` is the header of this name; ``run`` runs long work in a thread."""

    def prepare() -> tuple[Any, str, list[Family]]:
        from holdfast.watch.exposition import encoder_for, process_families

        return *encoder_for(accept), process_families()

    def begin(prepared: tuple[Any, str, list[Family]]) -> Scrape:
        from holdfast.watch.exposition import family_of, pieces

        encode, content_type, of_process = prepared

        def families() -> Iterable[Family]:
            for metric, reading in metrics.readings():
                yield family_of(metric, reading)
            yield from of_process

        text = pieces(iter(families()), encode)
        return Scrape(content_type, lambda: succeed(next(text, b"")))

    return run(prepare).addCallback(begin)
