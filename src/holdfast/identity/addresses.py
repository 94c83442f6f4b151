"""Addresses of peers, as limits and bans count them, and the proxies whose word about addresses is believed."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from attrs import frozen
from twisted.internet import address as twisted

# The address of a peer, as it counts: each IPv4 address alone, all IPv6 addresses of one /64 together.
#
# A network usually gives one customer or one machine a whole /64. So a limit for single IPv6 addresses would limit
# nobody.


_INTERFACE_BITS = 64


@frozen(slots=False)  # for the cached property
class Peer:
    """The other end of one connection.

    ``ip`` is None for UNIX domain sockets, and for other transports without IP addresses. A peer is ``proxied`` if it
    reached the broker through a proxy. Then it is never local, whatever its address is.
    """

    ip: IPv4Address | IPv6Address | None
    port: int = 0
    proxied: bool = False

    def __str__(self) -> str:
        """Return the address and the port, as in ``192.0.2.1:5555``, ``[2001:db8::1]:5555`` or ``unix``."""
        match self.ip:
            case None:
                return "unix"
            case IPv6Address():
                return f"[{self.ip}]:{self.port}"
            case _:
                return f"{self.ip}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether the peer is on this machine: it came without a proxy, by a loopback address or a UNIX socket."""
        return not self.proxied and (self.ip is None or self.ip.is_loopback)

    @cached_property
    def group(self) -> str:
        """The name under which this peer is counted: the same for all addresses of an IPv6 /64."""
        ip = self.ip
        if not isinstance(ip, IPv6Address):
            return str(ip or "unix")
        network = IPv6Address(int(ip) >> _INTERFACE_BITS << _INTERFACE_BITS)
        return f"{network}/{128 - _INTERFACE_BITS}" + (f"%{ip.scope_id}" if ip.scope_id else "")


def plain(ip: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address that an IPv6 address carries (``::ffff:192.0.2.1``), or the address as it is."""
    return (ip.ipv4_mapped or ip) if isinstance(ip, IPv6Address) else ip


def peer_of(address: object) -> Peer:
    """Return the peer with one of Twisted's addresses."""
    if isinstance(address, (twisted.IPv4Address, twisted.IPv6Address)):
        return Peer(_ip_of(address.host), address.port)
    return Peer(None)


@lru_cache(maxsize=1024)  # parsing takes a twentieth of the time of a whole connect, and many clients share an address
def _ip_of(host: str) -> IPv4Address | IPv6Address:
    return plain(ip_address(host))


# The proxies whose word about the addresses of their clients is believed.


#: stands for the peers of UNIX domain sockets
UNIX = "unix"


class TrustedProxies:
    """The proxies in some networks, and behind UNIX domain sockets if ``unix`` is among the names."""

    def __init__(self, names: Iterable[str]) -> None:
        """Take addresses, networks such as ``10.0.0.0/8``, and ``unix``. Raises ValueError for other names."""
        names = set(names)
        self._unix = UNIX in names
        self._networks = [ip_network(name) for name in sorted(names - {UNIX})]

    def __contains__(self, peer: Peer) -> bool:
        """Tell whether the peer may send the PROXY protocol."""
        ip = peer.ip
        if ip is None:
            return self._unix
        return any(ip in network for network in self._networks)
