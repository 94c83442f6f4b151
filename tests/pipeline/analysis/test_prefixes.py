"""The totals below each prefix, counted without Spark, are those of a computation in plain Python."""

from __future__ import annotations

import random
from collections import defaultdict

import pyarrow as pa
import pytest

from holdfast_pipeline.analysis.prefixes import CountedPrefixes, count_prefixes
from holdfast_pipeline.choices import TREE_ORDERS
from holdfast_pipeline.report.figures import PrefixTotals
from holdfast_pipeline.sources.columns import RETAINED, arrow_schema, named

_COLUMNS = named(RETAINED, ("topic", "size", "stored_at", "expires_at"))
_TAKEN_AT = 1_700_000_000_000
Row = tuple[str, int, int, int | None]


def table(rows: list[Row]) -> pa.Table:
    """Return rows as the database does: in the order of the topics' bytes, in several chunks."""
    ordered = sorted(rows, key=lambda row: row[0].encode())
    schema = arrow_schema(_COLUMNS)
    names, sizes, *times = ([row[place] for row in ordered] for place in range(4))
    moments = [[None if at is None else at * 1000 for at in each] for each in times]
    columns = zip((names, sizes, *moments), schema.types, strict=True)
    whole = pa.table([pa.array(each, kind) for each, kind in columns], schema)
    return pa.Table.from_batches(whole.to_batches(max_chunksize=5), schema)


def expected(rows: list[Row], depth: int, top: int, order: str) -> CountedPrefixes:
    below = defaultdict[tuple[int, str], list[Row]](list)
    for row in rows:
        levels = row[0].split("/")
        for level in range(1, min(depth, len(levels)) + 1):
            below[level, "/".join(levels[:level])].append(row)
    found = []
    for (level, prefix), inside in below.items():
        ages = sorted(max(0, (_TAKEN_AT - row[2]) // 1000) for row in inside)
        expiries = [row[3] for row in inside if row[3] is not None]
        found.append(
            PrefixTotals(
                level, prefix, len(inside), sum(row[1] for row in inside), ages[-1], ages[(len(ages) - 1) // 2],
                ages[0], len(expiries), min(expiries, default=None),
            )
        )  # fmt: skip
    found.sort(key=lambda one: (-getattr(one, TREE_ORDERS[order]), one.depth, one.prefix.encode()))
    return CountedPrefixes(len(found), len(rows), sum(row[1] for row in rows), tuple(found[:top]))


@pytest.mark.parametrize("order", TREE_ORDERS)
@pytest.mark.parametrize("seed", range(12))
def test_every_figure_is_exact(order: str, seed: int) -> None:
    """Also with empty levels, topics above others, and characters that sort before the slash or beyond ASCII."""
    chosen = random.Random(seed)
    alphabet = ("a", "a!", "", "a-b", "ü", "日", "a\0", "b") if seed % 2 else ("a", "b", "c")
    topics = {"/".join(chosen.choices(alphabet, k=chosen.randint(1, 5))) for _ in range(chosen.randrange(200))}
    topics.discard("")  # no Topic Name is empty
    rows = [
        (
            topic,
            chosen.randrange(1000),
            _TAKEN_AT - chosen.randrange(-5000, 100_000),
            chosen.choice((None, _TAKEN_AT + chosen.randrange(1, 10_000))),
        )
        for topic in sorted(topics)
    ]
    depth, top = chosen.randint(1, 6), chosen.choice((1, 5, 1000))
    assert count_prefixes(table(rows), _TAKEN_AT, depth, top, order) == expected(rows, depth, top, order)


def test_a_topic_apart_from_those_below_it_is_one_prefix_with_them() -> None:
    """``a!`` comes between ``a`` and ``a/b``."""
    rows: list[Row] = [("a", 1, _TAKEN_AT, None), ("a!", 2, _TAKEN_AT, None), ("a/b", 4, _TAKEN_AT - 9000, None)]
    found = count_prefixes(table(rows), _TAKEN_AT, 3, 10, "messages")
    assert found == expected(rows, 3, 10, "messages")
    assert found.leading[0] == PrefixTotals(1, "a", 2, 5, 9, 0, 0, 0, None)
    assert found.prefixes == 3


def test_without_messages_there_is_no_prefix() -> None:
    assert count_prefixes(table([]), _TAKEN_AT, 3, 10, "messages") == CountedPrefixes(0, 0, 0, ())
