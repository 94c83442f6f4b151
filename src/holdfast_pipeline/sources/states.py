"""The retained messages of a moment, from the history's entries up to that moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast.changes.api import GENERAL, Depth, Rules, retained_sql, rules_in, stored_at_sql
from holdfast.storage.api import TIME_SHIFT
from holdfast_pipeline.sources.columns import RETAINED
from holdfast_pipeline.sources.topic_patterns import pattern

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from holdfast.changes.api import Moment

#: The SQL of the time at which the message of an entry was stored.
STORED_AT = stored_at_sql(f"timestamp_millis(shiftright(revision, {TIME_SHIFT}))")


def is_known(moment: Moment) -> Column:
    """Return whether the history knows the topic of a row at a moment."""
    return has_depth(rules_in(moment.rules), lambda depth: depth not in moment.hidden)


def has_depth(rules: Rules, wanted: Callable[[Depth], bool]) -> Column:
    """Return whether the topic of a row has a wanted depth."""
    chain: Any = F
    for rule in rules.rules:
        matches = F.col("topic").rlike(rf"\A(?:{pattern(rule.topic_filter)})\z")
        chain = chain.when(matches, F.lit(wanted(rule.depth)))
    rest = F.lit(wanted(GENERAL))
    found: Column = rest if chain is F else chain.otherwise(rest)
    return found


def has_general_depth(rules: Iterable[Rules]) -> Column:
    """Return whether none of the rules keeps the topic of a row for a time of its own, or leaves it out."""
    return reduce(and_, (has_depth(each, _is_general) for each in rules if each.rules), F.lit(True))


def _is_general(depth: Depth) -> bool:
    return depth is GENERAL


def state_of(newest: DataFrame, moment: Moment) -> DataFrame:
    """Return the columns of the messages that were retained at a moment.

    ``newest`` are the last entries of each topic up to then. Topics that the history does not know then are left out.
    """
    retained = newest.where(retained_sql(f"timestamp_millis({moment.at})"))
    if moment.hides_entries:
        retained = retained.where(is_known(moment))
    return retained.withColumn("stored_at", F.expr(STORED_AT)).select(*(column.name for column in RETAINED))
