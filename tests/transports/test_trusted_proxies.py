"""The proxies that may send the PROXY protocol."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from holdfast.identity.addresses import Peer, TrustedProxies


@pytest.mark.parametrize(
    ("ip", "trusted"),
    [("127.0.0.1", True), ("10.1.2.3", True), ("11.0.0.1", False), ("2001:db8::5", True), ("2001:db8::6", False)],
)
def test_addresses_and_networks_are_trusted(ip: str, trusted: bool) -> None:
    proxies = TrustedProxies(["127.0.0.0/8", "10.0.0.0/8", "2001:db8::5"])
    assert (Peer(ip_address(ip)) in proxies) is trusted


def test_unix_sockets_are_trusted_only_by_name() -> None:
    assert Peer(None) in TrustedProxies(["unix"])
    assert Peer(None) not in TrustedProxies(["127.0.0.1"])
