"""Which connection of the API gives way when all places are taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from OpenSSL import SSL
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from holdfast.admin.call import Answer, Call, Caller, Head, Via
from holdfast.admin.http.handshakes import TLSOfAPI
from holdfast.admin.http.listener import ListenerFactory, ListenerSite, Places
from holdfast.core.connection_limits import ConnectionLimits, ProcessConnections, Refusal
from holdfast.identity.addresses import Peer
from holdfast.transports.acceptance import Acceptance
from tests.admin.test_site import Transport

MOST = 4


def test_the_one_with_the_least_proof_gives_way_and_a_call_with_a_proof_never_does() -> None:
    """Strangers go first, the oldest of them before others; then those who wait for late answers; then idle callers."""
    places: Places[str] = Places()
    for name in ("idle", "guessing", "old", "new", "streaming"):
        places.take(name)
    places.asks("idle", known=True)
    places.answered("idle")
    places.asks("guessing", known=False)
    places.asks("streaming", known=True)
    order = []
    while (found := places.who_gives_way()) is not None:
        order.append(found)
        places.leave(found)
    assert order == ["old", "new", "guessing", "idle"]
    assert len(places) == 1


def test_an_answer_makes_a_stranger_the_youngest_stranger_again() -> None:
    """A connection counts from its last answer; one that is gone is not added again."""
    places: Places[str] = Places()
    places.take("a")
    places.take("b")
    places.asks("a", known=False)
    places.answered("a")
    assert places.who_gives_way() == "b"
    places.leave("b")
    places.asks("b", known=True)
    places.answered("b")
    assert len(places) == 1


class _Listener:
    """The listener of the API, with few places. Calls with a key are never answered."""

    def __init__(self, maker: Callable[[], SSL.Connection] | None = None) -> None:
        self.refusals: list[Refusal] = []
        self.gave_way: list[Peer] = []
        self.clock = Clock()
        limits = ConnectionLimits(max_connections=MOST, max_connections_per_address=2)
        self.acceptance = Acceptance(
            limits, ProcessConnections(), self.clock, lambda refusal, _peer: self.refusals.append(refusal)
        )
        site = ListenerSite(
            self._answer, lambda _method, _path: 1000, self.clock, self._identify, MOST,
            goes_on=lambda *_: True, unwrap=lambda head: head, gave_way=self.gave_way.append,
        )  # fmt: skip
        tls = TLSOfAPI(
            maker=lambda: maker, line_up=lambda _step: None, not_tls=lambda _: "", explain=lambda *_: "",
            failed=lambda *_: None,
        )  # fmt: skip
        self.factory = ListenerFactory(site, self.acceptance, tls)

    @staticmethod
    def _identify(_channel: object, head: Head) -> Caller:
        return Caller(via=Via.KEY if head.authorization else Via.NOTHING)

    @staticmethod
    def _answer(call: Call) -> Deferred[Answer]:
        return Deferred()

    def connect(self, host: str = "127.0.0.1") -> tuple[Any, Any] | None:
        protocol: Any = self.factory.buildProtocol(IPv4Address("TCP", host, 40000))
        if protocol is None:
            return None
        transport: Any = Transport()  # type: ignore[no-untyped-call]
        protocol.makeConnection(transport)
        return protocol, transport


@pytest.mark.parametrize("maker", [None, lambda: SSL.Connection(SSL.Context(SSL.TLS_METHOD))])
def test_one_address_cannot_shut_the_operator_out(maker: Callable[[], SSL.Connection] | None) -> None:
    """Silent connections of this machine, with TLS and without, give way one by one; never are too many open."""
    listener = _Listener(maker)
    flood = [listener.connect() for _ in range(3 * MOST)]
    assert all(flood)
    assert [each[1].aborted for each in flood if each] == [True] * (2 * MOST) + [False] * MOST
    assert listener.acceptance.open == MOST
    assert len(listener.gave_way) == 2 * MOST
    assert listener.refusals == []


def test_calls_with_a_key_keep_their_places_and_half_a_call_keeps_none() -> None:
    """A slow head gives way. If all make calls with a key, the new connection is refused."""
    listener = _Listener()
    slow = listener.connect()
    assert slow is not None
    slow[0].dataReceived(b"GET / HTTP/1.1\r\nHost: x\r\n")
    for _ in range(MOST):
        made = listener.connect()
        assert made is not None
        made[0].dataReceived(b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: key\r\n\r\n")
    assert slow[1].aborted
    assert listener.connect() is None
    assert listener.refusals == [Refusal.CONNECTIONS]


def test_a_peer_beyond_its_own_limit_drives_nobody_away() -> None:
    """An address with its most connections is refused, although others would give way."""
    listener = _Listener()
    connections = [listener.connect(host) for host in ("192.0.2.1", "192.0.2.1", "127.0.0.1", "127.0.0.1")]
    assert listener.connect("192.0.2.1") is None
    assert listener.gave_way == []
    assert not any(each[1].aborted for each in connections if each)
