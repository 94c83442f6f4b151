"""Hosts and origins in headers: read strictly, since lenient parsers disagree about malformed ones.

``evil@localhost`` has the host ``localhost`` for a parser of URLs, and is no value of the header Host at all.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,255})(?::([0-9]{0,5}))?")
_MOST_PORT = 65_535
_PORTS = {"http": 80, "https": 443}


def host_and_port(text: str | None) -> tuple[str, int | None] | None:
    """Return the host in lower case, without brackets, and the port, None if it has none. None for anything else."""
    found = _HOST.fullmatch(text or "")
    if found is None:
        return None
    name, digits = found[1].lower().strip("[]"), found[2]
    port = int(digits) if digits else None
    if port is not None and not 0 < port <= _MOST_PORT:
        return None
    if found[1].startswith("["):
        try:
            IPv6Address(name)
        except ValueError:
            return None
    return name, port


def place_of(origin: str) -> tuple[str, str, int] | None:
    """Return scheme, host and port of an origin; None if it is none, as ``null`` is."""
    scheme, found, rest = origin.partition("://")
    place = host_and_port(rest) if found and scheme in _PORTS else None
    return None if place is None else (scheme, place[0], place[1] or _PORTS[scheme])
