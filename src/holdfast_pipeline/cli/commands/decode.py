"""``holdfast-pipeline decode``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from holdfast.core.terminal import ExitStatus
from holdfast_pipeline.choices import DATA, SAMPLE, TABLE_FORMS, WITHOUT_SCHEMAS
from holdfast_pipeline.cli import options
from holdfast_pipeline.cli.running import checking_options, print_result, running, say
from holdfast_pipeline.errors import WrongUsage
from holdfast_pipeline.formatting import counted, number

if TYPE_CHECKING:
    from holdfast_pipeline.jobs.decode import Decoded, DecodedTables


@click.command()
@options.lake
@options.console
@click.option("--history", is_flag=True, help="Decode all messages in the history, instead of the retained ones.")
@click.option("--telemetry", is_flag=True, help="Decode the recorded messages without RETAIN instead.")
@click.option(
    "--catalog",
    "catalog_file",
    help="The TOML file that says how the payloads of topics are read: each entry becomes a table.",
)
@click.option(
    "--format", "name", help=f"The payloads' format: {', '.join(WITHOUT_SCHEMAS)}, or an installed decoder's name."
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
@click.option(
    "--table", "form", type=click.Choice(TABLE_FORMS), default=TABLE_FORMS[0], show_default=True,
    help="The form of the table.",
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
    telemetry: bool,
    catalog_file: str | None,
    name: str | None,
    patterns: tuple[str, ...],
    schema: str | None,
    sample: int,
    max_bad: int,
    form: str,
    out: str,
    partitions: int | None,
    snapshot_dir: str | None,
    overwrite: bool,
) -> None:
    """Decode payloads to typed columns: a table in OUT/data, then OUT/manifest.json.

    Undecodable payloads are in OUT/bad, each with the reason. With --catalog, each entry has a folder with its name in
    OUT.
    """
    from pathlib import Path

    from attrs import asdict

    from holdfast_pipeline.decoding import messages
    from holdfast_pipeline.decoding.catalog import entry_from, read_catalog
    from holdfast_pipeline.jobs.decode import BAD, decode_all, decode_entry, require_tables_overwritable
    from holdfast_pipeline.output.folder import Folder, require_overwritable
    from holdfast_pipeline.spark import refuse_snapshot, shared_folder, shared_snapshot

    with running("decode") as start:
        if history and telemetry:
            raise WrongUsage("--history and --telemetry are two sources; give one of them")
        if catalog_file is not None:
            if name is not None or patterns or schema is not None:
                raise WrongUsage("--catalog says how payloads are read: leave out --format, --pattern and --schema")
            catalog = read_catalog(Path(catalog_file))
        else:
            if name is None:
                raise WrongUsage("say how payloads are read: by --format NAME, or by --catalog FILE")
            with checking_options():
                entry = entry_from(format=name, pattern=list(patterns) or "", schema=schema or "")
        is_small = options.require_readable(storage, config, lake, telemetry)
        if catalog_file is not None:
            require_tables_overwritable(Folder(out), catalog, overwrite)
        else:
            require_overwritable(Folder(out), overwrite, names=(DATA, BAD))
        spark = start(is_small, lambda: refuse_snapshot(storage, config, snapshot_dir, lake))
        folder = shared_folder(spark, out)
        with shared_snapshot(spark, storage, config, snapshot_dir, lake) as snapshot:
            read = messages.recorded if history else messages.telemetry if telemetry else messages.retained
            found = read(spark, snapshot, partitions)
            done: Decoded | DecodedTables
            if catalog_file is not None:
                done = decode_all(spark, found, catalog, folder, sample, overwrite, form)
            else:
                done = decode_entry(spark, found, entry, folder, sample, overwrite, form)
    if not as_json:
        for place, reason, count in _reasons(done):
            say(f"{place}{number(count)} bad: {reason}")
    print_result(asdict(done), as_json, _sentence(done, out))
    if done.bad > max_bad:
        raise SystemExit(ExitStatus.FOUND)


def _reasons(done: Decoded | DecodedTables) -> Iterator[tuple[str, str, int]]:
    """Give the table, if there are several, each reason against payloads and its count."""
    tables = getattr(done, "tables", {"": done})
    for name, table in tables.items():
        yield from ((f"{name}: " if name else "", reason, count) for reason, count in table.reasons.items())


def _sentence(done: Decoded | DecodedTables, out: str) -> str:
    from holdfast_pipeline.jobs.decode import BAD

    tables = getattr(done, "tables", None)
    below, place = ("", out) if tables is None else ("/NAME", f"{counted(len(tables), 'table')} in {out}")
    bad = f"; {number(done.bad)} could not be decoded, see {out}{below}/{BAD}" if done.bad else ""
    return f"decoded {number(done.messages - done.bad)} messages to {number(done.rows)} rows in {place}{bad}"
