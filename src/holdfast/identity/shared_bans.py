"""The bans of a cluster: rows of the database, which each member has in memory.

How it works. A change is one row in one transaction: two members that ban at once lose nothing of each other. Every
half second, together with users and rules (:mod:`.following`), a member compares the number of rows and the sum of
their numbers with those that it knows, and reads all bans if they differ. Then new bans count here too, and their
clients are disconnected. The number of a row is the database's time in microseconds, so it is another one after each
change.

A broker that becomes a member brings its bans along: those in its file are added to the rows at its start, and the file
is then named ``bans.jsonl.shared``. A start that is cut off in between adds them again, which changes nothing.

Bans after failed logins stay with the member that counts the logins.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path

from attrs import frozen
from twisted.internet.defer import Deferred

from holdfast.identity.accounts import read, write
from holdfast.identity.bans import FILE_NAME, BadBan, Ban, Bans, ban_from, fields_of, load_bans
from holdfast.scheduling.waiting import as_deferred
from holdfast.storage.database import Database
from holdfast.storage.driver import Connection
from holdfast.storage.location import StoreUnusable
from holdfast.storage.store import DurableStore

_VERSION = "SELECT count(*), CAST(coalesce(sum(number), 0) AS text) FROM cluster_bans"
_ALL = "SELECT ban_json FROM cluster_bans"
_NUMBER = "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"
_ADD = (
    f"INSERT INTO cluster_bans (kind, who_hash, number, ban_json) VALUES (?, ?, {_NUMBER}, ?) "
    "ON CONFLICT (kind, who_hash) DO "
)
_KEEP = f"{_ADD}NOTHING"
_REPLACE = f"{_ADD}UPDATE SET number = excluded.number, ban_json = excluded.ban_json"
_REMOVE = "DELETE FROM cluster_bans WHERE kind = ? AND who_hash = ?"
# ruff: noqa: S608 - the statements are built from constants

#: what stands for the present rows: their number, and the sum of their numbers
Version = tuple[int, str]
_UNKNOWN: Version = (-1, "")


@frozen
class _Found:
    version: Version
    bans: tuple[Ban, ...]


class SharedBans:
    """Keeps the bans of a cluster in the database, and those of this member like them.

    ``apply`` disconnects those whom a new ban of another member concerns.
    """

    def __init__(self, store: DurableStore, bans: Bans, folder: Path) -> None:
        self._store = store
        self._bans = bans
        self._folder = folder
        self._version = _UNKNOWN
        self._changes = self._under_way = 0  # changes of this member that have begun, and those that have not ended
        self.apply: Callable[[Ban], object] = lambda _ban: None
        store.before_open(self._prepare)

    def put(self, ban: Ban) -> Deferred[None]:
        """Store a ban in place of one of the same name. Fails with StorageFailure; then nothing is changed."""
        return self._change(lambda connection: _write(connection, _REPLACE, [ban]))

    def remove(self, ban: Ban) -> Deferred[None]:
        """Remove a stored ban. Fails with StorageFailure; then nothing is changed."""

        def work(connection: Connection) -> None:
            connection.cursor().execute(_REMOVE, _key_of(ban))

        return self._change(work)

    @as_deferred
    async def refresh(self) -> None:
        """Take what other members have changed. Fails with StorageFailure or StoreUnusable."""
        before = self._changes
        if self._under_way or await read(self._store, _read_version) == self._version:
            return
        found = await read(self._store, _read_all)
        if self._under_way or self._changes != before:  # this member changes bans; the next look reads again
            return
        self._version = found.version
        for ban in self._bans.replace(found.bans):
            self.apply(ban)

    @as_deferred
    async def _change(self, work: Callable[[Connection], None]) -> None:
        self._changes += 1
        self._under_way += 1
        try:
            await write(self._store, work)
        finally:
            self._under_way -= 1
            self._version = _UNKNOWN

    def _prepare(self, _database: Database, connection: Connection) -> None:
        """Add the bans in the file of a broker that was alone, and read all."""
        file = self._folder / FILE_NAME
        own = load_bans(self._folder)
        if own:
            connection.cursor().execute("BEGIN")
            _write(connection, _KEEP, own)
            connection.cursor().execute("COMMIT")
        if file.exists():
            os.replace(file, file.with_name(f"{FILE_NAME}.shared"))
        found = _read_all(connection)
        self._version = found.version
        self._bans.replace(found.bans)


def _write(connection: Connection, statement: str, bans: Iterable[Ban]) -> None:
    cursor = connection.cursor()
    for ban in bans:
        cursor.execute(statement, (*_key_of(ban), json.dumps(fields_of(ban))))


def _key_of(ban: Ban) -> tuple[str, str]:
    """Return the key of its row. A hash, since no text is too long for it, and none has characters that it may not."""
    return ban.kind.value, sha256(ban.who.encode("utf-8", "surrogatepass")).hexdigest()


def _read_version(connection: Connection) -> Version:
    cursor = connection.cursor()
    cursor.execute(_VERSION)
    ((count, total),) = cursor.fetchall()
    return count, total


def _read_all(connection: Connection) -> _Found:
    """Return the bans and their version. Raises StoreUnusable if a row is none that a broker writes."""
    version = _read_version(connection)
    cursor = connection.cursor()
    cursor.execute(_ALL)
    bans = []
    for (text,) in cursor.fetchall():
        try:
            bans.append(ban_from(json.loads(text)))
        except (BadBan, ValueError, RecursionError) as error:
            raise StoreUnusable(
                f"the table cluster_bans has a row that no broker has written, {text[:100]!r} ({error}); remove it, and"
                " add the ban with: holdfast ban add"
            ) from None
    return _Found(version, tuple(bans))
