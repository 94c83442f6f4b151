"""The keys of a rule, in a rule file and in the database: their kinds, and the rule that they make."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ipaddress import ip_network
from typing import Any

from attrs import field, frozen

from holdfast.authorization.identity import PLACEHOLDER
from holdfast.authorization.rule import EVERY_ACTION, UNIX, Action, Conditions, Network, Rule
from holdfast.config import unknown_keys
from holdfast.config.kinds import Flag, InvalidValue, Kind, Text, invalid_value
from holdfast.config.toml.text import literal
from holdfast.topics import MOST_LEVELS, SHARED_PREFIX, InvalidTopicFilter, check_topic_filter

_ACTIONS = {action.word: action for action in Action}
_ALL = "all"


@frozen
class Names:
    """The kind of lists of names."""

    allowed: str = field(default="a list of one or more names", init=False)

    def read(self, value: object) -> frozenset[str]:
        """Return the names; raises InvalidValue."""
        return frozenset(_each(value, self.allowed, Text(allowed="a name that is not empty", empty=False).read))


@frozen
class _Addresses:
    """The kind of lists of networks."""

    allowed: str = field(
        default='a list of one or more IP addresses, networks such as "10.0.0.0/8", and "unix" for the peers of UNIX'
        " domain sockets",
        init=False,
    )

    def read(self, value: object) -> frozenset[Network | str]:
        return frozenset(_each(value, self.allowed, self._network))

    def _network(self, name: object) -> Network | str:
        if name == UNIX:
            return UNIX
        if not isinstance(name, str):
            raise invalid_value(name, self.allowed)
        try:
            return ip_network(name)
        except ValueError:
            try:
                network = ip_network(name, strict=False)
            except ValueError:
                raise invalid_value(name, self.allowed) from None
            raise InvalidValue(
                f"found {literal(name)}, which has bits after the prefix; did you mean {literal(str(network))}?"
            ) from None


@frozen
class _Actions:
    """The kind of the actions of a rule."""

    allowed: str = field(default=f'a list of one or more of {", ".join(map(literal, _ACTIONS))}; or "all"', init=False)

    def read(self, value: object) -> frozenset[Action]:
        if value == _ALL:
            return EVERY_ACTION
        return frozenset(_each(value, self.allowed, self._action))

    def _action(self, word: object) -> Action:
        action = _ACTIONS.get(word) if isinstance(word, str) else None
        if action is None:
            raise invalid_value(word, self.allowed)
        return action


@frozen
class _Topics:
    """The kind of the Topic Filters of a rule."""

    allowed: str = field(default="a list of one or more Topic Filters", init=False)

    def read(self, value: object) -> tuple[str, ...]:
        return tuple(dict.fromkeys(_each(value, self.allowed, self._filter)))

    def _filter(self, topic: object) -> str:
        if not isinstance(topic, str):
            raise invalid_value(topic, self.allowed)
        try:
            check_topic_filter(topic, MOST_LEVELS)
        except InvalidTopicFilter as invalid:
            raise InvalidValue(f"found {literal(topic)}: {invalid}") from None
        if topic.startswith(SHARED_PREFIX):
            raise InvalidValue(
                f"found {literal(topic)}; write the Topic Filter without $share/NAME/: the rule is for shared"
                " subscriptions, too"
            )
        for level in topic.split("/"):
            if PLACEHOLDER.search(level) and PLACEHOLDER.fullmatch(level) is None:
                raise InvalidValue(f"found {literal(topic)}; allowed: %u, %c and %g as whole levels, as in a/%u/b")
            if "${" in level:
                raise InvalidValue(
                    f"found {literal(topic)}; write %u for the User Name, %c for the Client Identifier, %g for the"
                    " groups, each as a whole level"
                )
        return topic


KINDS: Mapping[str, Kind] = {
    "users": Names(),
    "groups": Names(),
    "clients": Names(),
    "listeners": Names(),
    "addresses": _Addresses(),
    "action": _Actions(),
    "topics": _Topics(),
    "allow": Flag(),
}
_REQUIRED = ("action", "topics", "allow")


def read_fields(table: Mapping[str, Any]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Return the values of a rule's keys, and the problems: a key, "" for the whole rule, and a message."""
    found: dict[str, Any] = {}
    problems: list[tuple[str, str]] = []
    for key, value in table.items():
        kind = KINDS.get(key)
        if kind is None:
            problems.append((key, unknown_keys.explain(("rule", key), tuple(KINDS), {})))
            continue
        try:
            found[key] = kind.read(value)
        except InvalidValue as invalid:
            problems.append((key, str(invalid)))
    problems += [("", f"has no {key}; allowed: {KINDS[key].allowed}") for key in _REQUIRED if key not in table]
    return found, problems


def rule_of(found: Mapping[str, Any], origin: str) -> Rule:
    """Return the rule with these values."""
    return Rule(
        allow=found["allow"],
        actions=found["action"],
        topics=found["topics"],
        origin=origin,
        users=found.get("users"),
        groups=found.get("groups"),
        conditions=Conditions(found.get("clients"), found.get("listeners"), found.get("addresses")),
    )


def _each(value: object, allowed: str, read: Callable[[object], Any]) -> list[Any]:
    """Return the elements of a list, read; raises InvalidValue. An empty list could mean nobody or everybody."""
    if not isinstance(value, list) or not value:
        raise invalid_value(value, allowed)
    return [read(element) for element in value]
