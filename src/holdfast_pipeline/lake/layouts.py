"""The columns of the tables ``changes``, ``current`` and ``telemetry``.

They follow the formats ``retained_history``, ``retained`` and ``telemetry``: a column that a later
release adds there is added here.
"""

from __future__ import annotations

import pyarrow as pa

from holdfast_pipeline.lake.growing_table import Layout
from holdfast_pipeline.sources.columns import HISTORY, RETAINED, STORED_AT_OF_ENTRY, TELEMETRY, Column
from holdfast_pipeline.sources.lake import PARTITION

#: What a sync reads of each entry: the columns of both tables.
READ: tuple[Column, ...] = (*HISTORY, STORED_AT_OF_ENTRY)
#: The columns of ``current``, read from the newest entry of each topic.
READ_CURRENT: tuple[Column, ...] = tuple(
    next(known for known in READ if known.name == name) for name in (*(column.name for column in RETAINED), "seq")
)


def _layout(columns: tuple[Column, ...], *more: pa.Field, divided_by: str | None = None) -> Layout:
    # All columns are nullable: rows that an earlier release wrote have no values in later columns.
    return Layout(pa.schema([*((column.name, column.arrow) for column in columns), *more]), divided_by)


CHANGES_LAYOUT = _layout(HISTORY, pa.field(PARTITION, pa.date32()), divided_by=PARTITION)
CURRENT_LAYOUT = _layout(READ_CURRENT)
TELEMETRY_LAYOUT = _layout(TELEMETRY, pa.field(PARTITION, pa.date32()), divided_by=PARTITION)
