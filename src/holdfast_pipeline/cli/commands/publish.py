"""``holdfast-pipeline publish``."""

from __future__ import annotations

import click

from holdfast_pipeline.cli import options
from holdfast_pipeline.cli.running import failing_in_one_line, print_result
from holdfast_pipeline.formatting import number


@click.command()
@click.argument("source")
@options.console
@click.option("--delta", is_flag=True, help="As a Delta table: the only format.")
@click.option("--to", "table", help="A Delta table to add the rows to.  [default: SOURCE/data becomes a table]")
def publish(source: str, as_json: bool, delta: bool, table: str | None) -> None:
    """Publish the output of other commands (export, asof, decode, compact) in SOURCE as a Delta table.

    Another run publishes only new data, such as days that compact has added. It needs no Spark.
    """
    from attrs import asdict

    from holdfast_pipeline.jobs.publish import publish_in_place, publish_to
    from holdfast_pipeline.output.folder import Folder

    if not delta:
        raise click.UsageError("name the format: --delta")
    with failing_in_one_line("publish"):
        done = publish_in_place(Folder(source)) if table is None else publish_to(Folder(source), Folder(table))
    print_result(
        asdict(done),
        as_json,
        f"{done.table} is a Delta table of {number(done.rows)} rows, version {done.version}: "
        f"{number(done.rows_added)} rows are new",
    )
