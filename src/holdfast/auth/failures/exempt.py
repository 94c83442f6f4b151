"""The peers that are never banned, since each of them stands for many clients."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.peers.address import Peer
from holdfast.peers.trusted_proxies import TrustedProxies


class Exempt:
    """Loopback addresses, UNIX domain sockets and trusted proxies."""

    def __init__(self, proxies: Sequence[TrustedProxies] = ()) -> None:
        self._proxies = proxies

    def change(self, proxies: Sequence[TrustedProxies]) -> None:
        """Take these for the trusted proxies from now on."""
        self._proxies = proxies

    def __contains__(self, peer: Peer) -> bool:
        """Tell whether this peer is never banned."""
        return peer.ip is None or peer.ip.is_loopback or any(peer in proxies for proxies in self._proxies)
