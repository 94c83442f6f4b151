"""The rows of ``api_keys``: reading all of them, and the transactions that change one."""

from __future__ import annotations

import json
from collections.abc import Sequence

from attrs import frozen

from holdfast.accounts.refusals import AlreadyThere, BadValue, Unknown
from holdfast.storage import layouts
from holdfast.storage.driver import Connection
from holdfast.storage.errors import StoreUnusable

#: the most keys of a database: all are kept in memory
MOST = 1000

_COLUMNS = layouts.api_keys.names
_ALL = f"SELECT {_COLUMNS} FROM api_keys ORDER BY key_name"  # noqa: S608 - constants
_COUNT = "SELECT COUNT(*) FROM api_keys"
_ADD = (
    f"INSERT INTO api_keys ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - constants
    " ON CONFLICT (key_name) DO NOTHING"
)
_REMOVE = "DELETE FROM api_keys WHERE key_name = ?"


@frozen(kw_only=True)
class StoredKey:
    """An API key. Times are in milliseconds since the epoch; None is never."""

    name: str
    key: str
    secret_hash: str
    scopes: frozenset[str]
    created_by: str
    created_at: int
    expires_at: int | None

    def is_over(self, now: int) -> bool:
        """Tell whether the key has expired."""
        return self.expires_at is not None and self.expires_at <= now


def read_all(connection: Connection) -> list[StoredKey]:
    """Return all keys in the order of their names. Raises StoreUnusable if a row is none that the broker writes."""
    cursor = connection.cursor()
    cursor.execute(_ALL)
    return [_key_of(row) for row in cursor.fetchall()]


def add(connection: Connection, key: StoredKey) -> None:
    """Add a key. Raises AlreadyThere, or BadValue if there are too many."""
    cursor = connection.cursor()
    cursor.execute(_COUNT)
    if cursor.fetchall()[0][0] >= MOST:
        raise BadValue(f"there are {MOST} API keys, which is the most; revoke one that is not used")
    scopes = json.dumps(sorted(key.scopes))
    cursor.execute(
        _ADD, (key.name, key.key, key.secret_hash, scopes, key.created_by, key.created_at, key.expires_at)
    )  # fmt: skip
    if not cursor.rowcount:
        raise AlreadyThere(f"there is an API key {key.name} already")


def remove(connection: Connection, name: str) -> None:
    """Remove a key. Raises Unknown."""
    cursor = connection.cursor()
    cursor.execute(_REMOVE, (name,))
    if not cursor.rowcount:
        raise Unknown(f"there is no API key {name}")


def _key_of(row: Sequence[object]) -> StoredKey:
    name, key, secret_hash, scopes_json, created_by, created_at, expires_at = row
    try:
        scopes = json.loads(str(scopes_json))
    except (ValueError, RecursionError):
        scopes = None
    if (
        not all(isinstance(text, str) for text in (name, key, secret_hash, created_by))
        or not isinstance(created_at, int)
        or not isinstance(expires_at, int | None)
        or not isinstance(scopes, list)
        or not all(isinstance(scope, str) for scope in scopes)
    ):
        raise StoreUnusable(
            f"the table api_keys has a row that the broker has not written, {name!r}; remove the row, and add the key"
            " with: holdfast api-key add"
        )
    return StoredKey(
        name=str(name), key=str(key), secret_hash=str(secret_hash), scopes=frozenset(scopes),
        created_by=str(created_by), created_at=created_at, expires_at=expires_at,
    )  # fmt: skip
