"""Lines of CSV are inert in spreadsheets, terminals and editors."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.retained.records import COLUMNS, cell_of, csv_line_of, header
from holdfast.wire.properties import Properties
from tests.retained.store.contract import message


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("21.5", "21.5"),
        ("-21.5e-3", "-21.5e-3"),
        ("+5", "+5"),
        ("plain", "plain"),
        ("=1+1", "'=1+1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("-2+3", "'-2+3"),
        ("  =1", "'  =1"),
        ("\uff1d1", "'\uff1d1"),
        ("\t=1", "\\t=1"),
        ("'=1", "''=1"),
        ("a\r\nb\x1b[2J", "a\\r\\nb\\x1b[2J"),
        ("\u202egpj", "\\u202egpj"),
        ("", ""),
    ],
)
def test_cells_have_no_effect(text: str, cell: str) -> None:
    """Numbers stay numbers."""
    assert cell_of(text) == cell


@given(st.text(max_size=20, alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"])), st.binary())
def test_each_message_is_one_line_with_all_columns(client_id: str, payload: bytes) -> None:
    """Whatever its publisher wrote."""
    stored = message('a,b";c', payload, client_id=client_id, properties=Properties(content_type="=x"))
    rows = list(csv.reader(io.StringIO((header() + csv_line_of(stored)).decode(), newline="")))
    assert rows[0] == list(COLUMNS)
    assert len(rows) == 2
    row = dict(zip(COLUMNS, rows[1], strict=True))
    assert row["topic"] == 'a,b";c'
    assert row["client_id"] == cell_of(client_id)
    assert row["payload_encoding"] in ("text", "base64")
    assert (header() + csv_line_of(stored)).count(b"\n") == 2


def test_payloads_that_are_no_text_or_too_long_for_a_cell_are_base64() -> None:
    for payload, encoding in ((b"\xff", "base64"), (b"x" * 32_767, "text"), (b"x" * 32_768, "base64")):
        (row,) = csv.reader(io.StringIO(csv_line_of(message("a", payload)).decode()))
        assert row[2] == encoding
