"""``holdfast-pipeline archive``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast_pipeline.cli import options
from holdfast_pipeline.cli.running import end_signals, print_result, running
from holdfast_pipeline.errors import PipelineError, WrongUsage

if TYPE_CHECKING:
    from holdfast.config import Config

#: Seconds between the batches with --follow, and the highest number of entries in a batch.
_INTERVAL = 10.0
_ROWS = 200_000


@click.command()
@options.database
@options.console
@click.option("--data-dir", help="The broker's folder, for an SQLite database.  [default: the database's folder]")
@click.option("--out", required=True, help="The folder of the archive.")
@click.option("--follow", is_flag=True, help="Continue until SIGTERM or Ctrl-C.")
@click.option("--interval", type=click.FloatRange(0.1, 86_400), help=f"Seconds between batches.  [{_INTERVAL:g}]")
@click.option("--rows", type=click.IntRange(1), default=_ROWS, show_default=True, help="Most changes in a batch.")
@options.partitions
@click.option("--no-confirm", is_flag=True, help="Let the database forget changes that are not archived yet.")
def archive(
    storage: str | None,
    config: str | None,
    as_json: bool,
    data_dir: str | None,
    out: str,
    follow: bool,
    interval: float | None,
    rows: int,
    partitions: int | None,
    no_confirm: bool,
) -> None:
    """Add new changes in the history to Parquet files in OUT/data, each change once, by date.

    From the first run on, the database forgets only archived changes.
    """
    from attrs import asdict

    from holdfast_pipeline.database.confirmation import confirm_archived
    from holdfast_pipeline.database.connection import Source
    from holdfast_pipeline.database.location import url_of
    from holdfast_pipeline.jobs.archive import archive as run
    from holdfast_pipeline.output.folder import Folder
    from holdfast_pipeline.spark import require_history, shared_folder

    signals = end_signals()
    if follow:
        signals.finish_first()
    with running("archive") as start:
        if interval is not None and not follow:
            raise WrongUsage("--interval needs --follow")
        broker = _configured(url_of(storage, config), config, data_dir)
        confirm: Callable[[int], None] = (lambda _seq: None) if no_confirm else (
            lambda seq: confirm_archived(broker, seq)
        )  # fmt: skip
        source = Source(broker.storage.url)
        is_small = options.require_database(source.url, None)
        Folder(out).require_writable()
        spark = start(is_small and not follow)
        require_history(spark, source)
        every = (interval or _INTERVAL) if follow else None
        done = run(spark, source, shared_folder(spark, out), confirm, rows, partitions, every, lambda: signals.received)
    sentence = (
        f"{out} has every change up to {done.last_seq} (before: {done.before})"
        if done.last_seq
        else f"{out} has no changes yet; the broker records them if retainer.history.enable is true"
    )
    print_result(asdict(done), as_json, sentence)


def _configured(url: str, config: str | None, data_dir: str | None) -> Config:
    """Return the broker's configuration. By default its data directory is the folder of its database."""
    from sqlalchemy.engine import make_url

    from holdfast.config import ConfigError, default, load

    try:
        if config is None:
            path = make_url(url).database or ""
            folder = data_dir or (str(Path(path).parent) if url.startswith("sqlite") else None)
            return default().override([], folder, url, allow_anonymous=True, cwd=Path.cwd())
        return load(Path(config), allow_anonymous=True).override(
            [], data_dir, None, allow_anonymous=True, cwd=Path.cwd()
        )
    except ConfigError as error:
        raise PipelineError(str(error)) from error
