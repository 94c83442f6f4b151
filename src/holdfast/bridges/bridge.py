"""One bridge: it connects to a remote broker and to this one, and moves packets between them until one is gone.

How it works. The states, and what leads from one to the next:

    WAITING      the time before the next attempt; it doubles with each failure, and varies at random
    CONNECTING   a socket to one of the addresses, then CONNECT and CONNACK
    ENTERING     the remote broker has accepted: now the bridge connects to this broker, whose window and packet size
                 are those of the remote one. The remote broker is not read meanwhile.
    CONNECTED    packets cross (:mod:`holdfast.bridges.crossing`)
    PAUSED       an operator has paused the bridge; its Session goes on to queue

Whatever ends one of the connections ends the other, so both Sessions see the loss, and repeat what is unacknowledged.

The two Sessions belong together, since they share Packet Identifiers. Before it connects, the bridge looks whether the
Session here is the one that has belonged to the Session at this address: what it remembers is stored with it
(:class:`~holdfast.bridges.remote.Memory`). If not, the remote Session begins anew. If the remote broker has lost its
Session, the identifiers of QoS 2 messages that this broker has noted for it are released: otherwise it would take new
messages for repeated ones.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Iterable
from enum import Enum
from functools import partial
from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress, IDelayedCall, IReactorTime
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.bridges.crossing import LOCAL_VERSION, Crossed, Crossing, Lines, RemoteLimits
from holdfast.bridges.local import LocalEnd, connect_packet
from holdfast.bridges.remote import (
    Login,
    Memory,
    Refused,
    Silence,
    refused_filters,
    requests,
    wanted_at_remote,
)
from holdfast.config.sections.bridges import RemoteAddress
from holdfast.identity.interfaces import BRIDGE_CLIENT
from holdfast.sessions.connection.connection import Connection
from holdfast.sessions.connection.link import INetworkConnection
from holdfast.sessions.delivery.session import Session
from holdfast.sessions.limits import Limits
from holdfast.watch.lazy_log import LogThrottle
from holdfast.watch.log import client_sentence
from holdfast.wire import PacketParser, WireError, encode
from holdfast.wire import packets as p

#: seconds for a socket, then for CONNACK
CONNECT_TIME = 20.0
#: a connection that has lasted so many seconds makes the next wait short again
_LASTING = 10.0
#: different problems of one bridge that are logged until it is connected
_MOST_TOLD = 20
#: packets of each direction in one turn of the reactor: each takes up to 40 microseconds
_PACKETS_OF_A_TURN = 50


#: opens a socket
Reach = Callable[[RemoteAddress, Factory], Deferred[Any]]


class State(Enum):
    """The state of a bridge."""

    WAITING = "waiting"
    CONNECTING = "connecting"
    ENTERING = "entering"
    CONNECTED = "connected"
    PAUSED = "paused"
    STOPPED = "stopped"


@frozen(kw_only=True)
class Surroundings:
    """What a bridge needs of the broker.

    ``connect`` makes a connection to this broker, given its transport, limits, listener and bridge. ``own`` has the
    marks of all bridges of this broker.
    """

    clock: IReactorTime
    connect: Callable[[INetworkConnection, Limits, str, str], Connection]
    session_of: Callable[[str], Session | None]
    own: Container[str]
    most_levels: int
    jitter: Callable[[], float] = random.random


class Bridge:
    """A bridge to another broker.

    ``reach`` opens a socket to an address, with TLS if that is configured. ``memory`` is what was stored about the
    Session there.
    """

    _log = Logger()

    def __init__(
        self, login: Login, limits: Limits, reach: Reach, surroundings: Surroundings, memory: Memory | None = None
    ) -> None:
        self.login = login
        self.name = login.name
        self.lines = Lines(login.config.topics)
        self.crossed = Crossed()
        self.state = State.STOPPED
        self.address: RemoteAddress | None = None
        #: why the last connection ended; an empty string while there is one
        self.problem = ""
        #: Topic Filters at the remote broker that are no longer wanted
        self.former: list[str] = []
        self.memory = memory or Memory()
        self._limits = limits
        self._around = surroundings
        self._reach = reach
        self._clock = surroundings.clock
        self._throttle = LogThrottle(self._log, self._clock.seconds, write=self._log.warn)
        self._told: set[str] = set()  # problems since the last connection, each of which is logged once
        self._failures = 0
        self._addresses: list[RemoteAddress] = []
        self._private = False  # whether the bridge announces itself
        self._works_without = False  # whether the last connection has not done so
        self._cleared: str | None = None  # the place whose Session was just discarded, in MQTT 3.1.1
        self._opening: Deferred[Any] | None = None
        self._link: _Link | None = None
        self._timer: IDelayedCall | None = None
        self._connected_at: float | None = None

    @property
    def client_id(self) -> str:
        """The Client Identifier of the bridge at this broker."""
        return BRIDGE_CLIENT + self.name

    @property
    def session(self) -> Session | None:
        """The bridge's Session at this broker."""
        return self._around.session_of(self.client_id)

    def start(self) -> None:
        """Begin to connect."""
        if self.state in (State.STOPPED, State.PAUSED):
            self._failures = 0
            self._begin()

    def pause(self) -> None:
        """Disconnect, until :meth:`start`. The Session goes on to queue."""
        if self.state is not State.STOPPED:
            self._leave(State.PAUSED)

    def stop(self) -> None:
        """Disconnect for good."""
        self._leave(State.STOPPED)

    # --- attempts to connect

    def _begin(self) -> None:
        self._timer = None
        config = self.login.config
        self._private = config.try_private and not config.v5 and not self._works_without
        self._addresses = list(self.login.config.remotes)
        self._next_address()

    def _next_address(self) -> None:
        address = self.address = self._addresses.pop(0)
        self.state = State.CONNECTING
        opening = self._opening = self._reach(address, _Links(partial(_Link, self, address)))
        opening.addCallbacks(self._opened, self._not_opened)
        # An error here would leave the bridge without a next attempt.
        opening.addErrback(self._failed)

    def _opened(self, _link: object) -> None:
        self._opening = None

    def _not_opened(self, failure: Failure) -> None:
        self._opening = None
        if self.state is State.CONNECTING:
            self.down(failure.getErrorMessage() or repr(failure.value))

    def _failed(self, failure: Failure) -> None:
        self._log.failure("bridge {name}: unexpected error", failure, name=self.name)
        self.down("internal error")

    def made(self, link: _Link) -> None:
        """Send CONNECT on a new socket."""
        if self.state is not State.CONNECTING:
            link.abandon()
            return
        self._link = link
        place = Memory.of(self.login, link.address, self.lines).place
        known = self.session is not None and self.memory.place == place
        clean = not (known or self._cleared == place)
        self._cleared = None
        link.begin(self.login.connect(clean, self._private), clean)

    def accepted(self, link: _Link, connack: p.Connack, clean: bool) -> None:
        """Act on CONNACK: connect to this broker, too."""
        try:
            remote = self.login.accepted(connack)
        except Refused as refused:
            if self._private and refused.reason == 1:
                self._without_flag()
                return
            self.down(f"the remote broker refuses the bridge: {refused}")
            return
        wanted = Memory.of(self.login, link.address, self.lines)
        if clean and not self.login.config.v5 and not self.login.config.cleansession:
            # In MQTT 3.1.1 a new Session that lasts takes two connections: the first one discards the old Session.
            self._cleared = wanted.place
            self._again()
            return
        known = remote.session_present and self.memory == wanted
        self.state = State.ENTERING
        crossing = Crossing(
            self.lines, remote, mark=self.login.client_id, own=self._around.own, most_levels=self._around.most_levels,
            crossed=self.crossed, tell=self._tell,
        )  # fmt: skip
        self.memory = wanted if known else Memory(wanted.place)
        link.enter(
            crossing, remote, known, self._around.connect, self._limits, wanted.listener(self.name, subscribed=known)
        )

    def entered(self, link: _Link) -> None:
        """Note that both brokers have accepted the bridge."""
        self.state = State.CONNECTED
        self._connected_at = self._clock.seconds()
        self.problem = ""
        self._told.clear()
        self._works_without = not self._private
        flag = "" if self.login.config.v5 or self._private else ", without the flag of bridges"
        self._log.info(
            "bridge {name} is connected to {host}:{port}{flag}",
            name=self.name, host=link.address.host, port=link.address.port, flag=flag,
        )  # fmt: skip

    def subscribed(self, link: _Link, refused: Iterable[str]) -> None:
        """Note the answer to SUBSCRIBE: remember that the remote Session has all subscriptions."""
        left = list(refused)
        for topic_filter in left:
            self._log.warn(
                "bridge {name}: the remote broker refuses the subscription to {filter}; give the user of the bridge"
                " the permission, or remove the line",
                name=self.name, filter=client_sentence(topic_filter),
            )  # fmt: skip
        session = self.session
        if left or session is None:
            return
        self.former = []
        self.memory = Memory.of(self.login, link.address, self.lines)
        session.record.attached(session.principal, self.memory.listener(self.name, subscribed=True), None)

    def lost(self, why: str, before_connack: bool) -> None:
        """Note that the remote connection is gone."""
        if before_connack and self._private:
            self._without_flag()
        else:
            self.down(why)

    def _without_flag(self) -> None:
        """Try again without announcing a bridge, which the remote broker does not know."""
        self._private = False
        self._again()

    def _again(self) -> None:
        """Connect to the same address again, at once."""
        address = self.address
        self._end_link()
        assert address is not None
        self._addresses.insert(0, address)
        self._timer = self._clock.callLater(0, self._next_address)

    # --- the end of a connection

    def down(self, why: str) -> None:
        """End both connections, and connect again later, at another address if there is one."""
        if self.state in (State.STOPPED, State.PAUSED, State.WAITING):
            return
        was_connected = self.state is State.CONNECTED
        address = self.address
        self._end_link()
        self.problem = why
        if was_connected:
            since, self._connected_at = self._connected_at, None
            if since is not None and self._clock.seconds() - since >= _LASTING:
                self._failures = 0
            self._addresses = []
        told = f"{why} ({address.host}:{address.port})" if address is not None else why
        if told not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(told)
            self._log.warn(
                "bridge {name} is not connected: {why}; it tries again", name=self.name, why=client_sentence(told)
            )
        self.state = State.WAITING
        if self._addresses:
            self._timer = self._clock.callLater(0, self._next_address)
            return
        config = self.login.config
        wait = min(config.restart_timeout * 2 ** min(self._failures, 30), config.restart_timeout_max)
        self._failures += 1
        self._timer = self._clock.callLater(wait * (0.5 + self._around.jitter() / 2), self._begin)

    def _leave(self, state: State) -> None:
        self.state = state
        self.problem = ""
        self._told.clear()
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
        self._end_link()

    def _end_link(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()
        link, self._link = self._link, None
        if link is not None:
            link.end()

    def _tell(self, what: str, topic: str) -> None:
        about = f" to {topic}" if topic else ""
        self._throttle.log(what, f"bridge {self.name}: a message{client_sentence(about)} is left out: {what}")


class _Links(Factory):
    """Makes the one connection of an attempt."""

    noisy = False

    def __init__(self, make: Callable[[], _Link]) -> None:
        self._make = make

    def buildProtocol(self, addr: IAddress | None) -> _Link:
        """Return the connection."""
        return self._make()


class _Link(Protocol):
    """One connection to the remote broker, with the connection to this broker behind it."""

    def __init__(self, bridge: Bridge, address: RemoteAddress) -> None:
        self.address = address
        self._bridge: Bridge | None = bridge
        self._clock = bridge._clock
        self._config = bridge.login.config
        self._parser = PacketParser(bridge.login.max_packet_size, bridge.login.version)
        self._version = bridge.login.version
        self._silence = Silence()
        self._clean = False
        self._crossing: Crossing | None = None
        self._remote: RemoteLimits | None = None
        self._known = False
        self._local: LocalEnd | None = None
        self._entered = False
        self._full = False  # the remote broker does not read
        self._unread = False  # the remote broker is not read
        self._pumping: IDelayedCall | None = None
        self._ticking: IDelayedCall | None = None
        self._asked: list[p.SubscriptionRequest] = []
        self._identifier = 0  # of SUBSCRIBE at the remote broker
        self._releasing: set[int] = set()

    # --- the socket

    def connectionMade(self) -> None:
        """Begin."""
        assert self.transport is not None
        set_no_delay = getattr(self.transport, "setTcpNoDelay", None)
        if set_no_delay is not None:
            set_no_delay(True)
        self.transport.registerProducer(self, True)  # type: ignore[attr-defined]  # of every transport
        if self._bridge is not None:
            self._bridge.made(self)

    def abandon(self) -> None:
        """Close a socket that nobody waits for any more."""
        self._bridge = None
        self._abort()

    def begin(self, connect: p.Connect, clean: bool) -> None:
        """Send CONNECT."""
        self._clean = clean
        self._ticking = self._clock.callLater(CONNECT_TIME, self._no_answer)
        self._write(encode(connect, self._version))

    def _no_answer(self) -> None:
        who = "the remote broker" if self._crossing is None else "this broker"
        self._down(f"{who} has not answered CONNECT within {CONNECT_TIME:g} s")

    def dataReceived(self, data: bytes) -> None:
        """Take bytes of the remote broker."""
        self._silence.heard()
        self._parser.receive_data(data)
        self._pump()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Tell the bridge."""
        bridge = self._bridge
        if bridge is not None:
            bridge.lost(f"the connection was lost: {reason.getErrorMessage()}", before_connack=self._crossing is None)

    def pauseProducing(self) -> None:
        """Leave the messages to this broker: the remote one does not read."""
        self._full = True

    def resumeProducing(self) -> None:
        """Go on."""
        self._full = False
        self.wake()

    def stopProducing(self) -> None:
        """Do nothing: connectionLost follows."""

    def _write(self, data: bytes) -> None:
        if self.transport is not None:
            self._silence.sent()
            self.transport.write(data)

    def _abort(self) -> None:
        abort = getattr(self.transport, "abortConnection", None)
        if abort is not None:
            abort()

    # --- the connection to this broker

    def enter(
        self,
        crossing: Crossing,
        remote: RemoteLimits,
        known: bool,
        connect: Callable[[INetworkConnection, Limits, str, str], Connection],
        limits: Limits,
        listener: str,
    ) -> None:
        """Connect to this broker. ``known``: the remote Session has all subscriptions."""
        bridge = self._bridge
        assert bridge is not None
        self._crossing, self._remote, self._known = crossing, remote, known
        self._local = LocalEnd(self.wake, self._closed_here)
        self._local.connection = connect(self._local, limits, listener, bridge.name)
        self._local.receive(connect_packet(bridge.name, self._config, remote.receive_maximum, crossing.longest_out))

    def _closed_here(self, why: str) -> None:
        if self._local is not None:
            self._local.connection = None
        # Later: the broker is in the middle of ending its side.
        self._clock.callLater(0, self._down, f"this broker has ended the connection: {why}")

    def _down(self, why: str) -> None:
        if self._bridge is not None:
            self._bridge.down(why)

    def _enter_now(self, connack: p.Connack) -> None:
        """Act on the CONNACK of this broker: subscribe on both sides."""
        bridge, local, remote = self._bridge, self._local, self._remote
        assert bridge is not None
        assert local is not None
        assert remote is not None
        if connack.reason_code:
            said = connack.properties.reason_string or f"0x{connack.reason_code:02x}"
            bridge.down(f"this broker refuses the bridge: {said}")
            return
        session = bridge.session
        assert session is not None
        if not remote.session_present:
            self._releasing = set(session.received)
        first = [encode(p.Pubrel(identifier), LOCAL_VERSION) for identifier in self._releasing]
        wanted = requests(
            bridge.lines.outgoing, remote=False, again=connack.session_present and remote.session_present, v5=True
        )
        over = set(session.subscriptions) - {request.topic_filter for request in wanted}
        if over:
            first.append(encode(p.Unsubscribe(2, tuple(over)), LOCAL_VERSION))
        if wanted:
            first.append(encode(p.Subscribe(1, tuple(wanted)), LOCAL_VERSION))
        self._asked = wanted_at_remote(bridge.lines, remote.session_present, self._known, remote.v5)
        free = (number for number in range(65535, 0, -1) if number not in session.inflight.entries)
        if bridge.former:
            self._write(encode(p.Unsubscribe(next(free), tuple(bridge.former)), self._version))
        if self._asked:
            self._identifier = next(free)
            self._write(encode(p.Subscribe(self._identifier, tuple(self._asked)), self._version))
        self._entered = True
        bridge.entered(self)
        if not self._asked and not self._known:
            bridge.subscribed(self, ())
        if self._ticking is not None and self._ticking.active():
            self._ticking.cancel()
        self._tick()
        local.receive(b"".join(first))

    def _tick(self) -> None:
        match self._silence.tick():
            case "lost":
                self._down("the remote broker was silent for one and a half times keepalive_interval")
                return
            case "ping":
                self._write(encode(p.Pingreq(), self._version))
        self._ticking = self._clock.callLater(self._config.keepalive_interval / 2, self._tick)

    # --- packets

    def wake(self) -> None:
        """Move packets in a later turn: something has come, or there is room."""
        if self._pumping is None and self._bridge is not None:
            self._pumping = self._clock.callLater(0, self._pump)

    def _pump(self) -> None:
        """Move some packets of each direction."""
        if self._pumping is not None and self._pumping.active():
            self._pumping.cancel()
        self._pumping = None
        try:
            more = self._pump_local() | self._pump_remote()
        except WireError as error:
            self._down(f"the remote broker breaks the protocol: {error}")
            return
        except Exception:  # noqa: BLE001 - a bridge must not hang for ever, whatever was wrong with one packet
            if self._bridge is not None:
                self._bridge._failed(Failure())
            return
        if self._bridge is None:
            return
        if more:
            self.wake()
        self._read_or_not(more)

    def _read_or_not(self, more: bool) -> None:
        """Read the remote broker unless packets of it wait here."""
        unread = more or not self._takes_remote
        if unread is not self._unread and self.transport is not None:
            self._unread = unread
            if unread:
                self.transport.pauseProducing()  # type: ignore[attr-defined]  # of every transport
            else:
                self.transport.resumeProducing()  # type: ignore[attr-defined]

    @property
    def _takes_remote(self) -> bool:
        """Whether packets of the remote broker can be acted on."""
        if self._crossing is None:
            return True  # CONNACK
        return self._entered and self._local is not None and not self._local.paused

    def _pump_local(self) -> bool:
        """Move packets of this broker; return whether there may be more."""
        for _ in range(_PACKETS_OF_A_TURN):
            local, crossing = self._local, self._crossing
            if local is None or crossing is None or self._bridge is None or self._full:
                return False
            packet = local.next_packet()
            if packet is None:
                self._send_crossed()
                return False
            if not self._entered:
                if isinstance(packet, p.Connack):
                    self._enter_now(packet)
            elif isinstance(packet, p.Pubcomp) and packet.packet_identifier in self._releasing:
                self._releasing.discard(packet.packet_identifier)
            else:
                crossing.from_local(packet)
        self._send_crossed()
        return True

    def _pump_remote(self) -> bool:
        """Move packets of the remote broker; return whether there may be more."""
        for _ in range(_PACKETS_OF_A_TURN):
            bridge = self._bridge
            if bridge is None or not self._takes_remote:
                break
            packet = self._parser.next_packet()
            if packet is None:
                self._send_crossed()
                return False
            if self._crossing is None:
                if not isinstance(packet, p.Connack):
                    bridge.down("the remote broker does not answer with CONNACK")
                    return False
                bridge.accepted(self, packet, self._clean)
            elif isinstance(packet, p.Suback) and packet.packet_identifier == self._identifier:
                bridge.subscribed(self, refused_filters(self._asked, packet))
            elif isinstance(packet, p.Disconnect):
                bridge.down(_farewell(packet))
                return False
            else:
                self._crossing.from_remote(packet)
        self._send_crossed()
        return self._bridge is not None and self._takes_remote

    def _send_crossed(self) -> None:
        crossing, local = self._crossing, self._local
        if crossing is None or self._bridge is None:
            return
        to_remote, crossing.to_remote = crossing.to_remote, []
        if to_remote:
            self._write(b"".join(to_remote))
        to_local, crossing.to_local = crossing.to_local, []
        if to_local and local is not None:
            local.receive(b"".join(to_local))
        if crossing.stuck:
            self._down(crossing.stuck)

    # --- the end

    def end(self) -> None:
        """End both connections. The remote broker is told that this is a normal end."""
        self._bridge = None
        for timer in (self._pumping, self._ticking):
            if timer is not None and timer.active():
                timer.cancel()
        if self._local is not None:
            self._local.lost()
        if self.transport is not None:
            self.transport.write(encode(p.Disconnect(), self._version))
            self.transport.unregisterProducer()  # type: ignore[attr-defined]
            self.transport.loseConnection()
            # One that does not read would keep the socket for ever.
            self._clock.callLater(_FAREWELL_TIME, self._abort)


#: seconds that the remote broker has to take the last bytes
_FAREWELL_TIME = 5.0


def _farewell(packet: p.Disconnect) -> str:
    """Return why the remote broker has disconnected, and what to do."""
    said = packet.properties.reason_string
    told = f"the remote broker has disconnected: 0x{packet.reason_code:02x}{'' if said is None else f', {said}'}"
    if packet.reason_code == 0x8E:
        return f"{told}; another client has the same Client Identifier: set clientid"
    return told
