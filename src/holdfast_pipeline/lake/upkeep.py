"""The upkeep of tables that grow in small steps: small files are joined, and files that no reader needs are deleted.

How it works. Each commit adds at least one file. Once a part of a table (a day, or the whole of ``current``) has
``most_small`` files below half of ``file_size``, they are joined; a past day already with two of them, because it gets
no more. The old files stay for ``keep`` seconds, for readers that have begun with an older version.
"""

from __future__ import annotations

from collections import Counter

from attrs import frozen

from holdfast_pipeline.lake.growing_table import GrowingTable
from holdfast_pipeline.lake.iceberg_table import IcebergTable

#: A table that a job keeps.
KeptTable = GrowingTable | IcebergTable


@frozen
class Upkeep:
    """The size of joined files in bytes, the most small files of a part, and the seconds that old files stay."""

    file_size: int = 128 << 20
    most_small: int = 16
    keep: float = 7 * 86_400.0


def join_files(table: KeptTable, upkeep: Upkeep) -> int:
    """Join the small files of a table; return the number of parts that had too many."""
    files = table.files
    small = Counter(file.part for file in files if file.size < upkeep.file_size // 2)
    last = max((file.part for file in files if file.part is not None), default=None)
    full = [
        part for part, count in small.items() if count >= (upkeep.most_small if part == last else 2)
    ]  # fmt: skip
    for part in sorted(full, key=str):
        table.compact(part, upkeep.file_size)
    return len(full)
