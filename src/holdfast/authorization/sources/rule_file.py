"""Rule files: TOML with ``[[rule]]`` tables, and ``[groups]`` of users."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from holdfast.authorization.rule import Rule
from holdfast.authorization.ruleset import RuleList
from holdfast.authorization.sources.rule_fields import KINDS, Names, read_fields, rule_of
from holdfast.authorization.sources.source_file import LARGEST, check_mode
from holdfast.config import unknown_keys
from holdfast.config.kinds import InvalidValue, invalid_value
from holdfast.config.problems import ConfigError, ConfigProblem
from holdfast.config.toml import file as toml_file
from holdfast.config.toml.locations import ConfigOrigin
from holdfast.config.toml.text import dotted, literal
from holdfast.terminal_text import hidden_character

_TABLES = ("rule", "groups")


def read_rules(path: Path) -> RuleList:
    """Return the rules and groups of a rule file. Raises ConfigError with all its problems."""
    check_mode(path)
    values, origin = toml_file.read(path, LARGEST)
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
