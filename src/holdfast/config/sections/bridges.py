"""``[bridges.NAME]``: connections to other brokers, and the topics that cross them. The keys are mosquitto's words."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import ClassVar

from attrs import field, frozen

from holdfast.config.options import (
    Choice,
    Duration,
    FilePath,
    Flag,
    Integer,
    InvalidValue,
    Section,
    Size,
    TakesEffect,
    Text,
    invalid_value,
    listed_tables,
    option,
    table,
)
from holdfast.config.secrets import Secret, SecretSource
from holdfast.config.sections.retainer import FilterString
from holdfast.config.toml import literal
from holdfast.core.topics import (
    MOST_LEVELS,
    InvalidTopicFilter,
    check_topic_filter,
    has_wildcard,
    is_of_broker,
)

#: what a bridge speaks, as mosquitto names it
MQTT_3, MQTT_5 = "mqttv311", "mqttv50"
_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.%]+)\]|([^\s:/@\[\]]+))(?::([0-9]{1,5}))?")
_INFINITY: dict[str, int | None] = {"infinity": None}


@frozen
class RemoteAddress:
    """Where a remote broker is. ``port`` is None for the usual one."""

    host: str
    port: int | None

    @property
    def is_loopback(self) -> bool:
        """Whether it is on this machine."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def parse_address(text: str) -> RemoteAddress | None:
    """Return the parts of ``HOST``, ``HOST:PORT`` or ``[IPv6]:PORT``; None for anything else."""
    found = _ADDRESS.fullmatch(text)
    if found is None:
        return None
    port = None if found[3] is None else int(found[3])
    return None if port is not None and not 0 < port < 65536 else RemoteAddress(found[1] or found[2], port)


@frozen
class Addresses:
    """The kind of the option with the addresses of a remote broker."""

    allowed: str = field(
        default='a list of addresses such as "broker.example.org:1883" or "[2001:db8::7]:1883"', init=False
    )

    def read(self, value: object) -> tuple[str, ...]:
        """Return the addresses; raises InvalidValue."""
        if not isinstance(value, list):
            raise invalid_value(value, self.allowed)
        for address in value:
            if not isinstance(address, str) or parse_address(address) is None:
                raise InvalidValue(f"found {literal(address)} in the list; allowed: {self.allowed}")
            if value.count(address) > 1:
                raise InvalidValue(f"found {literal(address)} twice in the list; allowed: each address once")
        return tuple(value)


@frozen
class BridgeTopicConfig(Section):
    """Topics that cross a bridge."""

    applies: ClassVar[TakesEffect] = TakesEffect.AT_ONCE

    filter: str = option(
        FilterString(),
        "#",
        help="The Topic Filter of the messages that cross, without the prefixes.",
        effect="Other topics stay where they are, unless another table of the bridge has them.",
        example="sensors/#",
    )
    direction: str = option(
        Choice(("in", "out", "both")),
        "both",
        help="in: from the remote broker to this one; out: from this one to the remote broker; both: both ways.",
        effect="Messages cross in this direction only.",
        example="out",
    )
    qos: int = option(
        Choice((0, 1, 2)),
        1,
        help="Highest QoS of the messages that cross. With 0, nothing waits while the bridge is down.",
        effect="2: no message comes twice, also after a kill of this broker. 0: messages are lost while it is down.",
        example=2,
    )
    local_prefix: str = option(
        Text(allowed="the beginning of a topic, such as hall-3/, or an empty string"),
        "",
        help="Beginning of these topics on this broker, before the filter. It is removed from messages that go out, and"
        " put before the topics of those that come in.",
        effect="The topics of this broker begin so.",
        example="plant/hall-3/",
    )
    remote_prefix: str = option(
        Text(allowed="the beginning of a topic, such as hall-3/, or an empty string"),
        "",
        help="Beginning of these topics on the remote broker, before the filter.",
        effect="The topics of the remote broker begin so.",
        example="hall-3/",
    )
    retain: str = option(
        Choice(("keep", "set", "clear")),
        "keep",
        help="The flag RETAIN of messages that cross. keep: as it is; set: always 1; clear: always 0.",
        effect="set: the other side keeps the last message of each topic. clear: it keeps none.",
        example="clear",
    )

    @property
    def local_filter(self) -> str:
        """The Topic Filter on this broker."""
        return self.local_prefix + self.filter

    @property
    def remote_filter(self) -> str:
        """The Topic Filter on the remote broker."""
        return self.remote_prefix + self.filter

    def problems(self, given: Mapping[str, object]) -> Iterable[tuple[str, str, Collection[str]]]:
        """Return the problems of filters and prefixes that do not fit."""
        for key, prefix in (("local_prefix", self.local_prefix), ("remote_prefix", self.remote_prefix)):
            if has_wildcard(prefix):
                yield key, "has a wildcard (+ or #); a prefix is the beginning of a Topic Name", (key,)
            elif prefix and _wrong(prefix + self.filter):
                message = f"with the filter this is {literal(prefix + self.filter)}: {_wrong(prefix + self.filter)}"
                yield key, f"{message}; a prefix usually ends with /", (key, "filter")
        if self.direction != "in" and is_of_broker(self.local_filter):
            yield "filter", "names this broker's own topics, which stay here", ("filter", "local_prefix", "direction")
        elif self.direction != "out" and is_of_broker(self.local_filter):
            message = "would bring messages into this broker's own topics; set local_prefix, such as remote/"
            yield "filter", message, ("filter", "local_prefix", "direction")


