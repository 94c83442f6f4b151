"""The figures of a phase in words, and as JSON. Pure."""

from __future__ import annotations

import json

from holdfast_pipeline.formatting import number, share, size, span
from holdfast_pipeline.progress.phases import Figures

#: The unit that is written with a larger unit of its own.
BYTES = "bytes"


def amount_text(figures: Figures) -> str:
    """Return the amount: "120,000 of 400,000 rows (30 %)". Empty if it is unknown."""
    if figures.total is None:
        return _counted(figures.done, figures.unit) if figures.done else ""
    done = size(figures.done) if figures.unit == BYTES else number(figures.done)
    return f"{done} of {_counted(figures.total, figures.unit)} ({share(figures.done, figures.total)})"


def pace_text(figures: Figures) -> str:
    """Return the rate and the time left: "11,000 rows/s, 25 s left". Empty if nothing is known."""
    if figures.rate is None:
        return ""
    rate = size(figures.rate) if figures.unit == BYTES else f"{figures.rate:,.3g}" if figures.rate < 100 else None
    text = f"{rate or number(figures.rate)}{'' if figures.unit == BYTES else f' {figures.unit}'}/s"
    left = figures.seconds_left
    return text if left is None else f"{text}, {span(round(left))} left"


def line(job: str, figures: Figures) -> str:
    """Return one line: "asof: writing, 120,000 of 400,000 rows (30 %), 11,000 rows/s, 25 s left"."""
    pace = pace_text(figures) or f"for {span(round(figures.seconds))}"
    known = [figures.name, amount_text(figures), pace]
    return f"{job}: {', '.join(each for each in known if each)}"


def json_line(job: str, figures: Figures) -> str:
    """Return the same for programs. An unknown figure is null."""
    rate, left = figures.rate, figures.seconds_left
    content = {
        "job": job, "phase": figures.name, "unit": figures.unit, "done": figures.done, "total": figures.total,
        "per_second": None if rate is None else round(rate, 3), "seconds": round(figures.seconds, 1),
        "seconds_left": None if left is None else round(left, 1),
    }  # fmt: skip
    return json.dumps({"progress": content})


def _counted(count: int, unit: str) -> str:
    return size(count) if unit == BYTES else f"{number(count)} {unit}"
