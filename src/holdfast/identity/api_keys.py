"""The API keys in the database: kept in memory to check calls, and changed through the writer."""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from holdfast.identity.accounts import AlreadyThere, BadValue, Unknown, read, read_now, write
from holdfast.storage import layouts
from holdfast.storage.driver import Connection
from holdfast.storage.location import StoreUnusable
from holdfast.storage.store import DurableStore, OpenStore

# The API keys in the database: kept in memory to check calls, and changed through the writer.
#
# How it works. A key is a name for the broker to find (``hf`` and 16 hexadecimal digits), and a secret of 256 random
# bits. The database has the SHA-256 of both. A slow hash, as for passwords, would protect nothing: nobody can guess 256
# bits, however fast the hash is. And a fast one can be computed for every call, without a thread.
#
# A key that is revoked counts no more when the call that revokes it is answered; other nodes on the same database learn
# of it within two seconds.


_NOBODYS_HASH = sha256(b"").hexdigest()


class Keys:
    """The API keys. ``kept`` tells whether they are kept in memory: in a broker, but not in a command.

    ``now`` returns milliseconds since the epoch.
    """

    _log = Logger()

    def __init__(self, store: DurableStore, *, now: Callable[[], int], kept: bool) -> None:
        self._store = store
        self._now = now
        self._kept = kept
        self._keys: Mapping[str, StoredKey] = {}
        store.when_open(self._opened)

    def found(self, key: str, secret: str) -> StoredKey | None:
        """Return the key that this secret proves; None if there is none, or if it has expired.

        A wrong secret takes as long as an unknown key.
        """
        stored = self._keys.get(key)
        wanted = _NOBODYS_HASH if stored is None else stored.secret_hash
        right = hmac.compare_digest(_hash(key, secret), wanted)
        return stored if stored is not None and right and not stored.is_over(self._now()) else None

    def all(self) -> Deferred[list[StoredKey]]:
        """Read all keys from the database in the order of their names. Fails with StorageFailure."""
        return read(self._store, read_all)

    def add(
        self, name: str, scopes: frozenset[str], expires_at: int | None, by: str
    ) -> Deferred[tuple[StoredKey, str]]:
        """Add a key; fires with it and its secret when this is durable.

        Fails with AlreadyThere, BadValue or StorageFailure.
        """
        key, secret = f"hf{secrets.token_hex(8)}", secrets.token_urlsafe(32)
        stored = StoredKey(
            name=name, key=key, secret_hash=_hash(key, secret), scopes=scopes, created_by=by,
            created_at=self._now(), expires_at=expires_at,
        )  # fmt: skip

        def added(_result: None) -> tuple[StoredKey, str]:
            self._take([*self._keys.values(), stored])
            return stored, secret

        return write(self._store, lambda connection: add(connection, stored)).addCallback(added)

    def remove(self, name: str) -> Deferred[None]:
        """Revoke a key; fires when this is durable. Fails with Unknown or StorageFailure."""

        def removed(_result: None) -> None:
            self._take([key for key in self._keys.values() if key.name != name])

        return write(self._store, lambda connection: remove(connection, name)).addCallback(removed)

    def refresh(self) -> Deferred[None]:
        """Read all keys again, for what other nodes have changed. Fails with StorageFailure or StoreUnusable."""
        before = self._keys

        def take(found: list[StoredKey]) -> None:
            if self._keys is before:  # else this node has changed keys meanwhile; the next look reads again
                self._take(found)

        return self.all().addCallback(take)

    def _opened(self, parts: OpenStore) -> None:
        if not self._kept:
            return
        try:
            self._take(read_now(parts.database, read_all))
        except StoreUnusable as error:
            self._log.warn("no API key is valid: {error}", error=error)

    def _take(self, keys: list[StoredKey]) -> None:
        if self._kept:
            self._keys = {key.key: key for key in keys}


def _hash(key: str, secret: str) -> str:
    return sha256(f"{key}:{secret}".encode("utf-8", "surrogatepass")).hexdigest()


# The rows of ``api_keys``: reading all of them, and the transactions that change one.


#: the most keys of a database: all are kept in memory
MOST_KEYS = 1000

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
    if cursor.fetchall()[0][0] >= MOST_KEYS:
        raise BadValue(f"there are {MOST_KEYS} API keys, which is the most; revoke one that is not used")
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
