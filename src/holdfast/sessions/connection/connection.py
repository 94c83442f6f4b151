"""One Network Connection, from its first byte to its end. It holds no policy.

How it works. A connection is a composition of five parts: :class:`PacketOrder` turns bytes into packets and calls one
action for each; :class:`Outbox` collects the packets to send; :class:`Acknowledgements` holds answers back until
their commit; and this class keeps the phase, the timer and the limits for unsent packets. :class:`UnreadAnswers` stops
reading from a Client that does not read.

The actions change with the phase (:class:`Phase`):

    NEW          CONNECT only. Its action calls ``admit``, which the creator of the connection has given to it.
    ADMITTING    nothing, or AUTH and DISCONNECT during enhanced authentication. ``admit`` answers now or later:
                 it attaches the Client's exchange and calls ``establish``, or it calls ``finish`` with a refusal.
    ESTABLISHED  the actions of the attached exchange.
    CLOSED       nothing. The exchange has left the Session.

Every end goes through ``_end``, once: the Client, the Server, the transport or a timer may begin it. The Will is
published unless the caller of ``finish`` says otherwise. The connection knows its Client only as
:class:`IAdmittedClient`, and the packages above know the connection only as :class:`Connection`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from holdfast.core.terminal import counted
from holdfast.core.tickets import StorageFailure
from holdfast.identity.addresses import Peer
from holdfast.identity.interfaces import PeerCertificate, in_time
from holdfast.sessions.connection.acknowledgements import (
    Acknowledgements,
    Explanations,
    explanations_for,
    failure_reason,
)
from holdfast.sessions.connection.aliases import OutgoingAliases
from holdfast.sessions.connection.link import (
    NO_ACTIONS,
    Actions,
    ConnectionLog,
    ErrorGuard,
    IAdmittedClient,
    INetworkConnection,
    IObserver,
    IRetainedRuns,
    ObservedActions,
    ObservedNetwork,
)
from holdfast.sessions.connection.outbox import UNLIMITED, FlushSchedule, Outbox
from holdfast.sessions.connection.packet_order import MOST_ANSWERS, PacketOrder, UnreadAnswers
from holdfast.sessions.connection.pressure import Pressure
from holdfast.sessions.connection.timeouts import Timeouts
from holdfast.sessions.counters import Counters
from holdfast.sessions.limits import Limits
from holdfast.watch.audit import DISCONNECTED, IAudit
from holdfast.watch.log import ClientLog
from holdfast.wire import NO_PROPERTIES, KnownTopics, ReasonCode, Run, Single, WireError
from holdfast.wire import packets as p

T = TypeVar("T")


class Phase(Enum):
    """The phase of a Network Connection."""

    NEW = "waits for CONNECT"
    ADMITTING = "CONNECT is being judged"
    ESTABLISHED = "CONNACK has been sent"
    CLOSED = "over"


class Connection:
    """The Server's side of one Network Connection.

    Lines about the Client are logged through ``client_log``. ``bridge`` tells that the Client announced itself as a
    bridge, ``participant`` that it takes part in what the broker offers beyond MQTT. Answers that promise durable
    changes go through ``acknowledgements``. Timers and other late calls that act for the Client enter the ``guard``: an
    unexpected error then ends this connection.
    """

    #: sees all that comes and goes; most connections have none
    _observer: IObserver | None = None
    #: whether the Client takes part in what the broker offers beyond MQTT; most do not
    participant = False

    def __init__(
        self,
        *,
        network: INetworkConnection,
        limits: Limits,
        listener: str,
        clock: IReactorTime,
        flushes: FlushSchedule,
        counters: Counters,
        pressure: Pressure,
        admit: Admit,
        log: ClientLog,
        audit: IAudit,
    ) -> None:
        self.limits = limits
        self.listener = listener
        self.client_log = ConnectionLog(log, network, listener, audit)
        self.protocol_version = 4
        self.maximum_packet_size: int | None = None
        self.bridge = False
        self.explanations = explanations_for(4)
        self._admit = admit
        self._clock = clock
        self._counters = counters
        self._network = network
        self._phase = Phase.NEW
        self.guard = ErrorGuard(self.close_after_error)
        fail = self.guard.fail
        self._outbox = Outbox(
            network,
            flushes,
            counters,
            fail,
            limits.max_buffered_bytes or UNLIMITED,
            limits.max_buffered_messages or UNLIMITED,
        )
        self.acknowledgements = Acknowledgements(self._outbox.send_other, self._charge, self.guard, self.takes_answers)
        self._pressure = pressure
        self._order = PacketOrder(
            actions=Actions({p.Connect: self._connect}),  # [MQTT5-3.1.0-1], [MQTT5-3.1.0-2]
            max_packet_size=limits.max_packet_size,
            reception=limits.reception,
            network=network,
            clock=clock,
            flushes=flushes,
            counters=counters,
            refuse=self._refuse,
            fail=fail,
        )
        # Called for every message, so no method of this class is in between.
        self.send_message: Callable[[bytes], None] = self._outbox.send_message
        self._outbox.on_unsent = self._check_unsent
        # Made when they are needed: most Clients read all that they are sent.
        self._unread: UnreadAnswers | None = None
        self._uses_aliases = False
        self._client: IAdmittedClient | None = None
        self._asked: Deferred[Any] | None = None
        self._timeouts = Timeouts(
            clock=clock,
            order=self._order,
            outbox=self._outbox,
            guard=self.guard,
            idle_timeout=limits.idle_timeout,
            on_late=self._not_admitted_in_time,
            on_silence=self._was_silent,
        )
        counters.connections += 1

    @property
    def peer(self) -> Peer:
        """The Client's address, as a trusted proxy tells it."""
        peer: Peer = self._network.peer
        return peer

    @property
    def certificate(self) -> PeerCertificate | None:
        """The Client's verified TLS certificate."""
        certificate: PeerCertificate | None = self._network.certificate
        return certificate

    @property
    def client(self) -> IAdmittedClient | None:
        """The admitted Client, None before :meth:`attach` and after the end."""
        return self._client

    @property
    def is_closed(self) -> bool:
        """Whether the connection is over."""
        return self._phase is Phase.CLOSED

    @property
    def unsent(self) -> int:
        """Bytes accepted for sending that have not left this process."""
        return self._outbox.bytes

    @property
    def waits(self) -> int:
        """How often bytes had to wait in this process, because the transport did not take them at once."""
        return self._outbox.waits

    # --- being observed

    def observe(self, observer: IObserver | None) -> None:
        """Show everything that comes and goes to this observer, from now on. None: to nobody any more.

        Call it while no packet is acted on, or while CONNECT is.
        """
        if self._phase is Phase.CLOSED:
            return
        actions, network = self._order.actions, self._network
        if isinstance(actions, ObservedActions):
            actions = actions.actions
        if isinstance(network, ObservedNetwork):
            network = network.network
        self._observer = observer
        self._act_by(actions)
        self._network = network if observer is None else ObservedNetwork(network, observer)
        self._outbox.write_to(self._network)
        self._order.take_singly(observer is not None)

    def _act_by(self, actions: Actions) -> None:
        """Act on the packets so from now on, and show them to the observer."""
        self._order.actions = actions if self._observer is None else ObservedActions(actions, self._observer)

    # --- calls of the transport

    def drained(self) -> None:
        """Note that every written byte has left."""
        if self._phase is not Phase.CLOSED:
            with self.guard:
                self._outbox.drained()
                if self._unread is not None:
                    self._unread.release_if_few()

    def lost(self) -> None:
        """Note that the transport is gone without a DISCONNECT: the Will is due [MQTT5-3.1.2-8]."""
        self._end(self._due_will(), "the connection was lost")

    # --- order: later packets wait

    @property
    def receive(self) -> Callable[[bytes], None]:
        """The function that takes bytes from the Client."""
        return self._order.receive

    def take_runs(self, known: KnownTopics, take: Callable[[Run | Single], bool]) -> None:
        """Take runs of the known topics from now on. If ``take`` refuses a run (False), its packets come one by one."""
        self._order.take_runs(known, take)

    def take_retained_runs(self, taker: IRetainedRuns) -> None:
        """Take retained runs from now on."""
        self._order.take_retained_runs(taker)

    def charge(self, packets: int) -> None:
        """Let the packet that is acted on count for so many more in the Client's part of this turn."""
        self._order.charge(packets)

    def hold(self, reads: bool = True, pings: bool = False) -> None:
        """Act on no further packet until :meth:`release` has been called as often.

        Without ``reads`` the transport is not read meanwhile: then the end of the connection is noticed only after all
        packets that came before it. With ``pings``, PINGREQ packets that come next are acted on.
        """
        self._order.hold(reads, pings)

    def release(self) -> None:
        """Act on the packets that waited, in their order."""
        self._order.release()

    def _charge(self) -> None:
        """Hold the Client, whose packet has added to the changes that wait, if these are too many."""
        self._pressure.charge(self)

    # --- waiting for answers

    def wait_for(self, answer: Deferred[T], otherwise: T, then: Callable[[T], None]) -> None:
        """Hold until the answer arrives, then act on the answer. After an error act on ``otherwise``."""
        self.hold()
        self.when_answered(answer, otherwise, then).addCallback(lambda _: self.release())

    def ask(self, answer: Deferred[T], otherwise: T, then: Callable[[T], None]) -> None:
        """Hold until an authenticator or an authorizer answers, then act on the answer.

        After an error, or without an answer in time, act on ``otherwise``. Before CONNACK the answer is cancelled when
        the connection ends: nobody's password is hashed for a Client that has gone.
        """
        if self._phase is Phase.ADMITTING:
            self._asked = answer
        self.wait_for(in_time(answer, self._clock), otherwise, then)

    def when_answered(self, answer: Deferred[T], otherwise: T, then: Callable[[T], None]) -> Deferred[None]:
        """Act on the answer when it arrives, without a hold. After an error act on ``otherwise``."""

        def failed(failure: Failure) -> T:
            if self._phase is not Phase.CLOSED:
                self.client_log.error("asking about it failed", failure.getErrorMessage())
            return otherwise

        def answered(result: T) -> None:
            if self._phase is not Phase.CLOSED:
                try:
                    then(result)
                except WireError as error:
                    self._refuse(error)

        return answer.addErrback(failed).addCallback(answered).addErrback(self.close_after_error)

    # --- from CONNECT to CONNACK

    def _connect(self, packet: p.Connect) -> None:
        self._phase = Phase.ADMITTING
        self._counters.connects += 1
        self._order.actions = NO_ACTIONS
        self.protocol_version = packet.protocol_version
        self.bridge = packet.bridge
        self.maximum_packet_size = packet.properties.maximum_packet_size
        self.explanations = explanations_for(packet.protocol_version, packet.properties)
        aliases = min(packet.properties.topic_alias_maximum or 0, self.limits.max_topic_alias_out)
        if aliases:
            self._uses_aliases = True
            self.send_message = OutgoingAliases(aliases, self.maximum_packet_size).before(self._outbox.send_message)
        self._admit(self, packet)

    def expect(self, actions: Actions) -> None:
        """Accept these packets before CONNACK is sent."""
        self._act_by(actions)

    def attach(self, client: IAdmittedClient, on_room: Callable[[], None]) -> None:
        """Bind the Client's Session to this connection. ``on_room`` is called when it has room again."""
        self._client = client
        self._outbox.on_room = on_room

    def establish(self, keep_alive: int) -> None:
        """Accept the Client's packets from now on, and watch its Keep Alive (seconds, 0 for none)."""
        assert self._client is not None
        self._phase = Phase.ESTABLISHED
        self._counters.tallies.protocols[self.protocol_version] += 1
        self._asked = None
        self._act_by(self._client.actions)
        self._order.accept_packets_up_to(self.limits.max_packet_size)
        longest_silence = keep_alive * self.limits.keepalive_multiplier
        self._network.admitted(longest_silence)
        self._timeouts.admitted(longest_silence)

    def answer_after(self, seconds: float, answer: Callable[[], None]) -> None:
        """Call ``answer``, which ends the connection, after so many seconds, in place of the limit for admission."""
        self._timeouts.answer_after(seconds, answer)

    # --- sending

    def send(self, packet: bytes) -> None:
        """Send a packet other than PUBLISH."""
        if self._phase is not Phase.CLOSED:
            self._outbox.send_other(packet)

    def send_run(self, run: Run | Single, qos: int, identifier: int) -> bool:
        """Send a run with this QoS, and with Packet Identifiers from this one on.

        Returns False, without any effect, if each of its messages must be sent by itself.
        """
        if self._phase is Phase.CLOSED:
            return True
        if not self.takes_as_it_is(run):
            return False
        return self._outbox.send_run(run.packets(self.protocol_version == 5, qos, identifier), run.count)

    def takes_as_it_is(self, run: Run | Single) -> bool:
        """Tell whether no message of a run has to be changed or left out for the Client."""
        return not self._uses_aliases and (self.maximum_packet_size is None or run.longest <= self.maximum_packet_size)

    def takes_queued(self, run: Run | Single, size: int) -> bool:
        """Tell whether a run that takes so many bytes in the queue may wait there as it is."""
        return self._phase is not Phase.CLOSED and self.takes_as_it_is(run) and not self._is_too_long(run.count, size)

    def send_joined(self, packets: bytes, count: int) -> bool:
        """Send PUBLISH packets, joined. Return False, without any effect, if too much would wait."""
        return self._phase is Phase.CLOSED or self._outbox.send_run(packets, count)

    def send_messages(self, packets: bytes, count: int) -> None:
        """Send several retained messages, already joined."""
        # A replay asks for room before it sends. So its messages count only if the transport does not take them.
        if self._phase is not Phase.CLOSED:
            self._outbox.send_replayed(packets, count)

    def send_uncounted(self, packet: bytes) -> None:
        """Send a PUBLISH of the broker's own topics. The counters leave it out."""
        if self._phase is not Phase.CLOSED:
            self._outbox.send_uncounted(packet)

    def ask_for_room(self) -> None:
        """Call ``on_room`` when the packets so far have left, in a later turn at the earliest."""
        if self._phase is not Phase.CLOSED:
            self._outbox.ask_for_room()

    def queued(self) -> None:
        """Shut the connection down if its Session's queue has grown too long."""
        if self._is_too_long():
            self._outbox.write_early()
            if self._phase is not Phase.CLOSED and self._is_too_long():
                self._shut_down()

    def _is_too_long(self, messages: int = 0, size: int = 0) -> bool:
        """Tell whether too much waits, with so much more in the queue."""
        assert self._client is not None
        queue, outbox = self._client.queue, self._outbox
        return (
            len(queue) + outbox.messages + messages > outbox.max_messages
            or queue.bytes + outbox.bytes + size > outbox.max_bytes
        )

    def takes_answers(self, size: int) -> bool:
        """Tell whether answers of this size neither pause nor end the connection, even if the Client reads none."""
        outbox = self._outbox
        return not outbox.is_writing or (
            outbox.answers + size <= MOST_ANSWERS and outbox.bytes + size <= outbox.max_bytes
        )

    # --- the end

    def close(self, reason: ReasonCode, explanation: str, server: str | None = None) -> None:
        """End the connection, with DISCONNECT where the protocol version has it. The Will is published.

        ``server`` is another one that the Client is told to use.
        """
        if self._phase is Phase.CLOSED:
            return
        last = b""
        if self._phase is Phase.ADMITTING:
            last = self.explanations.refusal(reason, explanation, server)
        elif self._phase is Phase.ESTABLISHED:  # no DISCONNECT before CONNACK [MQTT5-3.14.0-1]
            last = self.explanations.disconnect(reason, explanation, server)
        self.finish(last, self._due_will(), f"{reason.name}, {explanation}", reason)

    def break_off(self, cause: str, text: str) -> None:
        """End the connection because the Client broke the protocol below MQTT. The Will is published."""
        if self._phase is not Phase.CLOSED:
            self._counters.protocol_errors += 1
            self.client_log.info(cause, text)
            self.finish(b"", self._due_will(), text, ReasonCode.PROTOCOL_ERROR)

    def close_after_failure(self, failure: StorageFailure) -> None:
        """End the connection because a change could not be made durable."""
        self.close(failure_reason(failure), "the broker cannot store this now")

    def close_after_error(self, failure: Failure) -> None:
        """End the connection after an unexpected error, and log the error."""
        self.client_log.failure("unexpected error", failure)
        try:
            self.close(ReasonCode.UNSPECIFIED_ERROR, "internal error")
        except Exception:  # noqa: BLE001 - the caller's work is not to blame
            self.client_log.failure("unexpected error at its end", Failure())
            self._network.abort()

    def finish(
        self,
        last: bytes,
        will: p.Will | None,
        why: str = "the broker closed the connection",
        reason: ReasonCode = ReasonCode.SUCCESS,
    ) -> None:
        """Send the collected packets and these last bytes, then close. Publish this Will; None: publish none.

        ``why`` is the reason for the log, and ``reason`` the one for the transport.
        """
        # The Session is left before the transport is closed: from then on its messages are queued, not lost.
        unsent = self._outbox.take(last)
        try:
            self._end(will, why)
        finally:
            self._network.close(unsent, reason)

    def _shut_down(self) -> None:
        """End a connection that takes its messages too slowly (``force_shutdown``)."""
        if self._phase is Phase.CLOSED:
            return
        self._counters.connections_shut_down += 1
        queue = self._client.queue if self._client is not None else None
        messages = self._outbox.messages + (0 if queue is None else len(queue))
        size = self._outbox.bytes + (0 if queue is None else queue.bytes)
        waiting = f"{counted(messages, 'message')}, {counted(size, 'byte')}"
        self.client_log.warn("is shut down", f"{waiting} wait for it (force_shutdown)")
        self.close(ReasonCode.QUOTA_EXCEEDED, "too much waits for this client")

    def _check_unsent(self) -> None:
        """Act on packets that have to wait: end the connection, or stop reading from its Client."""
        outbox = self._outbox
        if outbox.bytes > outbox.max_bytes or outbox.messages > outbox.max_messages:
            self._shut_down()
        elif self._phase is not Phase.CLOSED and outbox.answers > MOST_ANSWERS:
            if self._unread is None:
                self._unread = UnreadAnswers(outbox, self._order, self._clock, self._takes_nothing, self.guard)
            self._unread.wait_at_most(self._timeouts.longest_silence)
            self._unread.hold_if_many()

    def _takes_nothing(self) -> None:
        """End the connection of a Client that sends, and takes none of its answers."""
        self._counters.connections_shut_down += 1
        self.client_log.warn(
            "is shut down",
            f"it takes none of the {self._outbox.bytes} bytes that wait for it, {self._outbox.answers} of them answers",
        )
        self.close(ReasonCode.QUOTA_EXCEEDED, "the answers to this client are not read")

    def _due_will(self) -> p.Will | None:
        """Return the Will, which belongs to the Session only once CONNECT is accepted [MQTT311-3.1.2-8]."""
        return self._client.will if self._client is not None and self._phase is Phase.ESTABLISHED else None

    def _refuse(self, error: WireError) -> None:
        """End the Network Connection because the Client broke the rules."""
        self._counters.protocol_errors += 1
        self.client_log.info("broke the protocol", f"({error.reason.name}) {error}")
        if self._phase is Phase.NEW and error.protocol_version is not None:
            # A malformed CONNECT. Without its properties the Maximum Packet Size is unknown: send no Reason String.
            known = error.connect_properties is not None
            explanations = Explanations(error.protocol_version, error.connect_properties or NO_PROPERTIES)
            self.finish(explanations.refusal(error.reason, str(error) if known else ""), None, reason=error.reason)
        else:
            self.close(error.reason, str(error))

    def _end(self, will: p.Will | None, why: str) -> None:
        """Leave the Session, once. Timers, packets and answers of this connection are dropped."""
        if self._phase is Phase.CLOSED:
            return
        if self._phase is Phase.ESTABLISHED:
            self._counters.tallies.protocols[self.protocol_version] -= 1
            self.client_log.coming(lambda: f"is gone: {why}")
            self.client_log.audit(DISCONNECTED, {}, cause=why)
        self._phase = Phase.CLOSED
        if self._observer is not None:
            self._observer.ended(why)
        self._order.close()
        self._pressure.leave(self)
        self._timeouts.close()
        if self._unread is not None:
            self._unread.close()
        self.acknowledgements.close()
        asked, self._asked = self._asked, None
        if asked is not None:
            asked.cancel()
        client, self._client = self._client, None
        if client is not None:
            client.end(will)
        self._outbox.close()
        self.guard.close()

    # --- time

    def _not_admitted_in_time(self) -> None:
        """Close: CONNECT did not come, or its authentication took too long."""
        self._counters.connections_not_admitted_in_time += 1
        self.client_log.info("was not admitted in time", f"within {self.limits.idle_timeout:g} s")
        self.finish(b"", None)

    def _was_silent(self, seconds: float) -> None:
        """Close: the Keep Alive has passed without a packet [MQTT5-3.1.2-22]."""
        self.client_log.info("was silent", f"for {seconds:.0f} s")
        self.close(ReasonCode.KEEP_ALIVE_TIMEOUT, "nothing was heard within the Keep Alive")


#: judges a CONNECT, now or later
Admit = Callable[[Connection, p.Connect], None]
