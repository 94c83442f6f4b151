"""``holdfast-pipeline sync``."""

from __future__ import annotations

import click

from holdfast_pipeline.choices import LAKE_FORMS, NAMESPACE
from holdfast_pipeline.cli import options
from holdfast_pipeline.cli.running import end_signals, failing_in_one_line, print_result
from holdfast_pipeline.errors import WrongUsage
from holdfast_pipeline.formatting import number


@click.command()
@options.database
@options.console
@click.option("--to", "out", required=True, help="The folder of the tables, or s3://bucket/folder.")
@click.option(
    "--format",
    "form",
    type=click.Choice(LAKE_FORMS),
    default=LAKE_FORMS[0],
    show_default=True,
    help="The format of the tables.",
)
@click.option("--catalog", help="The database of Iceberg's catalogue, as a URL.  [default: TO/catalog.db]")
@click.option("--namespace", help=f"The namespace of Iceberg's tables in the catalogue.  [default: {NAMESPACE}]")
@click.option("--confirm", is_flag=True, help="Have the database forget only changes that the tables have.")
@click.option("--allow-gap", is_flag=True, help="Go on if changes were pruned before they were read.")
@options.following
def sync(
    storage: str | None,
    config: str | None,
    as_json: bool,
    out: str,
    form: str,
    catalog: str | None,
    namespace: str | None,
    once: bool,
    every: str | None,
    rows: int,
    confirm: bool,
    allow_gap: bool,
    file_size: str,
    small_files: int,
    keep: str,
) -> None:
    """Bring tables in a folder up to date with the broker, exactly once for each change.

    TO/changes has every change of the history by date, TO/current has the retained messages. If the broker records
    messages without RETAIN, TO/telemetry has each of them by date. It needs no Spark.
    """
    from functools import partial

    from attrs import asdict

    from holdfast_pipeline.database import Source, broker_of, check, confirm_in_lake, url_of
    from holdfast_pipeline.jobs.sync import Sync
    from holdfast_pipeline.lake.growing_table import GrowingTable
    from holdfast_pipeline.lake.iceberg_table import IcebergCatalog
    from holdfast_pipeline.lake.upkeep import Upkeep
    from holdfast_pipeline.output.folder import Folder

    signals = end_signals()
    if every is not None:
        signals.finish_first()
    with failing_in_one_line("sync"):
        upkeep = Upkeep(options.bytes_of("--file-size", file_size), small_files, options.seconds("--keep", keep))
        pause = options.interval(once, every)
        source = Source(url_of(storage, config))
        if form == LAKE_FORMS[0] and (catalog is not None or namespace is not None):
            raise WrongUsage("--catalog and --namespace are for --format iceberg")
        check(source.url)
        folder = Folder(out)
        table = (
            GrowingTable
            if form == LAKE_FORMS[0]
            else IcebergCatalog(folder, catalog, NAMESPACE if namespace is None else namespace).table
        )
        told = partial(confirm_in_lake, broker_of(source.url, config)) if confirm else None
        job = Sync(source, folder, rows, upkeep=upkeep, allow_gap=allow_gap, confirm=told, table=table)
        done = job.run(lambda: signals.received, pause)
    sentence = (
        f"{out} has every change up to {number(done.last_seq)} ({number(done.added)} are new), and "
        f"{number(done.messages)} retained messages"
        if done.last_seq
        else f"{out} has no changes yet; the broker records them if retainer.history.enable is true"
    )
    if done.telemetry_seq:
        sentence += (
            f"; it has every recorded message without RETAIN up to {number(done.telemetry_seq)} "
            f"({number(done.recorded)} are new)"
        )
    if done.lost_recorded:
        sentence += f"; {number(done.lost_recorded)} of these were pruned before they were read"
    if done.lost:
        sentence += f"; {number(done.lost)} changes were pruned before they were read"
    print_result(asdict(done), as_json, sentence)
