"""The bans in force: the operators' ones, which last, and those of addresses with too many failed logins.

How it works. Operators' bans of addresses are kept by their network: for each length of prefix that occurs, one lookup
tells whether an address is banned. So a connection costs a few lookups, however many networks are banned. Bans after
failed logins are kept by the group of the address (:mod:`holdfast.peers.address`), in the order of their ends. They are
forgotten when the broker ends, and the oldest ones when there are too many.

Peers that stand for many clients (:class:`Exempt`) are never banned, not even by an operator.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Protocol

from attrs import evolve

from holdfast.auth.failures.ban import BadBan, Ban, Kind, Network
from holdfast.auth.failures.exempt import Exempt
from holdfast.auth.interfaces import Principal
from holdfast.peers.address import Peer

#: bans after failed logins; operators' bans
MOST_AUTOMATIC = 50_000
MOST_BANS = 10_000

#: the operator's name in bans after failed logins
AUTOMATIC = "holdfast"

#: bans that have ended and are looked at for each new one: more than one, so that they become fewer
_LOOKS = 2


class IBans(Protocol):
    """Tells who is banned."""

    def has_peer(self, peer: Peer) -> bool:
        """Tell whether the address of this peer is banned."""

    def has_client(self, client_id: str) -> bool:
        """Tell whether this Client Identifier is banned."""

    def has_user(self, username: str | None) -> bool:
        """Tell whether this user is banned."""

    @property
    def users(self) -> frozenset[str]:
        """The banned users. After a change, this is another object."""


class Bans:
    """The bans in force. ``now`` returns seconds since the epoch."""

    def __init__(self, *, now: Callable[[], float], exempt: Exempt, most: int = MOST_AUTOMATIC) -> None:
        self._now = now
        self._exempt = exempt
        self._most = most
        self._bans: dict[tuple[Kind, str], Ban] = {}
        self._users: frozenset[str] | None = frozenset()  # None after a change
        #: by version of IP and length of prefix: the bans by the number of their network
        self._networks: dict[tuple[int, int], dict[int, Ban]] = {}
        self._automatic: OrderedDict[str, Ban] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of bans, with those that have ended and are not forgotten yet."""
        return len(self._bans) + len(self._automatic)

    def __iter__(self) -> Iterator[Ban]:
        """Yield the bans in force."""
        now = self._now()
        for ban in (*self._bans.values(), *self._automatic.values()):
            if not ban.is_over(now):
                yield ban

    @property
    def kept(self) -> list[Ban]:
        """The bans of operators that have not ended."""
        now = self._now()
        return [ban for ban in self._bans.values() if not ban.is_over(now)]

    # --- lookups

    def has_peer(self, peer: Peer) -> bool:
        """Tell whether the address of this peer is banned."""
        if not (self._networks or self._automatic) or peer.ip is None:
            return False
        return (self._has_group(peer.group) or self._has_network_of(peer.ip)) and peer not in self._exempt

    def has_client(self, client_id: str) -> bool:
        """Tell whether this Client Identifier is banned."""
        return self._has_name(Kind.CLIENT_ID, client_id)

    def has_user(self, username: str | None) -> bool:
        """Tell whether this user is banned."""
        return username is not None and self._has_name(Kind.USERNAME, username)

    @property
    def users(self) -> frozenset[str]:
        """The banned users, also those whose bans have ended and are not forgotten yet."""
        if self._users is None:
            self._users = frozenset(who for kind, who in self._bans if kind is Kind.USERNAME)
        return self._users

    def _has_name(self, kind: Kind, name: str) -> bool:
        ban = self._bans.get((kind, name)) if self._bans else None
        return ban is not None and not ban.is_over(self._now())

    def _has_group(self, group: str) -> bool:
        ban = self._automatic.get(group)
        return ban is not None and not ban.is_over(self._now())

    def _has_network_of(self, ip: IPv4Address | IPv6Address) -> bool:
        number, bits, now = int(ip), ip.max_prefixlen, self._now()
        for (version, length), bans in self._networks.items():
            if version == ip.version:
                ban = bans.get(number >> (bits - length))
                if ban is not None and not ban.is_over(now):
                    return True
        return False

    def concerns(self, ban: Ban, principal: Principal) -> bool:
        """Tell whether a ban concerns an admitted Client."""
        match ban.kind:
            case Kind.USERNAME:
                return principal.username == ban.who
            case Kind.CLIENT_ID:
                return principal.client_id == ban.who
        try:
            ip = ip_address(principal.address)
        except ValueError:  # a UNIX domain socket
            return False
        return ban.network is not None and ip in ban.network and Peer(ip) not in self._exempt

    # --- changes

    def ban_peer(self, peer: Peer, seconds: float, reason: str) -> None:
        """Ban the address of a peer for some seconds, until the broker ends at the latest."""
        bans, now = self._automatic, self._now()
        for _ in range(_LOOKS):
            if not bans or (len(bans) < self._most and not next(iter(bans.values())).is_over(now)):
                break
            bans.popitem(last=False)
        group = peer.group.partition("%")[0]
        kind = Kind.NETWORK if "/" in group else Kind.ADDRESS
        bans.pop(peer.group, None)
        bans[peer.group] = Ban(kind=kind, who=group, by=AUTOMATIC, reason=reason, at=int(now), until=int(now + seconds))

    def clock_moved(self, seconds: float) -> None:
        """Let bans after failed logins last as long as before: the clock has jumped."""
        for group, ban in self._automatic.items():
            until = None if ban.until is None else int(ban.until + seconds)
            self._automatic[group] = evolve(ban, at=int(ban.at + seconds), until=until)

    def load(self, bans: Iterable[Ban]) -> None:
        """Take the stored bans of operators."""
        for ban in bans:
            self._insert(ban)

    def add(self, ban: Ban) -> Ban | None:
        """Add an operator's ban, and return the one of the same name that it replaces. Raises BadBan."""
        now = self._now()
        if ban.is_over(now):
            raise BadBan("the ban would have ended already")
        if ban.network is not None and ban.kind is Kind.ADDRESS and Peer(ban.network.network_address) in self._exempt:
            raise BadBan(f"{ban.who} is a loopback address or a trusted proxy, and is never banned")
        old = self._bans.get((ban.kind, ban.who))
        if old is None and len(self._bans) >= MOST_BANS:
            for over in [each for each in self._bans.values() if each.is_over(now)]:
                self._delete(over)
            if len(self._bans) >= MOST_BANS:
                raise BadBan(f"there are {MOST_BANS} bans already; remove some, or ban networks")
        self._insert(ban)
        return old

    def remove(self, kind: Kind, who: str) -> Ban | None:
        """Remove the ban of this name, and return it; None without one. It may be one after failed logins."""
        automatic = self._automatic.pop(who, None) if kind in (Kind.ADDRESS, Kind.NETWORK) else None
        ban = self._bans.get((kind, who))
        if ban is None:
            return automatic
        self._delete(ban)
        return ban

    def _note_change(self, ban: Ban) -> None:
        if ban.kind is Kind.USERNAME:
            self._users = None

    def _insert(self, ban: Ban) -> None:
        self._bans[ban.kind, ban.who] = ban
        self._note_change(ban)
        if ban.network is not None:
            self._networks.setdefault(_length(ban.network), {})[_number(ban.network)] = ban

    def _delete(self, ban: Ban) -> None:
        del self._bans[ban.kind, ban.who]
        self._note_change(ban)
        if ban.network is not None:
            length = _length(ban.network)
            of_length = self._networks[length]
            del of_length[_number(ban.network)]
            if not of_length:
                del self._networks[length]


def _length(network: Network) -> tuple[int, int]:
    return network.version, network.prefixlen


def _number(network: Network) -> int:
    return int(network.network_address) >> (network.max_prefixlen - network.prefixlen)
