"""The seam between one Network Connection and the packages above it.

Admission, exchange, replays, Sessions and the registry use a connection only through :class:`IClientLink`.
The connection calls back through :class:`IAdmittedClient` only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure
from zope.interface import implementer

from holdfast.core.tickets import StorageFailure
from holdfast.identity.addresses import Peer
from holdfast.identity.interfaces import PeerCertificate
from holdfast.sessions.connection.acknowledgements import Acknowledgements, Explanations
from holdfast.sessions.connection.link import Action, Actions, ConnectionLog, ErrorGuard, INetworkConnection
from holdfast.sessions.limits import Limits
from holdfast.wire import KnownTopics, ReasonCode, RetainedRun, Run, RunTaker
from holdfast.wire.packets import Will

T = TypeVar("T")


class IQueueSize(Protocol):
    """The size of the queue of a Session."""

    bytes: int

    def __len__(self) -> int:
        """Return the number of messages."""


class IAdmittedClient(Protocol):
    """An admitted Client with its Session, as the connection sees it."""

    actions: Actions
    will: Will | None

    @property
    def keep_alive(self) -> int:
        """The Keep Alive in seconds, 0 for none."""

    @property
    def clean_start(self) -> bool:
        """Whether the Client has asked for a new Session."""

    @property
    def queue(self) -> IQueueSize:
        """The messages that wait in the Session."""

    def end(self, will: Will | None) -> None:
        """Leave the Session. Publish this Will; None: publish none."""


class IRetainedRuns(RunTaker, Protocol):
    """Takes the retained runs of one Client."""

    def take(self, run: RetainedRun) -> bool:
        """Retain the messages of a run. Return False, without any effect, if they have to be taken one by one."""


class IClientLink(Protocol):
    """One Client's Network Connection.

    Lines about the Client are logged through ``client_log``. ``bridge`` tells that the Client announced itself as a
    bridge, ``participant`` that it takes part in what the broker offers beyond MQTT. Answers that promise durable
    changes go through ``acknowledgements``. Timers and other late calls that act for the Client enter the ``guard``: an
    unexpected error then ends this connection.
    """

    client_log: ConnectionLog
    listener: str
    limits: Limits
    protocol_version: int
    maximum_packet_size: int | None
    bridge: bool
    participant: bool
    explanations: Explanations
    acknowledgements: Acknowledgements
    guard: ErrorGuard

    @property
    def peer(self) -> Peer:
        """The Client's address, as a trusted proxy tells it."""

    @property
    def certificate(self) -> PeerCertificate | None:
        """The Client's verified TLS certificate."""

    @property
    def client(self) -> IAdmittedClient | None:
        """The admitted Client, None before :meth:`attach` and after the end."""

    @property
    def is_closed(self) -> bool:
        """Whether the connection is over."""

    @property
    def unsent(self) -> int:
        """Bytes accepted for sending that have not left this process."""

    def observe(self, observer: IObserver | None) -> None:
        """Show everything that comes and goes to this observer, from now on. None: to nobody any more."""

    # --- sending

    def send(self, packet: bytes) -> None:
        """Send a packet other than PUBLISH."""

    def send_message(self, packet: bytes) -> None:
        """Send a PUBLISH."""

    def send_run(self, run: Run, qos: int, identifier: int) -> bool:
        """Send a run with this QoS, and with Packet Identifiers from this one on.

        Returns False, without any effect, if each of its messages must be sent by itself.
        """

    def send_messages(self, packets: bytes, count: int) -> None:
        """Send several retained messages, already joined."""

    def send_uncounted(self, packet: bytes) -> None:
        """Send a PUBLISH of the broker's own topics. The counters leave it out."""

    def queued(self) -> None:
        """Shut the connection down if its Session's queue has grown too long."""

    def ask_for_room(self) -> None:
        """Call ``on_room`` (see :meth:`attach`) when the packets so far have left, in a later turn at the earliest."""

    def takes_answers(self, size: int) -> bool:
        """Tell whether answers of this size neither pause nor end the connection, even if the Client reads none."""

    # --- order: later packets wait

    def charge(self, packets: int) -> None:
        """Let the packet that is acted on count for so many more in the Client's part of this turn."""

    def take_runs(self, known: KnownTopics, take: Callable[[Run], bool]) -> None:
        """Take runs of the known topics from now on. If ``take`` refuses a run (False), its packets come one by one."""

    def take_retained_runs(self, taker: IRetainedRuns) -> None:
        """Take retained runs from now on."""

    def hold(self, reads: bool = True, pings: bool = False) -> None:
        """Act on no further packet until :meth:`release` has been called as often.

        Without ``reads`` the transport is not read meanwhile: then the end of the connection is noticed only after all
        packets that came before it. With ``pings``, PINGREQ packets that come next are acted on.
        """

    def release(self) -> None:
        """Act on the packets that waited, in their order."""

    def wait_for(self, answer: Deferred[T], otherwise: T, then: Callable[[T], None]) -> None:
        """Hold until the answer arrives, then act on the answer. After an error act on ``otherwise``."""

    def ask(self, answer: Deferred[T], otherwise: T, then: Callable[[T], None]) -> None:
        """Hold until an authenticator or an authorizer answers, then act on the answer.

        After an error, or without an answer in time (:mod:`holdfast.identity.interfaces`), act on ``otherwise``.
        """

    def when_answered(self, answer: Deferred[T], otherwise: T, then: Callable[[T], None]) -> Deferred[None]:
        """Act on the answer when it arrives, without a hold. After an error act on ``otherwise``."""

    # --- from CONNECT to CONNACK

    def expect(self, actions: Actions) -> None:
        """Accept these packets before CONNACK is sent."""

    def attach(self, client: IAdmittedClient, on_room: Callable[[], None]) -> None:
        """Bind the Client's Session to this connection. ``on_room`` is called when it has room again."""

    def establish(self, keep_alive: int) -> None:
        """Accept the Client's packets from now on, and watch its Keep Alive (seconds, 0 for none)."""

    def answer_after(self, seconds: float, answer: Callable[[], None]) -> None:
        """Call ``answer``, which ends the connection, after so many seconds, in place of the limit for admission."""

    # --- the end

    def close(self, reason: ReasonCode, explanation: str) -> None:
        """End the connection, with DISCONNECT where the protocol version has it. The Will is published."""

    def close_after_failure(self, failure: StorageFailure) -> None:
        """End the connection because a change could not be made durable."""

    def close_after_error(self, failure: Failure) -> None:
        """End the connection after an unexpected error, and log the error."""

    def finish(self, last: bytes, will: Will | None, why: str = ..., reason: ReasonCode = ...) -> None:
        """Send the collected packets and these last bytes, then close. Publish this Will; None: publish none.

        ``why`` is the reason for the log, and ``reason`` the one for the transport.
        """


