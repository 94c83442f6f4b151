"""``holdfast-pipeline asof``."""

from __future__ import annotations

import click

from holdfast_pipeline.choices import STATE_FORMS
from holdfast_pipeline.cli import options
from holdfast_pipeline.cli.running import print_result, running
from holdfast_pipeline.formatting import counted


@click.command()
@click.argument("time", required=False)
@options.lake
@options.console
@click.option("--out", required=True, help="The folder to write to.")
@click.option(
    "--format", "form", type=click.Choice(STATE_FORMS), default="parquet", show_default=True, help="The files' format."
)
@options.topic_filter
@options.partitions
@options.snapshot_dir
@click.option("--overwrite", is_flag=True, help="Replace a complete result.")
def asof(
    time: str | None,
    storage: str | None,
    config: str | None,
    lake: str | None,
    as_json: bool,
    out: str,
    form: str,
    topic_filter: str,
    partitions: int | None,
    snapshot_dir: str | None,
    overwrite: bool,
) -> None:
    """Write the retained messages to files in OUT/data, then OUT/manifest.json; with TIME, those retained then.

    TIME is a time such as 2026-11-21T10:00:00Z (UTC without a zone), or an age such as 90m. It needs the history.
    """
    from attrs import asdict

    from holdfast.core.units import date_of
    from holdfast_pipeline.database import Source, url_of
    from holdfast_pipeline.jobs.asof import Destination, write_past, write_present
    from holdfast_pipeline.output.folder import Folder, require_overwritable
    from holdfast_pipeline.sources.lake import Lake
    from holdfast_pipeline.sources.options import check_filter
    from holdfast_pipeline.spark import refuse_history, refuse_snapshot, require_lake, shared_folder, shared_snapshot

    with running("asof") as start:
        check_filter(topic_filter)
        at = None if time is None else options.milliseconds(time)
        is_small = options.require_readable(storage, config, lake)
        require_overwritable(Folder(out), overwrite)
        if at is None:
            spark = start(is_small, lambda: refuse_snapshot(storage, config, snapshot_dir, lake))
            to = Destination(shared_folder(spark, out), form, overwrite)
            with shared_snapshot(spark, storage, config, snapshot_dir, lake) as snapshot:
                manifest = write_present(spark, snapshot, to, topic_filter, partitions)
        else:
            source = Source(url_of(storage, config)) if lake is None else Lake(lake)
            spark = start(is_small, lambda: refuse_history(source))
            if lake is not None:
                require_lake(spark, lake)
            to = Destination(shared_folder(spark, out), form, overwrite)
            manifest = write_past(spark, source, at, to, topic_filter, partitions)
    sentence = f"{counted(manifest.rows, 'message')} retained at {date_of(manifest.taken_at)}: see {out}"
    if manifest.left_out:
        sentence += f". The history does not know the topics of {', '.join(manifest.left_out)} then"
    print_result(asdict(manifest), as_json, sentence)
