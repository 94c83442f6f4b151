"""A checksum over rows in whatever order, files and partitions they come."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - what everybody calls it


def fingerprint(columns: Sequence[str]) -> Column:
    """Return 64 bits of a row that depend on every one of its columns, NULL and empty told apart."""
    marked = [part for name in columns for part in (F.col(name), F.col(name).isNull())]
    return F.xxhash64(*marked)


def checksum(columns: Sequence[str]) -> Column:
    """Return the sum of all rows' fingerprints, as text: the same rows, the same sum."""
    return F.coalesce(F.sum(fingerprint(columns).cast("decimal(38,0)")), F.lit(0)).cast("string")
