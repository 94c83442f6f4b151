"""URLs of databases: parsing them, and showing them without their secrets."""

from __future__ import annotations

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from holdfast.storage.errors import StoreUnusable

FORMS = "write sqlite:////absolute/path or postgresql+psycopg://user@host/database"
#: Parameters of Postgres that are secrets.
_SECRETS = ("password", "sslpassword")


def parsed(url: str) -> URL:
    """Parse a URL. Raises :class:`StoreUnusable`; the message does not show the URL, which may contain a password."""
    try:
        return make_url(url)
    except (ArgumentError, ValueError):  # their texts may show the password
        raise StoreUnusable(f"this is not a database URL; {FORMS}; in a password, write %40 for @") from None


def shown(url: str | URL) -> str:
    """Return a URL without its password, also without one in a parameter. Raises :class:`StoreUnusable`."""
    found = parsed(url) if isinstance(url, str) else url
    return found.difference_update_query(_SECRETS).render_as_string(hide_password=True)
