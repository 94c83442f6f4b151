"""Compute the tree of topics: the retained messages below each prefix, their ages and their expiry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast_pipeline.analysis.kept_table import kept_frame
from holdfast_pipeline.analysis.prefixes import NEEDED, branches
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
    with kept_frame(branches(read.frame, depth), read.is_small) as found:
        # A message has exactly one prefix of one level.
        first = F.col("depth") == 1
        with phase("counting", snapshot.messages):
            totals = found.agg(
                F.count("*"), F.sum(F.when(first, F.col("messages"))), F.sum(F.when(first, F.col("bytes")))
            ).collect()[0]
        leading = found.orderBy(F.desc(TREE_ORDERS[order]), "depth", "prefix").limit(top).collect()
        return Tree(
            snapshot.taken_at, depth, totals[1] or 0, totals[2] or 0, totals[0],
            tuple(PrefixTotals(**row.asDict()) for row in leading),
        )  # fmt: skip
