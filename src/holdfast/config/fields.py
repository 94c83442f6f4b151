"""Describing the options of a TOML table in an attrs class: kind, default, help, effect and example of each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Any

import attrs
from attrs import frozen

from holdfast.config.kinds import Kind
from holdfast.config.toml.text import literal

_METADATA = "holdfast"


class Section:
    """A table of options. Subclasses are frozen attrs classes; :func:`option`, :func:`table` etc. make their fields."""

    __slots__ = ()

    def problems(self, given: Mapping[str, object]) -> Iterable[tuple[str, str, Collection[str]]]:
        """Return the problems of several options together: the key, the message, and all keys that are involved.

        ``given`` has the options in the file. The reader ignores problems of keys that it has rejected already.
        """
        return ()


@frozen
class Option:
    """One key with a value. ``default`` and ``example`` are values as in the TOML file."""

    kind: Kind
    default: object
    help: str
    effect: str
    example: object


class Form(Enum):
    """The form of a section in the file."""

    TABLE = "table"  #: one table
    NAMED = "named"  #: tables named by the operator, each a section
    PARTIAL = "partial"  #: one table whose options have no defaults
    LISTED = "listed"  #: an array of tables, each a section, in an order that counts


@frozen
class Subsection:
    """A key whose value is a table, or a table of named tables."""

    section: type[Section]
    form: Form
    help: str


@frozen
class Variants:
    """Tables that the operator names, beside the keys of a section. Their key ``type`` names the section of each."""

    types: Mapping[str, type[Section]]
    help: str


def option(kind: Kind, default: object, *, help: str, effect: str, example: object) -> Any:
    """Describe a key; ``example`` is None if the default is the only value.

    Raises ValueError if the kind does not allow the default or the example, or if they are the same.
    """
    value = kind.read(default)
    if example is not None and kind.read(example) == value:
        raise ValueError(f"the example {literal(example)} is the default")
    return attrs.field(default=value, metadata={_METADATA: Option(kind, default, help, effect, example)})


def table(section: type[Section], help: str) -> Mapping[str, Subsection]:
    """Return the metadata of a field for a table."""
    return {_METADATA: Subsection(section, Form.TABLE, help)}


def named_tables(section: type[Section], help: str) -> Mapping[str, Subsection]:
    """Return the metadata of a field for tables that the operator names."""
    return {_METADATA: Subsection(section, Form.NAMED, help)}


def listed_tables(section: type[Section], help: str) -> Mapping[str, Subsection]:
    """Return the metadata of a field for an array of tables."""
    return {_METADATA: Subsection(section, Form.LISTED, help)}


def partial_table(section: type[Section], help: str) -> Mapping[str, Subsection]:
    """Return the metadata of a field for a mapping of the options in the file, without defaults."""
    return {_METADATA: Subsection(section, Form.PARTIAL, help)}


def variants(types: Mapping[str, type[Section]], help: str) -> Mapping[str, Variants]:
    """Return the metadata of a field for the tables of a section that are none of its keys: a mapping by name.

    ``types`` maps each value of their key ``type`` to the section with their other keys. A section has one such field.
    """
    return {_METADATA: Variants(types, help)}


def variants_of(section: type[Section]) -> tuple[str, Variants] | None:
    """Return the field of a section for its variants, and their description; None if it has none."""
    for each in attrs.fields(section):  # type: ignore[arg-type]  # all sections are attrs classes
        if isinstance(found := each.metadata.get(_METADATA), Variants):
            return each.name, found
    return None


def described(section: type[Section]) -> Mapping[str, Option | Subsection]:
    """Return the keys of a section in the order of the class, without its variants."""
    fields = attrs.fields(section)  # type: ignore[arg-type]  # all sections are attrs classes
    found = {field.name: field.metadata.get(_METADATA) for field in fields}
    return {name: entry for name, entry in found.items() if isinstance(entry, (Option, Subsection))}