# Shows an observer everything that one Network Connection receives and sends. Others pay nothing for it.
#
# How it works. An observed connection gets other :class:`Actions`, which tell the observer of a packet before they act
# on it, and another :class:`INetworkConnection`, which tells it of each piece before it is written. A piece always has
# whole packets. Runs are switched off meanwhile, so that each packet comes by itself.


class IObserver(Protocol):
    """Is told what happens on a Network Connection."""

    def received(self, packet: Any) -> None:
        """Take a packet of the Client."""

    def sent(self, packets: bytes) -> None:
        """Take whole packets for the Client."""

    def ended(self, why: str) -> None:
        """Note the end of the Network Connection."""


class ObservedActions(Actions):
    """Tells the observer of each packet, then acts as the ``actions`` do."""

    __slots__ = ("_observer", "actions")

    def __init__(self, actions: Actions, observer: IObserver) -> None:
        super().__init__()
        self.actions = actions
        self._observer = observer

    def __missing__(self, packet_type: type[Any]) -> Action | None:
        act: Action | None = self.actions[packet_type]
        if act is None:
            return None
        action = act

        def tell_and_act(packet: Any) -> None:
            self._observer.received(packet)
            action(packet)

        return tell_and_act


@implementer(INetworkConnection)
class ObservedNetwork:
    """Tells the observer of everything that is written to the ``network``."""

    def __init__(self, network: INetworkConnection, observer: IObserver) -> None:
        self.network = network
        self._observer = observer

    @property
    def peer(self) -> Peer:
        """The client's address."""
        peer: Peer = self.network.peer
        return peer

    @property
    def certificate(self) -> PeerCertificate | None:
        """The client's verified certificate."""
        certificate: PeerCertificate | None = self.network.certificate
        return certificate

    def write(self, data: bytes) -> bool:
        """Tell, and send."""
        self._observer.sent(data)
        return self.network.write(data)

    def unsent(self) -> int:
        """Return how many of the written bytes have not left."""
        return self.network.unsent()

    def close(self, data: bytes, reason: ReasonCode) -> None:
        """Tell of the last bytes, send them and close."""
        if data:
            self._observer.sent(data)
        self.network.close(data, reason)

    def abort(self) -> None:
        """Close at once."""
        self.network.abort()

    def admitted(self, silence: float) -> None:
        """Note that CONNECT was accepted."""
        self.network.admitted(silence)

    def pause(self) -> None:
        """Stop reading."""
        self.network.pause()

    def resume(self) -> None:
        """Read again."""
        self.network.resume()


