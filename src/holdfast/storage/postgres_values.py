"""How Postgres gets values: binary arrays, statements for many rows, and the numbers of advisory locks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from struct import Struct
from typing import Any, ClassVar

from holdfast.storage.driver import Cursor, Rows, insert_into, on_conflict_replace
from holdfast.storage.layout import Kind, Layout

# Columns of values as arrays in Postgres's binary format: one parameter for any number of rows.
#
# The driver's own conversion of lists looks at each value several times, in Python. It took longer than the database's
# part of the commit.


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


# Many rows in one statement, for Postgres: each column's values are one array parameter.
#
# The text of the statement does not depend on the number of rows, so each table has one prepared statement.


# Built from table definitions alone: values are always bound.
# ruff: noqa: S608


class PostgresBulk:
    """Writes and deletes any number of rows with one statement."""

    def upsert(self, cursor: Cursor, table: Layout, rows: Rows) -> None:
        """Insert or replace."""
        if rows:
            cursor.execute(_upsert(table), columns_of(table, rows))

    def delete(self, cursor: Cursor, table: Layout, key: tuple[str, ...], keys: Rows) -> None:
        """Delete by key."""
        if keys:
            arrays = [array_of(table.columns[name]) for name in key]
            values_of_keys = zip(*keys, strict=True)
            parameters = [array(values) for array, values in zip(arrays, values_of_keys, strict=True)]
            cursor.execute(_delete(table, key), parameters)


@lru_cache(maxsize=64)
def _upsert(table: Layout) -> str:
    arrays = ", ".join(map(parameter_of, table.columns.values()))
    return f"{insert_into(table)} SELECT * FROM unnest({arrays}) {on_conflict_replace(table.columns, table.key)}"


@lru_cache(maxsize=64)
def _delete(table: Layout, key: tuple[str, ...]) -> str:
    arrays = ", ".join(parameter_of(table.columns[name]) for name in key)
    condition = " AND ".join(f"{table.name}.{name} = gone.{name}" for name in key)
    return f"DELETE FROM {table.name} USING unnest({arrays}) AS gone ({', '.join(key)}) WHERE {condition}"


# The advisory locks of this program in Postgres.


#: The first of the two numbers of the advisory locks of nodes ("hold"). The second is the node, or 0 for the schema.
LOCKS = 0x686F6C64
_SWEEP = LOCKS + 1
#: The lock that a broker without ``[cluster]`` has for itself, and that the members of a cluster share.
COMPANY = LOCKS + 2
#: The lock of whoever joins a cluster, or takes over from a dead member.
JOINING = LOCKS + 3
_OWN_SWEEP = f"locktype = 'advisory' AND granted AND classid = {_SWEEP} AND pid = pg_backend_pid()"
#: Takes the lock of the node that sweeps, until this connection ends or gives it back: reads whether it has it now.
TAKE_SWEEP = f"SELECT EXISTS (SELECT FROM pg_locks WHERE {_OWN_SWEEP}) OR pg_try_advisory_lock({_SWEEP}, 0)"
GIVE_SWEEP_BACK = f"SELECT pg_advisory_unlock({_SWEEP}, 0)"
#: The nodes whose processes are connected now, in a result with one column.
LIVING_NODES = (
    f"SELECT CAST(objid AS integer) FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = {LOCKS} "
    "AND objid <> 0 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
