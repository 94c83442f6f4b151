"""``holdfast db``: ``backup``, ``check``, ``upgrade`` and ``verify``, their options and their output."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.commands.common import broker_options, json_option, load_config, say, show, show_json
from holdfast.commands.root import LazyGroup
from holdfast.core.terminal import ExitStatus, counted
from holdfast.storage.location import StoreDamaged

# The group ``holdfast db``.


@click.group(
    cls=LazyGroup,
    locations={
        "backup": "holdfast.commands.db:backup",
        "check": "holdfast.commands.db:check",
        "upgrade": "holdfast.commands.db:upgrade",
        "verify": "holdfast.commands.db:verify",
    },
)
def db() -> None:
    """Upgrade, check and back up the broker's database.

    Run these commands as the broker's user, with the broker's options.
    """


# ``holdfast db backup``, ``check``, ``upgrade`` and ``verify``: their options and their output.


@click.command()
@click.argument("target", type=click.Path(path_type=Path))
@json_option
@broker_options
def backup(target: Path, as_json: bool, config: Path | None, data_dir: str | None, storage: str | None) -> None:
    """Copy the database to the file TARGET.

    The broker may run meanwhile. The copy is the database as it was at one moment. To restore it, stop the broker and
    put the copy in the place of the database. Back up Postgres with its own tools.
    """
    from holdfast.commands.db_work import copy_database

    source = copy_database(load_config(config, data_dir, storage), target)
    name = click.format_filename(target)
    if as_json:
        show_json({"backup": name, "database": source, "bytes": target.stat().st_size})
    else:
        show(f"{name}: a copy of the database; to check it, run: holdfast db verify")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@json_option
def verify(file: Path, as_json: bool) -> None:
    """Check the backup FILE.

    The command restores a copy of the backup, and reads all its retained messages as a broker would. The copy is in the
    folder for temporary files (TMPDIR), which needs room for it. The exit status is 0 if the backup is good, 3 if it is
    not, and 1 if it could not be checked.
    """
    from holdfast.commands.db_work import examine_backup

    found = examine_backup(file)
    name = click.format_filename(file)
    if as_json:
        show_json(
            {
                "backup": name, "good": found.fault is None, "fault": found.fault, "checks": found.checks,
                "schema": found.schema, "current": found.is_current, "messages": found.messages,
            }
        )  # fmt: skip
    else:
        _show_checks(found.checks)
        if found.schema is not None and not found.is_current:
            show(f"its schema is {found.schema}; holdfast db upgrade can upgrade it")
        if found.fault is None:
            show(f"{name}: good, with {counted(found.messages or 0, 'retained message')}")
        else:
            say(f"{name}: is not a good backup: {found.fault}")
    raise SystemExit(ExitStatus.DONE if found.fault is None else ExitStatus.FOUND)


@click.command()
@click.option(
    "--no-backup",
    is_flag=True,
    help="Make no backup, because you have one, or because there is no room for one beside the database.",
)
@json_option
@broker_options
def upgrade(no_backup: bool, as_json: bool, config: Path | None, data_dir: str | None, storage: str | None) -> None:
    """Upgrade the schema of the database.

    The broker must be stopped. The command first makes a backup of an SQLite database beside it. Back up Postgres with
    its own tools. All steps are one transaction: if the command is interrupted, the database is unchanged. The exit
    status is 0 if the database is up to date in the end, else 1.
    """
    from holdfast.commands.db_work import upgrade_database

    lines: list[str] = []
    copies = upgrade_database(
        load_config(config, data_dir, storage), lines.append if as_json else show, with_backup=not no_backup
    )
    names = [click.format_filename(copy) for copy in copies]
    if as_json:
        show_json({"steps": lines, "backups": names})
    for name in () if as_json else names:
        show(f"{name}: a copy of the database before the upgrade; to go back, restore it")


@click.command()
@json_option
@broker_options
def check(as_json: bool, config: Path | None, data_dir: str | None, storage: str | None) -> None:
    """Read the whole database and report all damage. The command changes nothing, and the broker may run.

    The exit status is 0 if the database is sound and has the schema of this version of the broker, 3 if not, and 1 if
    it cannot be read.
    """
    from holdfast.commands.db_work import LOCK_TIMEOUT
    from holdfast.storage.database import Durability
    from holdfast.storage.maintenance import database_at, examine
    from holdfast.storage.schema import newest_version

    chosen = load_config(config, data_dir, storage)
    database = database_at(chosen.storage.url, Durability.FULL, 0, LOCK_TIMEOUT)
    try:
        condition = examine(database)
    except StoreDamaged as damage:  # too damaged to be read to its end
        if as_json:
            show_json({"database": database.location, "ok": False, "fault": str(damage)})
        else:
            say(str(damage))
        raise SystemExit(ExitStatus.FOUND) from None
    good = condition.is_current and condition.is_sound
    if as_json:
        show_json(
            {
                "database": database.location, "ok": good, "fault": None, "schema": condition.version,
                "newest_schema": newest_version(), "library": database.library, "checks": condition.faults,
            }
        )  # fmt: skip
    else:
        note = "up to date" if condition.is_current else f"this is {newest_version()}; run: {chosen.upgrade_command}"
        show(f"{database.location}: schema {condition.version or 'none'}, {note}")
        if database.library is not None:
            show(database.library)
        _show_checks(condition.faults)
    raise SystemExit(ExitStatus.DONE if good else ExitStatus.FOUND)


def _show_checks(checks: dict[str, list[str]]) -> None:
    for name, found in checks.items():
        for line in found or ["ok"]:
            show(f"{name}: {line}")
