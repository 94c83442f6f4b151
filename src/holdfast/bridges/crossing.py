r"""How packets cross a bridge: from one broker to the other, with the same Packet Identifiers. Sans-I/O.

How it works. A bridge is a client of both brokers, and keeps no messages of its own. Each PUBLISH crosses with the
Packet Identifier that its sender has given it, and each acknowledgement crosses back. So the sender keeps a message
until the *receiver* has acknowledged it, and both brokers have one exchange with each other, as the standard has it:

    this broker            the bridge               the remote broker
    PUBLISH 7, QoS 2  -->  another topic       -->  stores 7
    stores PUBREC     <--                      <--  PUBREC 7
    PUBREL 7          -->                      -->  forgets 7
    forgets 7         <--                      <--  PUBCOMP 7

The Sessions of both brokers have all state of these exchanges, in their databases. If this process is killed, or the
network fails, the Sessions are resumed and the sender repeats what was not acknowledged: nothing of QoS 1 and 2 is
lost, and nothing of QoS 2 comes twice. Both directions have Packet Identifiers of their own, so they do not meet.

What the receiver cannot take is *swallowed*: the bridge acknowledges it in the receiver's place, counts it, and tells
why. That is a message of a topic that no line of the bridge has (any more), one that went around in a circle, one that
is too long, and the rest of an exchange at QoS 2 with a receiver that knows QoS 1 only. A refusal of the receiver
crosses back like any acknowledgement, and is counted. Only if a database cannot take a message *now*, the crossing is
``stuck``: the owner ends the connection, and the message is sent again on the next one.

In MQTT 5 each message that goes out is marked with the name of this bridge (:data:`MARK`), so a message that comes
back by another way is known, and goes no further.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

import attrs
from attrs import define, frozen

from holdfast.config.sections.bridges import BridgeTopicConfig
from holdfast.core.topics import InvalidTopicName, check_topic_name, is_of_broker, matching
from holdfast.wire import NO_PROPERTIES, Properties, ReasonCode, encode
from holdfast.wire import packets as p

#: the User Property of messages that have crossed bridges: one for each, with its Client Identifier at the other broker
MARK = "holdfast-bridged"

#: The Reason String with which Holdfast refuses a message that its database cannot take now: it is sent again later.
CANNOT_STORE = "the broker cannot store this now"
#: the version that the bridge speaks with this broker
LOCAL_VERSION = 5
#: what the marks and the longer topic may add to a message, in bytes
_GROWTH = 16

_ACKNOWLEDGEMENTS = (p.Puback, p.Pubrec, p.Pubcomp)
_Acknowledgement = p.Puback | p.Pubrec | p.Pubrel | p.Pubcomp


class Lines:
    """The lines of a bridge: the topics that cross it, and their names on the other side. The first match counts."""

    def __init__(self, topics: Sequence[BridgeTopicConfig]) -> None:
        self.outgoing = tuple(each for each in topics if each.direction != "in")
        self.incoming = tuple(each for each in topics if each.direction != "out")

    def outward(self, topic: str) -> tuple[str, BridgeTopicConfig] | None:
        """Return the name of a topic of this broker on the remote one, and its line; None if it does not cross."""
        is_matched = matching(topic)
        for line in self.outgoing:
            if is_matched(line.local_filter) and topic.startswith(line.local_prefix):
                name = line.remote_prefix + topic[len(line.local_prefix) :]
                return (name, line) if name else None
        return None

    def inward(self, topic: str) -> tuple[str, BridgeTopicConfig] | None:
        """Return the name of a topic of the remote broker on this one, and its line; None if it does not cross."""
        is_matched = matching(topic)
        for line in self.incoming:
            if is_matched(line.remote_filter) and topic.startswith(line.remote_prefix):
                name = line.local_prefix + topic[len(line.remote_prefix) :]
                return (name, line) if name else None
        return None

    @property
    def growth(self) -> int:
        """The bytes that a message may become longer by on its way out, without its mark."""
        lengths = [len(line.remote_prefix.encode()) - len(line.local_prefix.encode()) for line in self.outgoing]
        return max([0, *lengths])


@frozen(kw_only=True)
class RemoteLimits:
    """What the remote broker has told in CONNACK. ``receive_maximum`` is the most unacknowledged messages to it."""

    v5: bool
    session_present: bool
    receive_maximum: int = 65535
    maximum_qos: int = 2
    retain_available: bool = True
    maximum_packet_size: int | None = None

    @classmethod
    def told(cls, connack: p.Connack, v5: bool) -> RemoteLimits:
        """Return the limits that this CONNACK tells."""
        found = connack.properties
        return cls(
            v5=v5,
            session_present=connack.session_present,
            receive_maximum=found.receive_maximum or 65535,
            maximum_qos=2 if found.maximum_qos is None else found.maximum_qos,
            retain_available=found.retain_available != 0,
            maximum_packet_size=found.maximum_packet_size,
        )


@define
class Crossed:
    """What has crossed a bridge since the start of the broker.

    ``refused`` counts the messages that the receiver has acknowledged with a Reason Code of failure, ``looped`` those
    that came back, and ``left_out`` the others that were swallowed.
    """

    sent: int = 0
    received: int = 0
    refused: int = 0
    looped: int = 0
    left_out: int = 0


class Crossing:
    """Takes the packets of both sides on one connection of a bridge.

    ``to_local`` and ``to_remote`` collect encoded packets; the owner sends them and clears both. ``mark`` is the name
    of this bridge in marks, ``own`` has those of all bridges of this broker. ``tell`` is given what was left out: a few
    words, and the topic.
    """

    def __init__(
        self,
        lines: Lines,
        remote: RemoteLimits,
        *,
        mark: str,
        own: Container[str],
        most_levels: int,
        crossed: Crossed,
        tell: Callable[[str, str], None],
    ) -> None:
        self.to_local: list[bytes] = []
        self.to_remote: list[bytes] = []
        #: why the connection must end; an empty string if it need not
        self.stuck = ""
        self._lines = lines
        self._remote = remote
        self._version = 5 if remote.v5 else 4
        self._mark = mark
        self._own = own
        self._most_levels = most_levels
        self._crossed = crossed
        self._tell = tell
        #: identifiers of swallowed QoS 2 messages that were not released yet, by direction
        self._swallowed_out: set[int] = set()
        self._swallowed_in: set[int] = set()
        #: identifiers of messages to the remote broker whose QoS was lowered, with the QoS that they had
        self._lowered: dict[int, int] = {}

    @property
    def longest_out(self) -> int | None:
        """The longest packet that this broker may give to the bridge, in bytes; None for no limit."""
        most = self._remote.maximum_packet_size
        if most is None:
            return None
        return max(most - self._lines.growth - (_GROWTH + len(MARK) + len(self._mark.encode())), 128)

    # --- from this broker to the remote one

    def from_local(self, packet: p.Packet) -> None:
        """Take a packet of this broker."""
        if isinstance(packet, p.Publish):
            self._publish_out(packet)
        elif isinstance(packet, p.Pubrel):
            if packet.packet_identifier in self._swallowed_out:
                self._swallowed_out.discard(packet.packet_identifier)
                self._answer_local(p.Pubcomp(packet.packet_identifier))
            else:
                self._acknowledge_remote(packet)
        elif isinstance(packet, _ACKNOWLEDGEMENTS):
            if not self._is_stuck(packet, "this broker"):
                self._acknowledge_remote(packet)
        elif isinstance(packet, p.Pubacks):
            for start in range(0, len(packet.packets), 4):
                self._acknowledge_remote(p.Puback(int.from_bytes(packet.packets[start + 2 : start + 4], "big")))

    def _publish_out(self, packet: p.Publish) -> None:
        crossing = self._lines.outward(packet.topic)
        if crossing is None:
            self._swallow_out(packet, "no line of the bridge has this topic any more")
            return
        properties = packet.properties
        marks = [value for name, value in properties.user_properties if name == MARK]
        if self._mark in marks:
            self._crossed.looped += 1
            self._swallow_out(packet, "", counts=False)
            return
        topic, line = crossing
        if len(topic.encode()) > 65535:
            self._swallow_out(packet, "the topic has more than 65535 bytes there")
            return
        remote = self._remote
        qos = min(packet.qos, remote.maximum_qos)
        sent = p.Publish(
            topic,
            packet.payload,
            qos,
            _retain(packet.retain, line.retain) and remote.retain_available,
            packet.dup and qos > 0,
            packet.packet_identifier if qos else 0,
            self._properties_out(properties) if remote.v5 else NO_PROPERTIES,
        )
        encoded = encode(sent, self._version)
        if remote.maximum_packet_size is not None and len(encoded) > remote.maximum_packet_size:
            self._swallow_out(packet, f"the remote broker takes at most {remote.maximum_packet_size} bytes")
            return
        self.to_remote.append(encoded)
        self._crossed.sent += 1
        if qos < packet.qos:
            if qos:
                self._lowered[packet.packet_identifier] = packet.qos
            else:
                self._accept_out(packet)

    def _properties_out(self, properties: Properties) -> Properties:
        return attrs.evolve(
            properties,
            topic_alias=None,
            subscription_identifiers=(),
            user_properties=(*properties.user_properties, (MARK, self._mark)),
        )

    def _swallow_out(self, packet: p.Publish, why: str, counts: bool = True) -> None:
        if counts:
            self._crossed.left_out += 1
            self._tell(why, packet.topic)
        self._accept_out(packet)

    def _accept_out(self, packet: p.Publish) -> None:
        """Acknowledge a message of this broker in the place of the remote one."""
        if packet.qos == 1:
            self._answer_local(p.Puback(packet.packet_identifier))
        elif packet.qos == 2:
            self._swallowed_out.add(packet.packet_identifier)
            self._answer_local(p.Pubrec(packet.packet_identifier))

    def _answer_local(self, packet: p.Packet) -> None:
        self.to_local.append(encode(packet, LOCAL_VERSION))

    def _acknowledge_remote(self, packet: _Acknowledgement) -> None:
        self.to_remote.append(encode(_without_properties(packet), self._version))

    # --- from the remote broker to this one

    def from_remote(self, packet: p.Packet) -> None:
        """Take a packet of the remote broker."""
        if isinstance(packet, p.Publish):
            self._publish_in(packet)
        elif isinstance(packet, p.Pubrel):
            if packet.packet_identifier in self._swallowed_in:
                self._swallowed_in.discard(packet.packet_identifier)
                self._acknowledge_remote(p.Pubcomp(packet.packet_identifier))
            else:
                self._answer_local(_without_properties(packet))
        elif isinstance(packet, _ACKNOWLEDGEMENTS):
            if self._is_stuck(packet, "the remote broker"):
                return
            if isinstance(packet, p.Puback) and self._lowered.pop(packet.packet_identifier, 0) == 2:
                self._swallowed_out.add(packet.packet_identifier)
                self._answer_local(p.Pubrec(packet.packet_identifier))
            else:
                self._answer_local(_without_properties(packet))

    def _publish_in(self, packet: p.Publish) -> None:
        crossing = self._lines.inward(packet.topic)
        if crossing is None:
            self._swallow_in(packet, "no line of the bridge has this topic of the remote broker")
            return
        properties = packet.properties
        for name, value in properties.user_properties:
            if name == MARK and value in self._own:
                self._crossed.looped += 1
                self._swallow_in(packet, "", counts=False)
                return
        topic, line = crossing
        wrong = self._wrong_here(topic)
        if wrong:
            self._swallow_in(packet, wrong)
            return
        self._crossed.received += 1
        if properties is not NO_PROPERTIES:
            properties = attrs.evolve(properties, topic_alias=None, subscription_identifiers=())
        received = p.Publish(
            topic,
            packet.payload,
            packet.qos,
            _retain(packet.retain, line.retain),
            packet.dup,
            packet.packet_identifier,
            properties,
        )
        self._answer_local(received)

    def _wrong_here(self, topic: str) -> str:
        """Return why this broker would end the connection over a topic; an empty string if it would not."""
        if is_of_broker(topic):
            return "the topic is one of this broker's own"
        try:
            check_topic_name(topic, self._most_levels)
        except InvalidTopicName as invalid:
            return str(invalid)
        return "the topic has more than 65535 bytes here" if len(topic.encode()) > 65535 else ""

    def _is_stuck(self, packet: _Acknowledgement, who: str) -> bool:
        """Count a refusal. Return whether the receiver takes the message later."""
        if packet.reason_code < ReasonCode.UNSPECIFIED_ERROR or isinstance(packet, p.Pubcomp):
            return False
        said = packet.properties.reason_string
        if said == CANNOT_STORE:
            self.stuck = f"the database of {who} takes nothing now"
            return True
        self._crossed.refused += 1
        told = reason_text(packet.reason_code) if said is None else f"{reason_text(packet.reason_code)}, {said}"
        self._tell(f"{who} has refused a message ({told})", "")
        return False

    def _swallow_in(self, packet: p.Publish, why: str, counts: bool = True) -> None:
        if counts:
            self._crossed.left_out += 1
            self._tell(why, packet.topic)
        if packet.qos == 1:
            self._acknowledge_remote(p.Puback(packet.packet_identifier))
        elif packet.qos == 2:
            self._swallowed_in.add(packet.packet_identifier)
            self._acknowledge_remote(p.Pubrec(packet.packet_identifier))


def _retain(flag: bool, rule: str) -> bool:
    return flag if rule == "keep" else rule == "set"


def _without_properties(packet: _Acknowledgement) -> _Acknowledgement:
    return attrs.evolve(packet, properties=NO_PROPERTIES)


def reason_text(code: int) -> str:
    """Return a Reason Code in words."""
    try:
        return ReasonCode(code).name.lower().replace("_", " ")
    except ValueError:
        return f"0x{code:02x}"
