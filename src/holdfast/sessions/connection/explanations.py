"""Reason Codes and Reason Strings that explain a failure to a Client, for every packet type."""

from __future__ import annotations

from collections.abc import Container

import attrs

from holdfast.sessions.limits import Limits
from holdfast.tickets import FailureKind, StorageFailure
from holdfast.wire import NO_PROPERTIES, Properties, ReasonCode, connect_return_code, encode
from holdfast.wire import packets as p
from holdfast.wire.reasons import PERMITTED

Explained = p.Connack | p.Puback | p.Pubrec | p.Pubrel | p.Pubcomp | p.Suback | p.Unsuback | p.Disconnect

#: The longest Reason String sent, in characters: some quote text of the Client.
LONGEST = 200


def failure_reason(failure: StorageFailure) -> ReasonCode:
    """Return the Reason Code that tells a Client why its change was not made durable."""
    if failure.kind is FailureKind.FULL:
        return ReasonCode.QUOTA_EXCEEDED
    return ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR


class Explanations:
    """Makes packets that explain failures to one Client.

    A Reason String is sent in MQTT 5 only, and only if the packet with it fits the Maximum Packet Size
    [MQTT5-3.2.2-19]. A Client can decline Reason Strings, except in CONNACK and DISCONNECT [MQTT5-3.1.2-29].
    """

    __slots__ = ("_maximum", "_wanted", "protocol_version")

    def __init__(self, protocol_version: int, connect: Properties = NO_PROPERTIES) -> None:
        self.protocol_version = protocol_version
        self._wanted = connect.request_problem_information != 0
        self._maximum = connect.maximum_packet_size

    @property
    def may_tell(self) -> bool:
        """Whether the Client takes properties in acknowledgements [MQTT5-3.1.2-29]."""
        return self._wanted

    def fits(self, packet: bytes) -> bool:
        """Tell whether the packet is within the Client's Maximum Packet Size [MQTT5-3.1.2-24]."""
        return self._maximum is None or len(packet) <= self._maximum

    def encode(self, packet: Explained, text: str) -> bytes:
        """Encode a packet that reports a failure, with ``text`` as its Reason String where one may be sent."""
        if text and self.protocol_version == 5 and (self._wanted or isinstance(packet, p.Connack | p.Disconnect)):
            # The packet is encoded to learn its size. If it is too large, the Client gets the code without the text.
            properties = attrs.evolve(packet.properties, reason_string=text[:LONGEST])
            explained = encode(attrs.evolve(packet, properties=properties), 5)
            if self.fits(explained):
                return explained
        return encode(packet, self.protocol_version)

    def encode_within(self, packet: Explained, text: str) -> bytes:
        """Encode a packet as :meth:`encode` does, and without its other properties if it is too large with them."""
        found = self.encode(packet, text)
        if not self.fits(found):
            found = encode(attrs.evolve(packet, properties=NO_PROPERTIES), self.protocol_version)
        return found

    def refusal(self, reason: ReasonCode, text: str) -> bytes:
        """Return the CONNACK that refuses a connection, or b"" where no CONNACK may be sent [MQTT311-3.2.2-6].

        A reason that CONNACK may not carry is replaced by the nearest reason that it may carry.
        """
        if self.protocol_version != 5:
            code = connect_return_code(reason)
            return b"" if code is None else encode(p.Connack(False, code), self.protocol_version)
        if reason not in PERMITTED[2]:
            stopping = reason is ReasonCode.SERVER_SHUTTING_DOWN
            reason = ReasonCode.SERVER_UNAVAILABLE if stopping else ReasonCode.UNSPECIFIED_ERROR
        packet = self.encode(p.Connack(False, reason), text)
        return packet if self.fits(packet) else b""

    def disconnect(self, reason: ReasonCode, text: str) -> bytes:
        """Return the DISCONNECT that ends a connection, or b"" where no DISCONNECT may be sent."""
        if self.protocol_version != 5:
            return b""
        packet = self.encode(p.Disconnect(reason), text)
        return packet if self.fits(packet) else b""


_WITHOUT_PROPERTIES = {version: Explanations(version) for version in (3, 4, 5)}


def explanations_for(protocol_version: int, connect: Properties = NO_PROPERTIES) -> Explanations:
    """Return the explanations for a Client of a known version: one object for all CONNECT without properties."""
    if connect is NO_PROPERTIES:
        return _WITHOUT_PROPERTIES[protocol_version]
    return Explanations(protocol_version, connect)


def explain_refusals(codes: Container[int], limits: Limits) -> str:
    """Explain the refusals among the Reason Codes of a SUBACK."""
    bounds = {
        "Subscriptions (mqtt.max_subscriptions)": limits.max_subscriptions,
        "patterns of + (mqtt.max_wildcard_patterns)": limits.max_wildcard_patterns,
    }
    most = " and ".join(f"{most} {what}" for what, most in bounds.items() if most is not None)
    explanations = {
        ReasonCode.NOT_AUTHORIZED: "this subscription is not allowed",
        ReasonCode.TOPIC_FILTER_INVALID: (
            f"a Topic Filter has at most {limits.max_topic_levels} levels here (mqtt.max_topic_levels)"
        ),
        ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR: "retained messages cannot be read now",
        ReasonCode.QUOTA_EXCEEDED: f"a Session has at most {most} here",
    }
    return "; ".join(text for code, text in explanations.items() if code in codes)
