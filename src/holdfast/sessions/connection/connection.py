"""One Network Connection: keeps order, sends, and ends it.

It holds no policy: CONNECT is judged by :mod:`admission`, what follows is acted on by :mod:`exchange`. It turns bytes
into packets, packets into calls, and keeps later packets waiting while an answer is awaited.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.sessions.admission.admission import Admission, admit
from holdfast.sessions.connection.acknowledgements import Acknowledgements
from holdfast.sessions.connection.aliases import OutgoingAliases
from holdfast.sessions.connection.explanations import Explanations
from holdfast.sessions.connection.outbox import INetworkConnection, Outbox
from holdfast.sessions.exchange.broker_parts import BrokerParts
from holdfast.sessions.exchange.exchange import Exchange
from holdfast.sessions.exchange.publishing import failure_reason
from holdfast.sessions.limits import Limits
from holdfast.tickets import StorageFailure
from holdfast.wire import NO_PROPERTIES, PacketParser, ProtocolError, ReasonCode, WireError
from holdfast.wire import packets as p

T = TypeVar("T")

#: the largest packet accepted before the Client is admitted, and the most read ahead while an answer is awaited
UNTRUSTED_BYTES = 64 * 1024


class State(Enum):
    """Where a Network Connection is in its life."""

    NEW = "waits for CONNECT"
    ADMITTING = "CONNECT is being judged"
    ESTABLISHED = "CONNACK has been sent"
    CLOSED = "over"


class Connection:
    """The Server's side of one Network Connection."""

    _log = Logger()

    def __init__(self, services: BrokerParts, network: INetworkConnection, limits: Limits, listener: str) -> None:
        self.services = services
        self.limits = limits
        self.listener = listener
        self.counters = services.counters
        self.now = services.now
        self.checks_delivery = services.authorizer.checks_delivery
        self.protocol_version = 4
        self.maximum_packet_size: int | None = None
        self.explanations = Explanations(4)
        self.bridge = False
        self._state = State.NEW
        self._network = network
        self._parser = PacketParser(min(UNTRUSTED_BYTES, limits.max_packet_size))
        self._outbox = Outbox(network, services.turns, self.wake_replays, services.counters)
        self._aliases: OutgoingAliases | None = None
        self.acknowledgements = Acknowledgements(self._outbox.send_other)
        # Which packets are due; any other is a Protocol Error [MQTT5-3.1.0-1], [MQTT5-3.1.0-2].
        self._actions: dict[type[Any], Callable[[Any], None]] = {p.Connect: self._connect}
        self._holds = 0
        self._pumping = False
        self._paused = False
        self._admission: Admission | None = None
        self._exchange: Exchange | None = None
        self._most_bytes = limits.max_buffered_bytes or 1 << 62
        self._most_messages = limits.max_buffered_messages or 1 << 62
        self._keep_alive = 0.0
        self._heard_at = services.clock.seconds()
        self._timer: IDelayedCall | None = services.clock.callLater(limits.idle_timeout, self._idle)
        services.counters.connections += 1

    @property
    def is_closed(self) -> bool:
        """Whether it is over."""
        return self._state is State.CLOSED

    @property
    def name(self) -> str:
        """What to call the Client in the log."""
        return self._admission.client_id if self._admission is not None else f"a new client of {self.listener}"

    # --- what the transport tells

    def receive(self, data: bytes) -> None:
        """Take bytes from the Client."""
        if self._state is State.CLOSED:
            return
        self._heard_at = self.services.clock.seconds()
        self.counters.bytes_received += len(data)
        self._parser.receive_data(data)
        if self._holds:
            self._pause_if_full()
            return
        turns = self.services.turns
        turns.begin()
        try:
            self._pump()
        finally:
            turns.end()

    def drained(self) -> None:
        """Everything written has left."""
        if self._state is not State.CLOSED:
            self._outbox.drained()

    def lost(self) -> None:
        """The transport is gone without a DISCONNECT: the Will is due [MQTT5-3.1.2-8]."""
        self._end(self._due_will())

    # --- order: packets wait while an answer is awaited

    def hold(self) -> None:
        """Process no further packets of this Client until released as often."""
        self._holds += 1

    def release(self) -> None:
        """Go on with the packets that have waited, in their order."""
        self._holds -= 1
        if self._holds or self._state is State.CLOSED:
            return
        if self._paused:  # its Keep Alive stood still while we did not listen
            self._paused = False
            self._heard_at = self.services.clock.seconds()
            self._network.resume()
        self._pump()

    def wait_for(self, answer: Deferred[T], otherwise: T, then: Callable[[T], None]) -> None:
        """Hold until the answer is there, then act on it; on an error act on ``otherwise``."""
        self.hold()
        self.when_answered(answer, otherwise, then).addCallback(lambda _: self.release())

    def when_answered(self, answer: Deferred[T], otherwise: T, then: Callable[[T], None]) -> Deferred[None]:
        """Act on the answer when it is there, on an error on ``otherwise``; packets go on meanwhile."""

        def failed(failure: Failure) -> T:
            self._log.error(
                "asking about {client!r} failed: {error}", client=self.name, error=failure.getErrorMessage()
            )
            return otherwise

        def answered(result: T) -> None:
            if self._state is not State.CLOSED:
                try:
                    then(result)
                except WireError as error:
                    self._refuse(error)

        return answer.addErrback(failed).addCallback(answered).addErrback(self.broken)

    def denied_by_error(self, failure: Failure) -> bool:
        """Deny when the authorizer fails."""
        self._log.error("authorizing {client!r} failed: {error}", client=self.name, error=failure.getErrorMessage())
        return False

    def broken(self, failure: Failure) -> None:
        """Log an error that nobody has expected, and end the connection."""
        self._log.failure("unexpected error for {client!r}", failure, client=self.name)
        self.close(ReasonCode.UNSPECIFIED_ERROR, "internal error")

    def _pump(self) -> None:
        """Act on every whole packet that has arrived, one after the other."""
        if self._pumping:
            return
        self._pumping = True
        parser = self._parser
        next_packet = parser.next_packet
        packets = 0
        try:
            while not self._holds and self._state is not State.CLOSED:
                packet = next_packet()
                if packet is None:
                    return
                packets += 1
                action = self._actions.get(type(packet))
                if action is None:
                    raise ProtocolError(f"{type(packet).__name__.upper()} is out of place")
                action(packet)
            if self._holds:
                self._pause_if_full()
        except WireError as error:
            self._refuse(error)
        finally:
            self._pumping = False
            counters = self.counters
            counters.packets_received += packets
            counters.message_bytes_received += parser.publish_bytes
            parser.publish_bytes = 0

    def _pause_if_full(self) -> None:
        if not self._paused and self._parser.buffered >= UNTRUSTED_BYTES:
            self._paused = True
            self._network.pause()

    # --- the way in

    def _connect(self, packet: p.Connect) -> None:
        self._state = State.ADMITTING
        self.counters.connects += 1
        self._actions = {}
        self.protocol_version = packet.protocol_version
        self.bridge = packet.bridge
        self.maximum_packet_size = packet.properties.maximum_packet_size
        self.explanations = Explanations(packet.protocol_version, packet.properties)
        aliases = min(packet.properties.topic_alias_maximum or 0, self.limits.max_topic_alias)
        if aliases:
            self._aliases = OutgoingAliases(aliases, self.maximum_packet_size)
        self._admission = admit(self, packet)
        if self._admission is not None:
            self._admission.begin()

    def expect(self, actions: dict[type[Any], Callable[[Any], None]]) -> None:
        """Take these packets before CONNACK is sent."""
        self._actions = actions

    def attach(self, exchange: Exchange) -> None:
        """The Client has its Session, and leaves it with this connection; CONNACK is still to come."""
        self._exchange = exchange

    def establish(self, keep_alive: int) -> None:
        """The Client is admitted: act on its packets, and watch its Keep Alive (seconds, 0 for none)."""
        assert self._exchange is not None
        self._state = State.ESTABLISHED
        self._actions = self._exchange.actions
        self._parser.max_packet_size = self.limits.max_packet_size
        self._cancel_timer()
        self._keep_alive = keep_alive * self.limits.keepalive_multiplier
        if self._keep_alive:
            self._timer = self.services.clock.callLater(self._keep_alive, self._check_keep_alive)

    # --- sending

    @property
    def unsent(self) -> int:
        """Bytes accepted for sending that have not left yet."""
        return self._outbox.bytes

    def send(self, packet: bytes) -> None:
        """Send a packet other than a PUBLISH at the end of this turn."""
        if self._state is not State.CLOSED:
            self._outbox.send_other(packet)

    def send_message(self, packet: bytes) -> None:
        """Send a PUBLISH at the end of this turn; shut the connection down if it has let too much pile up."""
        if self._state is State.CLOSED:
            return
        if self._aliases is not None:
            packet = self._aliases.apply(packet)
        outbox = self._outbox
        outbox.messages += 1
        outbox.send(packet)
        if outbox.bytes > self._most_bytes or outbox.messages > self._most_messages:
            self._shut_down()

    def send_messages(self, packets: bytes, count: int) -> None:
        """Send retained messages, already joined. There was room for them, so they are not counted as piled up."""
        if self._state is not State.CLOSED:
            self._outbox.send(packets, count)

    def send_uncounted(self, packet: bytes) -> None:
        """Send a PUBLISH of the broker's own topics at the end of this turn; it does not count as a message."""
        if self._state is not State.CLOSED:
            self._outbox.send_uncounted(packet)
            if self._outbox.bytes > self._most_bytes:
                self._shut_down()

    def queued(self) -> None:
        """Messages wait for this Client's window: see that they stay within bounds."""
        assert self._exchange is not None
        session = self._exchange.session
        messages = len(session.queue) + self._outbox.messages
        if messages > self._most_messages or session.queue.bytes + self._outbox.bytes > self._most_bytes:
            self._shut_down()

    def wake_replays(self) -> None:
        """Let replays look for room."""
        if self._exchange is not None:
            self._exchange.wake_replays()

    def replay_over(self, topic_filter: str) -> None:
        """A replay has delivered everything."""
        if self._exchange is not None:
            self._exchange.replay_over(topic_filter)

    def replay_failed(self, error: BaseException) -> None:
        """A replay cannot be completed: end the connection rather than leave it incomplete in silence."""
        self._log.error("a replay to {client!r} failed: {error}", client=self.name, error=error)
        self.close(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, "retained messages cannot be read now")

    # --- the end

    def close(self, reason: ReasonCode, explanation: str) -> None:
        """End the Network Connection: with DISCONNECT in MQTT 5, by closing it in MQTT 3. The Will is published."""
        if self._state is State.CLOSED:
            return
        last = b""
        if self._state is State.ADMITTING:
            last = self.explanations.refusal(reason, explanation)
        elif self._state is State.ESTABLISHED:  # no DISCONNECT before CONNACK [MQTT5-3.14.0-1]
            last = self.explanations.disconnect(reason, explanation)
        self.finish(last, self._due_will())

    def close_for(self, failure: StorageFailure) -> bytes | None:
        """End the Network Connection because something could not be made durable; there is nothing to answer then."""
        self.close(failure_reason(failure), "the broker cannot store this now")
        return None

    def storage_failed(self, failure: StorageFailure) -> None:
        """Session State could not be made durable: the exchange cannot go on."""
        self.close_for(failure)

    def finish(self, last: bytes, will: p.Will | None) -> None:
        """Send what is collected and these last bytes, close, and leave the Session."""
        unsent = self._outbox.take(last)
        network = self._network
        self._end(will)
        network.close(unsent)

    def _shut_down(self) -> None:
        """End a connection that takes its messages too slowly (``force_shutdown``)."""
        if self._state is State.CLOSED:
            return
        assert self._exchange is not None
        self.counters.connections_shut_down += 1
        self._log.warn(
            "{client!r} is shut down: {messages} messages, {bytes} bytes wait for it (force_shutdown)",
            client=self.name,
            messages=self._outbox.messages + len(self._exchange.session.queue),
            bytes=self._outbox.bytes + self._exchange.session.queue.bytes,
        )
        self.close(ReasonCode.QUOTA_EXCEEDED, "too many messages wait for this client")

    def _due_will(self) -> p.Will | None:
        """Return the Will, which belongs to the Session only once CONNECT is accepted [MQTT311-3.1.2-8]."""
        return self._exchange.will if self._exchange is not None and self._state is State.ESTABLISHED else None

    def _refuse(self, error: WireError) -> None:
        """End the Network Connection because the Client broke the rules."""
        self.counters.protocol_errors += 1
        self._log.info(
            "{client!r} broke the protocol: {error} ({reason})",
            client=self.name,
            error=error,
            reason=error.reason.name,
        )
        if self._state is State.NEW and error.protocol_version is not None:
            explanations = Explanations(error.protocol_version, error.connect_properties or NO_PROPERTIES)
            # Without its properties, the Client's Maximum Packet Size is not known: send the shortest refusal.
            known = error.connect_properties is not None
            self.finish(explanations.refusal(error.reason, str(error) if known else ""), None)
        else:
            self.close(error.reason, str(error))

    def _end(self, will: p.Will | None) -> None:
        """Leave the Session, once; nothing of this connection stays behind."""
        if self._state is State.CLOSED:
            return
        self._state = State.CLOSED
        self._cancel_timer()
        self.acknowledgements.close()
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.end(will)

    # --- time

    def _idle(self) -> None:
        """No CONNECT came in time, or it was not answered in time, or its authentication took too long."""
        self._timer = None
        self._log.info("{client!r} was not admitted in time", client=self.name)
        self.finish(b"", None)

    def _check_keep_alive(self) -> None:
        """Close when nothing came for one and a half times the Keep Alive [MQTT5-3.1.2-22]."""
        clock = self.services.clock
        quiet = 0.0 if self._paused else clock.seconds() - self._heard_at
        if quiet < self._keep_alive:
            self._timer = clock.callLater(self._keep_alive - quiet, self._check_keep_alive)
            return
        self._timer = None
        self._log.info("{client!r} was silent for {quiet:.0f} s", client=self.name, quiet=quiet)
        self.close(ReasonCode.KEEP_ALIVE_TIMEOUT, "nothing was heard within the Keep Alive")

    def _cancel_timer(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
