"""The actions on the packets of an admitted Client, from CONNACK to the end of the connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.sessions.connection.connection import Connection
from holdfast.sessions.connection.link import Action, Actions
from holdfast.sessions.delivery.replays import Replays
from holdfast.sessions.delivery.session import Session
from holdfast.sessions.exchange.authentication import Reauthentication
from holdfast.sessions.exchange.broker_parts import BrokerParts
from holdfast.sessions.exchange.handshake import Handshake
from holdfast.sessions.exchange.publishing import Publishing
from holdfast.sessions.exchange.subscribing import Subscribing
from holdfast.sessions.exchange.unsubscribing import Unsubscribing
from holdfast.wire import ProtocolError, ReasonCode
from holdfast.wire import packets as p
from holdfast.wire.reasons import CLIENT_DISCONNECT

_PINGRESP = b"\xd0\x00"
#: for how many more packets a PUBREC counts: it takes 30 microseconds
_FOR_PUBREC = 2


class Exchange:
    """One Client's Session on one Network Connection. ``will`` is published when the connection is lost."""

    def __init__(self, link: Connection, session: Session, parts: BrokerParts, handshake: Handshake) -> None:
        self.will = handshake.packet.will
        self.queue = session.queue
        self.replays = Replays(
            link=link,
            session=session,
            store=parts.retained.store,
            replay_registry=parts.replays,
            authorizer=parts.authorizer,
            counters=parts.counters,
            clock=parts.clock,
        )
        self._session = session
        self._link = link
        self._handshake = handshake
        self._parts = parts
        #: the packet types that a Client may send now; any other is a Protocol Error
        self.actions = Actions(find=self._find)
        self._publishing: Publishing | None = None
        self._subscribing: Subscribing | None = None
        self._reauthentication: Reauthentication | None = None
        self._postpones = parts.pressure.active

    @property
    def keep_alive(self) -> int:
        """The Keep Alive in seconds, 0 for none."""
        return self._handshake.keep_alive

    @property
    def clean_start(self) -> bool:
        """Whether the Client has asked for a new Session."""
        return self._handshake.packet.clean_start

    def begin(self) -> None:
        """Resume the Session: messages in flight, then queued messages, then the interrupted replays."""
        self._session.attach(self._link, self.replays)
        if not self._link.is_closed:  # the resumed messages may have been too many for a slow connection
            self.replays.resume()
            self._parts.registry.grants.resumed(self._session)

    def end(self, will: p.Will | None) -> None:
        """Leave the Session. From now on its messages are queued, and its replays wait to be resumed."""
        # Detached first: stopped replays give live messages the whole window, and these must be queued, not sent.
        try:
            self._session.detach(self._link)
            self.replays.suspend()
            if self._reauthentication is not None:
                self._reauthentication.close()
            if self._publishing is not None:
                self._publishing.close()
        finally:  # whatever fails, the Session belongs to this connection no longer
            self._parts.registry.disconnect(self._link, self._session, will)
            self.actions.close()

    def has_room(self) -> None:
        """Note that the connection has sent its packets: queued messages and replays go on."""
        if self._session.link is self._link:
            self._session.go_on()
            self.replays.wake()

    # --- the actions, each made when the first packet of its type arrives

    def _find(self, packet_type: type[Any]) -> Action | None:
        make = _ACTIONS.get(packet_type)
        return None if make is None else make(self)

    def _ensure_publishing(self) -> Publishing:
        if self._publishing is None:
            self._publishing = Publishing(self._link, self._session, self._parts)
        return self._publishing

    def _ensure_subscribing(self) -> Subscribing:
        if self._subscribing is None:
            self._subscribing = Subscribing(self._link, self._session, self._parts, self.replays)
        return self._subscribing

    def _action_on_publish(self) -> Action:
        return self._first_publish if self._postpones else self._ensure_publishing().publish

    def _action_on_unsubscribe(self) -> Action:
        return Unsubscribing(self._link, self._session, self._parts, self.replays).unsubscribe

    def _action_on_auth(self) -> Action | None:
        if self._handshake.packet.properties.authentication_method is None:  # [MQTT5-4.12.0-7]
            return None
        self._reauthentication = Reauthentication(self._link, self._parts, self._handshake, self._session)
        return self._reauthentication.take

    def _first_publish(self, packet: p.Publish) -> None:
        """Postpone the first PUBLISH of a Client that has connected under pressure."""
        publish = self.actions[p.Publish] = self._ensure_publishing().publish
        pressure = self._parts.pressure
        if pressure.active:
            self._link.wait_for(pressure.relief(self._link), None, lambda _: publish(packet))
        else:
            publish(packet)

    def _puback(self, packet: p.Puback) -> None:
        self._session.inflight.acknowledged(packet.packet_identifier, 1)

    def _pubacks(self, packet: p.Pubacks) -> None:
        packet.steps = self._session.inflight.all_acknowledged(packet.packets)

    def _pubcomp(self, packet: p.Pubcomp) -> None:
        self._session.inflight.acknowledged(packet.packet_identifier, 2)

    def _pubrec(self, packet: p.Pubrec) -> None:
        link = self._link
        link.charge(_FOR_PUBREC)
        identifier = packet.packet_identifier
        if packet.reason_code >= ReasonCode.UNSPECIFIED_ERROR:
            self._session.inflight.refused(identifier)
            return
        ticket = self._session.inflight.received_by_client(identifier)
        if ticket is not None:
            pubrel = b"\x62\x02" + identifier.to_bytes(2, "big")
            link.acknowledgements.send_when_committed(ticket, pubrel, link.close_after_failure)
        else:
            answer = p.Pubrel(identifier, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
            link.send(link.explanations.encode(answer, "no QoS 2 message has this identifier now"))

    def _pingreq(self, _packet: p.Pingreq) -> None:
        self._link.send(_PINGRESP)

    def _disconnect(self, packet: p.Disconnect) -> None:
        """End the connection. The Will is discarded after a normal end [MQTT5-3.14.4-3], otherwise published."""
        if packet.reason_code not in CLIENT_DISCONNECT:
            raise ProtocolError(f"a Client does not send DISCONNECT with Reason Code 0x{packet.reason_code:02x}")
        expiry = packet.properties.session_expiry_interval
        if expiry is not None:
            if expiry and not self._handshake.packet.properties.session_expiry_interval:  # [MQTT5-3.14.2.2.2]
                raise ProtocolError("a Session Expiry Interval of 0 cannot be changed in DISCONNECT")
            self._session.expire_after(self._handshake.capped(expiry))
        normal = packet.reason_code == ReasonCode.SUCCESS
        said = packet.properties.reason_string
        why = f"DISCONNECT 0x{packet.reason_code:02x}" + ("" if said is None else f": {said}")
        self._link.finish(b"", None if normal else self.will, why)


#: the packet types that a Client may send, each with a function that makes the action of an exchange on it
_ACTIONS: dict[type[Any], Callable[[Exchange], Action | None]] = {
    p.Publish: lambda exchange: exchange._action_on_publish(),
    p.ExcessivePublish: lambda exchange: exchange._ensure_publishing().refuse,
    p.Puback: lambda exchange: exchange._puback,
    p.Pubacks: lambda exchange: exchange._pubacks,
    p.Pubrec: lambda exchange: exchange._pubrec,
    p.Pubrel: lambda exchange: exchange._ensure_publishing().release,
    p.Pubcomp: lambda exchange: exchange._pubcomp,
    p.Subscribe: lambda exchange: exchange._ensure_subscribing().subscribe,
    p.ExcessiveSubscribe: lambda exchange: exchange._ensure_subscribing().refuse,
    p.Unsubscribe: lambda exchange: exchange._action_on_unsubscribe(),
    p.Pingreq: lambda exchange: exchange._pingreq,
    p.Disconnect: lambda exchange: exchange._disconnect,
    p.Auth: lambda exchange: exchange._action_on_auth(),
}
