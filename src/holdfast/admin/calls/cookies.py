"""The name of the cookie of a dashboard's session.

Browsers send the cookies of a host to all its ports. So the name has the port that the browser sees: two brokers on one
host do not log each other's operators out. Over TLS, the name begins with ``__Host-``: then browsers take the cookie
from this host only, and only over TLS.
"""

from __future__ import annotations

from holdfast.admin.calls.hosts import host_and_port

_SECURE = "__Host-"


def cookie_name(host: str | None, *, secure: bool) -> str:
    """Return the name for a browser that has asked for this Host."""
    place = host_and_port(host)
    port = "" if place is None or place[1] is None else f"-{place[1]}"
    return f"{_SECURE if secure else ''}holdfast{port}"


def cookie_names(host: str | None, *, secure: bool) -> tuple[str, ...]:
    """Return the names under which a cookie counts. Without TLS, a proxy may have TLS: so both names count."""
    names = (cookie_name(host, secure=True), cookie_name(host, secure=False))
    return names[:1] if secure else names
