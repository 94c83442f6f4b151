"""Consoles: operators connect with the rights of their scopes, as long as their sessions at the dashboard last."""

from __future__ import annotations

from typing import Any

from holdfast.broker.admin import LISTENER, Consoles
from holdfast.core.connection_limits import ConnectionLimits, ProcessConnections
from holdfast.identity.addresses import Peer
from holdfast.identity.authorizer import Authorizer, PresentAuthorizer
from holdfast.identity.interfaces import OperatorPrincipal, Principal
from holdfast.identity.rules import RuleList, Ruleset
from holdfast.transports.acceptance import Acceptance
from holdfast.transports.protocol import OpenConnections
from holdfast.wire import PacketParser, Properties, ReasonCode, encode
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker, Network
from tests.transports.websocket.client import TransportWithRoom, frame, request, sent_frames


def strict_broker() -> MemoryBroker:
    """Return a broker whose rules allow clients nothing."""
    return MemoryBroker(authorizer=PresentAuthorizer(Authorizer(Ruleset(RuleList(())))))


class Operator(Client):
    """A console without a socket."""

    def __init__(self, broker: MemoryBroker, publishes: bool = True) -> None:
        self.broker = broker
        self.version = 5
        self.network = Network()
        self.connection = broker.connect_operator(self.network, broker.limits, LISTENER, "user alice", publishes)
        self.parser = PacketParser(1 << 28, 5)
        self._identifier = 0


def test_an_operator_needs_no_rules_and_clients_still_do() -> None:
    """Also for retained messages, and after the rules were read again."""
    broker = strict_broker()
    operator, client = Operator(broker), broker.client("c")
    operator.connect()
    operator.publish("a/b", b"1", retain=True)
    client.publish("a/b", b"2")
    operator.subscribe("a/#")
    assert operator.messages() == []
    operator.publish("a/b", b"3")
    assert operator.messages() == [("a/b", b"3", 0, False)]
    (suback,) = client.subscribe("a/#")
    assert isinstance(suback, p.Suback)
    assert [code >= 0x80 for code in suback.reason_codes] == [True]


def test_retained_messages_are_replayed_to_an_operator() -> None:
    broker = strict_broker()
    first, second = Operator(broker), Operator(broker, publishes=False)
    first.connect()
    first.publish("a/b", b"1", retain=True)
    second.connect()
    assert [one.payload for one in second.subscribe("#") if isinstance(one, p.Publish)] == [b"1"]


def test_an_operator_without_the_scope_may_subscribe_only() -> None:
    """A PUBLISH is denied, and a Will is refused."""
    broker = strict_broker()
    reader, other = Operator(broker, publishes=False), Operator(broker)
    reader.connect()
    other.connect()
    other.subscribe("#")
    reader.subscribe("#")
    reader.publish("a", b"1", qos=1)
    assert [one.reason_code for one in reader.got(p.Puback)] == [ReasonCode.NOT_AUTHORIZED]
    assert other.messages() == []
    dying = Operator(broker, publishes=False)
    connack = dying.connect(will=p.Will("a", b"x"))
    assert connack is not None
    assert connack.reason_code == ReasonCode.NOT_AUTHORIZED


def test_an_operator_takes_over_no_session_and_leaves_none() -> None:
    """The broker chooses the Client Identifier; a Session that outlives the connection is refused."""
    broker = MemoryBroker()
    client = broker.client("c")
    for client_id, properties in (("c", Properties()), ("", Properties(session_expiry_interval=60))):
        connack = Operator(broker).connect(client_id, properties=properties)
        assert connack is not None
        assert connack.reason_code == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
    assert not client.network.closed
    operator = Operator(broker)
    connack = operator.connect()
    assert connack is not None
    assert str(connack.properties.assigned_client_identifier).startswith("holdfast-")
    operator.drop()
    assert broker.registry.session_count == 1


def test_the_identity_tells_who_it_is_but_no_user_name() -> None:
    """The audit log names the operator. A User Name could be banned, or have rules."""
    broker = MemoryBroker()
    principals: list[Principal] = []
    operator = Operator(broker)
    connack = operator.connect(username="claimed", password=b"wrong")
    assert connack is not None

    def noted(principal: Principal) -> bool:
        principals.append(principal)
        return False

    broker.registry.dismissals.dismiss(noted, ReasonCode.NOT_AUTHORIZED, "")
    broker.settle()
    (principal,) = principals
    assert type(principal) is OperatorPrincipal
    assert (principal.username, principal.method) == (None, "dashboard, user alice")


class Consoled:
    """Consoles with transports in memory."""

    def __init__(self) -> None:
        self.broker = MemoryBroker()
        clock = self.broker.clock
        self.goes_on = True
        self.acceptance = Acceptance(ConnectionLimits(), ProcessConnections(), clock, lambda *_: None)
        self.consoles = Consoles(
            self.broker.connect_operator, connections=OpenConnections(clock), limits=lambda: self.broker.limits,
            clock=clock,
        )  # fmt: skip

    def open(self) -> Any:
        """Return the protocol of a console after its handshake."""
        accepted = self.acceptance.accept(Peer(None))
        assert accepted is not None
        protocol: Any = self.consoles.protocol(accepted, "user alice", True, lambda: self.goes_on)
        protocol.makeConnection(TransportWithRoom())
        assert self.sent(protocol, request(Origin="http://broker.example:9001")).startswith(b"HTTP/1.1 101 ")
        return protocol

    def sent(self, protocol: Any, data: bytes) -> bytes:
        """Return what the broker answers."""
        protocol.dataReceived(data)
        self.broker.settle()
        protocol.transport.drain()
        answer = bytes(protocol.transport.value())
        protocol.transport.clear()
        return answer


def test_a_console_is_closed_when_the_session_at_the_dashboard_is_over() -> None:
    """It gets DISCONNECT with the reason, and nothing looks any more once no console is open."""
    world = Consoled()
    before = len(world.broker.clock.getDelayedCalls())
    protocol = world.open()
    answer = world.sent(protocol, frame(encode(p.Connect("", 5, properties=Properties()), 5)))
    assert len(sent_frames(answer)) == 1
    world.broker.advance(20)
    assert not protocol.is_closing
    world.goes_on = False
    world.broker.advance(6)
    assert b"the session at the dashboard is over" in world.sent(protocol, b"")
    protocol.connectionLost()
    world.broker.advance(6)
    assert len(world.broker.clock.getDelayedCalls()) == before
    assert world.acceptance.open == 0


def test_pages_of_other_origins_have_no_console() -> None:
    """Even if the browser sends the cookie with their request."""
    world = Consoled()
    accepted = world.acceptance.accept(Peer(None))
    assert accepted is not None
    protocol: Any = world.consoles.protocol(accepted, "user alice", True, lambda: True)
    protocol.makeConnection(TransportWithRoom())
    assert world.sent(protocol, request(Origin="http://evil.example")).startswith(b"HTTP/1.1 403 ")
