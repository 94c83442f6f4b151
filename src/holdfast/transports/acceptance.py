"""Accepting connections: each listener's limits judge a new connection, before a byte of it is parsed.

How it works. ``accept`` judges a connection by the address of its peer. Where a proxy sends the PROXY protocol, this
is the address of the proxy: it must be trusted, and only the limits of the listener and of the process are asked. When
the header has told the client's address, ``named`` asks the limits for each address. A connection counts from
``opened`` to ``closed``, and is half open until ``admitted``.

    accept(peer) -> connection | None     opened     [named(client) -> bool]     admitted     closed

Local peers are exempt from the limits for each address, since all of them share a few addresses: without a proxy, those
with loopback addresses or UNIX domain sockets. Nobody is exempt from the limits of a listener and of the process.
Proxied peers are never local. A header may name no client, as in health checks: then the proxy's address counts.
Peers with banned addresses are refused like those beyond a limit.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime

from holdfast.core.connection_limits import ConnectionLimits, ProcessConnections, Refusal
from holdfast.core.units import Rate, TokenBucket
from holdfast.identity.addresses import Peer, TrustedProxies

#: is called for each connection that is refused
Refused = Callable[[Refusal, Peer], None]


class Acceptance:
    """Accepts or refuses the connections of one listener, and counts those that are open.

    With ``proxies``, each connection begins with the header of the PROXY protocol.
    """

    def __init__(
        self,
        limits: ConnectionLimits,
        process: ProcessConnections,
        clock: IReactorTime,
        refused: Refused,
        proxies: TrustedProxies | None = None,
        is_banned: Callable[[Peer], bool] | None = None,
    ) -> None:
        self.limits = limits
        self.process = process
        self.proxies = proxies
        self.refused = refused
        self._is_banned = is_banned
        self.open = 0
        #: open connections, and those of them that are half open, by the groups of their peers
        self.by_group: Counter[str] = Counter()
        self.half_open: Counter[str] = Counter()
        self._clock = clock
        self._rate = self._new_rate()
        self._rates = self._new_rates()

    def change(self, limits: ConnectionLimits, proxies: TrustedProxies | None) -> None:
        """Judge by these limits from now on. Open connections stay. A rate that has changed begins anew.

        ``proxies`` is None if and only if it was so before.
        """
        before, self.limits, self.proxies = self.limits, limits, proxies
        if before.max_conn_rate != limits.max_conn_rate:
            self._rate = self._new_rate()
        if before.max_conn_rate_per_address != limits.max_conn_rate_per_address:
            self._rates = self._new_rates()

    def _new_rate(self) -> TokenBucket | None:
        rate = self.limits.max_conn_rate
        return TokenBucket(rate, self._clock.seconds()) if rate else None

    def _new_rates(self) -> AddressRates | None:
        rate = self.limits.max_conn_rate_per_address
        return AddressRates(rate) if rate else None

    @property
    def is_full(self) -> bool:
        """Whether ``max_connections`` are open."""
        return _reached(self.open, self.limits.max_connections)

    def accept(self, peer: Peer) -> AcceptedConnection | None:
        """Return the new connection of this peer, or None if it is refused."""
        proxied = self.proxies is not None
        refusal = self._refusal(peer) or (None if proxied else self.refusal_of_address(peer))
        if refusal is not None:
            self.refused(refusal, peer)
            return None
        if self._rate is not None:
            self._rate.take(1, self._clock.seconds())
        if not proxied:
            self.count_address(peer)
        return AcceptedConnection(self, peer)

    def _refusal(self, peer: Peer) -> Refusal | None:
        """Return the reason to refuse this peer, whoever its client is."""
        if self.proxies is not None and peer not in self.proxies:
            return Refusal.UNTRUSTED_PROXY
        if self.process.is_full:
            return Refusal.OPEN_FILES
        if self.is_full:
            return Refusal.CONNECTIONS
        if self._rate is not None and self._rate.wait(1, self._clock.seconds()) > 0.0:
            return Refusal.RATE
        return None

    def refusal_of_address(self, peer: Peer) -> Refusal | None:
        """Return the limit for single addresses that a further connection of this peer would exceed, or its ban."""
        if peer.is_local:
            return None
        if self._is_banned is not None and self._is_banned(peer):
            return Refusal.BANNED
        limits, group = self.limits, peer.group
        if _reached(self.by_group[group], limits.max_connections_per_address):
            return Refusal.CONNECTIONS_PER_ADDRESS
        if _reached(self.half_open[group], limits.max_half_open_per_address):
            return Refusal.HALF_OPEN_PER_ADDRESS
        if self._rates is not None and not self._rates.allows(group, self._clock.seconds()):
            return Refusal.RATE_PER_ADDRESS
        return None

    def count_address(self, peer: Peer) -> None:
        """Count a new connection of this peer in the rate of its address."""
        if self._rates is not None and not peer.is_local:
            self._rates.count(peer.group, self._clock.seconds())


class AcceptedConnection:
    """One connection that a listener has accepted. ``peer`` is its client, once a proxy has named it."""

    __slots__ = ("_group", "_half_open", "_open", "acceptance", "peer")

    def __init__(self, acceptance: Acceptance, peer: Peer) -> None:
        self.acceptance = acceptance
        self._group = ""
        self._half_open = False
        self._open = False
        self.peer = peer

    @property
    def awaits_header(self) -> bool:
        """Whether a proxy sends the header of the PROXY protocol first."""
        return self.acceptance.proxies is not None

    def opened(self) -> None:
        """Count this connection as open. Its transport has begun."""
        self._open = True
        self.acceptance.open += 1
        self.acceptance.process.open += 1
        if not self.awaits_header:
            self._count_address()

    def named(self, client: Peer | None) -> bool:
        """Take the client that the proxy names, or None if the proxy names nobody. Return whether it is accepted."""
        acceptance = self.acceptance
        self.peer = client or Peer(self.peer.ip, self.peer.port, proxied=True)
        refusal = acceptance.refusal_of_address(self.peer)
        if refusal is not None:
            acceptance.refused(refusal, self.peer)
            return False
        acceptance.count_address(self.peer)
        self._count_address()
        return True

    def misnamed(self) -> None:
        """Note that the proxy has sent no valid header."""
        self.acceptance.refused(Refusal.BAD_PROXY_HEADER, self.peer)

    def admitted(self) -> None:
        """Note that CONNECT was accepted."""
        if self._half_open:
            self._half_open = False
            _decrease(self.acceptance.half_open, self._group)

    def closed(self) -> None:
        """Stop counting this connection. Its transport is gone."""
        if not self._open:
            return
        self._open = False
        acceptance = self.acceptance
        acceptance.open -= 1
        acceptance.process.open -= 1
        self.admitted()
        if self._group:
            _decrease(acceptance.by_group, self._group)
            self._group = ""

    def _count_address(self) -> None:
        if not self.peer.is_local:
            self._group = self.peer.group
            self._half_open = True
            self.acceptance.by_group[self._group] += 1
            self.acceptance.half_open[self._group] += 1


def _reached(count: int, most: int | None) -> bool:
    return most is not None and count >= most


def _decrease(counter: Counter[str], group: str) -> None:
    """Count one less, and keep no entry for none: the counters are as large as there are connections."""
    counter[group] -= 1
    if not counter[group]:
        del counter[group]


# The rate of new connections from each address.


#: Addresses that are remembered. With more of them at once, those that were silent longest begin anew.
MOST_ADDRESSES = 8192

#: Silent addresses that are looked at for each new one: more than one, so that they become fewer.
_LOOKS = 2


class AddressRates:
    """The same rate for each group of addresses, at most ``most`` of them. ``now`` is in seconds of any clock."""

    def __init__(self, rate: Rate, most: int = MOST_ADDRESSES) -> None:
        self._rate = rate
        self._most = most
        #: from the group that was silent longest to the latest
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        """Return how many groups are remembered."""
        return len(self._buckets)

    def allows(self, group: str, now: float) -> bool:
        """Tell whether one more connection of this group is within the rate."""
        bucket = self._buckets.get(group)
        return bucket is None or bucket.wait(1, now) == 0.0

    def count(self, group: str, now: float) -> None:
        """Count a connection of this group that :meth:`allows` has allowed."""
        buckets = self._buckets
        bucket = buckets.get(group)
        if bucket is None:
            self._forget(now)
            bucket = buckets[group] = TokenBucket(self._rate, now)
        buckets.move_to_end(group)
        bucket.take(1, now)

    def _forget(self, now: float) -> None:
        """Make room for a new group. A full bucket is worth no more than a new one."""
        buckets = self._buckets
        for _ in range(_LOOKS):
            if not buckets:
                return
            group, bucket = next(iter(buckets.items()))
            if len(buckets) < self._most and bucket.wait(self._rate.amount, now) > 0.0:
                return
            del buckets[group]
