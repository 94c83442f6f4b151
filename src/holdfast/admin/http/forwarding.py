"""The client behind a trusted reverse proxy: its address, and whether it has TLS.

How it works. Each proxy adds the address that it sees to the end of ``X-Forwarded-For``; the beginning may be a
client's own words. So the list is read from its end: past the addresses of trusted proxies, the first other one is the
client. A proxy that is not trusted is believed nothing. Its requests then count for its own address, but not as
requests from this machine (:class:`~holdfast.admin.calls.head.Head`).
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address

from attrs import evolve

from holdfast.admin.calls.head import Head
from holdfast.admin.calls.hosts import host_and_port
from holdfast.admin.calls.problems import bad_request
from holdfast.peers.address import Peer, plain
from holdfast.peers.trusted_proxies import TrustedProxies

#: addresses of the list that are looked at
_MOST = 16


class Forwarding:
    """Finds the clients of trusted proxies; ``proxies`` returns the ones that are trusted now."""

    def __init__(self, proxies: Callable[[], TrustedProxies]) -> None:
        self._proxies = proxies

    def unwrap(self, head: Head) -> Head:
        """Return a head with the address of the client. Raises RefusedCall if a trusted proxy tells none."""
        proxies = self._proxies()
        if not head.peer.proxied or head.forwarded_for is None or head.peer not in proxies:
            return head
        for text in reversed(head.forwarded_for.rsplit(",", _MOST)[-_MOST:]):
            peer = Peer(_address_of(text.strip()), 0, proxied=True)
            if peer not in proxies:
                break
        secure = head.secure or (head.forwarded_proto or "").strip().lower() == "https"
        return evolve(head, peer=peer, secure=secure)


def _address_of(text: str) -> IPv4Address | IPv6Address:
    """Return an address that may have a port, as some proxies write it. Raises RefusedCall."""
    place = host_and_port(text)
    try:
        return plain(ip_address(text if place is None else place[0]))
    except ValueError:
        raise bad_request(
            f"the proxy has sent {text[:60]!a} in X-Forwarded-For", "X-Forwarded-For", "IP addresses with commas"
        ) from None
