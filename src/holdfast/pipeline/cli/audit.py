"""``holdfast-pipeline audit``."""

from __future__ import annotations

import click
from attrs import asdict

from holdfast.pipeline.cli.common import FOUND, database, machine, require_database, running, tell
from holdfast.pipeline.formatting import number
from holdfast.pipeline.jobs.audit import DIFFERENCES
from holdfast.pipeline.jobs.audit import audit as run
from holdfast.pipeline.output.folder import Folder
from holdfast.pipeline.output.overwriting import require_replaceable
from holdfast.pipeline.sources.options import check_filter
from holdfast.pipeline.spark.remote_sessions import folder_within_reach, snapshot_within_reach


@click.command()
@database
@machine
@click.option("--out", help="A folder for the topics that differ.")
@click.option("--filter", "topic_filter", default="", help="Only topics that match this Topic Filter.")
@click.option("--partitions", type=click.IntRange(1, 10_000), help="How many tasks read.  [default: as run at once]")
@click.option("--snapshot-dir", help="Where an SQLite database is copied to.  [default: the system's temporary folder]")
def audit(
    storage: str | None,
    config: str | None,
    as_json: bool,
    out: str | None,
    topic_filter: str,
    partitions: int | None,
    snapshot_dir: str | None,
) -> None:
    """Compare what is retained with what the history says is retained.

    The exit status is 3 where they differ.
    """
    with running("audit") as start:
        check_filter(topic_filter)
        require_database(storage, config)
        if out is not None:
            require_replaceable(Folder(out), DIFFERENCES)
        spark = start()
        folder = None if out is None else folder_within_reach(spark, out)
        with snapshot_within_reach(spark, storage, config, snapshot_dir) as snapshot:
            found = run(spark, snapshot, folder, topic_filter, partitions)
    sentence = (
        f"same {number(found.same)}, only retained {number(found.only_live)}, "
        f"only in the history {number(found.only_history)}, different {number(found.differs)}"
    )
    tell(asdict(found), as_json, sentence + (f"; see {out}/{DIFFERENCES}" if out and found.differences else ""))
    if found.differences:
        raise SystemExit(FOUND)
