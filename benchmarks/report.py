"""The printed tables: medians with the least and the greatest figure, ratios, and failures."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.makes import MAKES
from benchmarks.results import Metric, Processor, Row

#: By scenario, case and metric: the rows of each broker and of each thing beside it, one for each run.
Figures = dict[tuple[str, str, Metric], dict[str, list[Row]]]

_HEADINGS = ("scenario", "case", "figure")


@dataclass(frozen=True)
class Column:
    """The figures of one make: those of its better configuration, and the name of that one."""

    configuration: str
    rows: Sequence[Row]

    @property
    def values(self) -> list[float]:
        """The figures of the successful runs."""
        return [row.value for row in self.rows if row.value is not None]

    @property
    def median(self) -> float | None:
        """The median, if there is a figure."""
        return statistics.median(self.values) if self.values else None

    @property
    def processor(self) -> Processor | None:
        """The medians of the processor time of both sides; the generator was the limit if it was in any run."""
        found = [row.processor for row in self.rows if row.processor is not None]
        if not found:
            return None
        return Processor(
            statistics.median(one.broker for one in found),
            statistics.median(one.generator for one in found),
            any(one.limited for one in found),
        )

    def __str__(self) -> str:
        """The median (least .. greatest), the losses, the mistakes and the failures."""
        failed = [row.failure for row in self.rows if row.failure]
        if failed:
            return failed[0][:60]
        if self.median is None:
            return "-"
        told = number(self.median)
        if len(self.values) > 1:
            told += f" ({number(min(self.values))} .. {number(max(self.values))})"
        lost = max((row.lost for row in self.rows), key=abs)
        wrong = next((row.wrong for row in self.rows if row.wrong), "")
        return told + (f" LOST {lost}" if lost else "") + (f" WRONG: {wrong}" if wrong else "")


def column(metric: Metric, rows: dict[str, list[Row]], make: str) -> Column:
    """Return the better configuration of a make: that with the better median, and one without failures before others.

    A make without configurations of its own is something that was measured beside a broker.
    """
    columns = [Column(name, rows[name]) for name in MAKES.get(make, (make,)) if name in rows]
    if not columns:
        return Column(make, [])
    sign = 1 if metric.higher_is_better else -1

    def merit(one: Column) -> tuple[bool, bool, float]:
        sound = not any(row.failure or row.lost or row.wrong for row in one.rows)
        return sound, one.median is not None, sign * (one.median or 0.0)

    return max(columns, key=merit)


def ratio(metric: Metric, own: Column, other: Column) -> float | None:
    """The ratio of the medians, inverted if less is better; None if one is missing."""
    if own.median is None or other.median is None:
        return None
    above, below = (own.median, other.median) if metric.higher_is_better else (other.median, own.median)
    return above / below if below > 0 else None


def lines(figures: Figures, makes: Sequence[str]) -> Iterator[str]:
    """Yield one table for each scenario, for a terminal. A ratio above 1 means that Holdfast is better."""
    last = ""
    for (scenario, case, metric), rows in figures.items():
        if scenario != last:
            last = scenario
            yield ""
            yield f"{scenario:46s} {'figure':16s}" + "".join(f"{make:>30s}" for make in makes) + "     ratio  note"
        cells = _cells(metric, rows, makes)
        figure = f"{metric.name} {metric.unit}"
        texts = "".join(f"{cell:>30s}" for cell in cells[:-2])
        yield f"{case:46s} {figure:16s}{texts}{cells[-2]:>10s}  {cells[-1]}".rstrip()


def markdown(figures: Figures, makes: Sequence[str]) -> Iterator[str]:
    """Yield all figures as one table in Markdown."""
    headings = [*_HEADINGS, *makes, "ratio", "note"]
    yield markdown_line(headings)
    yield "|" + "---|" * len(headings)
    for (scenario, case, metric), rows in figures.items():
        yield markdown_line([scenario, case, f"{metric.name}, {metric.unit}", *_cells(metric, rows, makes)])


def _cells(metric: Metric, rows: dict[str, list[Row]], makes: Sequence[str]) -> list[str]:
    """The figures of each make, the ratio to mosquitto, and the note."""
    columns = [column(metric, rows, make) for make in makes]
    own, peer = (column(metric, rows, make) for make in ("holdfast", "mosquitto"))
    told = ratio(metric, own, peer)
    return [*map(str, columns), "" if told is None else f"{told:.2f}", _note(rows, columns)]


def _note(rows: dict[str, list[Row]], columns: Sequence[Column]) -> str:
    notes = [f"{one.configuration}: {processor_text(one.processor)}" for one in columns if one.processor is not None]
    notes += [row.note for row in rows.get("holdfast", []) if row.note][:1]
    known = {name for names in MAKES.values() for name in names}
    notes += [f"{name}: {Column(name, rows[name])}" for name in rows if name not in known]
    return "; ".join(notes)


def processor_text(processor: Processor) -> str:
    """Tell the processor time of a message, of the broker and of the generator."""
    told = f"{number(processor.broker)} + {number(processor.generator)} µs"
    return told + (" (the generator was the limit)" if processor.limited else "")


def number(value: float) -> str:
    """Return a figure with three digits, or as a whole number."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def markdown_line(cells: Sequence[str]) -> str:
    """Return one line of a table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
