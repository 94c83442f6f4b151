"""``holdfast db backup`` and ``verify``: copy a database, and check that a copy is good."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import click

from holdfast.access.interfaces import Inaccessible
from holdfast.access.stand_in import standing_in
from holdfast.cli.broker_options import broker_options, fail, load_config
from holdfast.cli.progress import progress
from holdfast.config import ConfigError
from holdfast.storage.database import Durability
from holdfast.storage.engine import database_at
from holdfast.storage.errors import StoreUnusable
from holdfast.storage.maintenance import examine, upgrade_schema
from holdfast.storage.sqlite.backup import back_up
from holdfast.storage.sqlite.database import SQLiteDatabase

#: seconds to wait while another process has the database locked
_LOCK_TIMEOUT = 1.0


@click.command()
@click.argument("target", type=click.Path(path_type=Path))
@broker_options
@click.pass_context
def backup(
    context: click.Context, target: Path, config: Path | None, data_dir: str | None, storage: str | None
) -> None:
    """Copy the database to the file TARGET, whether the broker runs or not.

    The copy is the database as it was at one moment. To restore it, stop the broker and put the copy in the place of
    the database. Back up Postgres with its own tools.
    """
    try:
        database = database_at(load_config(config, data_dir, storage).storage.url, Durability.FULL, 0, _LOCK_TIMEOUT)
        if not isinstance(database, SQLiteDatabase):
            raise StoreUnusable(
                f"{database.location}: is Postgres; back it up with pg_dump --format=custom --file=TARGET, "
                "and look at holdfast retainer export"
            )
        with progress("copying", None) as report:
            back_up(database, target, report)
    except (ConfigError, StoreUnusable) as error:
        fail(context, error)
    click.echo(f"{click.format_filename(target)}: a copy of the database; to check it, run: holdfast db verify")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.pass_context
def verify(context: click.Context, file: Path) -> None:
    """Check the backup FILE: restore a copy of it, and read all its retained messages as a broker would.

    The copy is made in the folder for temporary files (TMPDIR), which needs room for it. The exit status is 0 if the
    backup is good, else 1.
    """
    try:
        with TemporaryDirectory(prefix="holdfast-verify-") as directory:
            count = _restore(file, directory)
    except (ConfigError, StoreUnusable, Inaccessible, OSError) as error:
        fail(context, StoreUnusable(f"{click.format_filename(file)}: is not a good backup: {error}"))
    click.echo(f"{click.format_filename(file)}: good, with {count} retained messages")


def _restore(file: Path, directory: str) -> int:
    """Restore a backup into a directory, and return its number of retained messages."""
    path = Path(directory) / "holdfast.db"
    with progress("restoring", None) as report:
        back_up(SQLiteDatabase(file.absolute(), Durability.PROCESS, _LOCK_TIMEOUT), path, report)
    copy = SQLiteDatabase(path, Durability.PROCESS, _LOCK_TIMEOUT)
    condition = examine(copy)
    for name, found in condition.faults.items():
        for line in found or ["ok"]:
            click.echo(f"{name}: {line}")
    if not condition.is_sound:
        raise StoreUnusable("it is damaged; make another backup")
    if not condition.is_current:
        upgrade_schema(copy, lambda _: None)
        click.echo(f"its schema is {condition.version}; holdfast db upgrade can upgrade it")
    count = 0
    with standing_in(load_config(None, directory, f"sqlite:///{path}")) as store:
        total = store.call("GET", "/info")["count"]
        with progress("reading", total) as report:
            for piece in store.pieces("/export"):
                count += piece.count(b"\n")
                report(count)
    return count
