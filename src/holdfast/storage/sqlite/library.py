"""The SQLite library of this process, and whether it has the WAL-reset bug.

The bug (SQLite 3.7.0 to 3.51.2): while one connection moves the write-ahead log into the file, another one commits and
so lets the log begin anew. The first one may then note that pages of the *new* log are in the file already. They never
get there, and the file is damaged. Only one connection may therefore move the log and commit, unless the library is
known to be mended.

Some distributions mend an older version and keep its number. That cannot be seen from here, so such a version counts as
not mended: the cost is small (``checkpoints.py``).
"""

from __future__ import annotations

import sqlite3

#: the first mended version, and the versions of older branches to which the mend was ported
_MENDED = ((3, 51, 3), (3, 50, 7), (3, 44, 6))
_NAMES = ", ".join(".".join(map(str, version)) for version in _MENDED)


def is_mended(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> bool:
    """Tell whether this version of SQLite is known to be without the WAL-reset bug."""
    first, *ports = _MENDED
    return version >= first or any(port <= version and version[:2] == port[:2] for port in ports)


def verdict(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> str:
    """Return the version and the verdict, for the log and for ``holdfast db check``."""
    text = ".".join(map(str, version))
    if is_mended(version):
        return f"SQLite {text}: without the WAL-reset bug"
    return (
        f"SQLite {text}: may have the WAL-reset bug (mended in {_NAMES} and later), so the writer itself moves the "
        "log into the database, between commits"
    )
