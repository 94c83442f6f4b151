"""What an admitted Client and the Server say to each other: the actions on packets once CONNACK has been sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.sessions.admission.authentication import Reauthentication
from holdfast.sessions.admission.handshake import Handshake
from holdfast.sessions.exchange.publishing import Publications
from holdfast.sessions.exchange.subscribing import Subscriptions
from holdfast.sessions.session.session import Session
from holdfast.wire import ProtocolError, ReasonCode
from holdfast.wire import packets as p
from holdfast.wire.reasons import CLIENT_DISCONNECT

if TYPE_CHECKING:
    from holdfast.sessions.connection.connection import Connection

_PINGRESP = b"\xd0\x00"


class Exchange:
    """One Client's Session on one Network Connection. ``will`` is due when the connection is lost."""

    def __init__(self, connection: Connection, session: Session, handshake: Handshake) -> None:
        self.session = session
        self.will = handshake.packet.will
        self._connection = connection
        self._handshake = handshake
        self._publications = Publications(connection, session)
        self._subscriptions = Subscriptions(connection, session)
        self._reauthentication = Reauthentication(connection, handshake, session.principal)
        #: which packets a Client may send now; any other is a Protocol Error
        self.actions: dict[type[Any], Callable[[Any], None]] = {
            p.Publish: self._publications.publish,
            p.Puback: self._puback,
            p.Pubrec: self._pubrec,
            p.Pubrel: self._publications.release,
            p.Pubcomp: self._pubcomp,
            p.Subscribe: self._subscriptions.subscribe,
            p.Unsubscribe: self._subscriptions.unsubscribe,
            p.Pingreq: self._pingreq,
            p.Disconnect: self._disconnect,
            **self._reauthentication.actions,
        }

    def begin(self) -> None:
        """Resume the Session: what was in flight, what was queued, then replays that had been cut off."""
        self.session.link = self._connection
        self.session.resume()
        if not self._connection.is_closed:  # resuming may have shut a slow connection down
            self._subscriptions.resume()

    def end(self, will: p.Will | None) -> None:
        """Leave the Session: from here on messages are queued, not sent; replays are remembered."""
        session = self.session
        if session.link is self._connection:
            session.link = None
        self._subscriptions.suspend()
        self._reauthentication.stop()
        self._connection.services.registry.disconnect(self._connection, session, will)

    def wake_replays(self) -> None:
        """Let replays look for room."""
        self._subscriptions.wake()

    def replay_over(self, topic_filter: str) -> None:
        """A replay has delivered everything."""
        self._subscriptions.replay_over(topic_filter)

    def _puback(self, packet: p.Puback) -> None:
        self.session.acknowledged(packet.packet_identifier, 1)

    def _pubcomp(self, packet: p.Pubcomp) -> None:
        self.session.acknowledged(packet.packet_identifier, 2)

    def _pubrec(self, packet: p.Pubrec) -> None:
        connection = self._connection
        identifier = packet.packet_identifier
        if packet.reason_code >= ReasonCode.UNSPECIFIED_ERROR:
            self.session.refused(identifier)
            return
        ticket = self.session.received_by_client(identifier)
        body = identifier.to_bytes(2, "big")
        if ticket is not None:
            connection.acknowledgements.add(ticket, b"\x62\x02" + body, connection.close_for)
        else:
            reason = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
            answer = p.Pubrel(identifier, reason)
            connection.send(connection.explanations.encode(answer, "no QoS 2 message has this identifier now"))

    def _pingreq(self, _packet: p.Pingreq) -> None:
        self._connection.send(_PINGRESP)

    def _disconnect(self, packet: p.Disconnect) -> None:
        """The Client says goodbye; its Will is discarded if that is a normal end [MQTT5-3.14.4-3], else published."""
        if packet.reason_code not in CLIENT_DISCONNECT:
            raise ProtocolError(f"a Client does not send DISCONNECT with Reason Code 0x{packet.reason_code:02x}")
        expiry = packet.properties.session_expiry_interval
        if expiry is not None:
            if expiry and not self._handshake.packet.properties.session_expiry_interval:  # [MQTT5-3.14.2.2.2]
                raise ProtocolError("a Session Expiry Interval of 0 cannot be changed in DISCONNECT")
            self.session.expiry_interval = self._handshake.capped(expiry)
        normal = packet.reason_code == ReasonCode.SUCCESS
        self._connection.finish(b"", None if normal else self.will)
