"""``holdfast-pipeline filters``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from holdfast.core.terminal import ExitStatus
from holdfast_pipeline.choices import TABLE_FORMS
from holdfast_pipeline.cli import options
from holdfast_pipeline.cli.running import print_result, running, say
from holdfast_pipeline.errors import WrongUsage
from holdfast_pipeline.formatting import counted, number, size, span, visible

if TYPE_CHECKING:
    from holdfast_pipeline.filters.deliveries import FilterDelivery
    from holdfast_pipeline.filters.requested_filters import InvalidFilter

_COLUMNS = ("Topic Filter", "", "subscriptions", "messages", "bytes", "reads", "slices", "at least")
#: Why a Subscription receives no retained messages, by the name of the reason.
_WHY_NOT = {
    "YES": "",
    "SHARED": "shared: no replay",
    "DECLINED": "Retain Handling 2: no replay",
    "SYS": "the broker's own: not in the database",
}
_MAX_PRINTED = 20


@click.command()
@options.database
@options.console
@click.option("--filter", "given", multiple=True, help="A Topic Filter; may be repeated.")
@click.option("--filters", "file", help="A file of Topic Filters, one per line; - is standard input.")
@click.option("--subscriptions", is_flag=True, help="The Topic Filters of the Sessions in the database.")
@options.flow_control
@click.option(
    "--top", type=click.IntRange(1, 100_000), default=30, show_default=True, help="Number of Topic Filters to print."
)
@click.option("--out", help="A folder for the whole result.")
@click.option(
    "--format", "form", type=click.Choice(TABLE_FORMS), default="parquet", show_default=True, help="The format of OUT."
)
@options.snapshot_dir
@click.option("--overwrite", is_flag=True, help="Replace a complete result in OUT.")
def filters(
    storage: str | None,
    config: str | None,
    as_json: bool,
    given: tuple[str, ...],
    file: str | None,
    subscriptions: bool,
    batch_read_number: int | None,
    batch_deliver_number: int | None,
    delivery_rate: str | None,
    top: int,
    out: str | None,
    form: str,
    snapshot_dir: str | None,
    overwrite: bool,
) -> None:
    """Count the retained messages that Subscriptions to many Topic Filters would receive, and the cost of sending them.

    Invalid Topic Filters are listed with the reason, and make the exit status 3. The settings of flow control come from
    --config or else are the defaults; the options override them.
    """
    from attrs import asdict

    from holdfast_pipeline.cli.tables import print_table
    from holdfast_pipeline.filters.flow_options import flow_settings
    from holdfast_pipeline.filters.requested_filters import RequestedFilters, of_file, of_options
    from holdfast_pipeline.filters.session_filters import of_sessions
    from holdfast_pipeline.jobs.filters import filters as run
    from holdfast_pipeline.output.folder import Folder
    from holdfast_pipeline.output.overwriting import require_overwritable
    from holdfast_pipeline.spark import shared_folder, shared_snapshot

    with running("filters") as start:
        if not (given or file or subscriptions):
            raise WrongUsage("name the Topic Filters: --filter FILTER, --filters FILE or --subscriptions")
        flow = flow_settings(config, batch_read_number, batch_deliver_number, delivery_rate)
        requested = of_options(given).also(of_file(file) if file else RequestedFilters())
        is_small = options.require_database(storage, config)
        if out is not None:
            require_overwritable(Folder(out), overwrite)
        spark = start(is_small)
        folder = None if out is None else shared_folder(spark, out)
        with shared_snapshot(spark, storage, config, snapshot_dir) as snapshot:
            if subscriptions:
                requested = requested.also(of_sessions(snapshot.source))
            found = run(spark, snapshot, requested, flow, folder, form, overwrite)
    if not as_json:
        print_refused(found.refused, file)
        if found.deliveries:
            print_table(_COLUMNS, (_row(one) for one in found.deliveries[:top]), text_columns=2)
    result: dict[str, Any] = asdict(found) | {"messages": found.messages, "bytes": found.bytes, "flow": asdict(flow)}
    print_result(
        result,
        as_json,
        f"{counted(len(found.deliveries), 'Topic Filter')}, {counted(found.subscriptions, 'subscription')}:"
        f" {counted(found.messages, 'message')}, {size(found.bytes)}" + (f", written to {out}" if out else ""),
    )
    if found.refused:
        raise SystemExit(ExitStatus.FOUND)


def print_refused(refused: Iterable[InvalidFilter], file: str | None) -> None:
    """Print the first invalid Topic Filters to standard error."""
    listed = list(refused)
    for one in listed[:_MAX_PRINTED]:
        where = f"{file}:{one.line}: " if one.line else ""
        say(f"{where}'{visible(one.text)}': {one.reason}")
    if len(listed) > _MAX_PRINTED:
        say(f"and {number(len(listed) - _MAX_PRINTED)} more; --json lists all")


def _row(one: FilterDelivery) -> tuple[str, ...]:
    return (
        visible(one.topic_filter), _WHY_NOT[one.replayed.name], number(one.subscriptions), number(one.messages),
        size(one.bytes), number(one.reads), number(one.slices), "" if one.seconds is None else span(one.seconds),
    )  # fmt: skip
