"""The kind of options with the URL of a server that the broker asks."""

from __future__ import annotations

import re
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from attrs import field, frozen

from holdfast.config.kinds import InvalidValue, Text

_PRINTABLE = re.compile(r"[\x21-\x7e]+")


@frozen
class ServerURL:
    """A URL of http or https without a user and without templates, or an empty string."""

    allowed: str = field(default="https://HOST/PATH, http://HOST/PATH or an empty string", init=False)

    def read(self, value: object) -> str:
        """Return the URL; raises InvalidValue, whose text never shows a part that may have a password."""
        url = Text(allowed=self.allowed).read(value)
        if not url:
            return url
        try:
            parts = urlsplit(url)
            parts.port  # noqa: B018 - reading it checks it
        except ValueError:
            raise InvalidValue(f"found a URL whose host or port cannot be read; allowed: {self.allowed}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidValue(f"found no URL of https or http with a host; allowed: {self.allowed}")
        if parts.username is not None or parts.password is not None:
            raise InvalidValue(
                "found a user or a password before the host; name the place of a secret in secret_headers"
            )
        if parts.fragment or _PRINTABLE.fullmatch(url) is None:
            raise InvalidValue(f"found a # or a character that has to be escaped as %XX; allowed: {self.allowed}")
        if "{" in url or "}" in url or "%u" in url or "%c" in url:
            raise InvalidValue("found a place for a client's name in the URL; such names stand in the body only")
        return url


def is_plain_beyond_loopback(url: str) -> bool:
    """Tell whether others on the network could read and change what is exchanged with this server."""
    parts = urlsplit(url)
    return parts.scheme == "http" and not _is_loopback(parts)


def _is_loopback(parts: SplitResult) -> bool:
    host = parts.hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
