"""The rows of ``users``: reading all of them, and the transactions that change one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b

from attrs import evolve, frozen

from holdfast.accounts.refusals import AlreadyThere, Unknown
from holdfast.accounts.versions import raise_users_version, read_versions
from holdfast.storage import layouts
from holdfast.storage.driver import Connection, Cursor
from holdfast.storage.errors import StoreUnusable

_COLUMNS = layouts.users.names
_ALL = f"SELECT {_COLUMNS} FROM users"  # noqa: S608 - constants
_ONE = f"{_ALL} WHERE username = ?"
_PAGE = f"{_ALL} WHERE username > ? ORDER BY username LIMIT ?"
_ADD = (
    f"INSERT INTO users ({_COLUMNS}) VALUES (?, ?, ?, ?, ?)"  # noqa: S608 - constants
    " ON CONFLICT (username) DO NOTHING"
)
_CHANGE = "UPDATE users SET password_hash = ?, groups_json = ?, changed_at = ? WHERE username = ?"
_REHASH = "UPDATE users SET password_hash = ? WHERE username = ? AND password_hash = ?"
_REMOVE = "DELETE FROM users WHERE username = ?"


@frozen
class StoredUser:
    """A user. ``changed_at`` (milliseconds since the epoch) is not changed by a better hash of the same password."""

    password_hash: str
    groups: frozenset[str]
    created_at: int
    changed_at: int


@frozen
class AllUsers:
    """The users of a version, by name."""

    version: int
    users: Mapping[str, StoredUser]
    #: the sum of :func:`groups_number` of all users
    groups_sum: int = 0


def groups_number(username: str, groups: frozenset[str]) -> int:
    """Return a number that stands for the groups of a user, 0 for none. Sums of them stand for those of many users."""
    if not groups:
        return 0
    text = json.dumps([username, *sorted(groups)])
    return int.from_bytes(blake2b(text.encode(), digest_size=16).digest())


def read_all(connection: Connection) -> AllUsers:
    """Return all users. Raises StoreUnusable if a row is none that the broker writes."""
    version = read_versions(connection).users
    cursor = connection.cursor()
    cursor.execute(_ALL)
    read = _Reader()
    users = dict(map(read.user, cursor.fetchall()))
    return AllUsers(version, users, sum(groups_number(name, user.groups) for name, user in users.items()))


def read_page(connection: Connection, after: str, most: int) -> list[tuple[str, StoredUser]]:
    """Return users in the order of their names, beginning after a name."""
    cursor = connection.cursor()
    cursor.execute(_PAGE, (after, most))
    return list(map(_Reader().user, cursor.fetchall()))


def read_one(connection: Connection, username: str) -> StoredUser:
    """Return a user. Raises Unknown."""
    return _one(connection.cursor(), username)


def add(connection: Connection, username: str, user: StoredUser) -> int:
    """Add a user, and return the new version. Raises AlreadyThere."""
    cursor = connection.cursor()
    version = raise_users_version(cursor)
    groups = json.dumps(sorted(user.groups))
    cursor.execute(_ADD, (username, user.password_hash, groups, user.created_at, user.changed_at))
    if not cursor.rowcount:
        raise AlreadyThere(f"there is a user {username} already")
    return version


def change(
    connection: Connection, username: str, password_hash: str | None, groups: frozenset[str] | None, now: int
) -> tuple[int, StoredUser]:
    """Change a user's password, groups or both; return the new version and the user. Raises Unknown."""
    cursor = connection.cursor()
    version = raise_users_version(cursor)
    user = _one(cursor, username)
    user = evolve(
        user,
        password_hash=user.password_hash if password_hash is None else password_hash,
        groups=user.groups if groups is None else groups,
        changed_at=max(now, user.changed_at + 1),  # another one than before, also if the clock was set back
    )
    cursor.execute(_CHANGE, (user.password_hash, json.dumps(sorted(user.groups)), user.changed_at, username))
    return version, user


def rehash(connection: Connection, username: str, was: str, now: str) -> bool:
    """Replace the hash of a password by a better one of the same password, unless it has changed. The version stays."""
    cursor = connection.cursor()
    cursor.execute(_REHASH, (now, username, was))
    return cursor.rowcount > 0


def remove(connection: Connection, username: str) -> int:
    """Remove a user, and return the new version. Raises Unknown."""
    cursor = connection.cursor()
    version = raise_users_version(cursor)
    cursor.execute(_REMOVE, (username,))
    if not cursor.rowcount:
        raise _unknown(username)
    return version


def _one(cursor: Cursor, username: str) -> StoredUser:
    cursor.execute(_ONE, (username,))
    rows = cursor.fetchall()
    if not rows:
        raise _unknown(username)
    return _Reader().user(rows[0])[1]


def _unknown(username: str) -> Unknown:
    return Unknown(f"there is no user {username}")


class _Reader:
    """Reads rows. Equal groups are one object."""

    def __init__(self) -> None:
        self._groups: dict[str, frozenset[str]] = {}

    def user(self, row: Sequence[object]) -> tuple[str, StoredUser]:
        """Return the name and the user of a row."""
        username, password_hash, groups, created_at, changed_at = row
        if not (
            isinstance(username, str)
            and isinstance(password_hash, str)
            and isinstance(groups, str)
            and isinstance(created_at, int)
            and isinstance(changed_at, int)
        ):
            raise _unusable(username)
        found = self._groups.get(groups)
        if found is None:
            try:
                names = json.loads(groups)
            except (ValueError, RecursionError):
                names = None
            if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
                raise _unusable(username)
            found = self._groups[groups] = frozenset(names)
        return username, StoredUser(password_hash, found, created_at, changed_at)


def _unusable(username: object) -> StoreUnusable:
    return StoreUnusable(
        f"the table users has a row that the broker has not written, of user {username!r}; remove the row, and add the"
        " user with: holdfast user add"
    )