def _wrong(topic_filter: str) -> str:
    """Return why a string is no Topic Filter; an empty string if it is one."""
    try:
        check_topic_filter(topic_filter, MOST_LEVELS)
    except InvalidTopicFilter as error:
        return str(error)
    return ""


@frozen
class BridgeTLSConfig(Section):
    """TLS to the remote broker."""

    applies: ClassVar[TakesEffect] = TakesEffect.AT_ONCE

    ca: str = option(
        FilePath(),
        "",
        help="File with the certification authorities (PEM) that are trusted. Empty = those of the system.",
        effect="The remote broker needs a certificate of one of them, for the host in addresses.",
        example="/etc/holdfast/remote-ca.pem",
    )
    certificate: str = option(
        FilePath(),
        "",
        help="File with the certificate (PEM) that this broker shows to the remote one. Empty = none.",
        effect="The remote broker can tell from it who connects.",
        example="/etc/holdfast/bridge.pem",
    )
    key: str = option(
        FilePath(),
        "",
        help="File with the private key of the certificate in PEM form; empty if the certificate's file has it.",
        effect="Only the owner of the file needs to read it: chmod 600.",
        example="/etc/holdfast/bridge-key.pem",
    )

    def problems(self, given: Mapping[str, object]) -> Iterable[tuple[str, str, Collection[str]]]:
        """Return the problem of a key without a certificate."""
        if self.key and not self.certificate:
            yield "key", "has no effect without certificate, the file of the certificate", ("key", "certificate")


