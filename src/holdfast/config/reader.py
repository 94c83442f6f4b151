"""From a TOML document to the objects of the configuration. All problems are collected, none ends the reading."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import frozen

from holdfast.config import unknown_keys
from holdfast.config.fields import Form, Option, Section, Subsection, described
from holdfast.config.kinds import InvalidValue, invalid_value
from holdfast.config.toml.text import dotted

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NAME_ALLOWED = "names of 1 to 64 letters, digits, - and _"

KeyPath = tuple[str, ...]
SectionT = TypeVar("SectionT", bound=Section)


@frozen
class KeyProblem:
    """A problem of the key with this path."""

    path: KeyPath
    message: str
    #: The problem is ignored if one of these keys is rejected: that key then has its default, not its value in the
    #: file.
    needs: tuple[KeyPath, ...] = ()


class Reader:
    """Reads documents of one root section, and collects the ``problems``."""

    def __init__(self, root: type[Section]) -> None:
        self.problems: list[KeyProblem] = []
        self._rejected: set[KeyPath] = set()
        self._known: dict[str, list[str]] = {}
        self._learn(root, ())

    def reject(self, path: KeyPath, message: str) -> None:
        """Note the problem of a key, which is not used then."""
        self.problems.append(KeyProblem(path, message))
        self._rejected.add(path)

    def add(self, problem: KeyProblem) -> None:
        """Note a problem of several keys together, unless one of them is rejected already."""
        if not any(path[:depth] in self._rejected for path in problem.needs for depth in range(1, len(path) + 1)):
            self.problems.append(problem)

    def section(self, section: type[SectionT], found: object, path: KeyPath) -> SectionT:
        """Return the section of a table. A rejected key has its default."""
        values = self._values(section, found, path)
        built = section(**values)
        # Problems of options together come last: only here are the defaults of missing keys known.
        for key, message, involved in built.problems(values):
            self.add(KeyProblem((*path, key), message, tuple((*path, other) for other in involved)))
        return built

    def _values(self, section: type[Section], found: object, path: KeyPath) -> dict[str, Any]:
        if not isinstance(found, dict):
            self.reject(path, str(invalid_value(found, f"a table, [{dotted(path)}]")))
            return {}
        known = described(section)
        values: dict[str, Any] = {}
        for key, value in found.items():
            here = (*path, key)
            match known.get(key):
                case None:
                    self.reject(here, unknown_keys.explain(here, known, self._known))
                case Option(kind=kind):
                    try:
                        values[key] = kind.read(value)
                    except InvalidValue as invalid:
                        self.reject(here, str(invalid))
                case Subsection() as subsection:
                    values[key] = self._subsection(subsection, value, here)
        return values

    def _subsection(self, subsection: Subsection, found: object, path: KeyPath) -> object:
        match subsection.form:
            case Form.TABLE:
                return self.section(subsection.section, found, path)
            case Form.PARTIAL:
                return self._values(subsection.section, found, path)
            case Form.NAMED:
                return self._named(subsection.section, found, path)

    def _named(self, section: type[Section], found: object, path: KeyPath) -> Mapping[str, Section]:
        if not isinstance(found, dict):
            self.reject(path, str(invalid_value(found, f"tables with a name, [{dotted([*path, 'NAME'])}]")))
            return {}
        for name in found:
            if _NAME.fullmatch(name) is None:
                self.reject((*path, name), f"not a name; allowed: {_NAME_ALLOWED}")
        return {name: self.section(section, value, (*path, name)) for name, value in found.items()}

    def _learn(self, section: type[Section], path: KeyPath) -> None:
        """Note the paths of all keys, to suggest the right path for a key in the wrong table."""
        for key, entry in described(section).items():
            here = (*path, key)
            self._known.setdefault(key, []).append(dotted(here))
            if isinstance(entry, Subsection) and entry.form is Form.TABLE:
                self._learn(entry.section, here)
            elif isinstance(entry, Subsection) and entry.form is Form.NAMED:
                self._learn_named(entry.section, here)

    def _learn_named(self, section: type[Section], path: KeyPath) -> None:
        for key, entry in described(section).items():
            if isinstance(entry, Option):
                self._known.setdefault(key, []).append(dotted((*path, "NAME", key)))
