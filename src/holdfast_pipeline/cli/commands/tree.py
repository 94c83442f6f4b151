"""``holdfast-pipeline tree``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast_pipeline.choices import TABLE_FORMS, TREE_ORDERS
from holdfast_pipeline.cli import options
from holdfast_pipeline.cli.running import print_result, running
from holdfast_pipeline.formatting import moment, number, share, size, span, visible

if TYPE_CHECKING:
    from holdfast_pipeline.report.figures import PrefixTotals

_COLUMNS = ("prefix", "messages", "share", "bytes", "oldest", "median", "newest", "expiring", "first expires")


@click.command()
@options.database
@options.console
@click.option("--depth", type=click.IntRange(1, 32), default=3, show_default=True, help="Levels in the longest prefix.")
@click.option(
    "--top", type=click.IntRange(1, 10_000), default=30, show_default=True, help="Number of prefixes to print."
)
@click.option(
    "--by", "order", type=click.Choice(list(TREE_ORDERS)), default="messages", show_default=True, help="The order."
)
@click.option("--out", help="A folder to write all prefixes to.")
@click.option(
    "--format", "form", type=click.Choice(TABLE_FORMS), default="parquet", show_default=True, help="The format of OUT."
)
@options.snapshot_dir
@click.option("--overwrite", is_flag=True, help="Replace a complete result in OUT.")
def tree(
    storage: str | None,
    config: str | None,
    as_json: bool,
    depth: int,
    top: int,
    order: str,
    out: str | None,
    form: str,
    snapshot_dir: str | None,
    overwrite: bool,
) -> None:
    """Count the retained messages below each prefix of topics: number, size, age, and how many expire.

    The age of a message counts from its storage.
    """
    from attrs import asdict

    from holdfast_pipeline.cli.tables import print_table
    from holdfast_pipeline.jobs.tree import tree as run
    from holdfast_pipeline.output.folder import Folder
    from holdfast_pipeline.output.overwriting import require_overwritable
    from holdfast_pipeline.spark import shared_folder, shared_snapshot

    with running("tree") as start:
        is_small = options.require_database(storage, config)
        if out is not None:
            require_overwritable(Folder(out), overwrite)
        spark = start(is_small)
        folder = None if out is None else shared_folder(spark, out)
        with shared_snapshot(spark, storage, config, snapshot_dir) as snapshot:
            found = run(spark, snapshot, depth, top, order, folder, form, overwrite)
    result: dict[str, Any] = asdict(found)
    if not as_json and found.branches:
        print_table(_COLUMNS, (_row(one, found.messages) for one in found.branches), text_columns=1)
    print_result(
        result,
        as_json,
        f"{number(found.messages)} messages, {size(found.bytes)}, below {number(found.prefixes)} prefixes"
        f" of up to {depth} levels on {moment(found.taken_at)}" + (f", written to {out}" if out else ""),
    )


def _row(one: PrefixTotals, messages: int) -> tuple[str, ...]:
    return (
        visible(one.prefix), number(one.messages), share(one.messages, messages), size(one.bytes),
        span(one.oldest_age), span(one.median_age), span(one.newest_age), number(one.expiring),
        "" if one.expires_first is None else moment(one.expires_first),
    )  # fmt: skip
