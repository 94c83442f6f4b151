"""The address of a peer, and the group in which it is counted."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress

from holdfast.identity.addresses import Peer, peer_of


@pytest.mark.parametrize(
    ("host", "group"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64%eth0"),
        ("::1", "::/64"),
    ],
)
def test_ipv4_addresses_count_alone_and_ipv6_addresses_by_64_bits(host: str, group: str) -> None:
    kind = IPv6Address if ":" in host else IPv4Address
    assert peer_of(kind("TCP", host, 5555)).group == group


@pytest.mark.parametrize(
    ("host", "local"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("::ffff:127.0.0.1", True), ("10.0.0.1", False),
     ("::2", False), ("::ffff:10.0.0.1", False)],
)  # fmt: skip
def test_loopback_addresses_are_local_unless_a_proxy_names_them(host: str, local: bool) -> None:
    kind = IPv6Address if ":" in host else IPv4Address
    peer = peer_of(kind("TCP", host, 5555))
    assert peer.is_local is local
    assert not Peer(peer.ip, peer.port, proxied=True).is_local


def test_a_unix_socket_is_local_unless_a_proxy_names_it() -> None:
    assert peer_of(UNIXAddress("/run/mqtt.sock")).is_local
    assert not Peer(None, proxied=True).is_local


def test_a_peer_is_written_with_its_port() -> None:
    assert str(Peer(ip_address("192.0.2.1"), 5555)) == "192.0.2.1:5555"
    assert str(Peer(ip_address("2001:db8::1"), 5555)) == "[2001:db8::1]:5555"
    assert str(Peer(None)) == "unix"
