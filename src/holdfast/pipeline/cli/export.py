"""``holdfast-pipeline export``."""

from __future__ import annotations

import click
from attrs import asdict

from holdfast.pipeline.cli.common import database, machine, require_database, running, tell
from holdfast.pipeline.formatting import counted
from holdfast.pipeline.jobs.export import export as run
from holdfast.pipeline.output.folder import Folder
from holdfast.pipeline.output.overwriting import require_vacant
from holdfast.pipeline.sources.options import check_filter
from holdfast.pipeline.spark.remote_sessions import folder_within_reach, snapshot_within_reach


@click.command()
@database
@machine
@click.option("--out", required=True, help="The folder to write to.")
@click.option("--filter", "topic_filter", default="", help="Only topics that match this Topic Filter.")
@click.option("--partitions", type=click.IntRange(1, 10_000), help="How many tasks read.  [default: as run at once]")
@click.option("--snapshot-dir", help="Where an SQLite database is copied to.  [default: the system's temporary folder]")
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
    """Write what is retained to Parquet files in OUT/data, and OUT/manifest.json when they are complete."""
    with running("export") as start:
        check_filter(topic_filter)
        require_database(storage, config)
        require_vacant(Folder(out), overwrite, "export")
        spark = start()
        with snapshot_within_reach(spark, storage, config, snapshot_dir) as snapshot:
            manifest = run(spark, snapshot, folder_within_reach(spark, out), topic_filter, partitions, overwrite)
    tell(
        asdict(manifest),
        as_json,
        f"exported {counted(manifest.rows, 'message')}, {counted(manifest.payload_bytes, 'byte')} of payload, to {out}",
    )
