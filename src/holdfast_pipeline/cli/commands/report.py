"""``holdfast-pipeline report``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.core.terminal import ExitStatus
from holdfast_pipeline.choices import PAGES
from holdfast_pipeline.cli import options
from holdfast_pipeline.cli.commands.filters import print_refused
from holdfast_pipeline.cli.running import print_result, running
from holdfast_pipeline.errors import WrongUsage
from holdfast_pipeline.formatting import number, size

if TYPE_CHECKING:
    from holdfast_pipeline.output.folder import Folder
    from holdfast_pipeline.report.summary import Summary

_NAME = "report.html"
_KINDS = (".html", ".htm")


@click.command()
@options.database
@options.console
@click.option("--out", required=True, help="The file to write (*.html), or a folder for report.html.")
@click.option("--title", default="Retained messages", show_default=True, help="The page's heading.")
@click.option("--filters", "file", help="A file of more Topic Filters, besides the Sessions'; - is standard input.")
@options.flow_control
@click.option("--depth", type=click.IntRange(1, 8), default=5, show_default=True, help="Levels in the map of topics.")
@click.option("--stale", default="30d", show_default=True, help="Messages of this age are stale.")
@click.option(
    "--pages", type=click.IntRange(0, 1000), default=PAGES, show_default=True, help="Shapes with a page of their own."
)
@click.option("--previous", help="An earlier report to compare with: its file, or the folder of its report.html.")
@options.snapshot_dir
def report(
    storage: str | None,
    config: str | None,
    as_json: bool,
    out: str,
    title: str,
    file: str | None,
    batch_read_number: int | None,
    batch_deliver_number: int | None,
    delivery_rate: str | None,
    depth: int,
    stale: str,
    pages: int,
    previous: str | None,
    snapshot_dir: str | None,
) -> None:
    """Write a page about the retained messages: their topics, clients, ages and sizes, and the cost of replays.

    The page is one HTML file without other files, and replaces an older one. It covers the Topic Filters of the
    Sessions in the database, and those in FILTERS; the exit status is 3 if FILTERS has lines that are not Topic
    Filters.
    """
    from holdfast_pipeline.filters.flow_options import flow_settings
    from holdfast_pipeline.filters.requested_filters import RequestedFilters, of_file
    from holdfast_pipeline.filters.session_filters import of_sessions
    from holdfast_pipeline.jobs.report import report as run
    from holdfast_pipeline.report.page import page
    from holdfast_pipeline.spark import shared_snapshot

    with running("report") as start:
        flow = flow_settings(config, batch_read_number, batch_deliver_number, delivery_rate)
        stale_after = _age(stale)
        folder, name = _output_file(out)
        folder.require_writable()
        before = None if previous is None else _summary(previous)
        requested = of_file(file) if file else RequestedFilters()
        is_small = options.require_database(storage, config)
        spark = start(is_small)
        with shared_snapshot(spark, storage, config, snapshot_dir) as snapshot:
            requested = requested.also(of_sessions(snapshot.source))
            found = run(spark, snapshot, flow, requested, depth, stale_after, pages)
        data = page(found, title, before).encode()
        folder.write(name, data)
    if not as_json:
        print_refused(requested.refused, file)
    result = {
        "out": folder.below(name), "bytes": len(data), "taken_at": found.taken_at,
        "messages": found.totals.messages, "filters": len(requested.filters), "refused": len(requested.refused),
    }  # fmt: skip
    print_result(
        result, as_json, f"{number(found.totals.messages)} messages reported in {folder.below(name)}, {size(len(data))}"
    )
    if requested.refused:
        raise SystemExit(ExitStatus.FOUND)


def _age(text: str) -> int:
    from holdfast.core.units import parse_duration

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
