"""``[listeners.NAME]``: the endpoints for clients."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import ClassVar

from attrs import field, frozen

from holdfast.config.options import (
    Choice,
    Flag,
    Integer,
    InvalidValue,
    Rate,
    Section,
    TakesEffect,
    Text,
    invalid_value,
    option,
    table,
)
from holdfast.config.reader import KeyProblem
from holdfast.config.sections.endpoints import (
    UNIX_PEERS,
    EndpointString,
    Origins,
    Proxies,
    ServerEndpoint,
    parse_endpoint,
)
from holdfast.config.sections.tls import TLSConfig
from holdfast.config.toml import dotted, literal
from holdfast.core import units

#: the value of ``transport`` for MQTT over WebSocket
WEBSOCKET = "websocket"

_PATH = re.compile(r"/[A-Za-z0-9/._~%-]*")

_INFINITY: dict[str, int | None] = {"infinity": None}


@frozen
class MethodNames:
    """The kind of options with a list of authentication methods, or all of them (None)."""

    words: ClassVar[Mapping[str, None]] = {"all": None}
    allowed: str = field(default='"all", or a list of names of tables [authentication.NAME]', init=False)

    def read(self, value: object) -> tuple[str, ...] | None:
        """Return the names; raises InvalidValue."""
        if value == "all":
            return None
        if not isinstance(value, list):
            raise invalid_value(value, self.allowed)
        for name in value:
            if not isinstance(name, str):
                raise InvalidValue(f"found {literal(name)} in the list; allowed: {self.allowed}")
            if value.count(name) > 1:
                raise InvalidValue(f"found {literal(name)} twice in the list; allowed: each name once")
        return tuple(value)


@frozen
class PathText:
    """The kind of the option with the path of a WebSocket."""

    allowed: str = field(
        default='a path that begins with "/", of letters, digits and the characters / . _ ~ - %; "" for any path',
        init=False,
    )

    def read(self, value: object) -> str:
        """Return the path, "" for any; raises InvalidValue."""
        if not isinstance(value, str) or (value and not _PATH.fullmatch(value)):
            raise invalid_value(value, self.allowed)
        return value


@frozen
class ListenerConfig(Section):
    """One endpoint for clients, and its options."""

    applies: ClassVar[TakesEffect] = TakesEffect.CONNECTING

    endpoint: str = option(
        EndpointString(),
        "tcp:1883:interface=127.0.0.1",
        help="Twisted server endpoint string to listen on. A colon inside a value needs a backslash; TOML keeps"
        " backslashes between single quotes: 'tcp:1883:interface=\\:\\:1'. With haproxy: in front of another"
        " endpoint, connections begin with the PROXY protocol, version 1 or 2. The backlog is 4096, unless the endpoint"
        " of tcp: or unix: names another (backlog=). The mode of a socket of unix: is 660, unless it names another"
        " (mode=).",
        effect="Clients connect to another address. Without interface=, tcp: listens on every IPv4 address of this"
        " machine; this needs authentication or allow_anonymous, and so does haproxy:, whatever it wraps.",
        example="unix:/run/holdfast/mqtt.sock:mode=600",
        applies=TakesEffect.RESTART,
    )
    transport: str = option(
        Choice(("mqtt", WEBSOCKET)),
        "mqtt",
        help="Protocol of the Network Connections: mqtt is MQTT on a plain byte stream; websocket is MQTT in"
        " WebSockets, for web pages, and for networks that only let HTTP pass.",
        effect="websocket: clients connect with ws://HOST:PORT, or wss:// with TLS, and plain MQTT is refused.",
        example=WEBSOCKET,
    )
    path: str = option(
        PathText(),
        "",
        help='Only path of the WebSocket, with transport = "websocket"; empty for any path: some clients use /, others'
        " /mqtt or /ws. A query after it is ignored.",
        effect="Requests for other paths are refused (HTTP 404).",
        example="/mqtt",
    )
    origins: tuple[str, ...] = option(
        Origins(),
        [],
        help='Origins of the web pages that may connect, with transport = "websocket". Empty: pages whose host and port'
        " are those of the broker, as in https://example.org and wss://example.org/mqtt. Clients that are no browsers"
        " are not concerned.",
        effect='Browsers on pages of other origins are refused (HTTP 403). "*": every web page that a browser opens can'
        " connect as if it were the browser's user, from the network of this user.",
        example=["https://example.org", "http://192.0.2.1:8080"],
    )
    zone: str = option(
        Text(allowed="the name of a zone, or an empty string for none"),
        "",
        help="Zone whose options apply to the clients of this listener; empty for none.",
        effect="The options of [zones.NAME.mqtt] and the like override the general ones.",
        example="sensors",
    )
    authentication: tuple[str, ...] | None = option(
        MethodNames(),
        "all",
        help="Tables [authentication.NAME] with the methods by which clients of this listener prove their identity, in"
        " the order in which they are asked. The first one that accepts or denies the client decides. all = all of"
        " them, in the order of this file.",
        effect="The clients of this listener can use these methods only, and authentication.scram_file. With an empty"
        " list and allow_anonymous = true, all clients that name no Authentication Method are guests: nobody judges a"
        " User Name or a Password, and neither counts.",
        example=["passwords"],
        applies=TakesEffect.AT_ONCE,
    )
    allow_anonymous: bool = option(
        Flag(),
        False,
        help="Admit clients without authentication. If authentication is configured: clients that give neither a User"
        " Name nor a Password and name no Authentication Method. On a listener without a method for them, nobody judges"
        " User Name and Password: all clients that name no Authentication Method are guests, without a user name. If"
        " authentication is not configured: all clients, also from other machines. Then a listener that only this"
        " machine can reach needs no permission.",
        effect="true: everyone who can reach the endpoint can publish, subscribe and clear retained messages.",
        example=True,
        applies=TakesEffect.AT_ONCE,
    )
    allow_plaintext: bool = option(
        Flag(),
        False,
        help="Take passwords without TLS from other machines. Needed for a listener beyond this machine that has no tls"
        " table, where authentication is configured. A listener with haproxy: counts as beyond this machine: if its"
        " proxy ends TLS, say so with allow_plaintext = true. SCRAM and client certificates need no permission.",
        effect="true: everyone on the way between a client and the broker, or its proxy, can read the passwords and the"
        " messages.",
        example=True,
    )
    trusted_proxies: tuple[str, ...] = option(
        Proxies(),
        ["127.0.0.0/8", "::1", UNIX_PEERS],
        help="Proxies whose PROXY protocol is believed, for an endpoint with haproxy:. The broker closes connections of"
        " others before it reads a byte. The default is this machine.",
        effect="A proxy on another machine can forward clients. It can give them any address.",
        example=["10.0.0.5", "2001:db8::/64"],
    )
    max_connections: int | None = option(
        Integer(1, words=_INFINITY, unit="connections"),
        "infinity",
        help="Most open connections of this listener.",
        effect="Further connections are closed at once.",
        example=10000,
    )
    max_connections_per_address: int | None = option(
        Integer(1, words=_INFINITY, unit="connections"),
        "infinity",
        help="Most open connections of one address. All IPv6 addresses of a /64 count as one. Behind haproxy: the"
        " address is the one that the proxy tells. Loopback addresses and UNIX domain sockets have no limit, unless"
        " they are behind haproxy:.",
        effect="Further connections are closed at once. Clients behind one NAT share one address.",
        example=100,
    )
    max_conn_rate: units.Rate | None = option(
        Rate(),
        "infinity",
        help="Most new connections of this listener in a time.",
        effect="Further connections are closed at once. Lower: many clients that return together, as after a restart of"
        " the broker, need more time.",
        example="500/s",
    )
    max_conn_rate_per_address: units.Rate | None = option(
        Rate(),
        "infinity",
        help="Most new connections of one address in a time; addresses as for max_connections_per_address.",
        effect="Further connections are closed at once. Clients behind one NAT share one address.",
        example="10/s",
    )
    max_half_open_per_address: int | None = option(
        Integer(1, words=_INFINITY, unit="connections"),
        256,
        help="Most open connections of one address whose CONNECT is not accepted yet; addresses as for"
        " max_connections_per_address.",
        effect="Further connections are closed at once. Higher: more clients behind one NAT, or behind a proxy without"
        " the PROXY protocol, can connect at the same moment; and so can a stranger.",
        example=1000,
    )

    tls: TLSConfig | None = field(
        default=None,
        metadata=table(
            TLSConfig,
            "TLS for the clients of a listener; without this table it has none. It may also be a key of the listener:"
            ' tls = { certificate = "fullchain.pem", key = "privkey.pem" }. With haproxy:, the header of the proxy'
            " comes first, then TLS.",
        ),
    )

    def problems(self, given: Mapping[str, object]) -> Iterable[tuple[str, str, Collection[str]]]:
        """Return the problems of options that need another endpoint or transport."""
        named = "trusted_proxies" in given and self.trusted_proxies != ListenerConfig().trusted_proxies
        if named and not self.server_endpoint.proxied:
            message = (
                "has no effect: the endpoint does not begin with haproxy:, so clients connect to it directly; write"
                f" {literal('haproxy:' + self.endpoint)}, or remove trusted_proxies"
            )
            yield "trusted_proxies", message, ("trusted_proxies", "endpoint")
        if self.transport != WEBSOCKET:
            for name in ("path", "origins"):
                if name in given and getattr(self, name) != getattr(ListenerConfig(), name):
                    message = (
                        f'has no effect: transport is not websocket; write transport = "websocket", or remove {name}'
                    )
                    yield name, message, (name, "transport")

    @property
    def server_endpoint(self) -> ServerEndpoint:
        """The parsed endpoint."""
        return parse_endpoint(self.endpoint)

    @property
    def is_loopback(self) -> bool:
        """Whether all clients of the endpoint are on this machine.

        True for ``unix:`` and for ``tcp:`` with a loopback interface. False for every other ``tcp:``, for ``systemd:``,
        because its socket is unknown, and for ``haproxy:``, because the clients of the proxy are unknown.
        """
        return self.server_endpoint.is_loopback

    @property
    def takes_free_port(self) -> bool:
        """Whether the system chooses the port."""
        return self.server_endpoint.takes_free_port


#: The listeners of a configuration without any.
DEFAULT_LISTENERS: Mapping[str, ListenerConfig] = {"default": ListenerConfig()}


def unknown_zones(listeners: Mapping[str, ListenerConfig], zones: Collection[str]) -> Iterator[KeyProblem]:
    """Yield a problem for each listener whose zone does not exist."""
    for name, listener in listeners.items():
        if listener.zone and listener.zone not in zones:
            near = get_close_matches(listener.zone, zones, n=1)
            advice = f"did you mean {literal(near[0])}?" if near else _zones_in_words(zones)
            path = ("listeners", name, "zone")
            yield KeyProblem(path, f"no zone is named {literal(listener.zone)}; {advice}", needs=(path,))


def shared_endpoints(listeners: Mapping[str, ListenerConfig]) -> Iterator[KeyProblem]:
    """Yield a problem for each listener with the endpoint of an earlier one. Port 0 is a different port each time."""
    first: dict[str, str] = {}
    for name, listener in listeners.items():
        if listener.takes_free_port:
            continue
        earlier = first.setdefault(listener.endpoint, name)
        if earlier != name:
            message = f"{dotted(['listeners', earlier])} listens on {literal(listener.endpoint)} already"
            path = ("listeners", name, "endpoint")
            yield KeyProblem(path, message, needs=(path, ("listeners", earlier, "endpoint")))


def exposed(listeners: Mapping[str, ListenerConfig]) -> Iterator[KeyProblem]:
    """Yield a problem for each listener that is open to other machines without ``allow_anonymous``.

    The caller asks only if no authentication is configured.
    """
    for name, listener in listeners.items():
        if not (listener.allow_anonymous or listener.is_loopback):
            proxied = listener.server_endpoint.proxied
            openness = "takes clients of a proxy, which can be anywhere" if proxied else "listens beyond this machine"
            message = (
                f"listener {name} {openness} ({literal(listener.endpoint)}) and no authentication is configured; add"
                f" a table [authentication.NAME], or set {dotted(['listeners', name, 'allow_anonymous'])} = true"
                + ("" if proxied else ", or bind 127.0.0.1 (tcp:PORT:interface=127.0.0.1)")
            )
            path = ("listeners", name, "endpoint")
            needs = (path, ("listeners", name, "allow_anonymous"))
            yield KeyProblem(path, message, needs)


def _zones_in_words(zones: Collection[str]) -> str:
    if not zones:
        return "there are no zones"
    return f"zones: {', '.join(sorted(map(literal, zones)))}"
