"""``holdfast-pipeline compact``."""

from __future__ import annotations

import click
from attrs import asdict

from holdfast.pipeline.cli.job import machine, running, tell
from holdfast.pipeline.distant import folder_within_reach
from holdfast.pipeline.folder import Folder
from holdfast.pipeline.jobs.compact import compact as run


@click.command()
@machine
@click.option("--archive", required=True, help="The archive to read.")
@click.option("--out", required=True, help="The folder to write to, which is not in the archive.")
@click.option("--unfinished", is_flag=True, help="Write the last day too, which is not complete.")
def compact(as_json: bool, archive: str, out: str, unfinished: bool) -> None:
    """Write each complete day of an archive to one Parquet file in OUT/data, sorted by topic and seq.

    Days that are there already are left as they are.
    """
    with running("compact") as spark:
        done = run(spark, Folder(archive), folder_within_reach(spark, out), unfinished)
    tell(asdict(done), as_json, f"{len(done.days)} days with {done.entries} changes were compacted to {out}")
