"""``holdfast-pipeline compact``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast_pipeline.cli import options
from holdfast_pipeline.cli.running import print_result, running
from holdfast_pipeline.formatting import number

if TYPE_CHECKING:
    from holdfast_pipeline.jobs.compact import Compacted


@click.command()
@options.console
@click.option("--archive", required=True, help="The archive to read.")
@click.option("--out", required=True, help="The folder to write to; not in the archive.")
@click.option("--unfinished", is_flag=True, help="Write the last day too, although it is not complete.")
def compact(as_json: bool, archive: str, out: str, unfinished: bool) -> None:
    """Write each complete day of an archive to one Parquet file in OUT/data, sorted by topic and seq.

    Days that are in OUT already do not change.
    """
    from attrs import asdict

    from holdfast_pipeline.archive.coverage import require_coverage
    from holdfast_pipeline.jobs.compact import compact as run
    from holdfast_pipeline.output.folder import Folder
    from holdfast_pipeline.output.overwriting import require_compaction_target
    from holdfast_pipeline.spark import shared_folder

    with running("compact") as start:
        require_coverage(Folder(archive))
        require_compaction_target(Folder(out))
        spark = start()
        done = run(spark, Folder(archive), shared_folder(spark, out), unfinished)
    print_result(asdict(done), as_json, _sentence(done, archive, out))


def _sentence(done: Compacted, archive: str, out: str) -> str:
    if done.days:
        return f"{number(done.entries)} changes of {', '.join(done.days)} were compacted to {out}"
    if done.unfinished is None:
        return f"nothing to compact: {archive} has no changes yet"
    return (
        f"nothing to compact: all complete days of {archive} are in {out}. {done.unfinished} is complete once the "
        "archive has a later change; --unfinished writes it now"
    )
