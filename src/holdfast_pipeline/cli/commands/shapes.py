"""``holdfast-pipeline shapes``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast_pipeline.choices import TABLE_FORMS
from holdfast_pipeline.cli import options
from holdfast_pipeline.cli.running import checking_options, print_result, running
from holdfast_pipeline.formatting import moment, number, share, size, visible

if TYPE_CHECKING:
    from holdfast_pipeline.shapes.totals import ShapeTotals

_COLUMNS = ("shape", "names", "kind", "messages", "bytes", "unlike", "changes a day", "newest")


@click.command()
@options.database
@options.console
@options.topic_filter
@click.option(
    "--pattern",
    "patterns",
    multiple=True,
    metavar="PATTERN",
    help="A shape that is given, such as hq/{floor}/{room}/#. May be repeated; the first that matches counts.",
)
@click.option("--top", type=click.IntRange(1, 1000), default=50, show_default=True, help="Number of shapes to print.")
@click.option("--out", help="A folder to write all shapes to.")
@click.option(
    "--format", "form", type=click.Choice(TABLE_FORMS), default="parquet", show_default=True, help="The format of OUT."
)
@options.snapshot_dir
@click.option("--overwrite", is_flag=True, help="Replace a complete result in OUT.")
def shapes(
    storage: str | None,
    config: str | None,
    as_json: bool,
    topic_filter: str,
    patterns: tuple[str, ...],
    top: int,
    out: str | None,
    form: str,
    snapshot_dir: str | None,
    overwrite: bool,
) -> None:
    """Find the shapes of the retained topics: hq/{floor}/{room}/light/{lamp}/state stands for all lamps."""
    from attrs import asdict

    from holdfast_pipeline.cli.tables import print_table
    from holdfast_pipeline.jobs.shapes import shapes as run
    from holdfast_pipeline.output.folder import Folder
    from holdfast_pipeline.output.overwriting import require_overwritable
    from holdfast_pipeline.shapes.patterns import Patterns
    from holdfast_pipeline.spark import shared_folder, shared_snapshot

    with running("shapes") as start:
        with checking_options():
            Patterns(patterns)
        is_small = options.require_database(storage, config)
        if out is not None:
            require_overwritable(Folder(out), overwrite)
        spark = start(is_small)
        folder = None if out is None else shared_folder(spark, out)
        with shared_snapshot(spark, storage, config, snapshot_dir) as snapshot:
            found = run(spark, snapshot, topic_filter, patterns, folder, form, overwrite)
    result = asdict(found)
    result["shapes"] = result["shapes"][:top]
    if not as_json and found.shapes:
        print_table(_COLUMNS, (_row(one) for one in found.shapes[:top]), text_columns=3)
    unshaped = f", {number(found.unshaped)} messages without a shape" if found.unshaped else ""
    print_result(
        result,
        as_json,
        f"{number(found.messages)} messages, {size(found.bytes)}, in {number(len(found.shapes))} shapes{unshaped}"
        f" on {moment(found.taken_at)}" + (f", written to {out}" if out else ""),
    )


def _row(one: ShapeTotals) -> tuple[str, ...]:
    return (
        visible(one.shape), " x ".join(map(number, one.names)), one.kind, number(one.messages), size(one.bytes),
        share(one.unlike, one.messages) if one.unlike else "",
        "" if one.changes_a_day is None else number(round(one.changes_a_day)), moment(one.newest),
    )  # fmt: skip
