"""The bans in force: the operators' ones, which last, and those of addresses with too many failed logins.

How it works. Operators' bans of addresses are kept by their network: for each length of prefix that occurs, one lookup
tells whether an address is banned. So a connection costs a few lookups, however many networks are banned. Bans after
failed logins are kept by the group of the address (:mod:`holdfast.identity.addresses`), in the order of their ends.
They are forgotten when the broker ends, and the oldest ones when there are too many.

Peers that stand for many clients (:class:`Exempt`) are never banned, not even by an operator.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any, Protocol

from attrs import evolve, field, frozen

from holdfast.config.toml import ConfigError, ConfigProblem, without_mark
from holdfast.identity.addresses import Peer, TrustedProxies, plain
from holdfast.identity.interfaces import Principal

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

    def replace(self, bans: Iterable[Ban]) -> list[Ban]:
        """Take these for all bans of operators; return those that are new, or have changed."""
        wanted = {(ban.kind, ban.who): ban for ban in bans}
        for key, ban in list(self._bans.items()):
            if wanted.get(key) != ban:
                self._delete(ban)
        added = [ban for key, ban in wanted.items() if key not in self._bans]
        self.load(added)
        return added

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


# One ban: whom it concerns, until when, and why. The names are those of EMQX.


Network = IPv4Network | IPv6Network

#: characters of the longest name and reason
LONGEST_BAN_TEXT = 1024


class Kind(Enum):
    """What a ban names."""

    ADDRESS = "peerhost"
    NETWORK = "peerhost_net"
    USERNAME = "username"
    CLIENT_ID = "clientid"


class BadBan(ValueError):
    """This cannot be banned; the text says why."""


@frozen(kw_only=True)
class Ban:
    """A ban. ``at`` and ``until`` are in seconds since the epoch; None is for ever. ``by`` is the operator's name.

    Of an address or a network, ``who`` is its usual form; make such bans with :func:`ban_of`.
    """

    kind: Kind
    who: str
    by: str = ""
    reason: str = ""
    at: int = 0
    until: int | None = None
    network: Network | None = field(init=False, eq=False, repr=False)

    @network.default
    def _network_of_who(self) -> Network | None:
        """Return the network of an address or a network, None for a name."""
        return ip_network(self.who) if self.kind in (Kind.ADDRESS, Kind.NETWORK) else None

    def is_over(self, now: float) -> bool:
        """Tell whether the ban has ended."""
        return self.until is not None and self.until <= now


def ban_of(kind: str, who: str, *, by: str, reason: str, at: int, until: int | None) -> Ban:
    """Return a ban. Raises BadBan."""
    found, name = subject_of(kind, who)
    if len(reason) > LONGEST_BAN_TEXT or len(by) > LONGEST_BAN_TEXT:
        raise BadBan(f"the reason of a ban has at most {LONGEST_BAN_TEXT} characters")
    return Ban(kind=found, who=name, by=by, reason=reason, at=at, until=until)


def subject_of(kind: str, who: str) -> tuple[Kind, str]:
    """Return what a ban names, in its usual form. Raises BadBan.

    A network of one address is an address, and an address may be given where a network is asked for.
    """
    kinds = {one.value: one for one in Kind}
    if kind not in kinds:
        raise BadBan(f"there is no kind of ban {kind[:40]!r}; there are: {', '.join(kinds)}")
    if not 0 < len(who) <= LONGEST_BAN_TEXT:
        raise BadBan(f"who is banned has from 1 to {LONGEST_BAN_TEXT} characters")
    found = kinds[kind]
    if found in (Kind.USERNAME, Kind.CLIENT_ID):
        return found, who
    of_text, name = address_of(who)
    if found is Kind.ADDRESS and of_text is Kind.NETWORK:
        raise BadBan(f"{name} is a network; ban it as {Kind.NETWORK.value}")
    return of_text, name


def address_of(text: str) -> tuple[Kind, str]:
    """Return an address or a network in its usual form, and which of both it is. Raises BadBan."""
    try:
        if "/" not in text:
            ip = plain(ip_address(text))
            if "%" in str(ip):
                raise BadBan(f"{text[:60]!r} has a zone; ban the address without it")
            return Kind.ADDRESS, str(ip)
        network = ip_network(text)
    except BadBan:
        raise
    except ValueError as error:
        raise BadBan(
            f"{text[:60]!r} is neither an address nor a network, such as 192.0.2.7, 192.0.2.0/24 or 2001:db8::/64"
            f" ({error})"
        ) from None
    if network.num_addresses == 1:
        return Kind.ADDRESS, str(plain(network.network_address))
    return Kind.NETWORK, str(network)


# The file of the operators' bans in the data directory: one JSON object in each line, with the keys of the API.


FILE_NAME = "bans.jsonl"

#: bytes of the longest file: more than the most bans have
_LONGEST = 64 << 20


def fields_of(ban: Ban) -> dict[str, Any]:
    """Return a ban with the names of the API; ``until`` is "infinity" for a ban without an end."""
    return {
        "as": ban.kind.value,
        "who": ban.who,
        "by": ban.by,
        "reason": ban.reason,
        "at": ban.at,
        "until": "infinity" if ban.until is None else ban.until,
    }


def ban_from(fields: object) -> Ban:
    """Return the ban with these fields. Raises BadBan."""
    if not isinstance(fields, dict):
        raise BadBan("a ban is a JSON object")
    texts = [fields.get(name, "") for name in ("as", "who", "by", "reason")]
    at, until = fields.get("at", 0), fields.get("until", "infinity")
    if not all(isinstance(text, str) for text in texts) or type(at) is not int:
        raise BadBan("as, who, by and reason are strings, and at is a whole number")
    if until != "infinity" and type(until) is not int:
        raise BadBan('until is a whole number of seconds since 1970, or "infinity"')
    kind, who, by, reason = texts
    return ban_of(kind, who, by=by, reason=reason, at=at, until=None if until == "infinity" else until)


def load_bans(folder: Path) -> list[Ban]:
    """Return the stored bans. Raises ConfigError: a broker that ignored a ban would let the banned in."""
    path = folder / FILE_NAME
    bans = []
    try:
        with open(path, "rb") as file:
            content = file.read(_LONGEST + 1)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _problem(path, None, f"cannot be read: {error.strerror}") from None
    if len(content) > _LONGEST:
        raise _problem(path, None, f"has more than {_LONGEST} bytes")
    for number, line in enumerate(without_mark(content).splitlines(), 1):
        try:
            bans.append(ban_from(json.loads(line)))
        except (ValueError, RecursionError) as error:  # BadBan, and errors of JSON and UTF-8
            raise _problem(path, number, f"is not a ban: {error}; correct or remove this line") from None
    return bans


def store_bans(folder: Path, bans: Iterable[Ban]) -> None:
    """Replace the stored bans, in a file for this user only: durable when this returns.

    Raises OSError; then nothing has changed.
    """
    descriptor, temporary = tempfile.mkstemp(prefix=f".{FILE_NAME}.", dir=folder)  # mode 0600
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            for ban in bans:
                file.write(json.dumps(fields_of(ban)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, folder / FILE_NAME)
    except BaseException:
        os.unlink(temporary)
        raise
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)  # the folder holds the rename
    finally:
        os.close(directory)


def _problem(path: Path, line: int | None, message: str) -> ConfigError:
    return ConfigError([ConfigProblem(str(path), line, "", message)])


# The peers that are never banned, since each of them stands for many clients.


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
