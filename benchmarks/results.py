"""The report of a scenario: rows of named figures, each with a number of losses or the reason of a failure."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from benchmarks.brokers import Broker, Unavailable
from benchmarks.connection import BenchError
from benchmarks.generator import Report


@dataclass(frozen=True)
class Metric:
    """A measured quantity: its name within a case, its unit, and whether more is better."""

    name: str
    unit: str
    higher_is_better: bool


RATE = Metric("rate", "msg/s", True)
P50 = Metric("p50", "ms", False)
P99 = Metric("p99", "ms", False)
P999 = Metric("p99.9", "ms", False)
MAX = Metric("max", "ms", False)


@dataclass(frozen=True)
class Processor:
    """Microseconds of processor time for each message, on both sides, and whether the generator was the limit."""

    broker: float
    generator: float
    limited: bool = False


@dataclass
class Row:
    """One figure of one run. With `of`, it is not the broker's own figure, but that of something beside it."""

    case: str
    metric: Metric
    value: float | None = None
    lost: int = 0
    failure: str = ""
    note: str = ""
    wrong: str = ""
    processor: Processor | None = None
    of: str = ""


class OutOfTime(Exception):
    """The case has used up its time."""


@dataclass
class Case:
    """The figures of one case, filled in while it runs."""

    broker: Broker
    rows: dict[Metric, Row]
    beside: list[Row]

    def __setitem__(self, metric: Metric, value: float) -> None:
        self.rows[metric].value = value

    def take(self, report: Report, names: Mapping[Metric, str]) -> None:
        """Note the figures of the generator's report, by the name they have there, and what went wrong."""
        for metric, name in names.items():
            row = self.rows[metric]
            row.value, row.lost, row.wrong = report[name], report.lost, report.mistakes
            row.processor = Processor(report.broker_us, report.generator_us, report.limited)

    def compare(self, name: str, metric: Metric, value: float) -> None:
        """Note a figure of something else, measured beside the broker."""
        self.beside.append(Row(self.rows[metric].case, metric, value, of=name))

    def lost(self, messages: int) -> None:
        """Note that `messages` messages were published and not delivered (negative: delivered more than once)."""
        for row in self.rows.values():
            row.lost = messages

    def note(self, text: str) -> None:
        """Add a remark to the figures."""
        for row in self.rows.values():
            row.note = f"{row.note}; {text}" if row.note else text


class Result:
    """The rows of one scenario on one broker, each case within a time bound."""

    def __init__(self, broker: Broker, seconds: float) -> None:
        self.rows: list[Row] = []
        self.failures: list[str] = []  #: the cases that failed, each with the reason
        self._broker = broker
        self._seconds = seconds

    @property
    def failed(self) -> bool:
        """Whether a case failed: the broker may still work on it, and must not be used again."""
        return bool(self.failures)

    @contextmanager
    def case(self, name: str, metrics: Sequence[Metric], broker: Broker | None = None) -> Iterator[Case]:
        """Run one case. Its failure, or the end of its time, becomes the text of its rows.

        It uses the scenario's broker unless another one is given. A repeated case gets one more value.
        """
        case = Case(broker or self._broker, {metric: Row(name, metric) for metric in metrics}, [])
        self.rows += case.rows.values()
        failure = ""
        try:
            with _alarm(self._seconds):
                case.broker.settle()
                yield case
        except OutOfTime:
            failure = "TIMEOUT"
        except (BenchError, OSError, Unavailable) as error:
            failure = f"FAILED: {error}"
        self.rows += case.beside
        if failure:
            self.failures.append(f"{name}: {failure}")
            for row in case.rows.values():
                row.value, row.failure = None, failure


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    def ring(_number: int, _frame: FrameType | None) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of the ordered values lie, by nearest rank."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