# Back-pressure from the store: while too many changes wait for their commit, a Client that adds to them is not read.
#
# How it works. A Client is held after the packet whose change waits, not before it: only then is it known that there is
# a change. So each Client that is connected when the pressure begins exceeds the limit by one packet. A Client that
# connects later must not have one packet more with each connection, so its packets that may cause a change wait before
# they take effect. An example:
#
#     a is connected    PUBLISH is taken, its PUBACK waits; a is held
#     the pressure begins
#     b is connected    SUBSCRIBE to its stored Session is taken, its SUBACK waits; b is held
#     c connects        CONNECT waits if a row would be stored for it
#     d connects        it has no stored Session and no Will: CONNACK; its first PUBLISH waits
#     the pressure ends 25 connections are released in each turn of the reactor, in their order


#: connections that are released in one turn of the reactor: each may have packets that waited
RELEASED_IN_A_TURN = 25


class Pressure:
    """The connections that wait while too many changes wait for their commit."""

    def __init__(self, clock: IReactorTime) -> None:
        self.active = False
        self._clock = clock
        #: by connection, the longest waiting first
        self._waiting: OrderedDict[IClientLink, list[Deferred[None]]] = OrderedDict()
        self._scheduled = False

    def change(self, active: bool) -> None:
        """Note that too many changes wait for their commit, or that few wait again."""
        self.active = active
        if not active:
            self._schedule()

    def charge(self, connection: IClientLink) -> None:
        """Hold a connection whose Client has just added to the changes that wait, if these are too many."""
        if self.active and connection not in self._waiting and not connection.is_closed:
            connection.wait_for(self.relief(connection), None, _nothing)

    def relief(self, connection: IClientLink) -> Deferred[None]:
        """Return a Deferred that fires when the pressure is over. It never fires if the connection ends before."""
        relieved: Deferred[None] = Deferred()
        self._waiting.setdefault(connection, []).append(relieved)
        return relieved

    def leave(self, connection: IClientLink) -> None:
        """Forget a connection that has ended."""
        self._waiting.pop(connection, None)

    def _schedule(self) -> None:
        if self._waiting and not self._scheduled:
            self._scheduled = True
            self._clock.callLater(0, self._release)

    def _release(self) -> None:
        """Release some connections. One that adds too much again ends this, and waits behind the others."""
        self._scheduled = False
        for _ in range(min(RELEASED_IN_A_TURN, len(self._waiting))):
            if self.active:
                return
            for relieved in self._waiting.popitem(last=False)[1]:
                relieved.callback(None)
        if not self.active:
            self._schedule()

    def __len__(self) -> int:
        """Return how many connections wait."""
        return len(self._waiting)


def _nothing(_: None) -> None:
    """Go on with the next packet."""
