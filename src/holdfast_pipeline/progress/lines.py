"""Progress as lines, for logs and programs."""

from __future__ import annotations

from collections.abc import Callable

from holdfast_pipeline.progress.phases import Figures, Phases

#: Seconds between two lines, and before the first one: a short command prints none.
PERIOD = 10.0


class Lines:
    """Writes a line about the present phase every ten seconds."""

    def __init__(self, phases: Phases, write: Callable[[str], object], text: Callable[[str, Figures], str]) -> None:
        self._phases = phases
        self._write = write
        self._text = text
        self._next = phases.clock() + PERIOD

    def show(self) -> None:
        """Write a line if it is time for one."""
        if self._phases.clock() < self._next:
            return
        figures = self._phases.figures()
        if figures is None:
            return
        self._write(self._text(self._phases.job, figures) + "\n")
        self._next = self._phases.clock() + PERIOD

    def close(self) -> None:
        """Write no more lines."""
