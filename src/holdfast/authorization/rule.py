"""A rule: who may, or may not, do what with which topics."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from ipaddress import IPv4Network, IPv6Network

from attrs import field, frozen


class Action(IntEnum):
    """What a rule allows or denies."""

    PUBLISH = 0  #: send an Application Message or a Will Message
    RETAIN = 1  #: with RETAIN 1: set the retained message
    CLEAR = 2  #: with RETAIN 1 and an empty payload: remove the retained message
    SUBSCRIBE = 3
    RECEIVE = 4  #: take a message by a Subscription

    @property
    def word(self) -> str:
        """The action as rule files write it."""
        return self.name.lower()


EVERY_ACTION = frozenset(Action)
#: among the users of a rule: clients without a proven User Name
GUEST = "$guest"
#: among the addresses of a rule: the peers of UNIX domain sockets
UNIX = "unix"

Network = IPv4Network | IPv6Network


@frozen
class Conditions:
    """Further conditions of a rule, which must all hold. None sets no condition.

    ``characters``: only clients whose User Name or Client Identifier has one of these characters.
    """

    clients: frozenset[str] | None = None
    listeners: frozenset[str] | None = None
    addresses: frozenset[Network | str] | None = None
    characters: str = ""


NO_CONDITIONS = Conditions()


@frozen
class Rule:
    """One rule. It is for the ``users`` and the members of the ``groups``; with None in both, for everyone.

    ``topics`` are Topic Filters, or :data:`holdfast.topics.EVERY_TOPIC`. With ``has_templates``, ``%u``, ``%c`` and
    ``%g`` in a level stand for the User Name, the Client Identifier and each of the groups. ``origin`` tells where the
    rule stands, as in ``rules.toml:12``.
    """

    allow: bool
    actions: frozenset[Action]
    topics: tuple[str, ...]
    origin: str = field(eq=False)
    users: frozenset[str] | None = None
    groups: frozenset[str] | None = None
    conditions: Conditions = NO_CONDITIONS
    has_templates: bool = True

    def __str__(self) -> str:
        """Return what the rule says, for messages."""
        actions = "everything" if self.actions == EVERY_ACTION else _listed(each.word for each in sorted(self.actions))
        topics = [topic or "every topic" for topic in self.topics]
        return f"{'allow' if self.allow else 'deny'} {actions} on {_listed(topics)}{self._who}"

    @property
    def _who(self) -> str:
        conditions = self.conditions
        parts: dict[str, Iterable[object]] = {
            "users": self.users or (),
            "groups": self.groups or (),
            "clients": conditions.clients or (),
            "listeners": conditions.listeners or (),
            "addresses": conditions.addresses or (),
            "names with one of": [ascii(conditions.characters)] if conditions.characters else (),
        }
        given = [f"{name} {_listed(sorted(map(str, values)))}" for name, values in parts.items() if values]
        return f" for {', '.join(given)}" if given else ""


def _listed(words: Iterable[str], most: int = 5) -> str:
    """Return some words in a line; of many, the first ones and the number of the rest."""
    words = list(words)
    shown = ", ".join(words[:most])
    return shown if len(words) <= most else f"{shown} and {len(words) - most} more"
