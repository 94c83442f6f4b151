"""``holdfast-pipeline audit``."""

from __future__ import annotations

import click

from holdfast.core.terminal import ExitStatus
from holdfast_pipeline.cli import options
from holdfast_pipeline.cli.running import print_result, running
from holdfast_pipeline.formatting import number


@click.command()
@options.database
@options.console
@click.option("--out", help="A folder for the topics with differences.")
@options.topic_filter
@options.partitions
@options.snapshot_dir
def audit(
    storage: str | None,
    config: str | None,
    as_json: bool,
    out: str | None,
    topic_filter: str,
    partitions: int | None,
    snapshot_dir: str | None,
) -> None:
    """Compare the retained messages with the history.

    The exit status is 3 if they differ.
    """
    from attrs import asdict

    from holdfast_pipeline.jobs.audit import DIFFERENCES
    from holdfast_pipeline.jobs.audit import audit as run
    from holdfast_pipeline.output.folder import Folder
    from holdfast_pipeline.output.overwriting import require_replaceable
    from holdfast_pipeline.sources.options import check_filter
    from holdfast_pipeline.spark import shared_folder, shared_snapshot

    with running("audit") as start:
        check_filter(topic_filter)
        is_small = options.require_database(storage, config)
        if out is not None:
            require_replaceable(Folder(out), DIFFERENCES)
        spark = start(is_small)
        folder = None if out is None else shared_folder(spark, out)
        with shared_snapshot(spark, storage, config, snapshot_dir) as snapshot:
            found = run(spark, snapshot, folder, topic_filter, partitions)
    sentence = (
        f"same {number(found.same)}, only retained {number(found.only_live)}, "
        f"only in the history {number(found.only_history)}, different {number(found.differs)}"
    )
    if found.not_recorded:
        sentence += f", not recorded {number(found.not_recorded)}"
    print_result(asdict(found), as_json, sentence + (f"; see {out}/{DIFFERENCES}" if out and found.differences else ""))
    if found.differences:
        raise SystemExit(ExitStatus.FOUND)
