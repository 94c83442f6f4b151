"""CONNECT to CONNACK: what a Client asks for, whether it may, and what it is told [MQTT5-3.1.4], [MQTT5-3.2]."""

from __future__ import annotations

import secrets

from holdfast.sessions.limits import Limits
from holdfast.wire import ConnectReturnCode, Properties, ReasonCode, connect_return_code, encode
from holdfast.wire.packets import Connack, Connect

_NEVER = 0xFFFFFFFF


class Refused(Exception):
    """The connection is refused with this Reason Code."""

    def __init__(self, reason: ReasonCode, explanation: str) -> None:
        super().__init__(explanation)
        self.reason = reason


class Handshake:
    """One CONNECT under one zone's limits: what is agreed with the Client."""

    def __init__(self, packet: Connect, limits: Limits) -> None:
        """Raise :class:`Refused` for what the limits or the standard do not allow."""
        self.packet = packet
        self._limits = limits
        self.v5 = packet.protocol_version == 5
        self.client_id = packet.client_id
        self.assigned = False
        #: the last word of the Authentication Method to the Client, which goes into CONNACK
        self.authentication_data: bytes | None = None
        if not packet.client_id:
            if not self.v5 and not packet.clean_start:  # [MQTT311-3.1.3-8]
                raise Refused(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, "a Client Identifier is needed for a Session")
            self.client_id = f"holdfast-{secrets.token_hex(8)}"
            self.assigned = True
        elif len(packet.client_id.encode()) > limits.max_clientid_len:
            raise Refused(
                ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
                f"a Client Identifier has at most {limits.max_clientid_len} bytes here",
            )
        will = packet.will
        if will is not None:
            if will.qos > limits.max_qos_allowed:
                raise Refused(ReasonCode.QOS_NOT_SUPPORTED, "the Will QoS is not supported")  # [MQTT5-3.2.2-12]
            if will.retain and not limits.retain_available:
                raise Refused(ReasonCode.RETAIN_NOT_SUPPORTED, "Will Retain is not supported")  # [MQTT5-3.2.2-13]
            if will.topic.count("/") >= limits.max_topic_levels or "\0" in will.topic:
                raise Refused(
                    ReasonCode.TOPIC_NAME_INVALID, f"the Will Topic has more than {limits.max_topic_levels} levels"
                )

    @property
    def expiry_interval(self) -> float | None:
        """The Session Expiry Interval in force, in seconds; None for never."""
        cap = self._limits.session_expiry_interval
        if not self.v5:
            return 0 if self.packet.clean_start else cap
        asked = self.packet.properties.session_expiry_interval or 0
        return self.capped(asked)

    def capped(self, asked: int) -> float | None:
        """Return what a requested Session Expiry Interval comes to under the zone's cap."""
        cap = self._limits.session_expiry_interval
        if asked == _NEVER:
            return cap
        return asked if cap is None else min(asked, cap)

    @property
    def window(self) -> int:
        """How many QoS 1 and 2 messages may be unacknowledged by the Client."""
        asked = self.packet.properties.receive_maximum
        return self._limits.max_inflight if asked is None else min(asked, self._limits.max_inflight)

    @property
    def keep_alive(self) -> int:
        """The Keep Alive in force, in seconds; 0 for none. MQTT 5 Clients are told when it is not theirs."""
        server = self._limits.server_keepalive
        return server if server is not None and self.v5 else self.packet.keep_alive

    def accepted(self, session_present: bool) -> bytes:
        """Return the CONNACK that accepts the connection, telling every limit that is not the standard's default."""
        if not self.v5:
            present = session_present and self.packet.protocol_version == 4
            return encode(Connack(present, ConnectReturnCode.ACCEPTED), 4)
        limits = self._limits
        expiry = self.expiry_interval
        asked = self.packet.properties.session_expiry_interval or 0
        granted = _NEVER if expiry is None else int(expiry)
        properties = Properties(
            session_expiry_interval=granted if granted != asked else None,
            receive_maximum=limits.max_awaiting_rel,
            maximum_qos=limits.max_qos_allowed if limits.max_qos_allowed < 2 else None,
            retain_available=int(limits.retain_available),
            maximum_packet_size=limits.max_packet_size,
            assigned_client_identifier=self.client_id if self.assigned else None,
            topic_alias_maximum=limits.max_topic_alias or None,
            authentication_method=self.packet.properties.authentication_method,  # [MQTT5-4.12.0-5], [MQTT5-4.12.0-6]
            authentication_data=self.authentication_data,
            wildcard_subscription_available=None if limits.wildcard_subscription else 0,
            shared_subscription_available=None if limits.shared_subscription else 0,
            server_keep_alive=limits.server_keepalive,
        )
        return encode(Connack(session_present, ReasonCode.SUCCESS, properties), 5)


def refusal(protocol_version: int, reason: ReasonCode, explanation: str, longest: int | None = None) -> bytes:
    """Return the CONNACK that refuses a connection, or b"" where MQTT 3 can only close it.

    It has no Reason String where it would be longer than ``longest`` with it [MQTT5-3.2.2-19].
    """
    if protocol_version == 5:
        packet = encode(Connack(False, reason, Properties(reason_string=explanation)), 5)
        return packet if longest is None or len(packet) <= longest else encode(Connack(False, reason), 5)
    code = connect_return_code(reason)
    return b"" if code is None else encode(Connack(False, code), 4)
