"""A whole broker in memory: real Sessions, routing and retainer, a fake clock, and clients without sockets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Any, TypeVar

from twisted.internet.task import Clock
from zope.interface import implementer

from holdfast.broker.sessions import compose_sessions
from holdfast.changes.telemetry import Telemetry
from holdfast.identity.addresses import Peer
from holdfast.identity.bans import IBans
from holdfast.identity.failed_logins import IFailures
from holdfast.identity.interfaces import (
    AnonymousAuthenticator,
    IAuthenticator,
    IAuthorizer,
    IEnhancedAuthenticator,
    PeerCertificate,
    UnrestrictedAuthorizer,
)
from holdfast.replay.pace import FlowControl
from holdfast.replay.registry import ReplayRegistry
from holdfast.retained.leases import LeaseRows
from holdfast.retained.limits import FlowSettings, RetainerLimits
from holdfast.retained.service import RetainedMessages
from holdfast.retained.source_check import SourceCheck
from holdfast.retained.store.interfaces import IRetainedStore
from holdfast.sessions.accounts import Accounts
from holdfast.sessions.connection.link import INetworkConnection
from holdfast.sessions.connection.pressure import Pressure
from holdfast.sessions.counters import Counters
from holdfast.sessions.limits import Limits, WhenFull
from holdfast.sessions.registry import Ownership, SessionRegistry, names_ignored
from holdfast.sessions.revocation import OnRevoke
from holdfast.sessions.router import Router
from holdfast.sessions.state import ISessionStates, MemorySessionStates
from holdfast.storage.revisions import RevisionClock
from holdfast.watch.audit import IAudit
from holdfast.wire import NO_PROPERTIES, PacketParser, Properties, ReasonCode, encode
from holdfast.wire import packets as p
from tests.retained.store.memory import MemoryRetainedStore

T = TypeVar("T")

START = 1_800_000_000


class TurnClock(Clock):
    """A fake clock that can also run a single reactor turn: the calls that are due, without the calls that they add."""

    def turn(self) -> None:
        now = self.seconds()
        for call in [call for call in self.calls if call.getTime() <= now]:
            if call.active():
                self.calls.remove(call)
                call.called = 1
                call.func(*call.args, **call.kw)


#: the address of every client on a transport in memory
PEER = Peer(ip_address("192.0.2.1"), 5555)


@implementer(INetworkConnection)
class Network:
    """A transport that sends everything at once, or nothing while it is ``blocked``."""

    def __init__(self) -> None:
        self.peer = PEER
        self.certificate: PeerCertificate | None = None
        self.blocked = False
        self.written: list[bytes] = []
        self.closed: bool = False
        self.paused = False
        self.left = 0  #: of the bytes that wait, those that the client has taken
        self.admitted_for: float | None = None

    def admitted(self, silence: float) -> None:
        self.admitted_for = silence

    def write(self, data: bytes) -> bool:
        self.written.append(data)
        return not self.blocked

    def unsent(self) -> int:
        return -self.left

    def close(self, data: bytes, reason: ReasonCode) -> None:
        self.written.append(data)
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def take(self) -> bytes:
        data = b"".join(self.written)
        self.written.clear()
        return data


class MemoryBroker:
    """The broker's parts around one store. Only the clock and the transports differ from the real broker."""

    def __init__(
        self,
        store: Callable[[Callable[[], int]], IRetainedStore] | None = None,
        limits: Limits | None = None,
        retainer: RetainerLimits | None = None,
        flow: FlowSettings | None = None,
        authenticator: IAuthenticator | None = None,
        authorizer: IAuthorizer | None = None,
        states: ISessionStates | None = None,
        stop_publish_clear_msg: bool = False,
        sys_msg_interval: float = 0,
        start: float = START,
        enhanced_authenticator: IEnhancedAuthenticator | None = None,
        ownership: Ownership = names_ignored,
        failures: IFailures | None = None,
        bans: IBans | None = None,
        audit: IAudit | None = None,
        on_revoke: OnRevoke = OnRevoke.DISCONNECT,
        checks_sources: bool = False,
        judges_guests: bool = False,
        accounts: Accounts | None = None,
        most_memory: int | None = None,
    ) -> None:
        self.clock = TurnClock()
        self.memory = 0  #: of the process, in bytes
        self.denied: list[tuple[str, str, str]] = []
        self.clock.advance(start)
        self.limits = limits or Limits(stop_publish_clear_msg=stop_publish_clear_msg)
        self.store: Any = store(self.now) if store is not None else self.make_store()
        authorizer = authorizer or UnrestrictedAuthorizer()
        sources = None
        if checks_sources:
            sources = SourceCheck(self.store, authorizer, guests=judges_guests, clock=self.clock, bans=bans)
        self.retained = RetainedMessages(
            self.store,
            clock=self.clock,
            now=self.now,
            limits=retainer or RetainerLimits(),
            sources=sources,
            leases=self.make_leases(),
        )
        self.replays = ReplayRegistry(
            store=self.store,
            feed=self.retained.feed,
            flow=FlowControl(self.clock, flow or FlowSettings()),
            now=self.now,
            sources=sources,
        )
        self.open_store()
        self.retained.startService()
        self.pressure = Pressure(self.clock)
        parts = compose_sessions(
            clock=self.clock,
            now=self.now,
            retained=self.retained,
            replays=self.replays,
            states=states or self.make_states(),
            authorizer=authorizer,
            denied=lambda principal, action, topic: self.denied.append((principal.client_id, action, topic)),
            on_revoke=on_revoke,
            authenticator=authenticator or AnonymousAuthenticator(),
            enhanced_authenticator=enhanced_authenticator,
            ownership=ownership,
            failures=failures,
            bans=bans,
            audit=audit,
            pressure=self.pressure,
            rejects_when_full=self.limits.mqueue_full is WhenFull.REJECT,
            silent_clears=stop_publish_clear_msg,
            broker_version="1.2.3",
            sys_msg_interval=sys_msg_interval,
            accounts=accounts,
            most_memory=most_memory,
            telemetry=self.make_telemetry(),
            measure_memory=lambda: self.memory,
            storage=self.storage,
            make_router=self.make_router,
            make_registry=self.make_registry,
        )
        self.session_parts = parts
        self.memory_guard = parts.memory
        self.counters = parts.counters
        self.router = parts.router
        self.wills = parts.wills
        self.registry = parts.registry
        self.sys_topics = parts.sys_topics
        self.topic_pool = parts.broker_parts.topic_pool
        self.connect = parts.connect
        self.connect_operator = parts.connect_operator
        self.sys_topics.startService()

    def storage(self) -> Mapping[str, object]:
        """Return the figures of the database."""
        return {}

    def make_router(
        self,
        retained: RetainedMessages,
        authorizer: IAuthorizer,
        counters: Counters,
        rejecting: bool,
        telemetry: Telemetry | None,
    ) -> Router:
        """Return the router."""
        return Router(retained, authorizer, counters, rejecting, telemetry)

    def make_registry(self, **parts: Any) -> SessionRegistry:
        """Return the registry of Sessions."""
        return SessionRegistry(**parts)

    def make_store(self) -> IRetainedStore:
        """Return the retained store."""
        return MemoryRetainedStore(RevisionClock(1, 0, self.now))

    def open_store(self) -> None:
        """Open the retained store, before the retainer starts."""

    def make_leases(self) -> LeaseRows | None:
        """Return where leases are stored."""
        return None

    def make_telemetry(self) -> Telemetry | None:
        """Return what records messages without RETAIN."""
        return None

    def make_states(self) -> ISessionStates:
        """Return the store of Session State."""
        return MemorySessionStates()

    def now(self) -> int:
        """Milliseconds since the epoch, by the fake clock."""
        return round(self.clock.seconds() * 1000)

    def settle(self) -> None:
        """Run reactor turns until nothing is due."""
        for _ in range(100_000):
            if not any(call.getTime() <= self.clock.seconds() for call in self.clock.getDelayedCalls()):
                return
            self.clock.turn()
        raise AssertionError("the broker never becomes idle")

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(seconds)  # runs each call at its time
        self.settle()

    def client(self, client_id: str = "", version: int = 4, **connect: Any) -> Client:
        """Return a client that has connected (see :class:`Client`)."""
        client = Client(self, version)
        client.connect(client_id, **connect)
        return client


