"""Tables on the console."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], text_columns: int) -> None:
    """Print a table. The first columns are text, the others are numbers. Rich's markup in cells has no meaning."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for position, name in enumerate(columns):
        if position < text_columns:
            table.add_column(name, overflow="fold")
        else:
            table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 10_000  # a file or a pipe has no width: fold nothing
    with console.capture() as printed:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in printed.get().splitlines()))
