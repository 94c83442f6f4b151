"""Pictures of the figures of one run: live latency beside replays, and memory against retained messages."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks.charts import Chart, Line, picture
from benchmarks.report import Figures
from benchmarks.results import MAX, P50, P99, Metric
from benchmarks.scenarios import growth, live
from benchmarks.scenarios.memory import MEMORY

_MEMORY_TITLE = (
    "RssAnon of the idle broker, MiB (Holdfast after a restart, the others after the messages were published)"
)
_NAMES = {"holdfast": "Holdfast", "mosquitto-nodelay": "mosquitto", "flashmq": "FlashMQ"}


def draw(figures: Figures, retained: int, folder: Path, caption: Sequence[str]) -> list[Path]:
    """Write the pictures whose scenarios were measured to the folder; return their paths. Raises OSError."""
    made = {"live-beside-replays.svg": _live(figures, retained), "memory.svg": _memory(figures, retained)}
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, (title, charts) in made.items():
        if any(chart.lines for chart in charts):
            (folder / name).write_text(picture(title, charts, caption))
            written.append(folder / name)
    return written


def _live(figures: Figures, retained: int) -> tuple[str, list[Chart]]:
    names = [(float(place), live.name(retained, replays)) for place, replays in enumerate(live.REPLAYS)]
    charts = []
    for metric, title in ((P50, "half of the messages, ms"), (P99, "99 of 100, ms"), (MAX, "the slowest, ms")):
        lines = _lines(figures, "live", metric, names)
        charts.append(Chart(title, lines, names=names, log_y=True))
    return f"Live messages while clients replay all of {retained:,} retained ones", charts


def _memory(figures: Figures, retained: int) -> tuple[str, list[Chart]]:
    points = [(float(count), growth.name(count)) for count in growth.counts(retained)]
    lines = _lines(figures, "growth", MEMORY, points)
    title = "A broker's memory against its retained messages"
    return title, [
        Chart(
            _MEMORY_TITLE,
            lines,
            "retained",
            log_x=True,
            log_y=True,
            height=260,
        )
    ]


def _lines(figures: Figures, scenario: str, metric: Metric, points: Sequence[tuple[float, str]]) -> list[Line]:
    """Return a line for each broker: the medians of a metric in these cases."""
    lines = []
    for colour, (broker, title) in enumerate(_NAMES.items()):
        shown = []
        for place, case in points:
            rows = figures.get((scenario, case, metric), {}).get(broker, [])
            values = [row.value for row in rows if row.value is not None]
            if values:
                shown.append((place, statistics.median(values)))
        if shown:
            lines.append(Line(title, shown, colour))
    return lines
