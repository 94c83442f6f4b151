"""How an attrs class describes the options of a TOML table: kind, default, help, effect and example of each."""

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
    """A table of options. Subclasses are frozen attrs classes whose fields are made by ``option`` and the like."""

    __slots__ = ()

    def complaints(self, given: Mapping[str, object]) -> Iterable[tuple[str, str, Collection[str]]]:
        """Return what is wrong with the options together, each as key, message and the keys that are involved.

        ``given`` has the options that are written out. What is said of keys that are refused already does not count.
        """
        return ()


@frozen
class Option:
    """One key with a value. ``default`` and ``example`` are values as they stand in the TOML file."""

    kind: Kind
    default: object
    help: str
    effect: str
    example: object


class Form(Enum):
    """How the tables of a section stand in the file."""

    TABLE = "table"  #: one table
    NAMED = "named"  #: tables named by the operator, each a section
    PARTIAL = "partial"  #: one table whose options have no defaults


@frozen
class Subsection:
    """A key whose value is a table, or a table of named tables."""

    section: type[Section]
    form: Form
    help: str


def option(kind: Kind, default: object, *, help: str, effect: str, example: object) -> Any:
    """Describe a key; ``example`` is None where the default is the only value.

    Raises ValueError when default or example are not what the kind allows, or are the same.
    """
    value = kind.read(default)
    if example is not None and kind.read(example) == value:
        raise ValueError(f"the example {literal(example)} is the default")
    return attrs.field(default=value, metadata={_METADATA: Option(kind, default, help, effect, example)})


def table(section: type[Section], help: str) -> Mapping[str, Subsection]:
    """Return the metadata of a field for a table."""
    return {_METADATA: Subsection(section, Form.TABLE, help)}


def named_tables(section: type[Section], help: str) -> Mapping[str, Subsection]:
    """Return the metadata of a field for a table of tables with names given by the operator."""
    return {_METADATA: Subsection(section, Form.NAMED, help)}


def partial_table(section: type[Section], help: str) -> Mapping[str, Subsection]:
    """Return the metadata of a field for a table of which only the options written out count, as a mapping."""
    return {_METADATA: Subsection(section, Form.PARTIAL, help)}


def described(section: type[Section]) -> Mapping[str, Option | Subsection]:
    """Return the keys of a section in the order of the class."""
    fields = attrs.fields(section)  # type: ignore[arg-type]  # all sections are attrs classes
    return {field.name: field.metadata[_METADATA] for field in fields if _METADATA in field.metadata}
