"""A checksum of rows that depends neither on their order nor on files and partitions."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the usual name


def fingerprint(columns: Sequence[str]) -> Column:
    """Return a hash of 64 bits over all columns of a row; NULL and an empty value give different hashes."""
    marked = [part for name in columns for part in (F.col(name), F.col(name).isNull())]
    return F.xxhash64(*marked)


def checksum(columns: Sequence[str]) -> Column:
    """Return the sum of all rows' fingerprints, as text."""
    return F.coalesce(F.sum(fingerprint(columns).cast("decimal(38,0)")), F.lit(0)).cast("string")
