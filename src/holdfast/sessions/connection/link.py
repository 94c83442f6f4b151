"""The neighbours of a connection: its transport, its Client, its log, its actions, its observer, its guard."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Protocol

from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import Attribute, Interface, implementer

from holdfast.identity.addresses import Peer
from holdfast.identity.interfaces import PeerCertificate
from holdfast.watch.audit import IAudit, NoAudit
from holdfast.watch.log import ClientLog, client_sentence, client_text
from holdfast.wire import ReasonCode, RetainedRun, RunTaker
from holdfast.wire.packets import Will

# The transport, as the connection sees it.


class INetworkConnection(Interface):
    """One accepted transport."""

    peer = Attribute("The client's address, a Peer: the one that a proxy has told, if there is a proxy.")
    certificate = Attribute("The client's PeerCertificate if its TLS certificate is verified, else None.")

    def write(data: bytes) -> bool:
        """Send bytes. True: all left at once. False: ``Connection.drained`` is called when the rest has left."""

    def unsent() -> int:
        """Return how many of the written bytes have not left this process. It changes when some of them leave."""

    def close(data: bytes, reason: ReasonCode) -> None:
        """Send these last bytes and close. Abort if the peer does not take them in time.

        ``reason`` is the reason for the end, for transports that can tell it.
        """

    def abort() -> None:
        """Close at once and drop the unsent bytes."""

    def admitted(silence: float) -> None:
        """Note that CONNECT was accepted. Silence of so many seconds will end the connection; 0: none will."""

    def pause() -> None:
        """Stop reading. The system watches meanwhile whether the peer still exists, and ``lost`` is called if not."""

    def resume() -> None:
        """Read again."""


# The log lines about one Network Connection: each names the peer's address, and the Client where it is known.


_NO_AUDIT = NoAudit()


class ConnectionLog:
    """Logs what happens to one Network Connection. ``client_id`` is set once CONNECT has come,
    and ``username`` once it is proven or refused.

    A *cause* is a few words that are the same for all such lines. ``text`` is a sentence, and is cut, since it may
    quote the Client. With ``quoted``, texts of the Client, it is a template with a place ``{}`` for each of them, and
    only they are cut.
    """

    __slots__ = ("_audit", "_listener", "_log", "_network", "client_id", "username")

    def __init__(self, log: ClientLog, network: INetworkConnection, listener: str, audit: IAudit = _NO_AUDIT) -> None:
        self._log = log
        self._network = network
        self._listener = listener
        self._audit = audit
        self.client_id: str | None = None
        self.username: str | None = None

    @property
    def _who(self) -> str:
        """Return the Client and its address, as in ``'a' from 192.0.2.1:5555``."""
        name = "a new client" if self.client_id is None else client_text(self.client_id)
        peer = self._network.peer
        return f"{name} on listener {self._listener}" if peer.ip is None else f"{name} from {peer}"

    @property
    def _group(self) -> str:
        peer = self._network.peer
        return f"listener {self._listener}" if peer.ip is None else peer.group

    def debug(self, cause: str, text: object, *quoted: str) -> None:
        """Log something that matters only to who looks for it."""
        self._write("debug", cause, text, quoted)

    def info(self, cause: str, text: object, *quoted: str) -> None:
        """Log something that the Client has caused."""
        self._write("info", cause, text, quoted)

    def warn(self, cause: str, text: object, *quoted: str) -> None:
        """Log a warning for the operator."""
        self._write("warn", cause, text, quoted)

    def error(self, cause: str, text: object, *quoted: str) -> None:
        """Log that something of the broker has failed for this Client."""
        self._write("error", cause, text, quoted)

    def failure(self, cause: str, failure: Failure) -> None:
        """Log an unexpected error, with its traceback."""
        self._log.failure(cause, self._group, lambda: f"{self._who}: {cause}", failure)

    def coming(self, text: Callable[[], str], *quoted: str) -> None:
        """Log that the Client comes or goes. ``text`` is called if the line is written."""
        self._log.coming(lambda: f"{self._who} {_sentence(text(), quoted)}")

    def audit(self, kind: str, fields: Mapping[str, object], **texts: str | None) -> None:
        """Write an event to the audit log. ``texts`` are the Client's own."""
        peer = self._network.peer
        place = {"address": str(peer.ip or "unix"), "port": peer.port or None, "listener": self._listener}
        self._audit.tell(
            kind, self._group, {**place, **fields}, user=self.username, client_id=self.client_id, **texts
        )  # fmt: skip

    def _write(self, level: str, cause: str, text: object, quoted: tuple[str, ...]) -> None:
        named = quoted[0] if quoted else ""
        self._log.write(cause, self._group, lambda: f"{self._who}: {cause}: {_sentence(text, quoted)}", level, named)


def _sentence(text: object, quoted: tuple[str, ...]) -> str:
    return str(text).format(*map(client_text, quoted)) if quoted else client_sentence(text)


# The packet types that a Client may send now, and the functions that act on the packets.


#: acts on a packet
Action = Callable[[Any], None]


def _find_none(_type: type[Any]) -> Action | None:
    """Find no action: all are known, or the connection is over."""
    return None


class Actions(dict[type[Any], Action]):
    """The packet types that a Client may send now, each with the function that acts on the packet.

    ``find`` makes the action for the first packet of a type, None for a type that is out of place. Most Clients send
    few types of packets, and an action with the objects behind it takes memory in each connection.
    """

    __slots__ = ("_find",)

    def __init__(
        self, actions: dict[type[Any], Action] | None = None, find: Callable[[type[Any]], Action | None] = _find_none
    ) -> None:
        if actions:
            self.update(actions)
        self._find = find

    def __missing__(self, packet_type: type[Any]) -> Action | None:
        action = self._find(packet_type)
        if action is not None:
            self[packet_type] = action
        return action

    def close(self) -> None:
        """Let go of the objects that act: each refers to the other otherwise."""
        self.clear()
        self._find = _find_none


#: the actions of a connection that takes no packet now
NO_ACTIONS = Actions()


# Lets an unexpected error end the connection that it concerns, and nothing else.
#
# An error in the call of a timer, of a settled commit or of an authorizer's answer would otherwise be logged by
# somebody who does not know the connection, or keep others from their calls; and the connection would hang.


_log = Logger()


def _log_late(failure: Failure) -> None:
    """Log an error of a connection that is over."""
    _log.failure("unexpected error for a connection that is over", failure)


class ErrorGuard:
    """A context manager that gives unexpected errors to ``fail``, which ends the connection."""

    __slots__ = ("_fail",)

    def __init__(self, fail: Callable[[Failure], None]) -> None:
        self._fail = fail

    def fail(self, failure: Failure) -> None:
        """End the connection because of this error."""
        self._fail(failure)

    def close(self) -> None:
        """Only log errors from now on: the connection is over. Each refers to the other otherwise."""
        self._fail = _log_late

    def __enter__(self) -> None:
        """Begin to act for the connection."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        """Give an error to ``fail``. Exceptions that end the process pass."""
        if not isinstance(error, Exception):
            return False
        self._fail(Failure(error, kind, traceback))
        return True


# The Client, as the connection sees it.


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