@frozen
class BridgeConfig(Section):
    """A bridge to another broker."""

    applies: ClassVar[TakesEffect] = TakesEffect.AT_ONCE

    addresses: tuple[str, ...] = option(
        Addresses(),
        [],
        help="Addresses of the remote broker. The port is 1883, and 8883 with TLS, if none is named. Of several, the"
        " first one that answers is used; all are tried again after each loss of the connection, in this order. A"
        " bridge needs this key.",
        effect="The bridge connects there. What another address had stored for the bridge is discarded there.",
        example=["broker.example.org:1883", "192.0.2.7"],
    )
    protocol_version: str = option(
        Choice((MQTT_3, MQTT_5)),
        MQTT_5,
        help="MQTT version of the bridge: mqttv50 is MQTT 5.0, mqttv311 is MQTT 3.1.1.",
        effect="mqttv311 carries no properties, such as the expiry of messages. About echoes see try_private.",
        example=MQTT_3,
    )
    try_private: bool = option(
        Flag(),
        True,
        help="With mqttv311: tell the remote broker that this is a bridge, as mosquitto does. Brokers that know it send"
        " nothing back that came from here, and keep the flag RETAIN. Others refuse it; then the bridge connects"
        " without it.",
        effect='false: with direction = "both", a remote broker sends the messages of this one back.',
        example=False,
    )
    clientid: str = option(
        Text(),
        "",
        help="Client Identifier at the remote broker. Empty = the name of this host, a dot, and the name of the bridge."
        " It also marks the messages of this bridge in MQTT 5, so that they do not go round in circles.",
        effect="Two brokers with the same one would take the connection from each other.",
        example="hall-3.cloud",
    )
    username: str = option(
        Text(),
        "",
        help="User Name at the remote broker; empty for none.",
        effect="The remote broker's permissions of this user hold for the bridge.",
        example="hall-3",
    )
    password: Secret | None = option(
        SecretSource(),
        "",
        help="Place of the password at the remote broker.",
        effect="It is read at the start and at each reload, and never shown.",
        example="file:/etc/holdfast/bridge-password",
    )
    allow_plaintext: bool = option(
        Flag(),
        False,
        help="Send the password without TLS to another machine.",
        effect="true: everyone on the way can read the password and the messages.",
        example=True,
    )
    cleansession: bool = option(
        Flag(),
        False,
        help="Begin each connection anew, on both sides: nothing waits while the bridge is down.",
        effect="true: messages are lost while the bridge is down.",
        example=True,
    )
    keepalive_interval: float = option(
        Duration("5s", "18h"),
        "60s",
        help="Longest silence before the bridge asks whether the remote broker is still there.",
        effect="Shorter: a lost connection is noticed sooner, at one and a half times this time.",
        example="30s",
    )
    restart_timeout: float = option(
        Duration("100ms", "1h"),
        "1s",
        help="Wait before the first new attempt to connect. It doubles with each failure, up to restart_timeout_max,"
        " and varies at random, so that many bridges do not come back at once.",
        effect="Shorter: the bridge is back sooner.",
        example="5s",
    )
    restart_timeout_max: float = option(
        Duration("100ms", "1d"),
        "30s",
        help="Longest wait before a new attempt to connect.",
        effect="Longer: a remote broker that is away for long is asked less often.",
        example="5m",
    )
    max_inflight_messages: int = option(
        Integer(1, 65535, unit="messages"),
        20,
        help="Most unacknowledged QoS 1 and 2 messages in each direction. In MQTT 5 a lower limit of the remote broker"
        " counts. In MQTT 3.1.1 it cannot be told: mosquitto ends the connection beyond its own max_inflight_messages,"
        " which is 20, too.",
        effect="Higher: more messages per second on a network with long ways.",
        example=1000,
    )
    max_queued_messages: int | None = option(
        Integer(1, words=_INFINITY, unit="messages"),
        100_000,
        help="Most messages that wait for the remote broker, in the database.",
        effect="Beyond, the oldest are dropped, counted, and an alarm is raised (mqtt.mqueue_full).",
        example=10_000,
    )
    max_queued_bytes: int = option(
        Size("64KB", "16GB"),
        "64MB",
        help="Most bytes of these messages.",
        effect="As max_queued_messages.",
        example="256MB",
    )
    topics: Sequence[BridgeTopicConfig] = field(
        default=(),
        metadata=listed_tables(
            BridgeTopicConfig,
            'The topics that cross a bridge, also as a list: topics = [{ filter = "#" }]. Of several tables that match'
            " a message, the first one counts.",
        ),
    )
    tls: BridgeTLSConfig | None = field(
        default=None,
        metadata=table(
            BridgeTLSConfig,
            "TLS to the remote broker, whose certificate is verified; without this table there is none. With the"
            " authorities of the system, write tls = {}.",
        ),
    )

    @property
    def v5(self) -> bool:
        """Whether the bridge speaks MQTT 5."""
        return self.protocol_version == MQTT_5

    @property
    def remotes(self) -> tuple[RemoteAddress, ...]:
        """The addresses, each with its port."""
        found = filter(None, map(parse_address, self.addresses))
        usual = 1883 if self.tls is None else 8883
        return tuple(RemoteAddress(each.host, usual if each.port is None else each.port) for each in found)

    def problems(self, given: Mapping[str, object]) -> Iterable[tuple[str, str, Collection[str]]]:
        """Return the problems of missing keys, and of keys that need another."""
        if not self.addresses:
            yield "addresses", 'is missing; for example: addresses = ["broker.example.org"]', ("addresses",)
        if not self.topics:
            message = 'is missing; for example: topics = [{ filter = "#", direction = "out", qos = 1 }]'
            yield "topics", message, ("topics",)
        plain = self.tls is None and not all(each.is_loopback for each in self.remotes)
        if self.password is not None and plain and not self.allow_plaintext:
            message = "is sent without TLS to another machine; add tls = {}, or set allow_plaintext = true"
            yield "password", message, ("password", "allow_plaintext", "tls", "addresses")
        if self.password is not None and not self.username and not self.v5:
            yield "password", "needs a username in MQTT 3.1.1", ("password", "username", "protocol_version")
        if self.restart_timeout > self.restart_timeout_max:
            message = "is longer than restart_timeout_max"
            yield "restart_timeout", message, ("restart_timeout", "restart_timeout_max")
