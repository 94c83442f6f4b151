"""The parts of a report that ``report --only`` prints: the tree of topics, the shapes, the cost of Topic Filters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click
from attrs import asdict, frozen
from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast_pipeline.cli.running import say
from holdfast_pipeline.formatting import counted, moment, number, share, size, span, visible

if TYPE_CHECKING:
    from holdfast_pipeline.filters import FilterDeliveries, FilterDelivery, InvalidFilter
    from holdfast_pipeline.jobs.report import Tree
    from holdfast_pipeline.report.figures import PrefixTotals
    from holdfast_pipeline.shapes import ShapesFound, ShapeTotals


# Tables on the console.


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


_TREE = ("prefix", "messages", "share", "bytes", "oldest", "median", "newest", "expiring", "first expires")
_SHAPES = ("shape", "names", "kind", "messages", "bytes", "unlike", "changes a day", "newest")
_FILTERS = ("Topic Filter", "", "subscriptions", "messages", "bytes", "reads", "slices", "at least")
#: Why a Subscription receives no retained messages, by the name of the reason.
_WHY_NOT = {
    "YES": "",
    "SHARED": "shared: no replay",
    "DECLINED": "Retain Handling 2: no replay",
    "SYS": "the broker's own: not in the database",
}
_MAX_PRINTED = 20


@frozen
class Part:
    """A part as people read it: a table, of which the first columns are text, and a sentence; and as JSON."""

    columns: tuple[str, ...]
    text_columns: int
    rows: list[tuple[str, ...]]
    sentence: str
    content: dict[str, Any]

    def print_table(self) -> None:
        """Print the table, unless it is empty."""
        if self.rows:
            print_table(self.columns, self.rows, self.text_columns)


def tree_part(found: Tree) -> Part:
    """Return the prefixes of a tree."""
    return Part(
        _TREE, 1, [_prefix(one, found.messages) for one in found.branches],
        f"{number(found.messages)} messages, {size(found.bytes)}, below {number(found.prefixes)} prefixes"
        f" of up to {found.depth} levels on {moment(found.taken_at)}",
        asdict(found),
    )  # fmt: skip


def shapes_part(found: ShapesFound, top: int) -> Part:
    """Return the first shapes."""
    content = asdict(found)
    content["shapes"] = content["shapes"][:top]
    unshaped = f", {number(found.unshaped)} messages without a shape" if found.unshaped else ""
    return Part(
        _SHAPES, 3, [_shape(one) for one in found.shapes[:top]],
        f"{number(found.messages)} messages, {size(found.bytes)}, in {number(len(found.shapes))} shapes{unshaped}"
        f" on {moment(found.taken_at)}",
        content,
    )  # fmt: skip


def filters_part(found: FilterDeliveries, top: int, flow: object) -> Part:
    """Return the first Topic Filters of those with the most bytes."""
    return Part(
        _FILTERS, 2, [_filter(one) for one in found.deliveries[:top]],
        f"{counted(len(found.deliveries), 'Topic Filter')}, {counted(found.subscriptions, 'subscription')}:"
        f" {counted(found.messages, 'message')}, {size(found.bytes)}",
        asdict(found) | {"messages": found.messages, "bytes": found.bytes, "flow": flow},
    )  # fmt: skip


def print_refused(refused: Iterable[InvalidFilter], file: str | None) -> None:
    """Print the first invalid Topic Filters to standard error."""
    listed = list(refused)
    for one in listed[:_MAX_PRINTED]:
        where = f"{file}:{one.line}: " if one.line else ""
        say(f"{where}'{visible(one.text)}': {one.reason}")
    if len(listed) > _MAX_PRINTED:
        say(f"and {number(len(listed) - _MAX_PRINTED)} more; --json lists all")


def _prefix(one: PrefixTotals, messages: int) -> tuple[str, ...]:
    return (
        visible(one.prefix), number(one.messages), share(one.messages, messages), size(one.bytes),
        span(one.oldest_age), span(one.median_age), span(one.newest_age), number(one.expiring),
        "" if one.expires_first is None else moment(one.expires_first),
    )  # fmt: skip


def _shape(one: ShapeTotals) -> tuple[str, ...]:
    names = ("about " if one.about else "") + " x ".join(map(number, one.names))
    return (
        visible(one.shape), names, one.kind, number(one.messages), size(one.bytes),
        share(one.unlike, one.messages) if one.unlike else "",
        "" if one.changes_a_day is None else number(round(one.changes_a_day)), moment(one.newest),
    )  # fmt: skip


def _filter(one: FilterDelivery) -> tuple[str, ...]:
    return (
        visible(one.topic_filter), _WHY_NOT[one.replayed.name], number(one.subscriptions), number(one.messages),
        size(one.bytes), number(one.reads), number(one.slices), "" if one.seconds is None else span(one.seconds),
    )  # fmt: skip
