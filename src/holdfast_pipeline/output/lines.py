"""Retained messages as lines of text: the same lines as those of the broker's own exports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from holdfast.retained.api import NO_PROPERTIES, RetainedMessage, csv_line_of, header, line_of, properties_in

#: The column of the lines.
LINE = "value"


def ndjson_lines(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Turn retained messages into JSON objects, as ``holdfast retainer export`` writes and any import reads them."""
    for batch in batches:
        yield _lines([line_of(_message(row)) for row in batch.to_pylist()])


def csv_lines(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Turn retained messages into lines of CSV that are safe to open in a spreadsheet, below a line of names."""
    yield _lines([header()])
    for batch in batches:
        yield _lines([csv_line_of(_message(row)) for row in batch.to_pylist()])


def _lines(lines: list[bytes]) -> pa.RecordBatch:
    # The writer adds the line feed.
    return pa.RecordBatch.from_pydict({LINE: pa.array([line[:-1].decode() for line in lines], pa.string())})


def _message(row: dict[str, Any]) -> RetainedMessage:
    properties = row["properties_json"]
    return RetainedMessage(
        row["topic"], row["payload"], row["qos"],
        NO_PROPERTIES if properties is None else properties_in(properties),
        row["client_id"], row["username"], row["stored_at"], row["expires_at"], row["revision"],
    )  # fmt: skip
