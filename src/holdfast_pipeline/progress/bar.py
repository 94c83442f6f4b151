"""Progress as a bar on a terminal."""

from __future__ import annotations

from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from holdfast_pipeline.progress.phases import Phases
from holdfast_pipeline.progress.texts import amount_text, pace_text


class Bar:
    """A bar for the present phase, in the last line of a terminal. It goes away in the end.

    What is written to ``sys.stderr`` meanwhile appears above it.
    """

    def __init__(self, phases: Phases, terminal: TextIO) -> None:
        self._phases = phases
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[figures]}", markup=False),
            console=Console(file=terminal, force_terminal=True),
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
        )
        self._task = self._progress.add_task("", total=None, figures="")
        self._progress.start()

    def show(self) -> None:
        """Draw the bar anew."""
        now = self._phases.figures()
        if now is None:
            return
        texts = [text for text in (amount_text(now), pace_text(now)) if text]
        self._progress.update(
            self._task, description=f"{self._phases.job}: {now.name}", total=now.total, completed=now.done,
            figures=", ".join(texts), refresh=True,
        )  # fmt: skip

    def close(self) -> None:
        """Remove the bar."""
        self._progress.stop()
