"""Find the figures of findings without rules: topics that differ from their siblings, and events in the history.

A bounded number of jobs, whatever the number of shapes. The driver gets a few rows for each shape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast.messages import ChangeKind, ChangeOrigin
from holdfast.pipeline.checks.discovered import (
    EXAMPLES,
    GONE_AFTER,
    LEAST_CHANGES,
    LEAST_SILENCE,
    LEAST_TURNS,
    LEAST_VALUES,
    LISTED,
    SIBLINGS,
    STILL_THERE,
    TIMES_MORE,
    TIMES_OLDER,
    Z_SCORE,
    Chatty,
    Discovered,
    FarValues,
    Gone,
    Lost,
    Malformed,
    Publishers,
    Silent,
)
from holdfast.pipeline.database.snapshot import Snapshot
from holdfast.pipeline.jobs.shape_details import HIGHEST, numbers_in
from holdfast.pipeline.jobs.shapes import with_shape
from holdfast.pipeline.jobs.topic_changes import TopicChanges
from holdfast.pipeline.progress.phases import phase
from holdfast.pipeline.report.shape_details import WHOLE
from holdfast.pipeline.shapes.shapes import NO_SHAPE, Shapes
from holdfast.pipeline.shapes.totals import ShapesFound

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The normal distribution's share of a standard deviation that is a median deviation.
_NORMAL = 0.6745


def discover(
    snapshot: Snapshot, kept: DataFrame, found: ShapesFound, shapes: Shapes, history: TopicChanges | None
) -> Discovered:
    """Return the figures. ``kept`` is a table of ``read_shaped``; ``found`` and ``shapes`` are of ``shapes_of``."""
    texts = {one.number: one.text for one in shapes.shapes}
    shaped = with_shape(kept, shapes).where(F.col("shape") != NO_SHAPE)
    shaped = shaped.select("shape", "topic", "kind", "stored_at", "payload").persist()
    try:
        with phase("comparing messages"):
            malformed = _malformed(shaped, found, texts)
            silent = _silent(shaped, snapshot.taken_at, texts)
            far = _far(shaped, texts)
            gone = _gone(kept, snapshot.taken_at)
    finally:
        shaped.unpersist()
    chatty: list[Chatty] = []
    lost: list[Lost] = []
    publishers: list[Publishers] = []
    if history is not None:
        with phase("comparing changes"):
            chatty, lost, publishers = (
                _chatty(history, shapes, texts, snapshot.taken_at),
                _lost(history),
                _publishers(history),
            )
    return Discovered(snapshot.taken_at, malformed, silent, chatty, lost, publishers, far, gone)


def _malformed(shaped: DataFrame, found: ShapesFound, texts: dict[int, str]) -> list[Malformed]:
    mixed = {one.shape: one for one in found.shapes if one.unlike}
    usual = {number: mixed[text].kind for number, text in texts.items() if text in mixed}
    examples: dict[int, list[str]] = {}
    if usual:
        kind = F.element_at(F.create_map(*(F.lit(each) for pair in usual.items() for each in pair)), F.col("shape"))
        others = shaped.where(F.col("kind") != kind)
        rows = others.groupBy("shape").agg(F.min_by("topic", "topic", EXAMPLES).alias("topics")).collect()
        examples = {row.shape: row.topics for row in rows}
    return [
        Malformed(text, mixed[text].messages, mixed[text].unlike, mixed[text].kind, examples.get(place, ()))
        for place, text in texts.items()
        if text in mixed
    ]


def _silent(shaped: DataFrame, taken_at: int, texts: dict[int, str]) -> list[Silent]:
    age = F.greatest(F.lit(0), F.floor((F.lit(taken_at) - F.unix_millis("stored_at")) / 1000))
    ages = shaped.select("shape", "topic", age.alias("age"))
    usual = ages.groupBy("shape").agg(F.count("*").alias("messages"), F.percentile_approx("age", 0.9).alias("usual"))
    usual = usual.where(F.col("messages") >= SIBLINGS)
    older = ages.join(F.broadcast(usual), "shape").where(
        F.col("age") > F.greatest(F.lit(LEAST_SILENCE), TIMES_OLDER * F.col("usual"))
    )
    rows = older.groupBy("shape", "messages", "usual").agg(
        F.count("*").alias("silent"),
        F.min("age").alias("youngest"),
        F.min_by("topic", F.struct(-F.col("age"), "topic"), EXAMPLES).alias("topics"),
    )
    return [
        Silent(texts[row.shape], row.messages, row.silent, row.youngest, row.usual, row.topics)
        for row in rows.collect()
    ]


def _far(shaped: DataFrame, texts: dict[int, str]) -> list[FarValues]:
    values = numbers_in(shaped.select("shape", "topic", F.col("stored_at").alias("at"), "payload"))
    values = values.where(F.abs("value") < HIGHEST).select("shape", "field", "topic", "value").persist()
    try:
        middle = values.groupBy("shape", "field").agg(
            F.count("*").alias("values"), F.percentile_approx("value", 0.5).alias("median")
        )
        middle = middle.where(F.col("values") >= LEAST_VALUES)
        apart = values.join(F.broadcast(middle), ["shape", "field"])
        apart = apart.withColumn("apart", F.abs(F.col("value") - F.col("median"))).persist()
        spread = apart.groupBy("shape", "field").agg(F.percentile_approx("apart", 0.5).alias("deviation"))
        far = apart.join(F.broadcast(spread.where(F.col("deviation") > 0)), ["shape", "field"]).where(
            _NORMAL * F.col("apart") / F.col("deviation") > Z_SCORE
        )
        rows = far.groupBy("shape", "field", "values", "median", "deviation").agg(
            F.count("*").alias("far"),
            F.min_by(F.struct("topic", "value"), F.struct(-F.col("apart"), "topic"), EXAMPLES).alias("examples"),
        )
        return [
            FarValues(
                texts[row.shape], "" if row.field == WHOLE else row.field, row["values"], row.far, row.median,
                row.deviation, [(one.topic, one.value) for one in row.examples],
            )
            for row in rows.collect()
        ]  # fmt: skip
    finally:
        values.unpersist()


def _gone(kept: DataFrame, taken_at: int) -> list[Gone]:
    age = F.floor((F.lit(taken_at) - F.unix_millis(F.max("stored_at"))) / 1000)
    clients = kept.groupBy("client_id").agg(
        F.count("*").alias("messages"), age.alias("age"), F.min_by("topic", "topic", EXAMPLES).alias("topics")
    )
    present = F.sum(F.when(F.col("age") < GONE_AFTER, F.col("messages")))
    whole = clients.agg(F.coalesce(present >= STILL_THERE * F.sum("messages"), F.lit(False)).alias("lives"))
    gone = clients.where(F.col("client_id").isNotNull() & (F.col("age") >= GONE_AFTER)).crossJoin(F.broadcast(whole))
    rows = gone.where("lives").orderBy(F.desc("messages"), "client_id").limit(LISTED).collect()
    return [Gone(row.client_id, row.messages, row.age, row.topics) for row in rows]


def _chatty(history: TopicChanges, shapes: Shapes, texts: dict[int, str], taken_at: int) -> list[Chatty]:
    changed = history.by_topic.where(F.col("changes") > 0).select("topic", "changes", "first_change")
    topics = with_shape(changed, shapes).persist()
    try:
        by_shape = topics.groupBy("shape").agg(
            F.count("*").alias("topics"), F.percentile_approx("changes", 0.9).alias("usual")
        )
        compared = by_shape.where((F.col("shape") != NO_SHAPE) & (F.col("topics") >= SIBLINGS))
        whole = topics.agg(
            F.count("*").alias("all"),
            F.percentile_approx("changes", 0.99).alias("most"),
            F.min("first_change").alias("since"),
        )
        joined = topics.join(F.broadcast(compared), "shape", "left").crossJoin(F.broadcast(whole))
        # Without siblings, a topic is compared with all others, if they are ten times as many.
        alone = F.when(F.col("all") >= SIBLINGS * SIBLINGS, F.col("most"))
        usual = F.greatest(F.lit(1), F.coalesce("usual", alone))
        often = joined.withColumn("than", usual).where(
            F.coalesce("usual", alone).isNotNull()
            & (F.col("changes") >= LEAST_CHANGES)
            & (F.col("changes") > TIMES_MORE * F.col("than"))
        )
        rows = often.orderBy(F.desc("changes"), "topic").limit(LISTED).collect()
    finally:
        topics.unpersist()
    return [
        Chatty(
            row.topic, "" if row.usual is None else texts[row.shape], row.changes, row.than,
            max(1, (taken_at - row.since) // 1000),
        )
        for row in rows
    ]  # fmt: skip


def _lost(history: TopicChanges) -> list[Lost]:
    wills = F.col("origin") == ChangeOrigin.WILL.value
    topics = history.by_topic.where("has_will").select("topic")
    order = Window.partitionBy("topic").orderBy("seq")
    told = history.changes.join(topics, "topic", "left_semi").withColumn("back", F.lead("changed_at").over(order))
    away = told.where(wills & (F.col("op") == ChangeKind.SET.value))
    longest = F.desc(F.coalesce("back", F.current_timestamp()) - F.col("changed_at"))
    rows = away.orderBy(longest, "topic", "seq").limit(LISTED).select(
        "topic", "client_id", F.unix_millis("changed_at").alias("at"), F.unix_millis("back").alias("back")
    )  # fmt: skip
    return [Lost(row.topic, row.client_id or "", row["at"], row.back) for row in rows.collect()]


def _publishers(history: TopicChanges) -> list[Publishers]:
    order = Window.partitionBy("topic").orderBy("seq")
    published = history.changes.where((F.col("op") != ChangeKind.EXPIRE.value) & F.col("client_id").isNotNull())
    several = history.by_topic.where(F.col("one") != F.col("other")).select("topic")
    turns: Any = published.join(several, "topic", "left_semi").withColumn("before", F.lag("client_id").over(order))
    rows = (
        turns.groupBy("topic")
        .agg(
            F.count_if(F.col("before") != F.col("client_id")).alias("turns"),
            F.slice(F.sort_array(F.collect_set("client_id")), 1, EXAMPLES).alias("clients"),
        )
        .where(F.col("turns") >= LEAST_TURNS)
        .orderBy(F.desc("turns"), "topic")
        .limit(LISTED)
        .collect()
    )
    return [Publishers(row.topic, row.turns, row.clients) for row in rows]
