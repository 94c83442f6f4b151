"""Copying a database, and checking that a copy is good."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from attrs import field, frozen

from holdfast.access.client import BrokerClient
from holdfast.access.interfaces import Inaccessible
from holdfast.access.stand_in import standing_in
from holdfast.cli.broker_options import load_config
from holdfast.cli.database.maintenance import LOCK_TIMEOUT
from holdfast.cli.progress import progress
from holdfast.cli.reporting import say
from holdfast.config import Config
from holdfast.storage.database import Durability
from holdfast.storage.engine import database_at
from holdfast.storage.errors import StoreDamaged, StoreUnusable
from holdfast.storage.maintenance import DatabaseCondition, examine, upgrade_schema
from holdfast.storage.sqlite.backup import back_up
from holdfast.storage.sqlite.database import SQLiteDatabase

_DAMAGED = "it is damaged"
_REMEDY = "make another backup"


@frozen
class ExaminedBackup:
    """The result of a check. ``fault`` says why the backup is not good, and is None for a good one.

    ``checks`` has the findings of each check, ``schema`` and ``messages`` are None if they could not be read.
    """

    fault: str | None = None
    checks: dict[str, list[str]] = field(factory=dict)
    schema: str | None = None
    is_current: bool = False
    messages: int | None = None


def copy_database(config: Config, target: Path) -> str:
    """Copy the database of a broker to a new file, and return its location. Raises StoreUnusable."""
    database = database_at(config.storage.url, Durability.FULL, 0, LOCK_TIMEOUT)
    if not isinstance(database, SQLiteDatabase):
        raise StoreUnusable(
            f"{database.location}: is Postgres; back it up with pg_dump --format=custom --file=TARGET, "
            "and look at holdfast retainer export"
        )
    _have_written(config)
    with progress("copying", None) as report:
        back_up(database, target, report)
    return database.location


def _have_written(config: Config) -> None:
    """Let a running broker write the messages that wait for the ``write_interval`` of their policy.

    Without an answer, the copy is what a crash at this moment would leave.
    """
    broker = BrokerClient(config)
    try:
        if broker.answers():
            broker.call("POST", "/flush")
    except Inaccessible as error:
        say(f"the broker does not write waiting messages first: {error}")


def examine_backup(file: Path) -> ExaminedBackup:
    """Restore a backup into a temporary folder, and read it as a broker would.

    Raises StoreUnusable or OSError if it cannot be checked, for example because there is no such file.
    """
    with file.open("rb"):
        pass  # a file that cannot be read is not a bad backup
    with TemporaryDirectory(prefix="holdfast-verify-") as directory:
        path = Path(directory) / "holdfast.db"
        try:
            with progress("restoring", None) as report:
                back_up(SQLiteDatabase(file.absolute(), Durability.PROCESS, LOCK_TIMEOUT), path, report)
        except StoreDamaged as damage:
            return ExaminedBackup(f"it {damage.reason}; {_REMEDY}")
        copy = SQLiteDatabase(path, Durability.PROCESS, LOCK_TIMEOUT)
        try:
            condition = examine(copy)
        except StoreUnusable as error:
            return ExaminedBackup(_fault(error, path))
        return _read(path, copy, condition)


def _read(path: Path, copy: SQLiteDatabase, condition: DatabaseCondition) -> ExaminedBackup:
    """Read all retained messages of a restored copy."""

    def examined(fault: str | None, messages: int | None = None) -> ExaminedBackup:
        return ExaminedBackup(fault, condition.faults, condition.version, condition.is_current, messages)

    if not condition.is_sound:
        return examined(f"{_DAMAGED}; {_REMEDY}")
    count = 0
    try:
        if not condition.is_current:
            upgrade_schema(copy, lambda _: None)
        with standing_in(load_config(None, str(path.parent), f"sqlite:///{path}")) as store:
            total = store.call("GET", "/info")["count"]
            with progress("reading", total) as report:
                for piece in store.pieces("/export"):
                    count += piece.count(b"\n")
                    report(count)
    except (StoreUnusable, Inaccessible) as error:
        return examined(_fault(error, path))
    return examined(None, count)


def _fault(error: Exception, path: Path) -> str:
    """Describe an error in the copy, which the operator knows nothing of."""
    if isinstance(error, StoreDamaged):
        return f"it {error.reason}; {_REMEDY}"
    return f"it {str(error).removeprefix(f'{path}: ')}"
