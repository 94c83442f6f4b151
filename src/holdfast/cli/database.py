"""``holdfast db``: look after the database of a broker."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from holdfast.cli.broker_options import configured, place, refuse
from holdfast.cli.progress import progress
from holdfast.config import Config, ConfigError
from holdfast.storage.database import Database, Durability, StoreUnusable
from holdfast.storage.engine import database_at
from holdfast.storage.lock import DirectoryLock, DirectoryUnusable
from holdfast.storage.maintenance import examine, upgrade_schema
from holdfast.storage.schema import newest_version
from holdfast.storage.sqlite.backup import back_up
from holdfast.storage.sqlite.database import SQLiteDatabase

#: seconds to wait for somebody who has the database locked for a moment
_PATIENCE = 1.0


@click.group()
def db() -> None:
    """Look after the database of a broker. Run it as the broker's user, with the broker's options."""


@db.command()
@click.option("--no-backup", is_flag=True, help="Take no backup: there is one, or no room for one beside the database.")
@place
@click.pass_context
def upgrade(
    context: click.Context, no_backup: bool, config: Path | None, data_dir: str | None, storage: str | None
) -> None:
    """Bring the schema of the database up to this version of the broker.

    The broker must be stopped. A backup of an SQLite database is made beside it first; of Postgres, take one with its
    own tools. All steps are one transaction: when the command is interrupted, the database is as before. The exit
    status is 0 when the database is up to date in the end, else 1.
    """
    lock = None
    try:
        meant = configured(config, data_dir, storage)
        database = _database(meant)
        database.check_present()
        if meant.data_dir.is_dir():  # where there is none, no broker runs in it
            lock = DirectoryLock(meant.data_dir)
            lock.acquire()
        if no_backup or not isinstance(database, SQLiteDatabase):
            upgrade_schema(database, click.echo)
        else:
            _upgrade_with_backup(database)
    except (ConfigError, DirectoryUnusable, StoreUnusable) as error:
        refuse(context, error)
    finally:
        if lock is not None:
            lock.release()


@db.command()
@place
@click.pass_context
def check(context: click.Context, config: Path | None, data_dir: str | None, storage: str | None) -> None:
    """Read the whole database and report what is wrong with it; nothing is changed, and the broker may run.

    The exit status is 0 when it is sound and its schema is that of this version of the broker, else 1.
    """
    try:
        meant = configured(config, data_dir, storage)
        database = _database(meant)
        condition = examine(database)
    except (ConfigError, StoreUnusable) as error:
        refuse(context, error)
    standing = "up to date" if condition.is_current else f"this is {newest_version()}; run: {meant.upgrade_command}"
    click.echo(f"{database.location}: schema {condition.version or 'none'}, {standing}")
    for name, found in condition.faults.items():
        for line in found or ["ok"]:
            click.echo(f"{name}: {line}")
    context.exit(0 if condition.is_current and condition.is_sound else 1)


def _database(config: Config) -> Database:
    return database_at(config.storage.url, Durability.FULL, 0, _PATIENCE)


def _upgrade_with_backup(database: SQLiteDatabase) -> None:
    """Upgrade, and keep a copy of the database as it was; when the upgrade fails, nothing is left of the copy."""
    copies: list[Path] = []

    def keep(version: str) -> None:
        moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        copy = database.path.with_name(f"{database.path.name}.schema-{version}.{moment}")
        try:
            with progress("copying", None) as report:
                back_up(database, copy, report)
        except StoreUnusable as error:
            raise StoreUnusable(
                f"no backup could be made, so nothing was changed: {error}. To have it elsewhere, run "
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
        click.echo(f"{click.format_filename(copy)}: the database as it was before; to go back, restore it")
