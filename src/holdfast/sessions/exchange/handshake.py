"""The agreement between a Client and the Server: the requests in CONNECT, the limits, the answers in CONNACK.

See [MQTT5-3.1.4] and [MQTT5-3.2]. This module judges by the limits only; :mod:`admission` asks authenticator and
authorizer.
"""

from __future__ import annotations

import secrets

import attrs

from holdfast.core.extensions import (
    ANSWER,
    CONDITIONS,
    RETAIN_WHILE,
    TOLD_BY_BROKER,
    BadRequest,
    UserProperties,
    named,
    publish_requests,
    takes_part,
)
from holdfast.core.topics import is_bridge_state
from holdfast.sessions.limits import Limits, RetainMode
from holdfast.wire import ConnectReturnCode, Properties, ReasonCode, encode
from holdfast.wire.packets import Connack, Connect

_NEVER = 0xFFFFFFFF


class ConnectRefused(Exception):
    """The limits or the standard refuse a CONNECT, with this Reason Code."""

    def __init__(self, reason: ReasonCode, explanation: str) -> None:
        super().__init__(explanation)
        self.reason = reason


class Handshake:
    """One CONNECT under the limits of one zone."""

    def __init__(self, packet: Connect, limits: Limits) -> None:
        """Raise :class:`ConnectRefused` if the limits or the standard do not allow the CONNECT."""
        self.packet = packet
        self._limits = limits
        self.v5 = packet.protocol_version == 5
        self.client_id = packet.client_id
        #: the User Name that the Client claims to prove; an Authentication Method may have its own
        self.claimed_username = packet.username
        self.assigned = False
        #: the last Authentication Data of the Authentication Method, sent in CONNACK
        self.authentication_data: bytes | None = None
        if not packet.client_id:
            # Without Clean Start the Client asks for a Session that it could never find again.
            if not self.v5 and not packet.clean_start:  # [MQTT311-3.1.3-8]
                raise ConnectRefused(
                    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, "a Client Identifier is needed for a Session"
                )
            if packet.protocol_version == 3:  # MQTT 3.1 knows no empty Client Identifier
                raise ConnectRefused(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, "MQTT 3.1 needs a Client Identifier")
            self.client_id = f"holdfast-{secrets.token_hex(8)}"
            self.assigned = True
        elif len(packet.client_id.encode()) > limits.max_clientid_len:
            raise ConnectRefused(
                ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
                f"a Client Identifier has at most {limits.max_clientid_len} bytes here",
            )
        if not self.v5 and self.keep_alive != packet.keep_alive:  # these versions cannot tell the Client another one
            raise ConnectRefused(
                ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
                f"a Keep Alive is from 1 to {limits.max_keepalive} seconds here, not {packet.keep_alive}"
                " (mqtt.max_keepalive)",
            )
        #: whether the Client takes part in what the broker offers beyond MQTT
        self.participates = False
        if packet.properties.user_properties:
            try:
                self.participates = takes_part(packet.properties)
            except BadRequest as refused:
                raise ConnectRefused(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, str(refused)) from None
        will = packet.will
        if will is not None and will.properties.user_properties:
            self._check_requests(will.properties.user_properties)
        #: whether the Will is the state of a bridge, which is dropped
        self.drops_bridge_state = will is not None and is_bridge_state(will.topic)
        if self.drops_bridge_state:
            self.packet = attrs.evolve(packet, will=None)
        elif will is not None:
            if will.qos > limits.max_qos_allowed:
                raise ConnectRefused(
                    ReasonCode.QOS_NOT_SUPPORTED, "the Will QoS is not supported (mqtt.max_qos_allowed)"
                )  # [MQTT5-3.2.2-12]
            if will.retain and not limits.retain_available:
                raise ConnectRefused(
                    ReasonCode.RETAIN_NOT_SUPPORTED, "Will Retain is not supported (mqtt.retain_available)"
                )  # [MQTT5-3.2.2-13]
            if will.topic.count("/") >= limits.max_topic_levels or "\0" in will.topic:
                raise ConnectRefused(
                    ReasonCode.TOPIC_NAME_INVALID,
                    f"the Will Topic has more than {limits.max_topic_levels} levels (mqtt.max_topic_levels)",
                )
            if will.retain and limits.retained_messages_mode is not RetainMode.ENABLED:
                dropped = limits.retained_messages_mode is RetainMode.DROP
                self.packet = attrs.evolve(packet, will=None if dropped else attrs.evolve(will, retain=False))
        maximum = packet.properties.maximum_packet_size
        if self.participates and maximum is not None and len(self.accepted(False)) > maximum:
            self.participates = False  # CONNACK has no room to tell it so [MQTT5-3.2.2-20]
        if maximum is not None and len(self.accepted(False)) > maximum:  # [MQTT5-3.1.2-24]
            raise ConnectRefused(
                ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, f"CONNACK does not fit a packet of {maximum} bytes"
            )

    def _check_requests(self, properties: UserProperties) -> None:
        """Refuse a Will with a request. Other names are forwarded unaltered if its Client does not take part."""
        if self.participates:
            name = named(properties, TOLD_BY_BROKER)
            if name is not None:
                raise ConnectRefused(
                    ReasonCode.PAYLOAD_FORMAT_INVALID, f"User Property {name} of the Will is told by the broker only"
                )
        if named(properties, CONDITIONS):
            raise ConnectRefused(
                ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, "a Will has no conditions: nobody is told its outcome"
            )
        if named(properties, frozenset({RETAIN_WHILE})):
            raise ConnectRefused(
                ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, "a Will has no lease: its client is gone already"
            )
        if self.participates:
            try:
                publish_requests(properties)
            except BadRequest as refused:
                raise ConnectRefused(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, f"the Will: {refused}") from None

    @property
    def untold(self) -> bool:
        """Whether the Client is not told its Client Identifier: MQTT 3.1.1 has no property for an assigned one."""
        return self.assigned and not self.v5

    @property
    def expiry_interval(self) -> float | None:
        """The granted Session Expiry Interval, in seconds; None for never."""
        cap = self._limits.session_expiry_interval
        if not self.v5:
            return 0 if self.packet.clean_start else cap
        return self.capped(self.packet.properties.session_expiry_interval or 0)

    def capped(self, requested: int) -> float | None:
        """Return a requested Session Expiry Interval, reduced to the limit of the zone."""
        cap = self._limits.session_expiry_interval
        if requested == _NEVER:
            return cap
        return requested if cap is None else min(requested, cap)

    @property
    def window(self) -> int:
        """How many QoS 1 and 2 messages to the Client may be unacknowledged."""
        receive_maximum = self.packet.properties.receive_maximum
        return self._limits.max_inflight if receive_maximum is None else min(receive_maximum, self._limits.max_inflight)

    @property
    def keep_alive(self) -> int:
        """The effective Keep Alive, in seconds; 0 for none. CONNACK tells an MQTT 5 Client if the Server changed it."""
        server, most = self._limits.server_keepalive, self._limits.max_keepalive
        wanted = server if server is not None and self.v5 else self.packet.keep_alive
        return wanted if most is None or 0 < wanted <= most else most

    def accepted(self, session_present: bool) -> bytes:
        """Return the CONNACK that accepts the connection, with every limit that differs from the standard's default.

        There is no Response Information [MQTT5-3.1.2-28].
        """
        if not self.v5:
            present = session_present and self.packet.protocol_version == 4
            return encode(Connack(present, ConnectReturnCode.ACCEPTED), 4)
        limits = self._limits
        expiry = self.expiry_interval
        requested = self.packet.properties.session_expiry_interval or 0
        granted = _NEVER if expiry is None else int(expiry)
        told_keep_alive = limits.server_keepalive is not None or self.keep_alive != self.packet.keep_alive
        properties = Properties(
            session_expiry_interval=granted if granted != requested else None,
            receive_maximum=limits.max_awaiting_rel,
            maximum_qos=limits.max_qos_allowed if limits.max_qos_allowed < 2 else None,
            retain_available=None if limits.retain_available else 0,
            maximum_packet_size=limits.max_packet_size,
            assigned_client_identifier=self.client_id if self.assigned else None,
            topic_alias_maximum=limits.max_topic_alias or None,
            authentication_method=self.packet.properties.authentication_method,  # [MQTT5-4.12.0-5], [MQTT5-4.12.0-6]
            authentication_data=self.authentication_data,
            wildcard_subscription_available=None if limits.wildcard_subscription else 0,
            shared_subscription_available=None if limits.shared_subscription else 0,
            subscription_identifier_available=None if limits.subscription_identifiers else 0,
            server_keep_alive=self.keep_alive if told_keep_alive else None,  # [MQTT5-3.2.2-21], [MQTT5-3.2.2-22]
            user_properties=(ANSWER,) if self.participates else (),
        )
        return encode(Connack(session_present, ReasonCode.SUCCESS, properties), 5)
