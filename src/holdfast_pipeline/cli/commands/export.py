"""``holdfast-pipeline export``."""

from __future__ import annotations

import click

from holdfast_pipeline.cli import options
from holdfast_pipeline.cli.running import print_result, running
from holdfast_pipeline.formatting import counted


@click.command()
@options.database
@options.console
@click.option("--out", required=True, help="The folder to write to.")
@options.topic_filter
@options.partitions
@options.snapshot_dir
@click.option("--overwrite", is_flag=True, help="Replace a complete export.")
def export(
    storage: str | None,
    config: str | None,
    as_json: bool,
    out: str,
    topic_filter: str,
    partitions: int | None,
    snapshot_dir: str | None,
    overwrite: bool,
) -> None:
    """Write the retained messages to Parquet files in OUT/data, then OUT/manifest.json."""
    from attrs import asdict

    from holdfast_pipeline.jobs.export import export as run
    from holdfast_pipeline.output.folder import Folder
    from holdfast_pipeline.output.overwriting import require_overwritable
    from holdfast_pipeline.sources.options import check_filter
    from holdfast_pipeline.spark import shared_folder, shared_snapshot

    with running("export") as start:
        check_filter(topic_filter)
        is_small = options.require_database(storage, config)
        require_overwritable(Folder(out), overwrite, "export")
        spark = start(is_small)
        with shared_snapshot(spark, storage, config, snapshot_dir) as snapshot:
            manifest = run(spark, snapshot, shared_folder(spark, out), topic_filter, partitions, overwrite)
    print_result(
        asdict(manifest),
        as_json,
        f"exported {counted(manifest.rows, 'message')}, {counted(manifest.payload_bytes, 'byte')} of payload, to {out}",
    )
