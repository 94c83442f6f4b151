"""``[listeners.NAME]``: where clients connect."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches

from attrs import frozen

from holdfast.config.fields import Section, option
from holdfast.config.kinds import Choice, Flag, Text
from holdfast.config.reader import Complaint
from holdfast.config.sections.endpoints import EndpointString, parse_endpoint
from holdfast.config.toml.text import dotted, literal


@frozen
class ListenerConfig(Section):
    """One place where clients connect, and on what terms."""

    endpoint: str = option(
        EndpointString(),
        "tcp:1883:interface=127.0.0.1",
        help="Twisted server endpoint string to listen on. A colon inside a value is written with a"
        " backslash, which TOML leaves alone between single quotes: 'tcp:1883:interface=\\:\\:1'. With haproxy: in"
        " front of another endpoint, connections begin with the PROXY protocol.",
        effect="Clients connect elsewhere. Without interface=, tcp: listens on every IPv4 address of this machine,"
        " which needs allow_anonymous as long as no authentication is configured.",
        example="unix:/run/holdfast/mqtt.sock:mode=660",
    )
    transport: str = option(
        Choice(("mqtt",)),
        "mqtt",
        help="What is spoken on a Network Connection: mqtt is MQTT on a plain byte stream.",
        effect="There is no other value in this version.",
        example=None,
    )
    zone: str = option(
        Text(allowed="the name of a zone, or an empty string for none"),
        "",
        help="Zone whose options apply to the clients of this listener; empty for none.",
        effect="What [zones.NAME.mqtt] and [zones.NAME.force_shutdown] give goes before the general options.",
        example="sensors",
    )
    allow_anonymous: bool = option(
        Flag(),
        False,
        help="Admit clients without authentication: where authentication is configured, those that name no"
        " Authentication Method; where none is, all clients, although they may connect from other machines. A listener"
        " that only this machine can reach admits them anyway while no authentication is configured.",
        effect="true: anyone who can reach the endpoint can publish, subscribe and clear retained messages.",
        example=True,
    )

    @property
    def is_loopback(self) -> bool:
        """Whether the endpoint can be reached from this machine only.

        True for ``unix:`` and for ``tcp:`` with a loopback interface, False for ``systemd:``, whose socket is not
        known, and for every other ``tcp:``. ``haproxy:`` is judged by the endpoint it wraps.
        """
        return parse_endpoint(self.endpoint).is_loopback

    @property
    def takes_free_port(self) -> bool:
        """Whether the system chooses the port."""
        return parse_endpoint(self.endpoint).takes_free_port


#: What listens when no listener is configured.
DEFAULT_LISTENERS: Mapping[str, ListenerConfig] = {"default": ListenerConfig()}


def unknown_zones(listeners: Mapping[str, ListenerConfig], zones: Collection[str]) -> Iterator[Complaint]:
    """Yield a complaint for each listener whose zone does not exist."""
    for name, listener in listeners.items():
        if listener.zone and listener.zone not in zones:
            near = get_close_matches(listener.zone, zones, n=1)
            advice = f"did you mean {literal(near[0])}?" if near else _zones_in_words(zones)
            path = ("listeners", name, "zone")
            yield Complaint(path, f"no zone is named {literal(listener.zone)}; {advice}", needs=(path,))


def shared_endpoints(listeners: Mapping[str, ListenerConfig]) -> Iterator[Complaint]:
    """Yield a complaint for each listener whose endpoint an earlier one has; port 0 is another port each time."""
    first: dict[str, str] = {}
    for name, listener in listeners.items():
        if listener.takes_free_port:
            continue
        earlier = first.setdefault(listener.endpoint, name)
        if earlier != name:
            message = f"{dotted(['listeners', earlier])} listens on {literal(listener.endpoint)} already"
            path = ("listeners", name, "endpoint")
            yield Complaint(path, message, needs=(path, ("listeners", earlier, "endpoint")))


def exposed(listeners: Mapping[str, ListenerConfig]) -> Iterator[Complaint]:
    """Yield a complaint for each listener open to other machines to which nobody has said that this is meant.

    Of interest only where no authentication is configured.
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
            yield Complaint(path, message, needs)


def _zones_in_words(zones: Collection[str]) -> str:
    if not zones:
        return "there are no zones"
    return f"zones: {', '.join(sorted(map(literal, zones)))}"
