"""``[admin]``: the API for operators over HTTP."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import ClassVar

from attrs import field, frozen

from holdfast.config.options import Flag, InvalidValue, Section, TakesEffect, Text, invalid_value, option, table
from holdfast.config.reader import KeyProblem
from holdfast.config.sections.endpoints import Proxies, ServerEndpoint, parse_endpoint
from holdfast.config.sections.tls import TLSConfig
from holdfast.config.toml import literal

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


@frozen
class AdminEndpoint:
    """The kind of the option with the endpoint of the API."""

    allowed: str = field(
        default='a Twisted server endpoint that begins with tcp:, unix: or systemd:, or "" for none', init=False
    )

    def read(self, value: object) -> str:
        """Return the string; raises InvalidValue."""
        if value == "":
            return ""
        text = Text(allowed=self.allowed, empty=False).read(value)
        if parse_endpoint(text).proxied:
            raise InvalidValue(f"found {literal(text)}; allowed: {self.allowed}")
        return text


@frozen
class HostNames:
    """The kind of options with a list of names of hosts."""

    allowed: str = field(default='a list of names of hosts such as "broker.example.org", without a port', init=False)

    def read(self, value: object) -> tuple[str, ...]:
        """Return the names in lower case; raises InvalidValue."""
        if not isinstance(value, list):
            raise invalid_value(value, self.allowed)
        for name in value:
            if not isinstance(name, str) or not _HOST.fullmatch(name):
                raise InvalidValue(f"found {literal(name)} in the list; allowed: {self.allowed}")
        return tuple(name.lower() for name in value)


@frozen
class AdminConfig(Section):
    """The endpoint of the API and the dashboard, and who may log in there."""

    applies: ClassVar[TakesEffect] = TakesEffect.AT_ONCE

    endpoint: str = option(
        AdminEndpoint(),
        "tcp:18083:interface=127.0.0.1",
        help="Twisted server endpoint string of the API and the dashboard; empty for none. Callers need an API key or a"
        " login. If the default endpoint is in use, the broker warns and starts without it;"
        " another endpoint that cannot be opened stops the start. The control socket for commands is always there.",
        effect="Empty: operators use the commands on this machine only. Beyond this machine it needs a tls table or"
        " allow_plaintext.",
        example="tcp:8083:interface=192.0.2.1",
        applies=TakesEffect.RESTART,
    )
    hosts: tuple[str, ...] = option(
        HostNames(),
        [],
        help="Names under which browsers and programs reach the API, beside localhost and IP addresses. A reverse proxy"
        " that passes the name on needs it, too.",
        effect="The broker refuses requests for other names (HTTP 421): otherwise a foreign web page could make a"
        " browser call this broker under the page's own name.",
        example=["broker.example.org"],
    )
    trusted_proxies: tuple[str, ...] = option(
        Proxies(empty=True),
        [],
        help="Reverse proxies that tell the addresses of their clients in X-Forwarded-For, and TLS in"
        " X-Forwarded-Proto. They must set both headers themselves. Failed logins and bans then concern the client.",
        effect="A proxy in this list can give its clients any address. Without it, all of them have the address of the"
        " proxy.",
        example=["127.0.0.1", "10.0.0.5"],
    )
    allow_plaintext: bool = option(
        Flag(),
        False,
        help="Take API keys and passwords without TLS from other machines. Needed for an endpoint beyond this machine"
        " that has no tls table.",
        effect="true: others on the network can read and use the keys.",
        example=True,
    )
    users_group: str = option(
        Text(allowed="the name of a group, or an empty string for none"),
        "",
        help="Group of the users in the database who may log in to the dashboard with their passwords. They have all"
        " permissions there. Empty: nobody.",
        effect="The password of any of these users gives all permissions on this broker.",
        example="operators",
    )
    config_writable: bool = option(
        Flag(),
        True,
        help="Whether the API shows and replaces the text of this file (GET /configs/toml, PUT /configs), for keys with"
        " the scope admin and for people at the dashboard.",
        effect="With false, this file is changed on this machine only. Options that may name files, servers or secrets"
        " are never changed by HTTP, only here or by the control socket.",
        example=False,
    )

    clients_of: str = option(
        Text(allowed="the name of a listener, or an empty string for none"),
        "",
        help="Let MQTT clients read retained messages and follow them over HTTP (GET /api/v5/retained), as if they were"
        " clients of this listener: its authentication, its zone and the rules for it hold. Empty: only operators call"
        " this API.",
        effect="Clients reach the endpoint of the API, so it needs TLS like a listener. Wrong passwords count as failed"
        " logins. At most 128 streams are open, and 16 of one user or guest address.",
        example="default",
    )

    tls: TLSConfig | None = field(
        default=None,
        metadata=table(
            TLSConfig, "TLS of the API; without this table it has none. The keys are those of a listener's tls table."
        ),
    )

    @property
    def server_endpoint(self) -> ServerEndpoint | None:
        """The parsed endpoint, None for none."""
        return parse_endpoint(self.endpoint) if self.endpoint else None

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the API."""
        endpoint = self.server_endpoint
        return endpoint is None or endpoint.is_loopback

    @property
    def is_default_endpoint(self) -> bool:
        """Whether the endpoint is the one that a configuration has that says nothing about it."""
        return self.endpoint == AdminConfig().endpoint


def unknown_client_listener(admin: AdminConfig, listeners: Collection[str]) -> Iterator[KeyProblem]:
    """Yield the problem of clients over HTTP that are those of a listener which does not exist."""
    if admin.clients_of and admin.clients_of not in listeners:
        path, names = ("admin", "clients_of"), ", ".join(map(literal, listeners))
        yield KeyProblem(path, f"no listener is named {literal(admin.clients_of)}; there are: {names}", needs=(path,))


def admin_problems(admin: AdminConfig) -> Iterator[KeyProblem]:
    """Yield the problem of an endpoint that takes keys and passwords from other machines without TLS."""
    if admin.is_loopback or admin.tls is not None or admin.allow_plaintext:
        return
    path = ("admin", "endpoint")
    message = (
        f"the API listens beyond this machine ({literal(admin.endpoint)}) without TLS, and operators send their API"
        " keys and passwords; add admin.tls, or set admin.allow_plaintext = true if the network is safe, or bind"
        " 127.0.0.1 (tcp:PORT:interface=127.0.0.1)"
    )
    yield KeyProblem(path, message, needs=(path, ("admin", "allow_plaintext"), ("admin", "tls")))
