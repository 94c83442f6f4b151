"""Columns of values as arrays in Postgres's binary format: one parameter, however many rows.

The driver's own way with lists looks at each value in Python, several times over: of what a commit costs, that was more
than the database's share.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from struct import Struct
from typing import Any, ClassVar

from sqlalchemy import BigInteger, Column, Integer, LargeBinary, SmallInteger, Table

#: dimensions, whether there are NULLs, the elements' type; then, unless empty, how many and the first one's number
_EMPTY = Struct(">iiI")
_HEADER = Struct(">iiIii")
_NULL = b"\xff\xff\xff\xff"


def _bytes(value: bytes) -> bytes:
    return len(value).to_bytes(4, "big") + value


def _text(value: str) -> bytes:
    return _bytes(value.encode())


class Array:
    """Values as they are sent (``data``); None stands for NULL. There is a class for each type of elements.

    Raises UnicodeEncodeError for a text that is not Unicode, struct.error for an integer out of its type's range.
    """

    __slots__ = ("data",)

    #: what Postgres calls the elements' type, its number for it, and that for arrays of it
    element: ClassVar[str]
    oid: ClassVar[int]
    array_oid: ClassVar[int]
    #: makes the bytes of a value, their number first
    encode: ClassVar[staticmethod[[Any], bytes]]

    def __init__(self, values: Sequence[Any]) -> None:
        if not values:
            self.data = _EMPTY.pack(0, 0, self.oid)
            return
        encode, first = self.encode, values[0]
        header = _HEADER.pack(1, None in values, self.oid, len(values), 1)
        if values.count(first) == len(values):  # half the columns of most batches are
            self.data = header + (_NULL if first is None else encode(first)) * len(values)
            return
        self.data = b"".join([header, *[_NULL if value is None else encode(value) for value in values]])


class Texts(Array):
    """Texts, Topic Names among them."""

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

# The special ones first: to SQLAlchemy, the others are Integers too.
_BY_COLUMN: tuple[tuple[type, type[Array]], ...] = (
    (LargeBinary, Blobs),
    (SmallInteger, SmallIntegers),
    (BigInteger, BigIntegers),
    (Integer, Integers),
)


def array_of(column: Column[Any]) -> type[Array]:
    """Return the arrays that hold a column's values."""
    return next((array for kind, array in _BY_COLUMN if isinstance(column.type, kind)), Texts)


def columns_of(table: Table, rows: Sequence[Sequence[Any]]) -> list[Array]:
    """Return an array for each column of a table, in its order, of one row or more."""
    return [array(values) for array, values in zip(_arrays_of(table), zip(*rows, strict=True), strict=True)]


@lru_cache(maxsize=64)
def _arrays_of(table: Table) -> tuple[type[Array], ...]:
    return tuple(map(array_of, table.columns))


def parameter_of(column: Column[Any]) -> str:
    """Return the SQL of a parameter that is an array of a column's values."""
    return f"CAST(? AS {array_of(column).element}[])"
