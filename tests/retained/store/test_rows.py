"""Rows have packets for the wire, and columns for plain SQL."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.messages import RetainedChange, RetainedChanges
from holdfast.retained.store.rows import (
    COLUMNS,
    MESSAGE_COLUMNS,
    json_of,
    longest_packet,
    message_of,
    packet_of,
    row_of,
    rows_of,
)
from holdfast.storage.tables import retained
from holdfast.wire.properties import NO_PROPERTIES, Properties
from tests.retained.store.contract import NOW, message, packet
from tests.retained.strategies import messages, topics


@given(st.data(), topics)
def test_a_row_has_its_message_and_its_packets(data: st.DataObject, topic: str) -> None:
    stored = data.draw(messages(topic, 7, NOW))
    row = row_of(RetainedChange(topic, 7, NOW, stored))
    assert message_of(tuple(getattr(row, column) for column in MESSAGE_COLUMNS)) == stored
    for version in (3, 4, 5):
        assert packet_of(row, version) == packet(stored, version)
    assert longest_packet(row) == len(packet(stored, 5))


@given(
    st.lists(st.tuples(topics, st.binary(min_size=1, max_size=20) | st.just(b"x" * 130)), min_size=1),
    st.integers(0, 2),
    st.none() | st.just(NOW + 5),
)
def test_rows_made_together_are_the_same_as_one_by_one(
    found: list[tuple[str, bytes]], qos: int, expires_at: int | None
) -> None:
    names, payloads = zip(*found, strict=True)
    changes = RetainedChanges(names, payloads, range(7, 7 + len(found)), qos, "c", "u", NOW, expires_at)
    assert rows_of(changes) == [row_of(change) for change in changes.singly()]


@pytest.mark.parametrize("size", [0, 117, 118, 119, 16_370, 16_380, 2_097_140])
def test_prefixes_grow_with_the_remaining_length(size: int) -> None:
    stored = message("a/é", b"x" * size)
    row = row_of(RetainedChange("a/é", 1, NOW, stored))
    assert packet_of(row, 4) == packet(stored, 4)
    assert packet_of(row, 5) == packet(stored, 5)


def test_a_clear_is_a_tombstone_with_the_clearing_client() -> None:
    row = row_of(RetainedChange("a/b", 5, NOW, None, "client", "user"))
    assert (row.tombstone, row.levels, row.stored_at, row.client_id, row.username) == (1, 2, NOW, "client", "user")
    assert (row.prefix3, row.prefix5, row.properties5, row.payload, row.size) == (b"", b"", b"", b"", 0)


def test_the_columns_are_the_tables_columns() -> None:
    assert tuple(column.name for column in retained.columns) == COLUMNS


def test_properties_are_json_with_the_standards_names() -> None:
    properties = Properties(
        content_type="é",
        correlation_data=b"\0\xff",
        payload_format_indicator=0,
        user_properties=(("a", "b"), ("a", "c")),
    )
    assert json.loads(json_of(properties)) == {
        "content_type": "é",
        "correlation_data": "AP8=",
        "payload_format_indicator": 0,
        "user_properties": [["a", "b"], ["a", "c"]],
    }


def test_no_properties_have_no_json() -> None:
    for properties in (NO_PROPERTIES, Properties()):
        row = row_of(RetainedChange("a", 1, NOW, message("a", properties=properties)))
        assert (row.properties_json, row.properties5) == (None, b"\0")
