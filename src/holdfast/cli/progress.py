"""Progress bars on standard error, if that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Report(Protocol):
    """Receives the progress of a long task: the amount done, and the total if it has become known."""

    def __call__(self, done: int, total: int | None = None, /) -> None:
        """Show the progress."""


@contextmanager
def progress(description: str, total: int | None, in_bytes: bool = False) -> Iterator[Report]:
    """Show a bar during a long task. ``total`` is None if it is not known yet."""
    if not sys.stderr.isatty():
        yield _nothing
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


def _nothing(_done: int, _total: int | None = None, /) -> None:
    """Show nothing."""
