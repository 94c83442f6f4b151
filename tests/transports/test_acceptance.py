"""The limits on connections: of a listener, of the process, and for each address."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest
from twisted.internet.task import Clock

from holdfast.core.connection_limits import RESERVED_FILES, ConnectionLimits, ProcessConnections, Refusal
from holdfast.core.units import Rate
from holdfast.identity.addresses import Peer, TrustedProxies
from holdfast.transports.acceptance import Acceptance, AcceptedConnection

STRANGER, OTHER = Peer(ip_address("192.0.2.1"), 5555), Peer(ip_address("192.0.2.2"), 5555)
LOCAL = Peer(ip_address("127.0.0.1"), 5555)
UNIX = Peer(None)


class Listener:
    """The acceptance of one listener, and what it refuses."""

    def __init__(self, process: int | None = None, proxies: list[str] | None = None, **limits: Any) -> None:
        self.clock = Clock()
        self.refusals: list[Refusal] = []
        self.process = ProcessConnections(process)
        self.acceptance = Acceptance(
            ConnectionLimits(**limits),
            self.process,
            self.clock,
            lambda refusal, _peer: self.refusals.append(refusal),
            None if proxies is None else TrustedProxies(proxies),
        )

    def connect(self, peer: Peer) -> AcceptedConnection | None:
        """Connect, and open the transport if the connection is accepted."""
        accepted = self.acceptance.accept(peer)
        if accepted is not None:
            accepted.opened()
        return accepted

    def takes(self, *peers: Peer) -> list[bool]:
        """Tell which of these peers are accepted, one after the other."""
        return [self.connect(peer) is not None for peer in peers]


def test_by_default_a_listener_takes_all_that_finish_their_connect() -> None:
    listener = Listener()
    for _ in range(1000):
        accepted = listener.connect(STRANGER)
        assert accepted is not None
        accepted.admitted()
    assert listener.acceptance.open == listener.process.open == 1000


@pytest.mark.parametrize("peer", [STRANGER, LOCAL, UNIX])
def test_a_listener_takes_max_connections_of_anybody(peer: Peer) -> None:
    listener = Listener(max_connections=2)
    first, _ = listener.connect(peer), listener.connect(peer)
    assert listener.takes(peer, peer) == [False, False]
    assert listener.refusals == [Refusal.CONNECTIONS] * 2
    assert first is not None
    first.closed()
    assert listener.takes(peer, peer) == [True, False]


@pytest.mark.parametrize("peer", [STRANGER, LOCAL, UNIX])
def test_the_process_takes_as_many_as_its_files_allow_and_keeps_some(peer: Peer) -> None:
    listener = Listener()
    listener.process.most = ProcessConnections.within(RESERVED_FILES + 2).most
    assert listener.takes(peer, peer, peer) == [True, True, False]
    assert listener.refusals == [Refusal.OPEN_FILES]


@pytest.mark.parametrize(("files", "most"), [(1024, 824), (1_048_576, 1_048_376), (201, 1), (200, 1), (50, 1)])
def test_a_process_with_few_files_takes_one_connection_at_least(files: int, most: int) -> None:
    assert ProcessConnections.within(files).most == most


def test_one_address_takes_max_connections_per_address() -> None:
    listener = Listener(max_connections_per_address=1)
    assert listener.takes(STRANGER, STRANGER, OTHER) == [True, False, True]
    assert listener.refusals == [Refusal.CONNECTIONS_PER_ADDRESS]


def test_all_ipv6_addresses_of_a_64_count_as_one() -> None:
    listener = Listener(max_connections_per_address=2)
    one, two, three = (Peer(ip_address(f"2001:db8:0:1::{number}")) for number in range(3))
    assert listener.takes(one, two, three, Peer(ip_address("2001:db8:0:2::1"))) == [True, True, False, True]


def test_half_open_connections_of_one_address_are_limited_until_their_connect_is_accepted() -> None:
    listener = Listener()
    accepted = [listener.connect(STRANGER) for _ in range(256)]
    assert listener.takes(STRANGER, OTHER) == [False, True]
    assert listener.refusals == [Refusal.HALF_OPEN_PER_ADDRESS]
    first, second = accepted[0], accepted[1]
    assert first is not None
    assert second is not None
    first.admitted()
    second.closed()
    assert listener.takes(STRANGER, STRANGER, STRANGER) == [True, True, False]


def test_a_listener_takes_connections_at_its_rate() -> None:
    listener = Listener(max_conn_rate=Rate(2, 1.0))
    assert listener.takes(STRANGER, LOCAL, OTHER) == [True, True, False]
    assert listener.refusals == [Refusal.RATE]
    listener.clock.advance(5.0)
    assert listener.takes(STRANGER, OTHER) == [True, True]


def test_one_address_takes_connections_at_its_rate() -> None:
    listener = Listener(max_conn_rate_per_address=Rate(1, 1.0))
    assert listener.takes(STRANGER, STRANGER, OTHER) == [True, False, True]
    assert listener.refusals == [Refusal.RATE_PER_ADDRESS]
    listener.clock.advance(1.1)
    assert listener.takes(STRANGER) == [True]


def test_a_refused_connection_uses_up_no_rate() -> None:
    listener = Listener(max_conn_rate=Rate(2, 1.0), max_connections_per_address=1)
    assert listener.takes(STRANGER, STRANGER, STRANGER, OTHER) == [True, False, False, True]


@pytest.mark.parametrize("peer", [LOCAL, UNIX])
def test_peers_on_this_machine_are_exempt_from_the_limits_of_an_address(peer: Peer) -> None:
    listener = Listener(
        max_connections_per_address=1, max_conn_rate_per_address=Rate(1, 1.0), max_half_open_per_address=1
    )
    assert listener.takes(peer, peer, peer) == [True, True, True]


def test_nothing_is_remembered_of_an_address_without_connections() -> None:
    listener = Listener(max_connections_per_address=5)
    for _ in range(3):
        accepted = listener.connect(STRANGER)
        assert accepted is not None
        accepted.closed()
        accepted.closed()
    assert not listener.acceptance.by_group
    assert not listener.acceptance.half_open
    assert listener.acceptance.open == listener.process.open == 0


# --- proxies


def proxied(client: Peer) -> Peer:
    """The client, as a proxy names it."""
    return Peer(client.ip, client.port, proxied=True)


def test_an_untrusted_proxy_is_refused() -> None:
    listener = Listener(proxies=["127.0.0.1"])
    assert listener.takes(LOCAL, STRANGER, UNIX) == [True, False, False]
    assert listener.refusals == [Refusal.UNTRUSTED_PROXY] * 2


@pytest.mark.parametrize("client", [STRANGER, LOCAL, UNIX])
def test_the_address_that_counts_is_the_one_that_the_proxy_tells(client: Peer) -> None:
    """A client that a proxy names is never local."""
    listener = Listener(proxies=["127.0.0.1"], max_connections_per_address=1)
    first, second, third = (listener.connect(LOCAL) for _ in range(3))
    assert first is not None
    assert second is not None
    assert third is not None
    assert first.named(proxied(client))
    assert str(first.peer) == str(client)
    assert not second.named(proxied(client))
    assert third.named(proxied(OTHER))
    assert listener.refusals == [Refusal.CONNECTIONS_PER_ADDRESS]


def test_a_proxy_that_speaks_for_itself_counts_by_its_own_address() -> None:
    """As in health checks: it is not local either."""
    listener = Listener(proxies=["127.0.0.1"], max_connections_per_address=1)
    first, second = listener.connect(LOCAL), listener.connect(LOCAL)
    assert first is not None
    assert second is not None
    assert first.named(None)
    assert not first.peer.is_local
    assert not second.named(None)


def test_a_connection_counts_for_the_listener_before_its_proxy_names_the_client() -> None:
    listener = Listener(proxies=["127.0.0.1"], max_connections=1)
    first = listener.connect(LOCAL)
    assert listener.takes(LOCAL) == [False]
    assert first is not None
    first.closed()
    assert listener.takes(LOCAL) == [True]


def test_the_rate_of_an_address_counts_what_the_proxy_tells() -> None:
    listener = Listener(proxies=["127.0.0.1"], max_conn_rate_per_address=Rate(1, 1.0))
    connections = [listener.connect(LOCAL) for _ in range(3)]
    clients = [STRANGER, STRANGER, OTHER]
    named = [each is not None and each.named(proxied(who)) for each, who in zip(connections, clients, strict=True)]
    assert named == [True, False, True]


def test_a_trusted_proxy_is_no_client_and_counts_for_no_address() -> None:
    """Thousands of clients come from its one address."""
    rate = Rate(1, 60.0)
    listener = Listener(
        proxies=["192.0.2.1"],
        max_connections_per_address=1,
        max_half_open_per_address=1,
        max_conn_rate_per_address=rate,
    )
    connections = []
    for number in range(20):
        accepted = listener.connect(STRANGER)
        assert accepted is not None
        assert accepted.named(Peer(ip_address(f"198.51.100.{number}"), 1, proxied=True))
        connections.append(accepted)
    assert len(listener.acceptance.by_group) == 20
    waiting = listener.connect(STRANGER)  # its header has not come yet
    assert waiting is not None
    for accepted in [*connections, waiting]:
        accepted.closed()
    assert not listener.acceptance.by_group
    assert not listener.acceptance.half_open
    assert listener.acceptance.open == 0


def test_a_banned_address_is_refused_at_once_and_behind_a_proxy_after_its_header() -> None:
    refusals: list[Refusal] = []

    def acceptance(proxies: TrustedProxies | None) -> Acceptance:
        return Acceptance(
            ConnectionLimits(), ProcessConnections(), Clock(), lambda refusal, _: refusals.append(refusal), proxies,
            is_banned=lambda peer: peer.ip in (STRANGER.ip, LOCAL.ip),
        )  # fmt: skip

    direct = acceptance(None)
    assert direct.accept(STRANGER) is None
    assert direct.accept(OTHER) is not None
    assert direct.accept(LOCAL) is not None
    proxied = acceptance(TrustedProxies([str(STRANGER.ip)])).accept(STRANGER)
    assert proxied is not None
    proxied.opened()
    assert not proxied.named(Peer(STRANGER.ip, 1, proxied=True))
    assert refusals == [Refusal.BANNED] * 2
