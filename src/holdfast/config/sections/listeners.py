"""``[listeners.NAME]``: the endpoints for clients."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches

from attrs import frozen

from holdfast.config.fields import Section, option
from holdfast.config.kinds import Choice, Flag, Text
from holdfast.config.reader import KeyProblem
from holdfast.config.sections.endpoints import EndpointString, parse_endpoint
from holdfast.config.toml.text import dotted, literal


@frozen
class ListenerConfig(Section):
    """One endpoint for clients, and its options."""

    endpoint: str = option(
        EndpointString(),
        "tcp:1883:interface=127.0.0.1",
        help="Twisted server endpoint string to listen on. A colon inside a value needs a backslash; TOML keeps"
        " backslashes between single quotes: 'tcp:1883:interface=\\:\\:1'. With haproxy: in front of another"
        " endpoint, connections begin with the PROXY protocol.",
        effect="Clients connect to another address. Without interface=, tcp: listens on every IPv4 address of this"
        " machine; this needs authentication or allow_anonymous.",
        example="unix:/run/holdfast/mqtt.sock:mode=660",
    )
    transport: str = option(
        Choice(("mqtt",)),
        "mqtt",
        help="Protocol of the Network Connections: mqtt is MQTT on a plain byte stream.",
        effect="This version has no other value.",
        example=None,
    )
    zone: str = option(
        Text(allowed="the name of a zone, or an empty string for none"),
        "",
        help="Zone whose options apply to the clients of this listener; empty for none.",
        effect="The options of [zones.NAME.mqtt] and the like override the general ones.",
        example="sensors",
    )
    allow_anonymous: bool = option(
        Flag(),
        False,
        help="Admit clients without authentication. If authentication is configured: clients that name no"
        " Authentication Method. If it is not: all clients, also from other machines. Then a listener that only this"
        " machine can reach needs no permission.",
        effect="true: everyone who can reach the endpoint can publish, subscribe and clear retained messages.",
        example=True,
    )

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the endpoint.

        True for ``unix:`` and for ``tcp:`` with a loopback interface. False for every other ``tcp:``, and for
        ``systemd:``, because its socket is unknown. For ``haproxy:``, the wrapped endpoint counts.
        """
        return parse_endpoint(self.endpoint).is_loopback

    @property
    def takes_free_port(self) -> bool:
        """Whether the system chooses the port."""
        return parse_endpoint(self.endpoint).takes_free_port


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
            message = (
                f"listener {name} listens beyond this machine ({literal(listener.endpoint)}) and no authentication is"
                f" configured; set authentication.scram_file, or {dotted(['listeners', name, 'allow_anonymous'])} ="
                " true, or bind 127.0.0.1 (tcp:PORT:interface=127.0.0.1)"
            )
            path = ("listeners", name, "endpoint")
            needs = (path, ("listeners", name, "allow_anonymous"), ("authentication", "scram_file"))
            yield KeyProblem(path, message, needs)


def _zones_in_words(zones: Collection[str]) -> str:
    if not zones:
        return "there are no zones"
    return f"zones: {', '.join(sorted(map(literal, zones)))}"
