"""The versions of the users and of the rules in the database: a node learns by them that another one changed something.

A transaction raises the version of what it changes before it does so. That locks the row, so changes of several nodes
come one after the other, and whoever reads a version and then the rows has at least the changes up to this version.
"""

from __future__ import annotations

from attrs import frozen

from holdfast.storage.driver import Connection, Cursor

_READ = "SELECT users_version, rules_version FROM access_state WHERE id = 1"
_RAISE_USERS = "UPDATE access_state SET users_version = users_version + 1 WHERE id = 1 RETURNING users_version"

#: the version of rules that were lost with a damaged file
LOST = -1


@frozen
class Versions:
    """The versions of the users and of the rules."""

    users: int
    rules: int


def read_versions(connection: Connection) -> Versions:
    """Return the present versions."""
    cursor = connection.cursor()
    cursor.execute(_READ)
    return Versions(*cursor.fetchall()[0])


def raise_users_version(cursor: Cursor) -> int:
    """Return a new version of the users."""
    cursor.execute(_RAISE_USERS)
    ((version,),) = cursor.fetchall()
    return int(version)
