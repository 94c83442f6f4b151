"""Columns of values as arrays in Postgres's binary format: one parameter for any number of rows.

The driver's own conversion of lists looks at each value several times, in Python. It took longer than the database's
part of the commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from struct import Struct
from typing import Any, ClassVar

from holdfast.storage.layouts import Kind, Layout

#: number of dimensions, whether there are NULLs, type of the elements; then, if not empty, the length and the index of
#: the first element
_EMPTY = Struct(">iiI")
_HEADER = Struct(">iiIii")
_NULL = b"\xff\xff\xff\xff"


def _bytes(value: bytes) -> bytes:
    return len(value).to_bytes(4, "big") + value


def _text(value: str) -> bytes:
    return _bytes(value.encode())


class Array:
    """An encoded array (``data``); None becomes NULL. There is a class for each type of elements.

    Raises UnicodeEncodeError for a text that is not valid Unicode, struct.error for an integer out of its type's range.
    """

    __slots__ = ("data",)

    #: Postgres's name and number of the type of the elements, and its number of the array type
    element: ClassVar[str]
    oid: ClassVar[int]
    array_oid: ClassVar[int]
    #: returns the length and the bytes of a value
    encode: ClassVar[staticmethod[[Any], bytes]]

    def __init__(self, values: Sequence[Any]) -> None:
        if not values:
            self.data = _EMPTY.pack(0, 0, self.oid)
            return
        encode, first = self.encode, values[0]
        header = _HEADER.pack(1, None in values, self.oid, len(values), 1)
        if values.count(first) == len(values):  # true of half the columns of most commits
            self.data = header + (_NULL if first is None else encode(first)) * len(values)
            return
        self.data = b"".join([header, *[_NULL if value is None else encode(value) for value in values]])


class Texts(Array):
    """Texts, such as Topic Names."""

    __slots__ = ()
    element, oid, array_oid = "text", 25, 1009
    encode = staticmethod(_text)


class Blobs(Array):
    """Bytes."""

    __slots__ = ()
    element, oid, array_oid = "bytea", 17, 1001
    encode = staticmethod(_bytes)


class SmallIntegers(Array):
    """Integers of 16 bits."""

    __slots__ = ()
    element, oid, array_oid = "smallint", 21, 1005
    encode = staticmethod(partial(Struct(">ih").pack, 2))


class Integers(Array):
    """Integers of 32 bits."""

    __slots__ = ()
    element, oid, array_oid = "integer", 23, 1007
    encode = staticmethod(partial(Struct(">ii").pack, 4))


class BigIntegers(Array):
    """Integers of 64 bits."""

    __slots__ = ()
    element, oid, array_oid = "bigint", 20, 1016
    encode = staticmethod(partial(Struct(">iq").pack, 8))


ARRAYS: tuple[type[Array], ...] = (Texts, Blobs, SmallIntegers, Integers, BigIntegers)

_BY_KIND: dict[Kind, type[Array]] = {
    Kind.TEXT: Texts,
    Kind.BLOB: Blobs,
    Kind.SMALL: SmallIntegers,
    Kind.INTEGER: Integers,
    Kind.BIG: BigIntegers,
}


def array_of(kind: Kind) -> type[Array]:
    """Return the class of arrays for a column's values."""
    return _BY_KIND[kind]


def columns_of(table: Layout, rows: Sequence[Sequence[Any]]) -> list[Array]:
    """Return an array for each column of a table, in the order of the columns. There must be at least one row."""
    return [array(values) for array, values in zip(_arrays_of(table), zip(*rows, strict=True), strict=True)]


@lru_cache(maxsize=64)
def _arrays_of(table: Layout) -> tuple[type[Array], ...]:
    return tuple(map(array_of, table.columns.values()))


def parameter_of(kind: Kind) -> str:
    """Return the SQL of a parameter that is an array of a column's values."""
    return f"CAST(? AS {array_of(kind).element}[])"
