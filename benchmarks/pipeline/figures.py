"""The measured figures: rates of the pipeline and of plain Python in the same run, and latencies."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One line: the case, the figure and its unit, and plain Python's figure for the same work if there is one."""

    case: str
    value: float
    unit: str
    plain: float | None = None
    note: str = ""

    @property
    def cells(self) -> Sequence[str]:
        """The line as text."""
        plain = "" if self.plain is None else _number(self.plain)
        ratio = "" if not self.plain else f"{self.value / self.plain:.2f}"
        return self.case, _number(self.value), self.unit, plain, ratio, self.note


def best(work: Callable[[], object], repeat: int) -> float:
    """Return the seconds of the fastest run."""
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)


def lines(figures: Sequence[Figure], markdown: bool) -> Iterator[str]:
    """Yield all figures as a table, for a terminal or a document."""
    headings = ("case", "pipeline", "unit", "plain Python", "ratio", "note")
    rows = [headings, *(figure.cells for figure in figures)]
    if markdown:
        yield from ("| " + " | ".join(row) + " |" for row in rows[:1])
        yield "|" + "---|" * len(headings)
        yield from ("| " + " | ".join(row) + " |" for row in rows[1:])
        return
    widths = [max(len(row[column]) for row in rows) for column in range(len(headings))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
