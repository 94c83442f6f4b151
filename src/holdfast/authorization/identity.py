"""The identity of a client, as rules see it, and the levels of topics that its names stand for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address

from attrs import field, frozen

from holdfast.auth.interfaces import Principal
from holdfast.authorization.rule import UNIX, Conditions
from holdfast.peers.address import plain

PLACEHOLDER = re.compile("%[ucg]")
_UNSAFE = re.compile(r"[+#/\x00-\x1f\x7f-\x9f]")


@frozen
class Identity:
    """Who a client is. ``username`` is proven, and None for a guest.

    ``is_located`` is False if the listener and the address are unknown: for the publisher of a retained message.
    Without ``knows_groups``, the client may be in any further group, too: what a rule allows to a group, it allows to
    this client, and what it denies to a further group, it does not deny.
    """

    username: str | None
    client_id: str
    groups: frozenset[str] = frozenset()
    listener: str = ""
    address: str = ""
    is_located: bool = field(default=True, kw_only=True)
    knows_groups: bool = field(default=True, kw_only=True)

    @classmethod
    def of(cls, principal: Principal, groups: frozenset[str] = frozenset()) -> Identity:
        """Return the identity of a client that is also in other groups."""
        return cls(
            principal.username,
            principal.client_id,
            principal.groups | groups,
            principal.listener,
            principal.address,
        )

    def meets(self, conditions: Conditions, allow: bool) -> bool:
        """Tell whether a rule with these conditions is for this client.

        If the listener and the address are unknown, a rule limited by them is for this client if it denies, and is not
        if it allows: what remains is allowed wherever the client is.
        """
        if conditions.clients is not None and self.client_id not in conditions.clients:
            return False
        if conditions.characters and not set(conditions.characters) & {*(self.username or ""), *self.client_id}:
            return False
        if conditions.listeners is None and conditions.addresses is None:
            return True
        if not self.is_located:
            return not allow
        if conditions.listeners is not None and self.listener not in conditions.listeners:
            return False
        return conditions.addresses is None or self._is_within(conditions)

    def _is_within(self, conditions: Conditions) -> bool:
        networks = conditions.addresses or ()
        if self.address == UNIX:
            return UNIX in networks
        ip = _address(self.address)
        return ip is not None and any(not isinstance(network, str) and ip in network for network in networks)

    def expansions(self, template: str) -> Iterator[str]:
        """Yield the levels that a template stands for: none if a name in it is missing or not :func:`is_literal`."""
        names: Mapping[str, list[str]] = {
            "%u": [] if self.username is None else [self.username],
            "%c": [self.client_id],
            "%g": sorted(self.groups),
        }
        levels = [""]
        position = 0
        for match in PLACEHOLDER.finditer(template):
            before = template[position : match.start()]
            found = [name for name in names[match[0]] if is_literal(name)]
            levels = [level + before + name for level in levels for name in found]
            position = match.end()
        for level in levels:
            yield level + template[position:]


def is_literal(name: str) -> bool:
    """Tell whether a name can stand for one level of a topic.

    It cannot if it is empty, begins with ``$``, or has ``+``, ``#``, ``/`` or a control character: it could match more
    than one level, or topics of the broker.
    """
    return bool(name) and name[0] != "$" and _UNSAFE.search(name) is None


def _address(address: str) -> IPv4Address | IPv6Address | None:
    try:
        return plain(ip_address(address))
    except ValueError:  # of a transport without addresses
        return None
