"""Tables on the console."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text


def show(columns: Sequence[str], rows: Iterable[Sequence[str]], left: int) -> None:
    """Print a table; the first ``left`` columns are text, the others are numbers. Text is taken as it is."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, name in enumerate(columns):
        if place < left:
            table.add_column(name, overflow="fold")
        else:
            table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console = Console(highlight=False)
    if not console.is_terminal:
        # A file or a pipe has no width: nothing is to be folded.
        console.width = 10_000
    with console.capture() as printed:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in printed.get().splitlines()))
