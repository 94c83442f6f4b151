"""``holdfast db upgrade`` and ``check``: bring the schema up to date, and look for damage."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from holdfast.cli.broker_options import broker_options, fail, load_config
from holdfast.cli.progress import progress
from holdfast.config import Config, ConfigError
from holdfast.storage.database import Database, Durability
from holdfast.storage.engine import database_at
from holdfast.storage.errors import StoreUnusable
from holdfast.storage.lock import DirectoryLock, DirectoryUnusable
from holdfast.storage.maintenance import examine, upgrade_schema
from holdfast.storage.schema import newest_version
from holdfast.storage.sqlite.backup import back_up
from holdfast.storage.sqlite.database import SQLiteDatabase

#: seconds to wait while another process has the database locked
_LOCK_TIMEOUT = 1.0


@click.command()
@click.option(
    "--no-backup",
    is_flag=True,
    help="Make no backup, because you have one, or because there is no room for one beside the database.",
)
@broker_options
@click.pass_context
def upgrade(
    context: click.Context, no_backup: bool, config: Path | None, data_dir: str | None, storage: str | None
) -> None:
    """Bring the schema of the database up to this version of the broker.

    The broker must be stopped. The command first makes a backup of an SQLite database beside it. Back up Postgres with
    its own tools. All steps are one transaction: if the command is interrupted, the database is unchanged. The exit
    status is 0 if the database is up to date in the end, else 1.
    """
    lock = None
    try:
        chosen = load_config(config, data_dir, storage)
        database = _database(chosen)
        database.check_present()
        if chosen.data_dir.is_dir():  # a broker always makes its data directory
            lock = DirectoryLock(chosen.data_dir)
            lock.acquire()
        if no_backup or not isinstance(database, SQLiteDatabase):
            upgrade_schema(database, click.echo)
        else:
            _upgrade_with_backup(database)
    except (ConfigError, DirectoryUnusable, StoreUnusable) as error:
        fail(context, error)
    finally:
        if lock is not None:
            lock.release()


@click.command()
@broker_options
@click.pass_context
def check(context: click.Context, config: Path | None, data_dir: str | None, storage: str | None) -> None:
    """Read the whole database and report all damage. The command changes nothing, and the broker may run.

    The exit status is 0 if the database is sound and has the schema of this version of the broker, else 1.
    """
    try:
        chosen = load_config(config, data_dir, storage)
        database = _database(chosen)
        condition = examine(database)
    except (ConfigError, StoreUnusable) as error:
        fail(context, error)
    note = "up to date" if condition.is_current else f"this is {newest_version()}; run: {chosen.upgrade_command}"
    click.echo(f"{database.location}: schema {condition.version or 'none'}, {note}")
    for name, found in condition.faults.items():
        for line in found or ["ok"]:
            click.echo(f"{name}: {line}")
    context.exit(0 if condition.is_current and condition.is_sound else 1)


def _database(config: Config) -> Database:
    return database_at(config.storage.url, Durability.FULL, 0, _LOCK_TIMEOUT)


def _upgrade_with_backup(database: SQLiteDatabase) -> None:
    """Make a copy of the database and upgrade it. If the upgrade fails, delete the copy."""
    copies: list[Path] = []

    def keep(version: str) -> None:
        moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        copy = database.path.with_name(f"{database.path.name}.schema-{version}.{moment}")
        try:
            with progress("copying", None) as report:
                back_up(database, copy, report)
        except StoreUnusable as error:
            raise StoreUnusable(
                f"no backup could be made, so nothing was changed: {error}. To make one elsewhere, run "
                "holdfast db backup, then holdfast db upgrade --no-backup"
            ) from error
        copies.append(copy)

    try:
        upgrade_schema(database, click.echo, keep)
    except StoreUnusable:
        for copy in copies:
            copy.unlink()
        raise
    for copy in copies:
        click.echo(f"{click.format_filename(copy)}: a copy of the database before the upgrade; to go back, restore it")
