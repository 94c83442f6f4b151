"""One Network Connection: which packets are due when, and how it ends.

It holds no policy of its own: CONNECT is judged by :mod:`handshake`, PUBLISH by :mod:`inbound`, SUBSCRIBE by
:mod:`subscribing`. It turns bytes into packets, packets into calls, and keeps order while an answer is awaited.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.interfaces import Credentials, Principal
from holdfast.messages import ApplicationMessage
from holdfast.sessions.acknowledgements import Acknowledgements
from holdfast.sessions.handshake import Handshake, Refused, refusal
from holdfast.sessions.inbound import Publications, failure_reason
from holdfast.sessions.limits import Limits
from holdfast.sessions.outbox import INetworkConnection, Outbox
from holdfast.sessions.services import Services
from holdfast.sessions.session import Session
from holdfast.sessions.subscribing import Subscriptions
from holdfast.tickets import StorageFailure
from holdfast.wire import PacketParser, Properties, ProtocolError, ReasonCode, WireError, encode
from holdfast.wire import packets as p

T = TypeVar("T")

#: the largest packet accepted before the Client is admitted, and the most read ahead while an answer is awaited
UNTRUSTED_BYTES = 64 * 1024

_PINGRESP = b"\xd0\x00"


class State(Enum):
    """Where a Network Connection is in its life."""

    NEW = "waits for CONNECT"
    ADMITTING = "CONNECT is being judged"
    ESTABLISHED = "CONNACK has been sent"
    CLOSED = "over"


class Connection:
    """The Server's side of one Network Connection."""

    _log = Logger()

    def __init__(self, services: Services, network: INetworkConnection, limits: Limits, listener: str) -> None:
        self.services = services
        self.limits = limits
        self.counters = services.counters
        self.now = services.now
        self.checks_delivery = services.authorizer.checks_delivery
        self.state = State.NEW
        self.protocol_version = 4
        self.maximum_packet_size: int | None = None
        self.bridge = False
        self._network = network
        self._listener = listener
        self._parser = PacketParser(min(UNTRUSTED_BYTES, limits.max_packet_size))
        self._outbox = Outbox(network, services.turns, self.wake_replays)
        self.acknowledgements = Acknowledgements(self._outbox.send)
        self._actions = _ACTIONS[State.NEW]
        self._holds = 0
        self._pumping = False
        self._paused = False
        self._session: Session | None = None
        self._publications: Publications | None = None
        self._subscriptions: Subscriptions | None = None
        self._will: p.Will | None = None
        self._handshake: Handshake | None = None
        self._most_bytes = limits.max_buffered_bytes or 1 << 62
        self._most_messages = limits.max_buffered_messages or 1 << 62
        self._keep_alive = 0.0
        self._heard_at = services.clock.seconds()
        self._timer: IDelayedCall | None = services.clock.callLater(limits.idle_timeout, self._idle)
        services.counters.connections += 1

    # --- what the transport tells

    def receive(self, data: bytes) -> None:
        """Take bytes from the Client."""
        if self.state is State.CLOSED:
            return
        self._heard_at = self.services.clock.seconds()
        self._parser.receive_data(data)
        if self._holds:
            self._pause_if_full()
        else:
            self._pump()

    def drained(self) -> None:
        """Everything written has left."""
        if self.state is not State.CLOSED:
            self._outbox.drained()

    def lost(self) -> None:
        """The transport is gone without a DISCONNECT: the Will is due [MQTT5-3.1.2-8]."""
        self._end(self._will)

    # --- order: packets wait while an answer is awaited

    def hold(self) -> None:
        """Process no further packets of this Client until released as often."""
        self._holds += 1

    def release(self) -> None:
        """Go on with the packets that have waited, in their order."""
        self._holds -= 1
        if self._holds or self.state is State.CLOSED:
            return
        if self._paused:  # its Keep Alive stood still while we did not listen
            self._paused = False
            self._heard_at = self.services.clock.seconds()
            self._network.resume()
        self._pump()

    def wait_for(self, answer: Deferred[T], otherwise: T, then: Callable[[T], None]) -> None:
        """Hold until the answer is there, then act on it; on an error act on ``otherwise``."""
        self.hold()

        def failed(failure: Failure) -> T:
            self._log.error(
                "asking about {client!r} failed: {error}", client=self._name, error=failure.getErrorMessage()
            )
            return otherwise

        def answered(result: T) -> None:
            if self.state is not State.CLOSED:
                try:
                    then(result)
                except WireError as error:
                    self._refuse(error)

        answer.addErrback(failed)
        answer.addCallback(answered)
        answer.addBoth(self._released)

    def _released(self, result: Any) -> None:
        if isinstance(result, Failure):
            self._log.failure("unexpected error for {client!r}", result, client=self._name)
            self.close(ReasonCode.UNSPECIFIED_ERROR, "internal error")
        self.release()

    def denied_by_error(self, failure: Failure) -> bool:
        """Deny when the authorizer fails."""
        self._log.error("authorizing {client!r} failed: {error}", client=self._name, error=failure.getErrorMessage())
        return False

    def may_receive(self, message: ApplicationMessage) -> bool | Deferred[bool]:
        """Ask whether a retained message may be delivered here."""
        assert self._session is not None
        return self.services.authorizer.may_receive(self._session.principal, message)

    def _pump(self) -> None:
        """Act on every whole packet that has arrived, one after the other."""
        if self._pumping:
            return
        self._pumping = True
        next_packet = self._parser.next_packet
        try:
            while not self._holds and self.state is not State.CLOSED:
                packet = next_packet()
                if packet is None:
                    return
                action = self._actions.get(type(packet))
                if action is None:
                    raise ProtocolError(f"{type(packet).__name__.upper()} is out of place")
                action(self, packet)
            if self._holds:
                self._pause_if_full()
        except WireError as error:
            self._refuse(error)
        finally:
            self._pumping = False

    def _pause_if_full(self) -> None:
        if not self._paused and self._parser.buffered >= UNTRUSTED_BYTES:
            self._paused = True
            self._network.pause()

    # --- sending

    @property
    def unsent(self) -> int:
        """Bytes accepted for sending that have not left yet."""
        return self._outbox.bytes

    def send(self, packet: bytes) -> None:
        """Send a packet at the end of this turn."""
        if self.state is not State.CLOSED:
            self._outbox.send(packet)

    def send_message(self, packet: bytes) -> None:
        """Send a PUBLISH at the end of this turn; shut the connection down if it has let too much pile up."""
        if self.state is State.CLOSED:
            return
        outbox = self._outbox
        outbox.messages += 1
        outbox.send(packet)
        self.counters.messages_sent += 1
        if outbox.bytes > self._most_bytes or outbox.messages > self._most_messages:
            self._shut_down()

    def send_messages(self, packets: bytes, count: int) -> None:
        """Send retained messages, already joined. There was room for them, so they are not counted as piled up."""
        if self.state is not State.CLOSED:
            self._outbox.send(packets)
            self.counters.messages_sent += count

    def queued(self) -> None:
        """Messages wait for this Client's window: see that they stay within bounds."""
        session = self._session
        assert session is not None
        messages = session.queue_length + self._outbox.messages
        if messages > self._most_messages or session.queue_bytes + self._outbox.bytes > self._most_bytes:
            self._shut_down()

    def _shut_down(self) -> None:
        """End a connection that takes its messages too slowly [force_shutdown]."""
        if self.state is State.CLOSED:
            return
        self.counters.connections_shut_down += 1
        self._log.warn(
            "{client!r} is shut down: {messages} messages, {bytes} bytes wait for it (force_shutdown)",
            client=self._name,
            messages=self._outbox.messages + (self._session.queue_length if self._session else 0),
            bytes=self._outbox.bytes,
        )
        self.close(ReasonCode.QUOTA_EXCEEDED, "too many messages wait for this client")

    # --- replays

    def wake_replays(self) -> None:
        """Let replays look for room."""
        if self._subscriptions is not None:
            self._subscriptions.wake()

    def replay_over(self, topic_filter: str) -> None:
        """A replay has delivered everything."""
        if self._subscriptions is not None:
            self._subscriptions.replay_over(topic_filter)

    def replay_failed(self, error: BaseException) -> None:
        """A replay cannot be completed: end the connection rather than leave it incomplete in silence."""
        self._log.error("a replay to {client!r} failed: {error}", client=self._name, error=error)
        self.close(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, "retained messages cannot be read now")

    # --- CONNECT

    def _connect(self, packet: p.Connect) -> None:
        self.state = State.ADMITTING
        self._actions = _ACTIONS[State.ADMITTING]
        self.protocol_version = packet.protocol_version
        self.bridge = packet.bridge
        self.maximum_packet_size = packet.properties.maximum_packet_size
        try:
            self._handshake = Handshake(packet, self.limits)
        except Refused as refused:
            self._reject(refused.reason, str(refused))
            return
        credentials = Credentials(
            self._handshake.client_id, packet.username, packet.password, self._listener, packet.protocol_version
        )
        answer = self.services.authenticator.authenticate(credentials)
        if isinstance(answer, Deferred):
            self.wait_for(answer, ReasonCode.SERVER_UNAVAILABLE, self._authenticated)
        else:
            self._authenticated(answer)

    def _authenticated(self, answer: Principal | ReasonCode) -> None:
        if not isinstance(answer, Principal):
            self._reject(answer, "the connection is not allowed")
            return
        assert self._handshake is not None
        will = self._handshake.packet.will
        if will is None:
            self._admit(answer)
            return
        allowed = self.services.authorizer.may_publish(answer, will.topic, will.qos, will.retain)
        if isinstance(allowed, Deferred):
            self.wait_for(allowed, False, lambda result: self._will_decided(result, answer))
        else:
            self._will_decided(allowed, answer)

    def _will_decided(self, allowed: bool, principal: Principal) -> None:
        if allowed:
            self._admit(principal)
        else:
            self._reject(ReasonCode.NOT_AUTHORIZED, "the Will Message is not allowed")

    def _admit(self, principal: Principal) -> None:
        """Attach the Session; CONNACK follows once that is durable."""
        handshake = self._handshake
        assert handshake is not None
        session, present, ticket = self.services.registry.connect(
            self, principal, handshake.packet.clean_start, handshake.expiry_interval, self.limits, handshake.window
        )
        self._session = session
        self._will = handshake.packet.will
        self.hold()

        def settled(failure: StorageFailure | None) -> None:
            if self.state is State.CLOSED:
                return
            if failure is not None:
                self._reject(failure_reason(failure), "the Session cannot be stored")
            else:
                self._establish(handshake, session, present)
            self.release()

        ticket.when_settled(settled)

    def _establish(self, handshake: Handshake, session: Session, present: bool) -> None:
        self.state = State.ESTABLISHED
        self._actions = _ACTIONS[State.ESTABLISHED]
        self._parser.max_packet_size = self.limits.max_packet_size
        self._publications = Publications(self, session)
        self._subscriptions = Subscriptions(self, session)
        self._cancel_timer()
        self._keep_alive = handshake.keep_alive * self.limits.keepalive_multiplier
        if self._keep_alive:
            self._timer = self.services.clock.callLater(self._keep_alive, self._check_keep_alive)
        self.send(handshake.accepted(present))
        session.link = self
        session.resume(self)
        if self._subscriptions is not None:  # else resuming has shut the connection down
            self._subscriptions.resume()

    def _reject(self, reason: ReasonCode, explanation: str) -> None:
        """Refuse the CONNECT."""
        self.counters.connections_refused += 1
        self._log.info(
            "{client!r} is refused: {reason}, {explanation}",
            client=self._name,
            reason=reason.name,
            explanation=explanation,
        )
        self._finish(refusal(self.protocol_version, reason, explanation), None)

    # --- established

    def _publish(self, packet: p.Publish) -> None:
        assert self._publications is not None
        self._publications.publish(packet)

    def _pubrel(self, packet: p.Pubrel) -> None:
        assert self._publications is not None
        self._publications.release(packet)

    def _puback(self, packet: p.Puback) -> None:
        assert self._session is not None
        self._session.acknowledged(packet.packet_identifier, 1)

    def _pubrec(self, packet: p.Pubrec) -> None:
        assert self._session is not None
        identifier = packet.packet_identifier
        if packet.reason_code >= ReasonCode.UNSPECIFIED_ERROR:
            self._session.refused(identifier)
            return
        ticket = self._session.received_by_client(identifier)
        body = identifier.to_bytes(2, "big")
        if ticket is not None:
            self.acknowledgements.add(ticket, b"\x62\x02" + body, self.close_for)
        elif self.protocol_version == 5:
            self.send(b"\x62\x03" + body + bytes((ReasonCode.PACKET_IDENTIFIER_NOT_FOUND,)))
        else:
            self.send(b"\x62\x02" + body)

    def _pubcomp(self, packet: p.Pubcomp) -> None:
        assert self._session is not None
        self._session.acknowledged(packet.packet_identifier, 2)

    def _subscribe(self, packet: p.Subscribe) -> None:
        assert self._subscriptions is not None
        self._subscriptions.subscribe(packet)

    def _unsubscribe(self, packet: p.Unsubscribe) -> None:
        assert self._subscriptions is not None
        self._subscriptions.unsubscribe(packet)

    def _pingreq(self, _packet: p.Pingreq) -> None:
        self.send(_PINGRESP)

    def _disconnect(self, packet: p.Disconnect) -> None:
        """The Client says goodbye; its Will is discarded unless it asks otherwise [MQTT5-3.14.4-3]."""
        session = self._session
        assert session is not None
        assert self._handshake is not None
        expiry = packet.properties.session_expiry_interval
        if expiry is not None:
            if session.expiry_interval == 0 and expiry:
                raise ProtocolError("a Session Expiry Interval of 0 cannot be changed in DISCONNECT")
            session.expiry_interval = self._handshake.capped(expiry)
        keep_will = packet.reason_code == ReasonCode.DISCONNECT_WITH_WILL_MESSAGE
        self._finish(b"", self._will if keep_will else None)

    # --- the end

    def close(self, reason: ReasonCode, explanation: str) -> None:
        """End the Network Connection: with DISCONNECT in MQTT 5, by closing it in MQTT 3. The Will is published."""
        if self.state is State.CLOSED:
            return
        if self.state is not State.ESTABLISHED:
            last = b"" if self.state is State.NEW else refusal(self.protocol_version, reason, explanation)
        elif self.protocol_version == 5:
            last = self._fitting_disconnect(reason, explanation)
        else:
            last = b""
        self._finish(last, self._will)

    def close_for(self, failure: StorageFailure) -> bytes | None:
        """End the Network Connection because something could not be made durable; there is nothing to answer then."""
        self.close(failure_reason(failure), "the broker cannot store this now")
        return None

    def storage_failed(self, failure: StorageFailure) -> None:
        """Session State could not be made durable: the exchange cannot go on."""
        self.close_for(failure)

    def _fitting_disconnect(self, reason: ReasonCode, explanation: str) -> bytes:
        """Return DISCONNECT, without its Reason String where that exceeds the Maximum Packet Size [MQTT5-3.14.2-3]."""
        packet = encode(p.Disconnect(reason, Properties(reason_string=explanation)), 5)
        if self.maximum_packet_size is not None and len(packet) > self.maximum_packet_size:
            packet = encode(p.Disconnect(reason), 5)
        return packet

    def _refuse(self, error: WireError) -> None:
        """End the Network Connection because the Client broke the rules."""
        self.counters.protocol_errors += 1
        self._log.info(
            "{client!r} broke the protocol: {error} ({reason})",
            client=self._name,
            error=error,
            reason=error.reason.name,
        )
        if self.state is State.NEW and error.protocol_version is not None:
            self._finish(refusal(error.protocol_version, error.reason, str(error)), None)
        else:
            self.close(error.reason, str(error))

    def _finish(self, last: bytes, will: p.Will | None) -> None:
        """Send what is collected and these last bytes, close, and leave the Session."""
        unsent = self._outbox.take()
        network = self._network
        self._end(will)
        network.close(unsent + last)

    def _end(self, will: p.Will | None) -> None:
        """Leave the Session, once; nothing of this connection stays behind."""
        if self.state is State.CLOSED:
            return
        self.state = State.CLOSED
        self._cancel_timer()
        self.acknowledgements.close()
        if self._session is not None and self._session.link is self:
            self._session.link = None  # from here on messages are queued, not sent
        if self._subscriptions is not None:
            self._subscriptions.suspend()
            self._subscriptions = None
        if self._session is not None:
            self.services.registry.disconnect(self, self._session, will)

    def _idle(self) -> None:
        """No CONNECT came in time, or it was not answered in time."""
        self._timer = None
        self._log.info("a connection through {listener} sent no CONNECT in time", listener=self._listener)
        self._finish(b"", None)

    def _check_keep_alive(self) -> None:
        """Close when nothing came for one and a half times the Keep Alive [MQTT5-3.1.2-22]."""
        clock = self.services.clock
        quiet = 0.0 if self._paused else clock.seconds() - self._heard_at
        if quiet < self._keep_alive:
            self._timer = clock.callLater(self._keep_alive - quiet, self._check_keep_alive)
            return
        self._timer = None
        self._log.info("{client!r} was silent for {quiet:.0f} s", client=self._name, quiet=quiet)
        self.close(ReasonCode.KEEP_ALIVE_TIMEOUT, "nothing was heard within the Keep Alive")

    def _cancel_timer(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    @property
    def _name(self) -> str:
        return self._handshake.client_id if self._handshake is not None else f"a new client of {self._listener}"


_Action = Callable[[Connection, Any], None]

#: Which packets a Client may send when; any other is a Protocol Error [MQTT5-3.1.0-1], [MQTT5-3.1.0-2].
_ACTIONS: dict[State, dict[type[Any], _Action]] = {
    State.NEW: {p.Connect: Connection._connect},
    State.ADMITTING: {},
    State.ESTABLISHED: {
        p.Publish: Connection._publish,
        p.Puback: Connection._puback,
        p.Pubrec: Connection._pubrec,
        p.Pubrel: Connection._pubrel,
        p.Pubcomp: Connection._pubcomp,
        p.Subscribe: Connection._subscribe,
        p.Unsubscribe: Connection._unsubscribe,
        p.Pingreq: Connection._pingreq,
        p.Disconnect: Connection._disconnect,
    },
    State.CLOSED: {},
}
