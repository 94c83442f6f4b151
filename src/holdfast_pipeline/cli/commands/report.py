"""``holdfast-pipeline report``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.core.terminal import ExitStatus
from holdfast_pipeline.choices import PAGES, REPORT_PARTS, TREE_ORDERS
from holdfast_pipeline.cli import options
from holdfast_pipeline.cli.running import checking_options, print_result, running
from holdfast_pipeline.errors import WrongUsage
from holdfast_pipeline.formatting import number, size

if TYPE_CHECKING:
    from holdfast_pipeline.jobs.report import Tree
    from holdfast_pipeline.output.folder import Folder
    from holdfast_pipeline.report.summary import Summary

_NAME = "report.html"
_KINDS = (".html", ".htm")


@click.command()
@options.lake
@options.console
@click.option("--out", help="The file to write (*.html), or a folder for report.html.")
@click.option("--only", type=click.Choice(REPORT_PARTS), help="Print only this part, as a table, and write no page.")
@click.option("--title", default="Retained messages", show_default=True, help="The page's heading.")
@click.option("--filters", "file", help="A file of more Topic Filters, besides the Sessions'; - is standard input.")
@options.flow_control
@click.option(
    "--pattern",
    "patterns",
    multiple=True,
    metavar="PATTERN",
    help="A shape that is given, such as hq/{floor}/{room}/#. May be repeated; the first that matches counts.",
)
@click.option("--depth", type=click.IntRange(1, 8), default=5, show_default=True, help="Levels in the map of topics.")
@click.option("--stale", help="Messages that are older are stale: 30d, unless you name another age.")
@click.option(
    "--pages", type=click.IntRange(0, 1000), default=PAGES, show_default=True, help="Shapes with a page of their own."
)
@click.option("--previous", help="An earlier report to compare with: its file, or the folder of its report.html.")
@click.option("--top", type=click.IntRange(1, 100_000), default=30, show_default=True, help="Rows to print of a part.")
@click.option(
    "--by",
    "order",
    type=click.Choice(list(TREE_ORDERS)),
    default="messages",
    show_default=True,
    help="The order of the tree.",
)
@options.snapshot_dir
def report(
    storage: str | None,
    config: str | None,
    lake: str | None,
    as_json: bool,
    out: str | None,
    only: str | None,
    title: str,
    file: str | None,
    batch_read_number: int | None,
    batch_deliver_number: int | None,
    delivery_rate: str | None,
    patterns: tuple[str, ...],
    depth: int,
    stale: str | None,
    pages: int,
    previous: str | None,
    top: int,
    order: str,
    snapshot_dir: str | None,
) -> None:
    """Write a page about the retained messages: their topics, clients, ages and sizes, and the cost of replays.

    The page is one HTML file without other files, and replaces an older one. It covers the Topic Filters of the
    Sessions in the database, and those in FILTERS; the exit status is 3 if FILTERS has lines that are not Topic
    Filters.
    """  # fmt: skip
    from attrs import asdict

    from holdfast_pipeline.cli.report_parts import filters_part, print_refused, shapes_part, tree_part
    from holdfast_pipeline.filters import RequestedFilters, flow_settings, of_file, of_sessions
    from holdfast_pipeline.jobs.report import filters, shapes, tree
    from holdfast_pipeline.jobs.report import report as run
    from holdfast_pipeline.report.page import page
    from holdfast_pipeline.shapes import Patterns
    from holdfast_pipeline.spark import refuse_snapshot, shared_snapshot

    with running("report") as start:
        if (out is None) == (only is None):
            raise WrongUsage("name either the page (--out) or a part of it to print (--only)")
        flow = flow_settings(config, batch_read_number, batch_deliver_number, delivery_rate)
        stale_after = _age(stale)
        with checking_options():
            given = Patterns(patterns)
        folder, name = _output_file(out or ".")
        if out is not None:
            folder.require_writable()
        before = None if previous is None else _summary(previous)
        requested = of_file(file) if file else RequestedFilters()
        is_small = options.require_readable(storage, config, lake)
        counted = _tree_here(storage, config, snapshot_dir, depth, top, order) if only == "tree" and not lake else None
        if counted is not None:
            part = tree_part(counted)
        else:
            spark = start(is_small, lambda: refuse_snapshot(storage, config, snapshot_dir, lake))
            with shared_snapshot(spark, storage, config, snapshot_dir, lake) as snapshot:
                if only in (None, "filters"):
                    requested = requested.also(of_sessions(snapshot))
                if only == "tree":
                    part = tree_part(tree(spark, snapshot, depth, top, order))
                elif only == "shapes":
                    part = shapes_part(shapes(spark, snapshot, given), top)
                elif only == "filters":
                    part = filters_part(filters(spark, snapshot, requested, flow), top, asdict(flow))
                else:
                    found = run(spark, snapshot, flow, requested, given, depth, stale_after, pages)
                    data = page(found, title, before).encode()
                    folder.write(name, data)
                    messages, written = found.totals.messages, folder.below(name)
    if not as_json:
        print_refused(requested.refused, file)
    if only is not None:
        if not as_json:
            part.print_table()
        print_result(part.content, as_json, part.sentence)
    else:
        result = {
            "out": written, "bytes": len(data), "taken_at": found.taken_at,
            "messages": messages, "filters": len(requested.filters), "refused": len(requested.refused),
        }  # fmt: skip
        print_result(result, as_json, f"{number(messages)} messages reported in {written}, {size(len(data))}")
    if requested.refused:
        raise SystemExit(ExitStatus.FOUND)


def _tree_here(
    storage: str | None, config: str | None, snapshot_dir: str | None, depth: int, top: int, order: str
) -> Tree | None:
    """Count the tree of an SQLite database before Spark starts; None for another or a large one."""
    from holdfast_pipeline.analysis.prefixes import MOST_ROWS
    from holdfast_pipeline.database import Source, message_count, url_of
    from holdfast_pipeline.jobs.report import tree_here
    from holdfast_pipeline.sources.snapshot import snapshot_of

    source = Source(url_of(storage, config))
    if not source.is_sqlite:
        return None
    with source.transaction() as transaction:  # before a snapshot, which may be a copy of the file
        if message_count(transaction) > MOST_ROWS:
            return None
    with snapshot_of(storage, config, snapshot_dir) as snapshot:
        return tree_here(snapshot, depth, top, order)


def _age(text: str | None) -> int:
    from holdfast.core.messages import STALE_AFTER
    from holdfast.core.units import parse_duration

    if text is None:
        return STALE_AFTER
    try:
        seconds = int(parse_duration(text))
    except ValueError:
        seconds = 0
    if seconds < 1:
        raise WrongUsage(f"stale: found {text!r}; allowed: a time of at least a second, such as 30d, 12h or 1d12h")
    return seconds


def _summary(previous: str) -> Summary:
    """Read the summary in an earlier report. Raises :class:`PipelineError`."""
    from holdfast_pipeline.report.summary import read_summary

    folder, name = _output_file(previous)
    return read_summary(folder.read(name), folder.below(name))


def _output_file(out: str) -> tuple[Folder, str]:
    """Return the folder and the name of the file. A path that ends in .html is a file unless it is a folder already."""
    from holdfast_pipeline.output.folder import Folder

    folder, _, name = out.rpartition("/")
    if name.lower().endswith(_KINDS) and not Path(out).is_dir():
        return Folder(folder or ("/" if out.startswith("/") else ".")), name
    return Folder(out), _NAME