class Client:
    """One client without a socket: sends packets, and collects received packets."""

    def __init__(self, broker: MemoryBroker, version: int = 4) -> None:
        self.broker = broker
        self.version = version
        self.network = Network()
        self.connection = broker.connect(self.network, broker.limits, "test")
        self.parser = PacketParser(1 << 28, version)
        self.connack: p.Connack | None = None
        self._identifier = 0

    def connect(
        self,
        client_id: str = "",
        clean: bool = True,
        keep_alive: int = 0,
        will: p.Will | None = None,
        properties: Properties = NO_PROPERTIES,
        username: str | None = None,
        password: bytes | None = None,
        bridge: bool = False,
    ) -> p.Connack | None:
        """Send CONNECT; keep and return the CONNACK."""
        self.send(
            p.Connect(client_id, self.version, clean, keep_alive, username, password, will, properties, bridge=bridge)
        )
        packets = self.packets()
        self.backlog = packets[1:]
        first = packets[0] if packets else None
        self.connack = first if isinstance(first, p.Connack) else None
        return self.connack

    def send(self, *packets: p.Packet) -> None:
        """Send packets and run reactor turns until nothing is due."""
        self.raw(b"".join(encode(packet, self.version) for packet in packets))

    def raw(self, data: bytes) -> None:
        """Send bytes and run reactor turns until nothing is due."""
        self.connection.receive(data)
        self.broker.settle()

    def packets(self) -> list[p.Packet]:
        """Return the packets received since the last call."""
        self.parser.receive_data(self.network.take())
        found = []
        while (packet := self.parser.next_packet()) is not None:
            found.append(packet)
        return found

    def got(self, kind: type[T]) -> list[T]:
        """Return the received packets of this kind, and drop the others."""
        return [packet for packet in self.packets() if isinstance(packet, kind)]

    def identifier(self) -> int:
        """Return a fresh Packet Identifier."""
        self._identifier += 1
        return self._identifier

    def subscribe(
        self, *filters: str | p.SubscriptionRequest, qos: int = 0, identifier: int | None = None
    ) -> list[p.Packet]:
        """Subscribe; return all received packets, SUBACK first."""
        requests = tuple(f if isinstance(f, p.SubscriptionRequest) else p.SubscriptionRequest(f, qos) for f in filters)
        properties = NO_PROPERTIES if identifier is None else Properties(subscription_identifiers=(identifier,))
        self.send(p.Subscribe(self.identifier(), requests, properties))
        return self.packets()

    def publish(
        self,
        topic: str,
        payload: bytes = b"x",
        qos: int = 0,
        retain: bool = False,
        properties: Properties = NO_PROPERTIES,
        identifier: int | None = None,
    ) -> None:
        """Publish."""
        number = 0 if not qos else self.identifier() if identifier is None else identifier
        self.send(p.Publish(topic, payload, qos, retain, False, number, properties))

    def messages(self) -> list[tuple[str, bytes, int, bool]]:
        """Acknowledge every received PUBLISH in full; return topic, payload, QoS and RETAIN of each."""
        found: list[tuple[str, bytes, int, bool]] = []
        for _ in range(10_000):
            came = self.packets()
            if not came:
                return found
            answers: list[p.Packet] = []
            for packet in came:
                match packet:
                    case p.Publish():
                        found.append((packet.topic, packet.payload, packet.qos, packet.retain))
                        if packet.qos == 1:
                            answers.append(p.Puback(packet.packet_identifier))
                        elif packet.qos == 2:
                            answers.append(p.Pubrec(packet.packet_identifier))
                    case p.Pubrel():
                        answers.append(p.Pubcomp(packet.packet_identifier))
            if answers:
                self.send(*answers)
        raise AssertionError("messages never end")

    def drop(self) -> None:
        """Lose the network connection without DISCONNECT."""
        self.network.closed = True
        self.connection.lost()
        self.broker.settle()
