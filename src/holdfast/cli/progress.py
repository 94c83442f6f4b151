"""Progress bars: on standard error, and only where somebody looks at it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class Report(Protocol):
    """Takes how much has been done, and of how much, if that was not known before."""

    def __call__(self, done: int, total: int | None = None, /) -> None:
        """Show it."""


@contextmanager
def progress(what: str, total: int | None, in_bytes: bool = False) -> Iterator[Report]:
    """Show a bar while something long is under way. ``total`` is None where nobody knows."""
    console = Console(stderr=True)
    count = DownloadColumn() if in_bytes else MofNCompleteColumn()
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), count, TimeElapsedColumn(),
        console=console, transient=True, disable=not console.is_terminal,
    )  # fmt: skip
    with bar:
        task = bar.add_task(what, total=total)

        def report(done: int, total: int | None = None, /) -> None:
            bar.update(task, completed=done, total=total)

        yield report
