"""URLs of databases: read, and shown without what is secret in them."""

from __future__ import annotations

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from holdfast.storage.database import StoreUnusable

FORMS = "write sqlite:////absolute/path or postgresql+psycopg://user@host/database"
#: Parameters of Postgres that are secrets.
_SECRETS = ("password", "sslpassword")


def parsed(url: str) -> URL:
    """Read a URL. Raises :class:`StoreUnusable`, without showing what may hold a password."""
    try:
        return make_url(url)
    except (ArgumentError, ValueError):  # the text of either may show what stands where the password is
        raise StoreUnusable(f"this is not a database URL; {FORMS}; in a password, write %40 for @") from None


def shown(url: str | URL) -> str:
    """Return a URL as it may be shown: without its password, wherever that stands. Raises :class:`StoreUnusable`."""
    found = parsed(url) if isinstance(url, str) else url
    return found.difference_update_query(_SECRETS).render_as_string(hide_password=True)
