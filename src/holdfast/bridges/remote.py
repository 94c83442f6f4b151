"""The client of the remote broker, sans-I/O: what it sends first, what the answers mean, and when silence is too long.

How it works. :class:`Login` makes CONNECT and SUBSCRIBE from the configuration, and judges CONNACK and SUBACK. In MQTT
3.1.1 a bridge announces itself (bit 0x80 of the protocol version, as mosquitto's ``try_private``). Brokers that know
it keep RETAIN and send nothing back that came from here; others refuse the CONNECT or close the connection, and then
the next attempt does without.

:class:`Silence` counts the parts of the Keep Alive: after one without a packet it sends PINGREQ, and after another
half the connection is over. It sends PINGREQ, too, if the bridge itself had nothing to send.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256

from attrs import frozen

from holdfast.bridges.crossing import Lines, RemoteLimits, reason_text
from holdfast.config.sections.bridges import BridgeConfig, BridgeTopicConfig, RemoteAddress
from holdfast.wire import ConnectReturnCode, Properties, ReasonCode
from holdfast.wire import packets as p

_NEVER = 0xFFFFFFFF
_CREDENTIALS = "check username and password, and the remote broker's permissions of this user"
_IDENTIFIER = "the remote broker takes no such Client Identifier, or another client has it: set clientid"

#: what to do about a refusal, by Reason Code
_REMEDIES: dict[int, str] = {
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION: "set protocol_version to one that the remote broker speaks",
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID: _IDENTIFIER,
    ReasonCode.BAD_USER_NAME_OR_PASSWORD: _CREDENTIALS,
    ReasonCode.NOT_AUTHORIZED: _CREDENTIALS,
    ReasonCode.BANNED: "the remote broker bans this user, Client Identifier or address; ask its operator",
    ReasonCode.USE_ANOTHER_SERVER: "the remote broker has moved: set addresses",
    ReasonCode.SERVER_MOVED: "the remote broker has moved: set addresses",
}
#: the Reason Codes of what MQTT 3.1.1 says
_OF_RETURN_CODES: dict[int, int] = {
    ConnectReturnCode.UNACCEPTABLE_PROTOCOL_VERSION: ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
    ConnectReturnCode.IDENTIFIER_REJECTED: ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
    ConnectReturnCode.SERVER_UNAVAILABLE: ReasonCode.SERVER_UNAVAILABLE,
    ConnectReturnCode.BAD_USER_NAME_OR_PASSWORD: ReasonCode.BAD_USER_NAME_OR_PASSWORD,
    ConnectReturnCode.NOT_AUTHORIZED: ReasonCode.NOT_AUTHORIZED,
}
_LATER = "the bridge tries again; if this lasts, see the log of the remote broker"


class Refused(Exception):
    """The remote broker has refused the CONNECT. The text says why, and what to do."""

    def __init__(self, reason: int, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@frozen(kw_only=True)
class Login:
    """How a bridge introduces itself. ``max_packet_size`` is the longest packet that it takes, in bytes."""

    name: str
    config: BridgeConfig
    client_id: str
    password: bytes | None
    max_packet_size: int

    @property
    def version(self) -> int:
        """The protocol version of the packets."""
        return 5 if self.config.v5 else 4

    def connect(self, clean_start: bool, private: bool) -> p.Connect:
        """Return the CONNECT. ``private`` announces a bridge, in MQTT 3.1.1."""
        config = self.config
        properties = Properties()
        if config.v5:
            properties = Properties(
                session_expiry_interval=None if config.cleansession else _NEVER,
                receive_maximum=config.max_inflight_messages,
                maximum_packet_size=self.max_packet_size,
            )
        return p.Connect(
            client_id=self.client_id,
            protocol_version=self.version,
            clean_start=clean_start or config.cleansession,
            keep_alive=round(config.keepalive_interval),
            username=config.username or None,
            password=self.password,
            properties=properties,
            bridge=private and not config.v5,
        )

    def accepted(self, connack: p.Connack) -> RemoteLimits:
        """Return what the remote broker tells of itself. Raises :class:`Refused`."""
        code = connack.reason_code
        if not code:
            return RemoteLimits.told(connack, self.config.v5)
        reason = code if self.config.v5 else _OF_RETURN_CODES.get(code, code)
        remedy = _REMEDIES.get(reason, _LATER)
        said = connack.properties.reason_string
        named = reason_text(reason)
        raise Refused(code, f"{named}{'' if said is None else f' ({said})'}; {remedy}")

    @property
    def place(self) -> str:
        """The Session at the remote broker, without its address: another one is another Session."""
        return f"{self.client_id} {self.version} {self.config.username}"


def requests(lines: Iterable[BridgeTopicConfig], remote: bool, again: bool, v5: bool) -> list[p.SubscriptionRequest]:
    """Return the subscriptions of a bridge at one of the brokers.

    ``again``: the subscriptions may be there already, so that only lines with QoS 0 need the retained messages anew.
    """
    return [
        p.SubscriptionRequest(
            line.remote_filter if remote else line.local_filter,
            line.qos,
            no_local=v5,
            retain_as_published=v5,
            retain_handling=int(again and line.qos > 0) if v5 else 0,
        )
        for line in lines
    ]


def wanted_at_remote(lines: Lines, present: bool, known: bool, v5: bool) -> list[p.SubscriptionRequest]:
    """Return the subscriptions to ask the remote broker for.

    ``present``: it has a Session of the bridge; ``known``: this Session has had all of them before. MQTT 3.1.1 sends
    all retained messages at each SUBSCRIBE, so there such a Session needs none, but of QoS 0.
    """
    asked: Sequence[BridgeTopicConfig] = lines.incoming
    if present and known and not v5:
        asked = [line for line in asked if not line.qos]
    return requests(asked, remote=True, again=present, v5=v5)


def refused_filters(asked: Sequence[p.SubscriptionRequest], suback: p.Suback) -> list[str]:
    """Return the Topic Filters that the remote broker has refused."""
    codes = tuple(suback.reason_codes)
    return [request.topic_filter for request, code in zip(asked, codes, strict=False) if code >= 0x80]


# What this broker remembers of a bridge's Session at the remote one. It stands in the name of the listener of the
# bridge's own Session here, and so is stored in the same row, in the same commit.
#
#     bridge cloud 1f0c5a9e3d2b4c67 -                    the Session of this place, with unknown subscriptions
#     bridge cloud 1f0c5a9e3d2b4c67 8a44e1902bd77f31     and with these subscriptions


_LISTENER = "bridge"
_UNKNOWN = "-"


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


@frozen
class Memory:
    """Where the Session of a bridge is, and which subscriptions it has there."""

    place: str = _UNKNOWN
    subscriptions: str = _UNKNOWN

    @classmethod
    def of(cls, login: Login, address: RemoteAddress, lines: Lines) -> Memory:
        """Return the memory of a Session with all subscriptions."""
        filters = sorted(f"{line.qos} {line.remote_filter}" for line in lines.incoming)
        return cls(_digest(f"{login.place} {address.host} {address.port}"), _digest("\n".join(filters)))

    def listener(self, name: str, subscribed: bool) -> str:
        """Return the name of the listener that says so."""
        return f"{_LISTENER} {name} {self.place} {self.subscriptions if subscribed else _UNKNOWN}"


def remembered(listener: str) -> tuple[str, Memory] | None:
    """Return the bridge that the name of a listener tells of, and what it tells; None for any other listener."""
    parts = listener.split(" ")
    if len(parts) != 4 or parts[0] != _LISTENER:
        return None
    return parts[1], Memory(parts[2], parts[3])


class Silence:
    """Watches whether the remote broker is heard, and hears enough. ``tick`` is called twice per Keep Alive."""

    def __init__(self) -> None:
        self._quiet = 0
        self._sent = True

    def heard(self) -> None:
        """Note that bytes have come."""
        self._quiet = 0

    def sent(self) -> None:
        """Note that a packet was sent."""
        self._sent = True

    def tick(self) -> str:
        """Return ``ping`` if PINGREQ is due, ``lost`` if the connection is over, and an empty string otherwise."""
        self._quiet += 1
        sent, self._sent = self._sent, False
        if self._quiet >= 4:
            return "lost"
        return "ping" if self._quiet >= 2 or not sent else ""
