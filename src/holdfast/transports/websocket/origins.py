"""The web pages that may connect: the check of the Origin header.

A browser tells with each WebSocket from which page it comes, and a page cannot change this. So the list keeps pages of
strangers from using their visitors' browsers, which may be in a network that the strangers cannot reach. Clients that
are no browsers send no Origin, or any.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.config.sections.origins import ANY_ORIGIN, NotAnOrigin, parse_origin


class AllowedOrigins:
    """The origins that one listener allows: those of ``names``, or without names the host of the broker itself."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        names = tuple(names)
        self._any = ANY_ORIGIN in names
        self._named = frozenset(parse_origin(name) for name in names if name != ANY_ORIGIN)

    def allow(self, origin: str | None, host: str) -> bool:
        """Tell whether a page of this origin may connect, by a request with this Host header.

        None is a client without an Origin header: no browser.
        """
        if origin is None or self._any:
            return True
        try:
            scheme, name, port = parse_origin(origin)
            if self._named:
                return (scheme, name, port) in self._named
            # Host leaves the port out where it is the usual one of the scheme.
            return parse_origin(f"{scheme}://{host}")[1:] == (name, port)
        except NotAnOrigin:  # such as "null", the origin of files and of sandboxed pages
            return False
