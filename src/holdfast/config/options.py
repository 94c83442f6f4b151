"""How options are described: the kinds of their values, and the fields of a TOML table in an attrs class."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Any, ClassVar, Protocol

import attrs
from attrs import field, frozen

from holdfast.config.toml import literal
from holdfast.core import units
from holdfast.core.units import parse_duration, parse_rate, parse_size

# The kinds of options. A kind reads one TOML value, and describes the allowed values.


_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class InvalidValue(ValueError):
    """An option does not allow this value. The text says why."""


class Kind(Protocol):
    """One kind of values."""

    @property
    def allowed(self) -> str:
        """The allowed values in words, for messages and the reference."""

    def read(self, value: object) -> object:
        """Return the value for the program; raises InvalidValue."""


def invalid_value(value: object, allowed: str) -> InvalidValue:
    """Return the error that tells the value found and the allowed values."""
    return InvalidValue(f"found {literal(value)}; allowed: {allowed}")


@frozen
class Flag:
    """True or false, or one of some words with a special meaning."""

    words: Mapping[str, bool | None] = field(factory=dict)

    @property
    def allowed(self) -> str:
        """The values and the words."""
        return " or ".join(["true or false", *map(literal, self.words)])

    def read(self, value: object) -> bool | None:
        """Return the truth value, or the meaning of the word; raises InvalidValue."""
        if isinstance(value, str) and value in self.words:
            return self.words[value]
        if not isinstance(value, bool):
            raise invalid_value(value, self.allowed)
        return value


@frozen
class Integer:
    """A whole number within limits, or one of some words with a special meaning."""

    minimum: int
    maximum: int | None = None
    words: Mapping[str, int | None] = field(factory=dict)
    unit: str = ""

    @property
    def allowed(self) -> str:
        """The limits and the words."""
        limits = f"from {self.minimum} to {self.maximum}" if self.maximum is not None else f"of {self.minimum} or more"
        text = f"an integer {limits} ({self.unit})" if self.unit else f"an integer {limits}"
        return " or ".join([text, *map(literal, self.words)])

    def read(self, value: object) -> int | None:
        """Return the number, or the meaning of the word; raises InvalidValue."""
        if isinstance(value, str) and value in self.words:
            return self.words[value]
        if not isinstance(value, int) or isinstance(value, bool) or not _within(value, self.minimum, self.maximum):
            raise invalid_value(value, self.allowed)
        return value


@frozen
class Number:
    """A number, whole or not, within limits."""

    minimum: float
    maximum: float

    @property
    def allowed(self) -> str:
        """The limits."""
        return f"a number from {self.minimum} to {self.maximum}"

    def read(self, value: object) -> float:
        """Return the number; raises InvalidValue (nan is within no limits)."""
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise invalid_value(value, self.allowed)
        if not self.minimum <= value <= self.maximum:
            raise invalid_value(value, self.allowed)
        return float(value)


@frozen
class Choice:
    """One of a few words or numbers."""

    values: tuple[str | int, ...]

    @property
    def allowed(self) -> str:
        """The values."""
        *others, last = map(literal, self.values)
        return f"{', '.join(others)} or {last}" if others else f"only {last}"

    def read(self, value: object) -> str | int:
        """Return the value; raises InvalidValue."""
        for choice in self.values:  # the type counts too: neither true nor 1.0 is 1
            if type(value) is type(choice) and value == choice:
                return choice
        raise invalid_value(value, self.allowed)


@frozen
class Text:
    """A string without control characters."""

    allowed: str = "a string"
    empty: bool = True

    def read(self, value: object) -> str:
        """Return the string; raises InvalidValue."""
        if not isinstance(value, str) or not (value or self.empty):
            raise invalid_value(value, self.allowed)
        if _CONTROL.search(value):
            raise InvalidValue(f"found a control character in {literal(value)}; allowed: {self.allowed}")
        return value


@frozen
class FilePath:
    """The kind of options with the path of a file, or an empty string."""

    allowed: str = field(default="the path of a file, relative or absolute, or an empty string for none", init=False)

    def read(self, value: object) -> str:
        """Return the path; raises InvalidValue."""
        path = Text(allowed=self.allowed).read(value)
        if path.startswith("~"):
            raise InvalidValue(f"found a path that begins with ~, which is not expanded; allowed: {self.allowed}")
        return path


@frozen
class Duration:
    """Seconds, written with a unit: ``"30s"``, ``"1h30m"``, ``"500ms"``; ``"infinity"``, where allowed, is None.

    Other words may have special values.
    """

    minimum: str
    maximum: str
    infinity: bool = False
    zero: str = ""
    words: Mapping[str, float | None] = field(factory=dict)

    @property
    def allowed(self) -> str:
        """The limits and the words."""
        text = f"a duration with its unit (ms, s, m, h, d, w) from {self.minimum} to {self.maximum}"
        if self.zero:
            text = f"{text}, or 0s ({self.zero})"
        words = [*self.words, "infinity"] if self.infinity else self.words
        return " or ".join([text, *map(literal, words)])

    def read(self, value: object) -> float | None:
        """Return the seconds, None for ``"infinity"``; raises InvalidValue."""
        if self.infinity and value == "infinity":
            return None
        if not isinstance(value, str):
            raise invalid_value(value, self.allowed)
        if value in self.words:
            return self.words[value]
        try:
            seconds = parse_duration(value)
        except ValueError:
            raise invalid_value(value, self.allowed) from None
        if self.zero and seconds == 0.0:
            return seconds
        if not _within(seconds, parse_duration(self.minimum), parse_duration(self.maximum)):
            raise invalid_value(value, self.allowed)
        return seconds


@frozen
class Size:
    """Bytes, written with a unit or as a plain number: ``"1MB"``, ``"64KB"``, ``512``.

    ``"infinity"``, where allowed, is None. Other words may have special values.
    """

    minimum: str
    maximum: str
    zero: str = ""
    infinity: bool = False
    words: Mapping[str, int | None] = field(factory=dict)

    @property
    def allowed(self) -> str:
        """The limits and the words."""
        text = f"a size (B, KB, MB, GB; a plain integer is bytes) from {self.minimum} to {self.maximum}"
        if self.zero:
            text = f"{text}, or 0 ({self.zero})"
        words = [*self.words, "infinity"] if self.infinity else self.words
        return " or ".join([text, *map(literal, words)])

    def read(self, value: object) -> int | None:
        """Return the bytes, None for ``"infinity"``; raises InvalidValue."""
        if self.infinity and value == "infinity":
            return None
        if isinstance(value, str):
            if value in self.words:
                return self.words[value]
            try:
                size = parse_size(value)
            except ValueError:
                raise invalid_value(value, self.allowed) from None
        elif isinstance(value, int) and not isinstance(value, bool):
            size = value
        else:
            raise invalid_value(value, self.allowed)
        if self.zero and size == 0:
            return size
        if not _within(size, parse_size(self.minimum), parse_size(self.maximum)):
            raise invalid_value(value, self.allowed)
        return size


@frozen
class Rate:
    """A number in a time: ``"1000/s"``, ``"1/2s"``; ``"infinity"`` is None."""

    words: ClassVar[Mapping[str, None]] = {"infinity": None}
    allowed: str = field(
        default='"infinity", or a number of 1 or more in a time from 1ms to 1d, such as "1000/s", "1/2s" or "60/m"',
        init=False,
    )

    def read(self, value: object) -> units.Rate | None:
        """Return the rate, None for ``"infinity"``; raises InvalidValue."""
        if value == "infinity":
            return None
        if not isinstance(value, str):
            raise invalid_value(value, self.allowed)
        try:
            rate = parse_rate(value)
        except ValueError:
            raise invalid_value(value, self.allowed) from None
        if not _within(rate.seconds, 0.001, 86400):
            raise invalid_value(value, self.allowed)
        return rate


def _within(value: float, minimum: float, maximum: float | None) -> bool:
    return minimum <= value and (maximum is None or value <= maximum)


# Describing the options of a TOML table in an attrs class: kind, default, help, effect and example of each.


_METADATA = "holdfast"


class TakesEffect(Enum):
    """When a changed option takes effect in a running broker, after its configuration was read again."""

    AT_ONCE = "at a reload"
    CONNECTING = "at a reload, for clients that connect from then on"
    RESTART = "at a restart of the broker"


class Section:
    """A table of options. Subclasses are frozen attrs classes; :func:`option`, :func:`table` etc. make their fields."""

    __slots__ = ()

    #: when a changed option takes effect, unless the option says something else; no table without options needs it
    applies: ClassVar[TakesEffect]
    #: keys of EMQX that are further names of an option of this table: the path from this table on, and the option
    further_names: ClassVar[Mapping[tuple[str, ...], str]] = {}

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
    applies: TakesEffect | None = None


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


def option(
    kind: Kind, default: object, *, help: str, effect: str, example: object, applies: TakesEffect | None = None
) -> Any:
    """Describe a key; ``example`` is None if the default is the only value.

    ``applies`` is when a change takes effect, if it is not as for the other options of its table.

    Raises ValueError if the kind does not allow the default or the example, or if they are the same.
    """
    value = kind.read(default)
    if example is not None and kind.read(example) == value:
        raise ValueError(f"the example {literal(example)} is the default")
    return attrs.field(default=value, metadata={_METADATA: Option(kind, default, help, effect, example, applies)})


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
