"""One ban: whom it concerns, until when, and why. The names are those of EMQX."""

from __future__ import annotations

from enum import Enum
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from attrs import field, frozen

from holdfast.peers.address import plain

Network = IPv4Network | IPv6Network

#: characters of the longest name and reason
LONGEST = 1024


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
    if len(reason) > LONGEST or len(by) > LONGEST:
        raise BadBan(f"the reason of a ban has at most {LONGEST} characters")
    return Ban(kind=found, who=name, by=by, reason=reason, at=at, until=until)


def subject_of(kind: str, who: str) -> tuple[Kind, str]:
    """Return what a ban names, in its usual form. Raises BadBan.

    A network of one address is an address, and an address may be given where a network is asked for.
    """
    kinds = {one.value: one for one in Kind}
    if kind not in kinds:
        raise BadBan(f"there is no kind of ban {kind[:40]!r}; there are: {', '.join(kinds)}")
    if not 0 < len(who) <= LONGEST:
        raise BadBan(f"who is banned has from 1 to {LONGEST} characters")
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
