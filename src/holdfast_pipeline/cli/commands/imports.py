"""``holdfast-pipeline import``."""

from __future__ import annotations

import click

from holdfast.core.terminal import ExitStatus
from holdfast_pipeline.choices import FILE_FORMATS, IMPORT_MAX_REJECTS, MERGE_RULES, MOST_REJECTS, REJECTS
from holdfast_pipeline.cli import options
from holdfast_pipeline.cli.running import print_result, running, say
from holdfast_pipeline.formatting import number

_COUNTS = ("imported", "unchanged", "kept", "cleared", "expired", "rejected")


@click.command("import")
@click.argument("source")
@options.database
@options.console
@click.option(
    "--format", "kind", type=click.Choice(("parquet", *FILE_FORMATS)), required=True, help="The format of SOURCE."
)
@click.option(
    "--merge", type=click.Choice(MERGE_RULES), default=MERGE_RULES[0], show_default=True,
    help="Which message stays if the topic has a retained message already.",
)  # fmt: skip
@click.option("--rejects", help=f"A folder for the file {REJECTS}: the rejected rows and the reasons.")
@click.option(
    "--max-rejects", type=click.IntRange(0, MOST_REJECTS), default=IMPORT_MAX_REJECTS, show_default=True,
    help="With more invalid rows, nothing is imported.",
)  # fmt: skip
@click.option("--job", help="A name: an interrupted import with this name continues, a complete one is not repeated.")
@click.option(
    "--staging", help="The folder for the staging area of an SQLite database.  [default: staging, beside the database]"
)
def import_(
    source: str,
    storage: str | None,
    config: str | None,
    as_json: bool,
    kind: str,
    merge: str,
    rejects: str | None,
    max_rejects: int,
    job: str | None,
    staging: str | None,
) -> None:
    """Retain the messages in the file or folder SOURCE.

    A broker may run meanwhile: it writes the messages itself, and new subscribers receive them. A database that does
    not exist is created. The exit status is 3 if some messages were rejected, by a rule or by a limit of the broker.
    """
    from attrs import asdict

    from holdfast.retained.api import Merge
    from holdfast_pipeline.database import check, create_missing
    from holdfast_pipeline.jobs.imports import import_messages
    from holdfast_pipeline.output.folder import Folder
    from holdfast_pipeline.sink import Target
    from holdfast_pipeline.sources.files import files_of
    from holdfast_pipeline.spark import refuse_staging, require_folder

    with running("import") as start:
        target = Target(storage, config)
        url = target.url
        if rejects is not None:
            Folder(rejects).require_writable()
        if kind != "parquet":
            files_of(source)
        created = create_missing(url, make_folder=config is not None)
        if created is not None:
            say(f"{created}: there was no database; it is created")
        check(url)
        spark = start(False, lambda: refuse_staging(url, staging))
        if staging is not None:
            require_folder(spark, staging)
        done = import_messages(spark, source, kind, target, Merge(merge), job, rejects, max_rejects, staging)
    counts = asdict(done)
    sentence = ", ".join(f"{name} {number(counts[name])}" for name in _COUNTS)
    if done.done_before:
        sentence += f"; the job {done.job} was complete before: nothing was read"
    print_result(counts, as_json, sentence)
    if done.rejected:
        raise SystemExit(ExitStatus.FOUND)
