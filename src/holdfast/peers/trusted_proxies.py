"""The proxies whose word about the addresses of their clients is believed."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_network

from holdfast.peers.address import Peer

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
