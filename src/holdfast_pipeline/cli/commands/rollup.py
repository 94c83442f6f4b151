"""``holdfast-pipeline rollup``."""

from __future__ import annotations

import click

from holdfast_pipeline.cli import options
from holdfast_pipeline.cli.running import end_signals, failing_in_one_line, print_result, say
from holdfast_pipeline.formatting import counted, number


@click.command()
@options.console
@click.option("--lake", required=True, help="The folder of the tables that sync keeps, or s3://bucket/folder.")
@click.option("--catalog", required=True, help="The TOML file that says how the payloads of topics are read.")
@click.option(
    "--telemetry", is_flag=True, help="Take the recorded messages without RETAIN, LAKE/telemetry; needs --to."
)
@click.option("--to", "out", help="The folder of the new tables.  [default: LAKE]")
@click.option(
    "--max-bad", type=click.IntRange(0), default=0, show_default=True,
    help="With more bad payloads in this run, the exit status is 3.",
)  # fmt: skip
@options.following
def rollup(
    as_json: bool,
    lake: str,
    catalog: str,
    telemetry: bool,
    out: str | None,
    max_bad: int,
    once: bool,
    every: str | None,
    rows: int,
    file_size: str,
    small_files: int,
    keep: str,
) -> None:
    """Decode the values in the payloads of LAKE/changes, and keep their figures by minute, hour and day.

    Each run takes in the new changes. It needs no Spark.
    """
    from pathlib import Path

    from attrs import asdict

    from holdfast.core.terminal import ExitStatus
    from holdfast_pipeline.decoding.catalog import read_catalog
    from holdfast_pipeline.errors import WrongUsage
    from holdfast_pipeline.jobs.rollup import Rollup
    from holdfast_pipeline.lake.upkeep import Upkeep
    from holdfast_pipeline.output.folder import Folder
    from holdfast_pipeline.sources.lake import CHANGES, TELEMETRY

    signals = end_signals()
    if every is not None:
        signals.finish_first()
    with failing_in_one_line("rollup"):
        upkeep = Upkeep(options.bytes_of("--file-size", file_size), small_files, options.seconds("--keep", keep))
        pause = options.interval(once, every)
        kinds = read_catalog(Path(catalog))
        source = Folder(lake)
        if telemetry and out is None:
            raise WrongUsage("--telemetry needs --to: a folder of its own, since LAKE has the tables of the changes")
        table = TELEMETRY if telemetry else CHANGES
        job = Rollup(source, source if out is None else Folder(out), kinds, rows, upkeep, table=table)
        done = job.run(lambda: signals.received, pause)
    taken = "message" if telemetry else "change"
    sentence = (
        f"{out or lake} has the values of every {taken} up to {number(done.last_seq)}: {number(done.values)} values "
        f"are new, in {number(done.minutes)} minutes, {number(done.hours)} hours and {number(done.days)} days"
    )
    if done.anew:
        sentence = f"the tables were made anew, because {done.anew}: {sentence}"
    if done.bad:
        sentence += f"; {counted(done.bad, 'payload')} could not be read, see {out or lake}/bad"
        if not as_json:
            for reason, times in done.reasons.items():
                say(f"{number(times)} bad: {reason}")
    unvalued = [entry.name for entry in kinds.entries if entry.place is None]
    if unvalued:
        sentence += f"; without a value, for decode only: {', '.join(unvalued)}"
    print_result(asdict(done), as_json, sentence)
    if done.bad > max_bad:
        raise SystemExit(ExitStatus.FOUND)
