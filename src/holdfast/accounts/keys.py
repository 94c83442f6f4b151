"""The API keys in the database: kept in memory to check calls, and changed through the writer.

How it works. A key is a name for the broker to find (``hf`` and 16 hexadecimal digits), and a secret of 256 random
bits. The database has the SHA-256 of both. A slow hash, as for passwords, would protect nothing: nobody can guess 256
bits, however fast the hash is. And a fast one can be computed for every call, without a thread.

A key that is revoked counts no more when the call that revokes it is answered; other nodes on the same database learn
of it within two seconds.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Mapping
from hashlib import sha256

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from holdfast.accounts import key_rows
from holdfast.accounts.key_rows import StoredKey
from holdfast.accounts.store_access import read, read_now, write
from holdfast.storage.errors import StoreUnusable
from holdfast.storage.store import DurableStore, OpenStore

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
        return read(self._store, key_rows.read_all)

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

        return write(self._store, lambda connection: key_rows.add(connection, stored)).addCallback(added)

    def remove(self, name: str) -> Deferred[None]:
        """Revoke a key; fires when this is durable. Fails with Unknown or StorageFailure."""

        def removed(_result: None) -> None:
            self._take([key for key in self._keys.values() if key.name != name])

        return write(self._store, lambda connection: key_rows.remove(connection, name)).addCallback(removed)

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
            self._take(read_now(parts.database, key_rows.read_all))
        except StoreUnusable as error:
            self._log.warn("no API key is valid: {error}", error=error)

    def _take(self, keys: list[StoredKey]) -> None:
        if self._kept:
            self._keys = {key.key: key for key in keys}


def _hash(key: str, secret: str) -> str:
    return sha256(f"{key}:{secret}".encode("utf-8", "surrogatepass")).hexdigest()
