"""URLs of databases: parsing them, and showing them without their secrets.

The URL of an SQLite file without parameters needs no SQLAlchemy, so neither does a start with such a file.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from holdfast.storage.errors import StoreUnusable

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

FORMS = "write sqlite:////absolute/path or postgresql+psycopg://user@host/database"
_FILE = "sqlite:///"
#: Parameters of Postgres that are secrets.
_SECRETS = ("password", "sslpassword")


def file_of(url: str) -> str | None:
    """Return the path of an SQLite file, None if this is not the URL of a file with an absolute path alone."""
    path = unquote(url.removeprefix(_FILE))
    return path if url.startswith(_FILE) and "?" not in url and os.path.isabs(path) else None


def parsed(url: str) -> URL:
    """Parse a URL. Raises :class:`StoreUnusable`; the message does not show the URL, which may contain a password."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        return make_url(url)
    except (ArgumentError, ValueError):  # their texts may show the password
        raise StoreUnusable(f"this is not a database URL; {FORMS}; in a password, write %40 for @") from None


def shown(url: str | URL) -> str:
    """Return a URL without its password, also without one in a parameter. Raises :class:`StoreUnusable`."""
    if isinstance(url, str):
        path = file_of(url)
        if path is not None:
            return _FILE + quote(path, safe=" +/")
        url = parsed(url)
    return url.difference_update_query(_SECRETS).render_as_string(hide_password=True)
