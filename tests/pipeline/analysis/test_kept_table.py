"""A kept table is computed once, has its rows on the driver if it is small, and is let go at the end."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast_pipeline.analysis.messages import kept_table, kind_of
from holdfast_pipeline.sources.columns import RETAINED, struct_of
from holdfast_pipeline.spark.session import prepare
from tests.pipeline.stores import NOW

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("is_small", [True, False])
def test_it_has_the_rows_and_types_of_what_was_computed(spark: SparkSession, is_small: bool) -> None:
    """Times too: they stay in UTC, to the microsecond."""
    rows = spark.range(3).select(
        F.concat(F.lit("a/"), "id").alias("topic"),
        F.encode(F.col("id").cast("string"), "utf-8").alias("payload"),
        F.timestamp_micros(F.lit(NOW * 1000 + 7)).alias("stored_at"),
        F.lit(None).cast("timestamp").alias("expires_at"),
    )
    computed = rows.withColumn("kind", kind_of(F.col("payload")))
    with kept_table(computed, is_small) as table:
        assert (table.rows is not None) == is_small
        assert table.count == 3
        assert table.frame.collect() == computed.collect()
        assert [field.dataType for field in table.frame.schema] == [field.dataType for field in computed.schema]
        assert table.frame.storageLevel.useMemory != is_small
        kept = table.frame
    assert not kept.storageLevel.useMemory


def test_a_small_table_without_rows_has_its_columns(spark: SparkSession) -> None:
    empty = spark.createDataFrame([], struct_of(RETAINED))
    with kept_table(empty, True) as table:
        assert table.count == 0
        assert table.frame.columns == [column.name for column in RETAINED]


def test_plans_do_not_contain_the_rows_of_a_small_table(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """Grouping them exchanges nothing, as they are in one partition."""
    with kept_table(spark.range(1000).selectExpr("id", "id % 7 AS key"), True) as table:
        counted = table.frame.groupBy("key").count()
        counted.explain()
        assert sorted(tuple(row) for row in counted.collect()) == [(key, 143 if key < 6 else 142) for key in range(7)]
    plan = capsys.readouterr().out
    assert "ExistingRDD" in plan
    assert "LocalTableScan" not in plan
    assert "Exchange" not in plan


def test_spark_keeps_a_large_table_without_a_copy_of_the_session(spark: SparkSession) -> None:
    """It never closes such a copy, and rows that were sent to a server would stay with it."""
    prepare(spark)
    with kept_table(spark.range(3), False) as table:
        assert table.count == 3
        session: Any = spark._jsparkSession
        manager = session.sharedState().cacheManager()
        found = manager.lookupCachedData(table.frame._jdf).get()
        kept_by = found.cachedRepresentation().cacheBuilder().cachedPlan().session()
        assert kept_by.sessionUUID() == session.sessionUUID()
