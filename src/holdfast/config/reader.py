"""From a TOML document to the objects of the configuration, collecting everything that is wrong on the way."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import frozen

from holdfast.config import unknown_keys
from holdfast.config.fields import Form, Option, Section, Subsection, described
from holdfast.config.kinds import Refused, refusal
from holdfast.config.toml.text import dotted

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NAME_ALLOWED = "names of 1 to 64 letters, digits, - and _"

KeyPath = tuple[str, ...]
SectionT = TypeVar("SectionT", bound=Section)


@frozen
class Complaint:
    """What is wrong with the key of this path."""

    path: KeyPath
    message: str
    #: What must be right by itself for this to count: what was refused has its default, which is nobody's mistake.
    needs: tuple[KeyPath, ...] = ()


class Reader:
    """Reads documents of one root section; ``complaints`` holds all that was wrong."""

    def __init__(self, root: type[Section]) -> None:
        self.complaints: list[Complaint] = []
        self._refused: set[KeyPath] = set()
        self._known: dict[str, list[str]] = {}
        self._learn(root, ())

    def refuse(self, path: KeyPath, message: str) -> None:
        """Note what is wrong with a key."""
        self.complaints.append(Complaint(path, message))
        self._refused.add(path)

    def complain(self, complaint: Complaint) -> None:
        """Note what is wrong with several keys together, unless one of them is refused already."""
        if not any(path[:depth] in self._refused for path in complaint.needs for depth in range(1, len(path) + 1)):
            self.complaints.append(complaint)

    def section(self, section: type[SectionT], found: object, path: KeyPath) -> SectionT:
        """Return the section a table describes; what is refused has its default."""
        values = self._values(section, found, path)
        built = section(**values)
        for key, message, involved in built.complaints(values):
            self.complain(Complaint((*path, key), message, tuple((*path, other) for other in involved)))
        return built

    def _values(self, section: type[Section], found: object, path: KeyPath) -> dict[str, Any]:
        if not isinstance(found, dict):
            self.refuse(path, str(refusal(found, f"a table, [{dotted(path)}]")))
            return {}
        known = described(section)
        values: dict[str, Any] = {}
        for key, value in found.items():
            here = (*path, key)
            match known.get(key):
                case None:
                    self.refuse(here, unknown_keys.explain(here, known, self._known))
                case Option(kind=kind):
                    try:
                        values[key] = kind.read(value)
                    except Refused as refused:
                        self.refuse(here, str(refused))
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
            self.refuse(path, str(refusal(found, f"tables with a name, [{dotted([*path, 'NAME'])}]")))
            return {}
        for name in found:
            if _NAME.fullmatch(name) is None:
                self.refuse((*path, name), f"not a name; allowed: {_NAME_ALLOWED}")
        return {name: self.section(section, value, (*path, name)) for name, value in found.items()}

    def _learn(self, section: type[Section], path: KeyPath) -> None:
        """Note where the keys below a section are, to point to them when they stand elsewhere."""
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
