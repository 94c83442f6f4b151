"""Endpoints, origins of web pages and lists of proxies, as the configuration has them. Only the text is checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

from attrs import field, frozen

from holdfast.config.options import InvalidValue, Text, invalid_value
from holdfast.config.toml import literal

_ALLOWED = "a Twisted server endpoint that begins with tcp:, unix:, systemd: or haproxy:"

_PARTS = re.compile(r"(?:(?:[^:\\]|\\.)*+:)++")
_PART = re.compile(r"((?:[^:\\]|\\.)*+):")
_NAMED = re.compile(r"((?:[^=\\]|\\.)*+)=(.*)")
_ESCAPE = re.compile(r"\\(.)")

#: the mode of a UNIX domain socket whose endpoint names none: clients are the owner and the group
UNIX_MODE = "660"

#: The parameters of each type: first the parameters without a name, in their order, then the named parameters.
_PARAMETERS = {
    "tcp": (("port", "interface"), ("backlog",)),
    "unix": (("address",), ("mode", "backlog", "lockfile")),
    "systemd": (("domain", "index"), ("name",)),
}


@frozen
class ServerEndpoint:
    """A parsed endpoint string: its type, the parameters by name, and whether the PROXY protocol wraps it."""

    type: str
    parameters: Mapping[str, str]
    proxied: bool = False

    @property
    def is_loopback(self) -> bool:
        """Whether its clients are on this machine: a loopback interface, or a socket in the file system.

        Never with the PROXY protocol: the proxy is on this machine, but its clients can be anywhere.
        """
        if self.proxied:
            return False
        if self.type == "unix":
            return True
        interface = self.parameters.get("interface", "")
        if interface == "localhost":
            return True
        try:
            return ip_address(interface).is_loopback
        except ValueError:  # another host name, or none: every interface
            return False

    def unproxied(self, backlog: int) -> str:
        """Return the endpoint string without ``haproxy:``, and with this backlog and mode unless it names them."""
        parameters = dict(self.parameters)
        if self.type == "unix":
            parameters.setdefault("mode", UNIX_MODE)
        if "backlog" in _PARAMETERS[self.type][1]:
            parameters.setdefault("backlog", str(backlog))
        return ":".join([self.type, *(f"{name}={_escaped(value)}" for name, value in parameters.items())])

    @property
    def takes_free_port(self) -> bool:
        """Whether the system chooses the port: port 0 of ``tcp:``."""
        return self.type == "tcp" and int(self.parameters["port"]) == 0


@frozen
class EndpointString:
    """The kind of options with a server endpoint string."""

    allowed: str = _ALLOWED

    def read(self, value: object) -> str:
        """Return the string; raises InvalidValue."""
        text = Text(allowed=self.allowed, empty=False).read(value)
        parse_endpoint(text)
        return text


def parse_endpoint(text: str) -> ServerEndpoint:
    """Parse an endpoint string. Raises InvalidValue."""
    positional, named = _split(text)
    if not positional:
        raise InvalidValue(f"found {literal(text)}; allowed: {_ALLOWED}")
    kind, *positional = positional
    proxied = kind == "haproxy"
    if proxied:
        if not positional:
            raise InvalidValue(f"found {literal(text)}; haproxy: needs the endpoint it wraps, as in haproxy:tcp:1883")
        kind, *positional = positional
    if kind not in _PARAMETERS:
        raise InvalidValue(f"found {literal(text)}; allowed: {_ALLOWED}")
    by_position, by_name = _PARAMETERS[kind]
    if len(positional) > len(by_position):
        raise InvalidValue(
            f"found {literal(text)}; {kind}: has at most {len(by_position)} parameters without a name"
            " (a colon inside a value is written \\:)"
        )
    parameters = dict(zip(by_position, positional, strict=False))
    for name, value in named:
        if name not in by_position and name not in by_name:
            known = ", ".join([*by_position, *by_name])
            raise InvalidValue(f"found {literal(text)}; {kind}: has no parameter {literal(name)}, but {known}")
        if name in parameters:
            raise InvalidValue(f"found {literal(text)}; the parameter {name} is given twice")
        parameters[name] = value
    _check(text, kind, parameters)
    return ServerEndpoint(kind, parameters, proxied)


def _check(text: str, kind: str, parameters: Mapping[str, str]) -> None:
    match kind:
        case "tcp":
            port = parameters.get("port", "")
            if not (_is_number(port) and int(port) <= 65535):
                raise InvalidValue(f"found {literal(text)}; tcp: needs a port from 0 to 65535, as in tcp:1883")
        case "unix":
            if not parameters.get("address"):
                raise InvalidValue(f"found {literal(text)}; unix: needs a path, as in unix:/run/holdfast.sock")
            mode = parameters.get("mode", UNIX_MODE)
            if not _is_number(mode) or set(mode) & set("89"):
                raise InvalidValue(f"found {literal(text)}; mode is octal, as in unix:/run/holdfast.sock:mode=660")
        case _:
            if not parameters.get("domain") or ("index" in parameters) == ("name" in parameters):
                raise InvalidValue(
                    f"found {literal(text)}; systemd: needs domain and either index or name,"
                    " as in systemd:domain=INET:name=mqtt"
                )
            if not _is_number(parameters.get("index", "0")):
                raise InvalidValue(f"found {literal(text)}; index is an integer of 0 or more")
    if not _is_number(parameters.get("backlog", "50")):
        raise InvalidValue(f"found {literal(text)}; backlog is an integer of 0 or more")


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(":", "\\:")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9


def _split(text: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Cut at colons, and each part at its first equals sign. A backslash escapes the next character."""
    terminated = f"{text}:"
    if _PARTS.fullmatch(terminated) is None:
        raise InvalidValue(f"found {literal(text)}; the backslash at its end escapes nothing")
    positional, named = [], []
    for part in _PART.findall(terminated):
        match = _NAMED.fullmatch(part)
        if match is None:
            positional.append(_ESCAPE.sub(r"\1", part))
        else:
            named.append((_ESCAPE.sub(r"\1", match[1]), _ESCAPE.sub(r"\1", match[2])))
    return positional, named


# Origins of web pages: ``SCHEME://HOST[:PORT]``, as browsers send them.


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


# Lists of proxies whose word about their clients is believed.


#: stands for the peers of UNIX domain sockets among proxies
UNIX_PEERS = "unix"


@frozen
class Proxies:
    """The kind of options with a list of proxies, which may be ``empty``."""

    empty: bool = False

    @property
    def allowed(self) -> str:
        """The names in words."""
        number = "" if self.empty else "one or more "
        return (
            f'a list of {number}IP addresses, networks such as "10.0.0.0/8", and "unix" for the peers'
            " of UNIX domain sockets"
        )

    def read(self, value: object) -> tuple[str, ...]:
        """Return the names; raises InvalidValue."""
        if not isinstance(value, list) or not (value or self.empty):
            raise invalid_value(value, self.allowed)
        for name in value:
            if not isinstance(name, str):
                raise InvalidValue(f"found {literal(name)} in the list; allowed: {self.allowed}")
            if name != UNIX_PEERS:
                self._check(name)
        return tuple(value)

    def _check(self, name: str) -> None:
        try:
            ip_network(name)
        except ValueError:
            try:
                network = ip_network(name, strict=False)
            except ValueError:
                raise InvalidValue(f"found {literal(name)} in the list; allowed: {self.allowed}") from None
            raise InvalidValue(
                f"found {literal(name)} in the list, which has bits after the prefix; did you mean"
                f" {literal(str(network))}?"
            ) from None
