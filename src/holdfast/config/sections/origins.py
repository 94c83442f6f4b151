"""Origins of web pages: ``SCHEME://HOST[:PORT]``, as browsers send them."""

from __future__ import annotations

from urllib.parse import urlsplit

from attrs import field, frozen

from holdfast.config.kinds import InvalidValue, invalid_value
from holdfast.config.toml.text import literal

#: stands for every page
ANY_ORIGIN = "*"

_PORTS = {"http": 80, "https": 443}


class NotAnOrigin(ValueError):
    """A text is no origin."""


def parse_origin(text: str) -> tuple[str, str, int]:
    """Return scheme, host and port of an origin. Raises :class:`NotAnOrigin`."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise NotAnOrigin(text) from None
    if port is None:
        port = _PORTS.get(parts.scheme)
    plain = not (parts.path or "@" in parts.netloc or "?" in text or "#" in text or "*" in text)
    if not (host and port and plain and parts.scheme and text.isascii() and text.isprintable() and " " not in text):
        raise NotAnOrigin(text)
    return parts.scheme, host, port


@frozen
class Origins:
    """The kind of options with a list of origins."""

    allowed: str = field(
        default='a list of origins such as "https://example.org" or "http://192.0.2.1:8080", without a path; "*"'
        " for all",
        init=False,
    )

    def read(self, value: object) -> tuple[str, ...]:
        """Return the origins; raises InvalidValue."""
        if not isinstance(value, list):
            raise invalid_value(value, self.allowed)
        for name in value:
            self._check(name)
        return tuple(value)

    def _check(self, name: object) -> None:
        if name == ANY_ORIGIN:
            return
        try:
            if isinstance(name, str):
                parse_origin(name)
                return
        except NotAnOrigin:
            pass
        raise InvalidValue(f"found {literal(name)} in the list; allowed: {self.allowed}")
