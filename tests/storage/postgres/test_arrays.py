"""Arrays of values arrive in Postgres unchanged."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.storage import layouts
from holdfast.storage.database import Durability
from holdfast.storage.driver import Connection
from holdfast.storage.layout import Kind
from holdfast.storage.maintenance import open_database
from holdfast.storage.postgres_values import (
    ARRAYS,
    BigIntegers,
    Blobs,
    Integers,
    SmallIntegers,
    Texts,
    array_of,
    columns_of,
)
from tests import postgres

_TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
_VALUES: dict[type, st.SearchStrategy[Any]] = {
    Texts: _TEXTS | st.none(),
    Blobs: st.binary() | st.none(),
    SmallIntegers: st.integers(-(1 << 15), (1 << 15) - 1) | st.none(),
    Integers: st.integers(-(1 << 31), (1 << 31) - 1) | st.none(),
    BigIntegers: st.integers(-(1 << 63), (1 << 63) - 1) | st.none(),
}


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    connection = open_database(postgres.empty_database(), Durability.FULL).connect_reader()
    yield connection
    connection.close()


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: array.element)
@given(data=st.data())
def test_every_value_arrives_unchanged(array: type[Any], connection: Connection, data: st.DataObject) -> None:
    """This is true of every type, NULLs, the empty array and repeated values."""
    kind = _VALUES[array]
    values = data.draw(st.lists(kind) | st.builds(lambda value, count: [value] * count, kind, st.integers(2, 9)))
    cursor = connection.cursor()
    cursor.execute(f"SELECT CAST(? AS {array.element}[])", (array(values),))
    assert cursor.fetchone() == (values,)


def test_the_columns_of_rows_have_the_types_of_their_table() -> None:
    """A row of the table ``nodes`` has a SMALLINT and five BIGINTs."""
    arrays = columns_of(layouts.nodes, [(1, 2, 3, 4, 5, 11), (6, 7, 8, 9, 10, 12)])
    assert list(map(type, arrays)) == [SmallIntegers, *[BigIntegers] * 5]
    assert arrays[0].data == SmallIntegers([1, 6]).data
    assert arrays[4].data == BigIntegers([5, 10]).data


@pytest.mark.parametrize(
    ("kind", "array"),
    [
        (Kind.TEXT, Texts),
        (Kind.BLOB, Blobs),
        (Kind.INTEGER, Integers),
        (Kind.SMALL, SmallIntegers),
        (Kind.BIG, BigIntegers),
    ],
    ids=str,
)
def test_a_column_has_its_array(kind: Kind, array: type) -> None:
    assert array_of(kind) is array


def test_a_value_that_cannot_be_sent_is_an_error() -> None:
    """It is not stored as another value."""
    with pytest.raises(struct.error):
        SmallIntegers([1 << 15])
    with pytest.raises(UnicodeEncodeError):
        Texts(["\ud800"])
