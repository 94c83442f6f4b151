"""Rule files: TOML with ``[[rule]]`` tables, and ``[groups]`` of users."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from attrs import field, frozen

from holdfast.config import reader
from holdfast.config import reader as unknown_keys
from holdfast.config import toml as toml_file
from holdfast.config.options import Flag, InvalidValue, Kind, Text, invalid_value
from holdfast.config.toml import ConfigError, ConfigOrigin, ConfigProblem, display_name, dotted, literal
from holdfast.core.terminal import hidden_character
from holdfast.core.topics import MOST_LEVELS, SHARED_PREFIX, InvalidTopicFilter, check_topic_filter
from holdfast.identity.rules import EVERY_ACTION, PLACEHOLDER, UNIX, Action, Conditions, Network, Rule, RuleList

# What all files with rules have in common.


#: The most bytes of a file with rules. 100,000 rules may have 10 MB.
LARGEST_RULE_FILE = 16 * 1024 * 1024


def check_mode(path: Path) -> None:
    """Refuse a file that every user of this machine may write. Raises ConfigError; not for a missing file."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):  # its reader says it better
        return
    if stat.S_ISREG(mode) and mode & stat.S_IWOTH:
        name = display_name(path)
        message = f"every user of this machine may change these rules; run: chmod o-w {name}"
        raise ConfigError([ConfigProblem(name, None, "", message)])


# The keys of a rule, in a rule file and in the database: their kinds, and the rule that they make.


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
            problems.append((key, reader.explain(("rule", key), tuple(KINDS), {})))
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


# Rule files: TOML with ``[[rule]]`` tables, and ``[groups]`` of users.


_TABLES = ("rule", "groups")


def read_rules(path: Path) -> RuleList:
    """Return the rules and groups of a rule file. Raises ConfigError with all its problems."""
    check_mode(path)
    values, origin = toml_file.read(path, LARGEST_RULE_FILE)
    reader = _Reader(origin)
    listed = RuleList(tuple(reader.rules(values)), reader.groups(values))
    reader.unknown(values)
    if reader.problems:
        raise ConfigError(reader.problems)
    return listed


class _Reader:
    """Reads the tables of one file, and collects their problems."""

    def __init__(self, origin: ConfigOrigin) -> None:
        self.problems: list[ConfigProblem] = []
        self._origin = origin

    def rules(self, values: Mapping[str, Any]) -> Iterator[Rule]:
        """Yield the rules of all ``[[rule]]`` tables that have no problem."""
        tables = values.get("rule", [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            self._reject(("rule",), str(invalid_value(tables, "tables, each with the header [[rule]]")))
            return
        for number, table in enumerate(tables):
            found = self._table(number, table)
            if found is not None:
                yield rule_of(found, f"{self._origin.name}:{self._line(('rule', number))}")

    def groups(self, values: Mapping[str, Any]) -> dict[str, frozenset[str]]:
        """Return the groups of each user."""
        table = values.get("groups", {})
        if not isinstance(table, dict):
            self._reject(("groups",), str(invalid_value(table, "a table, [groups], with a list of users for each")))
            return {}
        groups: dict[str, set[str]] = {}
        for group, users in table.items():
            try:
                names = Names().read(users)
                for problem in _hidden([group, *names]):
                    self._reject(("groups", group), problem)
                for user in names:
                    groups.setdefault(user, set()).add(group)
            except InvalidValue as invalid:
                self._reject(("groups", group), str(invalid))
        return {user: frozenset(names) for user, names in groups.items()}

    def unknown(self, values: Mapping[str, Any]) -> None:
        """Note the tables that are neither rules nor groups."""
        for key in values:
            if key not in _TABLES:
                self._reject((key,), unknown_keys.explain((key,), _TABLES, _ELSEWHERE))

    def _table(self, number: int, table: Mapping[str, Any]) -> dict[str, Any] | None:
        found, problems = read_fields(table)
        problems += [(key, message) for key in ("users", "groups") for message in _hidden(found.get(key) or ())]
        for key, message in problems:
            self._reject(("rule", number, key) if key else ("rule", number), message)
        return None if problems else found

    def _line(self, path: tuple[str | int, ...]) -> int | None:
        return None if self._origin.locations is None else self._origin.locations.at(path)

    def _reject(self, path: tuple[str | int, ...], message: str) -> None:
        key = dotted(part for part in path if isinstance(part, str))
        self.problems.append(ConfigProblem(self._origin.name, self._line(path), key, message))


def _hidden(names: Iterable[str]) -> list[str]:
    """Return a problem for each name with an invisible character: a rule for it would be for nobody."""
    found = [(name, hidden_character(name)) for name in names]
    return [f"found {literal(name)} with the invisible character {each}; type it anew" for name, each in found if each]


#: keys of a rule at the place of a table
_ELSEWHERE = {key: [f"{key} in a table [[rule]]"] for key in KINDS if key not in _TABLES} | {
    "rules": ["[[rule]]"],
    "group": ["[groups]"],
}
