"""What a Client is told about failures beside the Reason Code: decided here, for every packet."""

from __future__ import annotations

from collections.abc import Container

import attrs

from holdfast.sessions.limits import Limits
from holdfast.wire import NO_PROPERTIES, Properties, ReasonCode, connect_return_code, encode
from holdfast.wire import packets as p
from holdfast.wire.reasons import PERMITTED

Explained = p.Connack | p.Puback | p.Pubrec | p.Pubrel | p.Pubcomp | p.Suback | p.Unsuback | p.Disconnect

#: The longest Reason String sent, in characters: some quote what the Client has sent.
LONGEST = 200


class Explanations:
    """One Client's wishes about Reason Strings, and the size of packet it takes.

    A Reason String is only sent in MQTT 5, only where the Client has not declined it (CONNACK and DISCONNECT have it
    nevertheless) [MQTT5-3.1.2-29], and only if the packet with it fits the Maximum Packet Size [MQTT5-3.2.2-19].
    """

    __slots__ = ("_most", "_wanted", "protocol_version")

    def __init__(self, protocol_version: int, asked: Properties = NO_PROPERTIES) -> None:
        self.protocol_version = protocol_version
        self._wanted = asked.request_problem_information != 0
        self._most = asked.maximum_packet_size

    def fits(self, packet: bytes) -> bool:
        """Tell whether the Client takes a packet of this size [MQTT5-3.1.2-24]."""
        return self._most is None or len(packet) <= self._most

    def encode(self, packet: Explained, text: str) -> bytes:
        """Encode a packet that tells a failure, with ``text`` as its Reason String where that may be sent."""
        if text and self.protocol_version == 5 and (self._wanted or isinstance(packet, p.Connack | p.Disconnect)):
            properties = attrs.evolve(packet.properties, reason_string=text[:LONGEST])
            explained = encode(attrs.evolve(packet, properties=properties), 5)
            if self.fits(explained):
                return explained
        return encode(packet, self.protocol_version)

    def refusal(self, reason: ReasonCode, text: str) -> bytes:
        """Return the CONNACK that refuses a connection, or b"" where it can only be closed [MQTT311-3.2.2-6].

        A reason that CONNACK does not know is told as the nearest that it does.
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
        """Return the DISCONNECT that ends a connection, or b"" where it can only be closed."""
        if self.protocol_version != 5:
            return b""
        packet = self.encode(p.Disconnect(reason), text)
        return packet if self.fits(packet) else b""


def why_refused(codes: Container[int], limits: Limits) -> str:
    """Return why subscriptions are refused, from the codes of their SUBACK."""
    whys = {
        ReasonCode.NOT_AUTHORIZED: "this subscription is not allowed",
        ReasonCode.TOPIC_FILTER_INVALID: f"a Topic Filter has at most {limits.max_topic_levels} levels here",
        ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR: "retained messages cannot be read now",
        ReasonCode.QUOTA_EXCEEDED: f"a Session has at most {limits.max_subscriptions} Subscriptions here",
    }
    return "; ".join(why for code, why in whys.items() if code in codes)
