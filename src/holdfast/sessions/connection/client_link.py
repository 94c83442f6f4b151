"""The seam between one Network Connection and the packages above it.

Admission, exchange, replays, Sessions and the registry use a connection only through :class:`IClientLink`.
The connection calls back through :class:`IAdmittedClient` only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from holdfast.auth.interfaces import PeerCertificate
from holdfast.peers.address import Peer
from holdfast.sessions.connection.acknowledgements import Acknowledgements
from holdfast.sessions.connection.actions import Actions
from holdfast.sessions.connection.connection_log import ConnectionLog
from holdfast.sessions.connection.error_guard import ErrorGuard
from holdfast.sessions.connection.explanations import Explanations
from holdfast.sessions.connection.observed import IObserver
from holdfast.sessions.limits import Limits
from holdfast.tickets import StorageFailure
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
        """Let the packet that is acted on count for so many more in the Client's portion of this turn."""

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

        After an error, or without an answer in time (:mod:`holdfast.auth.answer_in_time`), act on ``otherwise``.
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
