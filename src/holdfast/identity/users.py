"""The users in the database: kept in memory for logins, and changed through the writer.

How it works. All users are read when the database opens: a login then reads nothing, and 100,000 users take 40 MB. A
change is committed first, then it counts in memory, and whoever is affected is told: the method, which disconnects
clients, and the authorizer, which has to ask for groups again. The mapping of users is never changed, but replaced; so
a thread can compare a mapping with what it has read from the database.

    version 7: alice, bob           bob is removed: the commit has version 8, memory too; bob's clients are disconnected
    another node adds carol: 9      the next look sees version 9, and reads all users

A change by this node that follows a change by another one, which has not been read yet, is taken at once. But memory
keeps the older version, so the next look reads the other one's change as well.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import blake2b

from attrs import evolve, frozen
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from holdfast.core.terminal import counted
from holdfast.identity.accounts import AlreadyThere, Unknown, raise_users_version, read, read_now, read_versions, write
from holdfast.identity.hashes import Busy
from holdfast.identity.interfaces import IGNORED, Credentials, IAuthenticationMethod, Verdict
from holdfast.identity.passwords import Logins
from holdfast.storage import layouts
from holdfast.storage.driver import Connection, Cursor
from holdfast.storage.location import StoreUnusable
from holdfast.storage.store import DurableStore, OpenStore

_NOBODY: frozenset[str] = frozenset()
_NO_GROUPS: frozenset[str] = frozenset()
_MODULUS = 1 << 128


@frozen
class Changes:
    """The names of users: those who must log in again, and those whose groups have changed."""

    revoked: frozenset[str]
    regrouped: frozenset[str]


class Users:
    """The users. ``kept`` tells whether they are kept in memory: in a broker, but not in a command.

    ``required`` tells whether an authentication method asks for them: then the database does not open without them.
    ``now`` returns milliseconds since the epoch.
    """

    _log = Logger()

    def __init__(self, store: DurableStore, *, now: Callable[[], int], kept: bool, required: bool) -> None:
        self._store = store
        self._now = now
        self.kept = kept
        self._required = required
        #: why they are not known; None if they are
        self.problem: str | None = "the database is not open"
        self.version = 0
        self._users: Mapping[str, StoredUser] = {}
        self._names: list[str] | None = None
        self._groups_sum = 0  # changed with each user, since to count all anew takes long
        self._listeners: list[Callable[[Changes], object]] = []
        store.when_open(self._opened)

    def on_change(self, listener: Callable[[Changes], object]) -> None:
        """Call this after each change of users."""
        self._listeners.append(listener)

    # --- questions of the authentication method and the authorizer

    def stored(self, username: str) -> StoredUser | None:
        """Return a user, None if there is none of this name."""
        return self._users.get(username)

    def groups_of(self, username: str | None) -> frozenset[str]:
        """Return the groups of a user; none if there is no such user."""
        user = None if username is None else self._users.get(username)
        return _NO_GROUPS if user is None else user.groups

    def groups_digest(self) -> str:
        """Return what stands for the groups of all users, also in the next process."""
        return f"{self._groups_sum % _MODULUS:032x}"

    def stored_like(self, number: int) -> str | None:
        """Return the hash of some user, the same for the same number and users; None if there are no users."""
        if self._names is None:
            self._names = list(self._users)
        return self._users[self._names[number % len(self._names)]].password_hash if self._names else None

    # --- what operators ask and change

    def one(self, username: str) -> Deferred[StoredUser]:
        """Read a user from the database. Fails with Unknown or StorageFailure."""
        return read(self._store, lambda connection: read_one(connection, username))

    def page(self, after: str, most: int) -> Deferred[list[tuple[str, StoredUser]]]:
        """Read users from the database in the order of their names, after a name. Fails with StorageFailure."""
        return read(self._store, lambda connection: read_page(connection, after, most))

    def add(self, username: str, password_hash: str, groups: frozenset[str]) -> Deferred[StoredUser]:
        """Add a user; fires when this is durable. Fails with AlreadyThere or StorageFailure."""
        now = self._now()
        user = StoredUser(password_hash, groups, now, now)
        added = write(self._store, lambda connection: add(connection, username, user))
        return added.addCallback(lambda version: self._changed(version, username, user))

    def change(self, username: str, password_hash: str | None, groups: frozenset[str] | None) -> Deferred[StoredUser]:
        """Change a user's password, groups or both (None: as before); fires when this is durable.

        Fails with Unknown or StorageFailure.
        """
        now = self._now()

        def change(connection: Connection) -> tuple[int, StoredUser]:
            return change_row(connection, username, password_hash, groups, now)

        return write(self._store, change).addCallback(lambda done: self._changed(done[0], username, done[1]))

    def remove(self, username: str) -> Deferred[None]:
        """Remove a user; fires when this is durable. Fails with Unknown or StorageFailure."""
        removed = write(self._store, lambda connection: remove(connection, username))
        return removed.addCallback(self._removed, username)

    def rehash(self, username: str, was: str, new: str) -> Deferred[None]:
        """Store a better hash of the same password, unless the password has changed. Fails with StorageFailure."""
        done = write(self._store, lambda connection: rehash(connection, username, was, new))
        return done.addCallback(self._rehashed, username, was, new)

    # --- other nodes

    def refresh(self) -> Deferred[None]:
        """Read all users again, and tell who is affected. Fails with StorageFailure or StoreUnusable."""
        before = self._users

        def compared(connection: Connection) -> tuple[AllUsers, Changes]:
            found = read_all(connection)
            return found, _changes(before, found.users)

        return read(self._store, compared).addCallback(self._refreshed, before)

    def _refreshed(self, found: tuple[AllUsers, Changes], before: Mapping[str, StoredUser]) -> None:
        users, changes = found
        if self._users is not before or users.version <= self.version:
            return  # this node has changed users meanwhile; if another one has, too, the next look reads again
        self._take(users)
        self._log.info(
            "another node has changed users in the database: {users}; {revoked} have to log in again",
            users=counted(len(users.users), "user"), count=len(users.users), revoked=len(changes.revoked),
        )  # fmt: skip
        self._tell(changes)

    # --- memory

    def _opened(self, parts: OpenStore) -> None:
        """Read all users. Raises StoreUnusable: without them the broker could not tell whom to admit."""
        if not self.kept:
            return
        try:
            self._take(read_now(parts.database, read_all))
        except StoreUnusable as error:
            if self._required:
                raise
            self.problem = str(error)
            self._log.warn("users in the database, whom no authentication method asks for: {error}", error=error)

    def _take(self, found: AllUsers) -> None:
        self._users, self._names, self.version, self.problem = found.users, None, found.version, None
        self._groups_sum = found.groups_sum

    def _changed(self, version: int, username: str, user: StoredUser) -> StoredUser:
        before = self._users.get(username)
        groups_before = _NO_GROUPS if before is None else before.groups
        regrouped = user.groups != groups_before
        self._regroup(username, groups_before, user.groups)
        self._keep(version, {**self._users, username: user})
        name = frozenset((username,))
        self._tell(Changes(_NOBODY if before is None else name, name if regrouped else _NOBODY))
        return user

    def _removed(self, version: int, username: str) -> None:
        regrouped = bool(self.groups_of(username))
        self._regroup(username, self.groups_of(username), _NO_GROUPS)
        self._keep(version, {name: user for name, user in self._users.items() if name != username})
        name = frozenset((username,))
        self._tell(Changes(name, name if regrouped else _NOBODY))

    def _regroup(self, username: str, before: frozenset[str], after: frozenset[str]) -> None:
        if self.kept:
            self._groups_sum += groups_number(username, after) - groups_number(username, before)

    def _keep(self, version: int, users: Mapping[str, StoredUser]) -> None:
        if self.kept:
            self._users, self._names = users, None
            if version == self.version + 1:
                self.version = version

    def _rehashed(self, done: bool, username: str, was: str, new: str) -> None:
        user = self._users.get(username)
        if done and user is not None and user.password_hash == was:
            self._users = {**self._users, username: evolve(user, password_hash=new)}

    def _tell(self, changes: Changes) -> None:
        for listener in self._listeners:
            listener(changes)


def _changes(before: Mapping[str, StoredUser], after: Mapping[str, StoredUser]) -> Changes:
    """Compare users; called in a thread. A better hash of the same password is no change."""
    revoked, regrouped = set(before.keys() - after.keys()), set[str]()
    regrouped.update(name for name in revoked if before[name].groups)
    for name, user in after.items():
        old = before.get(name)
        if old is not None and old.changed_at != user.changed_at:
            revoked.add(name)
        if user.groups != (_NO_GROUPS if old is None else old.groups):
            regrouped.add(name)
    return Changes(frozenset(revoked), frozenset(regrouped))


# The rows of ``users``: reading all of them, and the transactions that change one.


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


def change_row(
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


# The authentication method of the users in the database: User Name and Password against the stored hashes.


@implementer(IAuthenticationMethod)
class DatabaseUsers:
    """The users in the database. Weaker hashes are replaced when their users log in."""

    _log = Logger()

    def __init__(self, users: Users, logins: Logins) -> None:
        self._users = users
        self._logins = logins
        self._rehash = True
        self._renewing: set[str] = set()

    def judge(self, credentials: Credentials) -> Verdict | Deferred[Verdict]:
        """Compare User Name and Password with the stored hash. Ignores a user who is not in the database."""
        if credentials.username is None or credentials.password is None:
            return IGNORED
        user = self._users.stored(credentials.username)
        if user is None:
            return IGNORED
        weaker = self._renew if self._rehash else None
        stored = user.password_hash
        return self._logins.compare(credentials.username, credentials.password, stored, user.groups, weaker)

    def stored_like(self, number: int) -> str | None:
        """Return the hash of some user, the same for the same number and users; None if there are no users."""
        return self._users.stored_like(number)

    def _renew(self, username: str, password: bytes, stored: str) -> None:
        """Compute a better hash and store it, unless the threads are busy."""
        if username in self._renewing:
            return
        try:
            made = self._logins.new_hash(password)
        except Busy:
            return
        self._renewing.add(username)
        made.addCallback(partial(self._made, username, password, stored)).addErrback(self._not_made)
        made.addCallback(lambda _: self._renewing.discard(username))

    def _made(self, username: str, password: bytes, stored: str, new: str) -> Deferred[None]:
        done = self._users.rehash(username, stored, new)
        return done.addCallback(lambda _: self._logins.remember(username, password, new))

    def _not_made(self, failure: Failure) -> None:
        """Go on with the old hashes, and say so once."""
        self._rehash = False
        self._log.warn(
            "authentication.{name}: better hashes of passwords cannot be stored, so the present ones stay: {error}",
            name=self._logins.method, error=failure.getErrorMessage(),
        )  # fmt: skip
