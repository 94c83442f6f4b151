"""Progress on standard error: a bar on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Protocol

from holdfast.cli.reporting import say

#: seconds between two lines
_INTERVAL = 10.0


class Report(Protocol):
    """Receives the progress of a long task: the amount done, and the total if it has become known."""

    def __call__(self, done: int, total: int | None = None, /) -> None:
        """Show the progress."""


@contextmanager
def progress(description: str, total: int | None, in_bytes: bool = False) -> Iterator[Report]:
    """Show a bar during a long task, or lines in a log. ``total`` is None if it is not known yet."""
    if not sys.stderr.isatty():
        yield _Lines(description, total, in_bytes)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    count = DownloadColumn() if in_bytes else MofNCompleteColumn()
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), count, TimeElapsedColumn(),
        console=Console(stderr=True), transient=True,
    )  # fmt: skip
    with bar:
        task = bar.add_task(description, total=total)

        def report(done: int, total: int | None = None, /) -> None:
            bar.update(task, completed=done, total=total)

        yield report


class _Lines:
    """Prints how much is done every ``_INTERVAL`` seconds: nothing during a short task."""

    def __init__(self, description: str, total: int | None, in_bytes: bool) -> None:
        self._description = description
        self._total = total
        self._in_bytes = in_bytes
        self._began = monotonic()
        self._next = self._began + _INTERVAL

    def __call__(self, done: int, total: int | None = None, /) -> None:
        """Print a line, if it is time."""
        self._total = self._total if total is None else total
        now = monotonic()
        if now < self._next:
            return
        self._next = now + _INTERVAL
        of = f" of {self._shown(self._total)} ({100 * done // self._total} %)" if self._total else ""
        say(f"{self._description}: {self._shown(done)}{of} after {now - self._began:.0f} s")

    def _shown(self, number: int) -> str:
        return f"{number / 1_000_000:,.0f} MB" if self._in_bytes else f"{number:,}"
