"""What two configurations differ in, and a configuration with the options of another one that need a restart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import attrs
from attrs import frozen

from holdfast.config.document import Config
from holdfast.config.options import (
    Choice,
    Duration,
    Flag,
    Form,
    Integer,
    Number,
    Option,
    Rate,
    Section,
    Size,
    Subsection,
    TakesEffect,
    described,
    variants_of,
)
from holdfast.config.sections.limits import Memory
from holdfast.config.sections.mqtt import Information, KeepAlive
from holdfast.config.sections.retainer import FilterString
from holdfast.config.shown_values import shown_value
from holdfast.config.toml import dotted

Path = tuple[str, ...]
SectionT = TypeVar("SectionT", bound=Section)

#: the kinds of plain values: see :class:`Difference`
_PLAIN = (Choice, Duration, FilterString, Flag, Information, Integer, KeepAlive, Memory, Number, Rate, Size)
#: the ends of the keys whose values may have secrets
_SECRET = (("storage", "url"), ("cluster", "bus"), ("headers",), ("checker",))


@frozen
class Difference:
    """An option with another value, or a table that only one configuration has.

    ``old`` and ``new`` are values for JSON; None if there is none, or if the values may be secret. ``is_plain``: both
    values are only numbers, times, sizes, switches, words or Topic Filters. They cannot name a file, a server or a
    secret.
    """

    path: Path
    old: object
    new: object
    is_plain: bool = False

    @property
    def key(self) -> str:
        """The dotted key."""
        return dotted(self.path)

    @property
    def takes_effect(self) -> TakesEffect:
        """When the new value takes effect."""
        return takes_effect(self.path)


@frozen
class _Value:
    """A value, and the kind of its option. ``below`` is the path of the table that a value stands for as a whole."""

    value: object
    kind: object = None
    below: Path | None = None

    @property
    def is_plain(self) -> bool:
        return isinstance(self.kind, _PLAIN)


def differences(old: Section, new: Section) -> list[Difference]:
    """Return the options that differ, in the order of the reference. Of a table that is new or gone, only its name."""
    before, after = dict(_values(old, ())), dict(_values(new, ()))
    found = []
    covered: list[Path] = []
    for path in dict.fromkeys((*after, *before)):
        one, other = before.get(path), after.get(path)
        if any(path[: len(table)] == table for table in covered) or (one and one.value) == (other and other.value):
            continue
        for value in (one, other):
            if value is not None and value.below is not None:
                covered.append(value.below)
        secret = any(path[-len(end) :] == end for end in _SECRET)
        is_plain = not secret and all(value is None or value.is_plain for value in (one, other))
        found.append(Difference(path, None if secret else _shown(one), None if secret else _shown(other), is_plain))
    return found


def present_values(config: Section) -> Iterator[tuple[str, object, TakesEffect, bool]]:
    """Yield each option: its dotted key, its value for JSON, when a change takes effect, and whether it is secret."""
    for path, value in _values(config, ()):
        if value.below is not None:
            continue
        secret = any(path[-len(end) :] == end for end in _SECRET)
        yield dotted(path), None if secret else _shown(value), takes_effect(path), secret


def _shown(value: _Value | None) -> object:
    return None if value is None else shown_value(value.value, value.kind)


def _values(section: Section, path: Path) -> Iterator[tuple[Path, _Value]]:
    for key, entry in described(type(section)).items():
        here, value = (*path, key), getattr(section, key)
        if isinstance(entry, Option):
            yield here, _Value(value, entry.kind)
        elif entry.form is Form.TABLE and value is not None:
            yield here, _Value("a table", below=here)
            yield from _values(value, here)
        elif entry.form is Form.NAMED:
            yield from _named(value, here)
        elif entry.form is Form.LISTED:  # as a whole: the order counts, and tables have no names
            yield here, _Value([_table(each) for each in value], _kind_of_all(entry.section))
    named = variants_of(type(section))
    for name, variant in (getattr(section, named[0]) if named is not None else {}).items():
        types = {each: type_name for type_name, each in named[1].types.items()} if named is not None else {}
        yield (*path, name, "type"), _Value(types[type(variant)], below=(*path, name))
        yield from _values(variant, (*path, name))


def _kind_of_all(section: type[Section]) -> object:
    """Return a kind of plain values if all options of a section have one, else None."""
    options = described(section).values()
    kinds = [each.kind for each in options if isinstance(each, Option) and isinstance(each.kind, _PLAIN)]
    return kinds[0] if len(kinds) == len(options) else None


def _table(section: Section) -> dict[str, object]:
    """Return the options of a table of an array, for JSON."""
    return {path[-1]: _shown(value) for path, value in _values(section, ())}


def _named(tables: Mapping[str, Section], path: Path) -> Iterator[tuple[Path, _Value]]:
    for name, table in tables.items():
        here = (*path, name)
        if path == ("listeners",):
            yield here, _Value("a table", below=here)
        yield from _values(table, here)
        for key, entry in described(type(table)).items():
            if isinstance(entry, Subsection) and entry.form is Form.PARTIAL:
                options = described(entry.section)
                for option, value in getattr(table, key).items():
                    kind = options[option]
                    yield (*here, key, option), _Value(value, kind.kind if isinstance(kind, Option) else None)


def keep_until_restart(running: SectionT, read: SectionT, path: Path = ()) -> SectionT:
    """Return the configuration that was read, with the running values of all options that need a restart."""
    kept: dict[str, Any] = {}
    for key, entry in described(type(read)).items():
        here, old, new = (*path, key), getattr(running, key), getattr(read, key)
        if old == new or old is None or new is None:
            continue
        if isinstance(entry, Option) or entry.form is Form.LISTED or (entry.form is Form.NAMED and _listed(here)):
            if takes_effect(here) is TakesEffect.RESTART:
                kept[key] = old
        elif entry.form is Form.TABLE:
            kept[key] = keep_until_restart(old, new, here)
        elif entry.form is Form.NAMED:
            kept[key] = {name: _kept_table(old.get(name), each, (*here, name)) for name, each in new.items()}
        elif entry.form is Form.PARTIAL:
            kept[key] = {
                option: value
                for given, needs_restart in ((new, False), (old, True))
                for option, value in given.items()
                if (takes_effect((*here, option)) is TakesEffect.RESTART) is needs_restart
            }
    return attrs.evolve(read, **kept) if kept else read  # type: ignore[misc]  # all sections are attrs classes


def _kept_table(running: Section | None, read: Section, path: Path) -> Section:
    """Return a table that may be new. A new zone changes values of present tables, other new tables do not."""
    if running is None and path[0] == "zones":
        running = type(read)()
    return read if running is None else keep_until_restart(running, read, path)


def _listed(path: Path) -> bool:
    """Tell whether all tables with chosen names below this path take effect at the same time."""
    try:
        takes_effect(path)
    except KeyError:
        return False
    return True


# When a changed option takes effect. Its table says that (``Section.applies``), or the option itself.


def takes_effect(path: Sequence[str]) -> TakesEffect:
    """Return when the option or the table with this path takes effect.

    Raises KeyError for an unknown one, and for a table whose options take effect at different times.
    """
    table, *rest = path
    if table == "zones" and len(rest) > 1:
        return TakesEffect.RESTART if takes_effect(rest[1:]) is TakesEffect.RESTART else TakesEffect.CONNECTING
    return _effect(Config, path)


def _effect(section: type[Section], path: Sequence[str]) -> TakesEffect:
    name, *rest = path
    entry = described(section).get(name)
    if entry is None:
        return _effect_of_variant(section, rest)
    if isinstance(entry, Option):
        if rest:
            raise KeyError(".".join(path))
        return entry.applies or section.applies
    if entry.form is Form.NAMED and len(rest) == 1:  # a whole table that is new or removed
        return _common_effect(entry.section) or TakesEffect.AT_ONCE
    if rest:
        return _effect(entry.section, rest[1:] if entry.form is Form.NAMED else rest)
    common = _common_effect(entry.section)
    if common is None:
        raise KeyError(name)
    return common


def _effect_of_variant(section: type[Section], path: Sequence[str]) -> TakesEffect:
    named = variants_of(section)
    if named is not None and path:
        if path[0] == "type":
            return section.applies
        for variant in named[1].types.values():
            if path[0] in described(variant):
                return _effect(variant, path)
    raise KeyError(".".join(path))


def _common_effect(section: type[Section]) -> TakesEffect | None:
    """Return when all options of a table and of its tables take effect, None if that differs."""
    effects: set[TakesEffect | None] = set()
    for entry in described(section).values():
        effects.add((entry.applies or section.applies) if isinstance(entry, Option) else _common_effect(entry.section))
    return effects.pop() if len(effects) == 1 else None
