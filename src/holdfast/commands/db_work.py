"""The work of ``holdfast db``: copies of a database, and its schema brought up to date."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from attrs import field, frozen

from holdfast.commands.access import BrokerClient
from holdfast.commands.common import load_config, progress, say
from holdfast.commands.interfaces import Inaccessible
from holdfast.commands.stand_in import standing_in
from holdfast.config import Config
from holdfast.storage.database import Durability
from holdfast.storage.location import DirectoryLock, StoreDamaged, StoreUnusable
from holdfast.storage.maintenance import DatabaseCondition, database_at, examine, upgrade_schema
from holdfast.storage.sqlite import SQLiteDatabase, back_up

# Copying a database, and checking that a copy is good.


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


# Bringing the schema of a database up to date, after a backup.


#: seconds to wait while another process has the database locked
LOCK_TIMEOUT = 1.0

Say = Callable[[str], None]


def upgrade_database(config: Config, say: Say, *, with_backup: bool) -> list[Path]:
    """Upgrade the database of a stopped broker; report each step, and return the copies made before.

    Raises StoreUnusable or DirectoryUnusable; then the database is unchanged.
    """
    database = database_at(config.storage.url, Durability.FULL, 0, LOCK_TIMEOUT)
    database.check_present()
    lock = DirectoryLock(config.data_dir)
    if config.data_dir.is_dir():  # a broker always makes its data directory
        lock.acquire()
    try:
        if with_backup and isinstance(database, SQLiteDatabase):
            return _upgrade_with_backup(database, say)
        upgrade_schema(database, say)
        return []
    finally:
        lock.release()


def _upgrade_with_backup(database: SQLiteDatabase, say: Say) -> list[Path]:
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
        upgrade_schema(database, say, keep)
    except StoreUnusable:
        for copy in copies:
            copy.unlink()
        raise
    return copies
