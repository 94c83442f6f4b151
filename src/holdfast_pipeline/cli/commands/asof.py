"""``holdfast-pipeline asof``."""

from __future__ import annotations

import click

from holdfast_pipeline.cli import options
from holdfast_pipeline.cli.running import print_result, running
from holdfast_pipeline.errors import WrongUsage
from holdfast_pipeline.formatting import number


@click.command()
@click.argument("time")
@options.database
@options.console
@click.option("--archive", help="Read an archive of the history, compacted or not, instead of a database.")
@click.option("--out", required=True, help="The folder to write to.")
@options.topic_filter
@options.partitions
@click.option("--overwrite", is_flag=True, help="Replace a complete export.")
def asof(
    time: str,
    storage: str | None,
    config: str | None,
    as_json: bool,
    archive: str | None,
    out: str,
    topic_filter: str,
    partitions: int | None,
    overwrite: bool,
) -> None:
    """Write the messages that were retained at TIME to Parquet files in OUT/data, from the history.

    TIME is a time such as 2026-11-21T10:00:00Z (UTC without a zone), or an age such as 90m.
    """
    from attrs import asdict

    from holdfast.core.units import date_of
    from holdfast_pipeline.archive.coverage import require_coverage
    from holdfast_pipeline.database.connection import Source
    from holdfast_pipeline.database.location import url_of
    from holdfast_pipeline.jobs.asof import asof as run
    from holdfast_pipeline.jobs.asof import asof_archived
    from holdfast_pipeline.output.folder import Folder
    from holdfast_pipeline.output.overwriting import require_overwritable
    from holdfast_pipeline.sources.options import check_filter
    from holdfast_pipeline.spark import require_history, shared_folder

    with running("asof") as start:
        check_filter(topic_filter)
        at = options.milliseconds(time)
        if archive is not None and (storage is not None or config is not None):
            raise WrongUsage("name either an archive (--archive) or a database (--storage or --config)")
        is_small = False
        if archive is None:
            is_small = options.require_database(storage, config)
        else:
            require_coverage(Folder(archive))
        require_overwritable(Folder(out), overwrite, "export")
        spark = start(is_small)
        if archive is None:
            source = Source(url_of(storage, config))
            require_history(spark, source)
            manifest = run(spark, source, at, shared_folder(spark, out), topic_filter, partitions, overwrite)
        else:
            manifest = asof_archived(spark, Folder(archive), at, shared_folder(spark, out), topic_filter, overwrite)
    print_result(
        asdict(manifest),
        as_json,
        f"{number(manifest.rows)} messages were retained at {date_of(at)}; they are in {out}"
        + (
            f". The history does not know the topics of {', '.join(manifest.left_out)} then"
            if manifest.left_out
            else ""
        ),
    )
