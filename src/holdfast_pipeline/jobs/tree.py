"""Compute the tree of topics: the retained messages below each prefix, their ages and their expiry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import fields, frozen
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast_pipeline.analysis.prefixes import NEEDED, branches, totals_of
from holdfast_pipeline.choices import TREE_ORDERS
from holdfast_pipeline.progress.phases import phase
from holdfast_pipeline.report.figures import PrefixTotals
from holdfast_pipeline.sources.snapshot import Snapshot
from holdfast_pipeline.sources.tables import retained_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@frozen
class Tree:
    """The tree at ``taken_at`` (milliseconds since the epoch): some ``branches`` of all ``prefixes``."""

    taken_at: int
    depth: int
    messages: int
    bytes: int
    prefixes: int
    branches: tuple[PrefixTotals, ...]


def tree(spark: SparkSession, snapshot: Snapshot, depth: int = 3, top: int = 30, order: str = "messages") -> Tree:
    """Count the retained messages below each prefix of 1 to ``depth`` levels; return the first ``top`` prefixes.

    ``order`` is one of ``TREE_ORDERS``. Raises :class:`PipelineError`.
    """
    read = retained_table(spark, snapshot, columns=NEEDED)
    found = branches(read.frame, depth, with_medians=read.is_small or order == "age")
    # A message has exactly one prefix of one level.
    first = F.col("depth") == 1
    one = F.struct(*(each.name for each in fields(PrefixTotals)))
    with phase("counting", snapshot.messages):
        (row,) = found.agg(
            F.count("*").alias("prefixes"),
            F.sum(F.when(first, F.col("messages"))).alias("messages"),
            F.sum(F.when(first, F.col("bytes"))).alias("bytes"),
            F.min_by(one, F.struct(-F.col(TREE_ORDERS[order]), "depth", "prefix"), top).alias("leading"),
        ).collect()
        leading = totals_of(read.frame, row.leading or ())
    return Tree(snapshot.taken_at, depth, row.messages or 0, row.bytes or 0, row.prefixes, leading)
