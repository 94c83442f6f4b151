"""The printed tables: medians with the least and the greatest figure, ratios, and failures."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from benchmarks.results import Metric, Row

#: By scenario, case and metric: the rows of each broker, one for each run.
Figures = dict[tuple[str, str, Metric], dict[str, list[Row]]]

_HEADINGS = ("scenario", "case", "figure")


def lines(figures: Figures, brokers: Sequence[str]) -> Iterator[str]:
    """Yield one table for each scenario, for a terminal. A ratio above 1 means that Holdfast is better."""
    last = ""
    for (scenario, case, metric), rows in figures.items():
        if scenario != last:
            last = scenario
            yield ""
            yield (
                f"{scenario:44s} {'figure':14s}" + "".join(f"{broker:>28s}" for broker in brokers) + "     ratio  note"
            )
        cells = "".join(f"{text(rows.get(broker)):>28s}" for broker in brokers)
        figure = f"{metric.name} {metric.unit}"
        yield f"{case:44s} {figure:14s}{cells}{ratio(metric, rows):>10s}  {_note(rows)}".rstrip()


def markdown(figures: Figures, brokers: Sequence[str]) -> Iterator[str]:
    """Yield all figures as one table in Markdown."""
    headings = [*_HEADINGS, *brokers, "ratio", "note"]
    yield _line(headings)
    yield "|" + "---|" * len(headings)
    for (scenario, case, metric), rows in figures.items():
        cells = [text(rows.get(broker)) for broker in brokers]
        yield _line([scenario, case, f"{metric.name}, {metric.unit}", *cells, ratio(metric, rows), _note(rows)])


def text(rows: list[Row] | None) -> str:
    """One cell: the median (least .. greatest), the losses and the failures."""
    failed = [row.failure for row in rows or [] if row.failure]
    if failed:
        return failed[0][:60]
    values = _values(rows)
    if not values:
        return "-"
    told = _number(statistics.median(values))
    if len(values) > 1:
        told += f" ({_number(min(values))} .. {_number(max(values))})"
    lost = max((row.lost for row in rows or []), key=abs)
    return told + (f" LOST {lost}" if lost else "")


def ratio(metric: Metric, rows: dict[str, list[Row]]) -> str:
    """The ratio of the medians of Holdfast and mosquitto, inverted if less is better; empty if one is missing."""
    own, other = _values(rows.get("holdfast")), _values(rows.get("mosquitto"))
    if not own or not other:
        return ""
    mine, theirs = statistics.median(own), statistics.median(other)
    above, below = (mine, theirs) if metric.higher_is_better else (theirs, mine)
    return f"{above / below:.2f}" if below > 0 else ""


def _values(rows: list[Row] | None) -> list[float]:
    return [row.value for row in rows or [] if row.value is not None]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _note(rows: dict[str, list[Row]]) -> str:
    return next((row.note for row in rows.get("holdfast", []) if row.note), "")


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
