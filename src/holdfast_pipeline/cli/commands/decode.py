"""``holdfast-pipeline decode``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.core.terminal import ExitStatus
from holdfast_pipeline.choices import DECODERS, SAMPLE
from holdfast_pipeline.cli import options
from holdfast_pipeline.cli.running import checking_options, print_result, running, say
from holdfast_pipeline.formatting import number
from holdfast_pipeline.output.names import DATA

if TYPE_CHECKING:
    from holdfast_pipeline.jobs.decode import Decoded


@click.command()
@options.lake
@options.console
@click.option("--history", is_flag=True, help="Decode all messages in the history, instead of the retained ones.")
@click.option(
    "--format",
    "name",
    required=True,
    help=f"The payloads' format: {', '.join(DECODERS)}, or an installed decoder's name.",
)
@click.option(
    "--pattern", "patterns", multiple=True,
    help="Topics, such as site/{site}/dev/{device}/temp: the names become columns; may be repeated.",
)  # fmt: skip
@click.option("--schema", help='The fields of JSON, such as "temperature double, unit string".  [default: inferred]')
@click.option(
    "--sample", type=click.IntRange(1, 100_000), default=SAMPLE, show_default=True,
    help="Number of messages from which a schema is inferred.",
)  # fmt: skip
@click.option(
    "--max-bad", type=click.IntRange(0), default=0, show_default=True,
    help="With more undecodable payloads, the exit status is 3.",
)  # fmt: skip
@click.option("--out", required=True, help="The folder to write to.")
@options.partitions
@options.snapshot_dir
@click.option("--overwrite", is_flag=True, help="Replace a complete result.")
def decode(
    storage: str | None,
    config: str | None,
    lake: str | None,
    as_json: bool,
    history: bool,
    name: str,
    patterns: tuple[str, ...],
    schema: str | None,
    sample: int,
    max_bad: int,
    out: str,
    partitions: int | None,
    snapshot_dir: str | None,
    overwrite: bool,
) -> None:
    """Decode payloads to typed columns: Parquet files in OUT/data, then OUT/manifest.json.

    Undecodable payloads are in OUT/bad, each with the reason.
    """
    from attrs import asdict

    from holdfast_pipeline.decoding import messages
    from holdfast_pipeline.decoding.registry import decoder_of
    from holdfast_pipeline.jobs.decode import BAD, wanted_by
    from holdfast_pipeline.jobs.decode import decode as run
    from holdfast_pipeline.output.folder import Folder
    from holdfast_pipeline.output.overwriting import require_overwritable
    from holdfast_pipeline.spark import shared_folder, shared_snapshot

    with running("decode") as start:
        with checking_options():
            decoder = decoder_of(name, schema)
        is_small = options.require_readable(storage, config, lake)
        with checking_options():
            wanted_by(decoder, patterns)
        require_overwritable(Folder(out), overwrite, names=(DATA, BAD))
        spark = start(is_small)
        folder = shared_folder(spark, out)
        with shared_snapshot(spark, storage, config, snapshot_dir, lake) as snapshot:
            read = messages.recorded if history else messages.retained
            done = run(spark, read(spark, snapshot, partitions), decoder, folder, patterns, sample, overwrite)
    if not as_json:
        for reason, count in done.reasons.items():
            say(f"{number(count)} bad: {reason}")
    print_result(asdict(done), as_json, _sentence(done, out))
    if done.bad > max_bad:
        raise SystemExit(ExitStatus.FOUND)


def _sentence(done: Decoded, out: str) -> str:
    from holdfast_pipeline.jobs.decode import BAD

    bad = f"; {number(done.bad)} could not be decoded, see {out}/{BAD}" if done.bad else ""
    return f"decoded {number(done.messages - done.bad)} messages to {number(done.rows)} rows in {out}{bad}"
