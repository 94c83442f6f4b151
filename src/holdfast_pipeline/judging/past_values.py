"""Find stuck values and flapping topics, by the values that topics have had in the history.

How it works. A number is *stuck* if a topic publishes the same one again and again, where its siblings never do so for
long. Many numbers are meant to stay: setpoints, versions, batteries, meters of what is switched off. So a family says
something only if nearly all of its topics vary, up and down, and hold no value for long; and a value at which things
rest is never told: 0, 1, 100, an end of the range that several topics reach, or that one has never left.

A topic is *flapping* if it goes to and fro between two values, quickly and many times in a row, which its siblings do
not: a door that is opened often is closed for long in between. What tells whether a device is online changes seldom:
there it is enough that it changes more often than its siblings.

The siblings of a topic have its shape. Where the last variable of a shape names a quantity, as in
``{device}/sensor/{sensor}``, they are those with the same last name, if these are enough.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from attrs import evolve
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast.core.messages import ChangeKind, stale_after
from holdfast_pipeline.analysis.messages import kept_frame
from holdfast_pipeline.analysis.shapes import ShapeChanges, Shaped, numbers_in
from holdfast_pipeline.checks.discovered import (
    AVAILABILITY,
    EXAMPLES,
    LEAST_FLIPS,
    LEAST_REPEATS,
    LISTED,
    ONLINE,
    SECOND_KIND,
    SIBLINGS,
    TIMES_LONGER,
    Flapping,
    Stuck,
)
from holdfast_pipeline.judging.devices import by_shape, device_of, is_time, place_of
from holdfast_pipeline.judging.rules import payload_text
from holdfast_pipeline.report.figures import WHOLE
from holdfast_pipeline.shapes import NO_SHAPE
from holdfast_pipeline.sources.retained import STORED_AT
from holdfast_pipeline.sources.snapshot import Snapshot
from holdfast_pipeline.sources.tables import history_table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: The newest entries of the history that are looked at.
_NEWEST = 1_000_000
#: Different values that a topic that varies has had; and the share of a family that varies.
_VALUES, _VARYING = 5, 0.9
#: A number that goes up or down in so few of its steps is a counter: it stands still when nothing happens.
_ONE_WAY = 0.1
#: Values at which things rest.
_RESTING = (0.0, 1.0, 100.0)
#: Longer payloads are no states. So many changes of a flapping topic bring back the value of before the last change.
_STATE, _RETURNING = 100, 0.8
#: Milliseconds behind a change in which the next one is quick.
_QUICK = 60_000
#: The least changes of what tells whether a device is online, and how many times as many as its siblings.
_LEAST_LOSSES, _TIMES_LOST = 10, 5
_FIELDS = "shape int, field string"
#: Stuck values and flapping topics that come to the driver.
_MOST = 1_000


def find_in_values(snapshot: Snapshot, shaped: Shaped, often: Collection[str]) -> tuple[list[Stuck], list[Flapping]]:
    """Return the stuck values and the flapping topics; the topics that change ``often`` may have no siblings."""
    changes = shaped.changes
    looked_at = [] if changes is None else _changing(changes)
    if changes is None or not (looked_at or often):
        return [], []
    names = ("topic", "seq", "op", "origin", "changed_at", "revision", "payload")
    begun = snapshot.periods[-1].first_seq + 1 if snapshot.periods else 1
    read = history_table(
        shaped.messages.sparkSession, snapshot, "", names, max(begun, snapshot.last_seq - _NEWEST)
    )  # fmt: skip
    is_one = F.col("shape").isin(looked_at) | F.col("topic").isin(list(often))
    topics = changes.topics.where((F.col("changes") > 0) & is_one).select("topic", "shape", "changes")
    known = (
        read.frame.where(F.col("op") == ChangeKind.SET.value)
        .join(topics.select("topic", "shape"), "topic")
        .select("topic", "shape", "seq", F.unix_millis(F.expr(STORED_AT)).alias("at"), "payload")
    )
    if read.is_small:
        known = known.coalesce(1)  # so Spark exchanges nothing to group its rows
    with kept_frame(known, read.is_small) as kept:
        return _stuck(snapshot, shaped, kept), _flapping(shaped, topics, kept, often)


def _changing(changes: ShapeChanges) -> list[int]:
    """Return the shapes whose topics have siblings, and of which one changes often enough."""
    return [
        number
        for number, total in changes.totals.items()
        if number is not None and number != NO_SHAPE and total.topics >= SIBLINGS and total.most >= _LEAST_LOSSES
    ]


def _with_family(shaped: Shaped, topics: DataFrame, *keys: str) -> DataFrame:
    """Add the ``family`` of each row: the last name where it is that of enough topics, else ""."""
    places = by_shape({one.number: place_of(one) for one in shaped.shapes.shapes})
    peer = topics.withColumn("peer", F.coalesce(F.get(F.split("topic", "/"), places - 1), F.lit("")))
    peers = F.count("*").over(Window.partitionBy("shape", *keys, "peer"))
    return peer.withColumn("family", F.when(peers >= SIBLINGS, F.col("peer")).otherwise(F.lit("")))


def _with_device(shaped: Shaped, topics: DataFrame) -> DataFrame:
    """Add the ``device`` of each topic: a topic without a shape is one of its own."""
    return topics.withColumn("device", F.coalesce(device_of(shaped.shapes.shapes), F.col("topic")))


def _stuck(snapshot: Snapshot, shaped: Shaped, entries: DataFrame) -> list[Stuck]:
    assert shaped.changes is not None
    totals = shaped.changes.totals
    fields = [
        (row.shape, row.field)
        for row in (() if shaped.numbers is None else shaped.numbers.fields)
        if row.shape in totals and totals[row.shape].most >= LEAST_REPEATS
        if row["count"] >= SIBLINGS and row.least < row.most and not is_time(row.field)
    ]
    if not fields:
        return []
    spark = entries.sparkSession
    of_shapes = entries.where(F.col("shape").isin(list({shape for shape, _ in fields})))
    found = numbers_in(of_shapes.select("shape", "topic", F.struct("seq", "at").alias("at"), "payload"))
    values = found.join(F.broadcast(spark.createDataFrame(fields, _FIELDS)), ["shape", "field"])
    order = Window.partitionBy("topic", "field").orderBy("at")
    step = F.col("value") - F.lag("value").over(order)
    stepped = values.withColumn("step", step).withColumn("begins", F.coalesce(F.col("step") != 0, F.lit(True)))
    numbered = stepped.withColumn("run", F.count_if("begins").over(order))
    runs = numbered.groupBy("shape", "topic", "field", "run").agg(
        F.count("*").alias("messages"),
        F.min("at.at").alias("since"),
        F.max("at.at").alias("until"),
        F.first("value").alias("value"),
        F.count_if(F.col("step") > 0).alias("up"),
        F.count_if(F.col("step") < 0).alias("down"),
    )
    topics = runs.groupBy("shape", "topic", "field").agg(
        F.sum("messages").alias("all"),
        F.max("messages").alias("longest"),
        F.approx_count_distinct("value").alias("values"),
        F.min("value").alias("least"),
        F.max("value").alias("most"),
        F.sum("up").alias("up"),
        F.sum("down").alias("down"),
        F.max_by(F.struct("messages", "since", "until", "value"), "run").alias("last"),
    )
    found = _with_family(shaped, topics, "field")
    families = found.groupBy("shape", "field", "family").agg(
        F.count("*").alias("topics"),
        F.count_if(F.col("values") >= _VALUES).alias("varying"),
        F.percentile_approx("longest", 0.9).alias("usual"),
        F.percentile_approx("all", 0.5).alias("often"),
        F.percentile_approx(-F.col("last.until"), 0.9).alias("recent"),
        F.sum("up").alias("ups"),
        F.sum("down").alias("downs"),
        F.min_by("least", "least", 2).alias("low"),
        F.max_by("most", "most", 2).alias("high"),
    )
    lively = families.where(
        (F.col("topics") >= SIBLINGS)
        & (F.col("varying") >= _VARYING * F.col("topics"))
        & (F.least("ups", "downs") >= _ONE_WAY * (F.col("ups") + F.col("downs")))
    )
    value = F.col("last.value")
    at_low, at_high = value == F.get("low", F.lit(0)), value == F.get("high", F.lit(0))
    is_shared = (at_low & (value == F.get("low", F.lit(1)))) | (at_high & (value == F.get("high", F.lit(1))))
    has_varied = F.col("values") >= _VALUES
    same = found.join(lively, ["shape", "field", "family"]).where(
        (F.col("last.messages") >= F.greatest(F.lit(LEAST_REPEATS), TIMES_LONGER * F.col("usual")))
        & (F.col("last.until") - F.col("last.since") >= stale_after(0) * 1000)
        & (has_varied | ((2 * F.col("all") >= F.col("often")) & ~at_low & ~at_high))
        & ~value.isin(*_RESTING)
        & ~is_shared
    )
    rows = (
        _with_device(shaped, same)
        .select("shape", "field", "family", "topics", "device", "topic", "last", "usual", "recent")
        .orderBy(F.desc("last.messages"), "topic", "field")
        .limit(_MOST)
        .collect()
    )
    counts: dict[tuple[int, str, str], int] = {}
    for row in rows:
        counts[row.shape, row.field, row.family] = counts.get((row.shape, row.field, row.family), 0) + 1
    by_device: dict[str, Stuck] = {}
    for row in rows:
        usual_age = max(0, snapshot.taken_at + row.recent) / 1000
        is_stale = (snapshot.taken_at - row.last.until) / 1000 > stale_after(usual_age)
        if is_stale or counts[row.shape, row.field, row.family] >= SECOND_KIND * row.topics:
            continue
        field = "" if row.field == WHOLE else row.field
        one = Stuck(row.device, field, row.last.value, row.last.since, row.last.messages, row.usual, (row.topic,))
        known = by_device.setdefault(row.device, one)
        if row.topic not in known.topics and len(known.topics) < EXAMPLES:
            by_device[row.device] = evolve(known, topics=(*known.topics, row.topic))
    return list(by_device.values())


def _flapping(shaped: Shaped, topics: DataFrame, entries: DataFrame, often: Collection[str]) -> list[Flapping]:
    order = Window.partitionBy("topic").orderBy("seq")
    states = entries.where(F.length("payload") <= _STATE).withColumn("key", F.xxhash64("payload"))
    flips = states.withColumn("before", F.lag("key").over(order)).where(F.col("key") != F.col("before"))
    shown = F.coalesce(payload_text(), F.lit("(binary)"))
    # Behind one another without others between: a change goes back if it brings the value of the change before last.
    returning = flips.select(
        "topic", "seq", "at", shown.alias("one"), F.lag(shown).over(order).alias("other"),
        (F.col("key") == F.lag("before").over(order)).alias("returns"), F.lag("at").over(order).alias("before"),
    )  # fmt: skip
    # The changes in a row that each follow the one before quickly are a streak.
    breaks = F.coalesce(F.col("at") - F.col("before") > _QUICK, F.lit(True))
    streaks = returning.withColumn("streak", F.count_if(breaks).over(order)).groupBy("topic", "streak").agg(
        F.count("*").alias("flips"),
        F.count_if("returns").alias("returns"),
        F.min("at").alias("since"),
        F.max("at").alias("until"),
        F.max_by(F.struct("one", "other"), "seq").alias("values"),
    )  # fmt: skip
    by_topic = streaks.groupBy("topic").agg(
        F.sum("flips").alias("flips"),
        F.sum("returns").alias("returns"),
        F.max_by(F.struct("flips", "since", "until"), "flips").alias("quick"),
        F.min("since").alias("since"),
        F.max("until").alias("until"),
        F.max_by("values", "flips").alias("values"),
    )
    counted = topics.join(by_topic, "topic", "left").fillna(0, "flips")
    found = _with_family(shaped, counted)
    families = found.groupBy("shape", "family").agg(
        F.count("*").alias("topics"),
        F.greatest(F.lit(1), F.percentile_approx("flips", 0.9)).alias("usual"),
        F.greatest(F.lit(1), F.percentile_approx(F.coalesce("quick.flips", F.lit(0)), 0.9)).alias("in_row"),
    )
    has_siblings = (F.col("topics") >= SIBLINGS) & (F.col("shape") != NO_SHAPE)
    is_quick = has_siblings & (F.col("quick.flips") >= F.greatest(F.lit(LEAST_FLIPS), TIMES_LONGER * F.col("in_row")))
    lost = has_siblings & (F.col("flips") >= F.greatest(F.lit(_LEAST_LOSSES), _TIMES_LOST * F.col("usual")))
    is_told = (
        is_quick
        | (lost & _is_availability())
        | (F.col("topic").isin(list(often)) & (2 * F.col("flips") >= F.col("changes")))
    )
    flapping = found.join(families, ["shape", "family"]).where(
        (F.col("returns") >= _RETURNING * F.col("flips")) & is_told
    )
    rows = (
        _with_device(shaped, flapping)
        .select(
            "device", "topic", "flips", "since", "until", "quick", "values", "usual", "in_row",
            has_siblings.alias("compared"), is_quick.alias("is_quick"),
        )
        .orderBy(F.desc("flips"), "topic")
        .limit(_MOST)
        .collect()
    )  # fmt: skip
    by_device: dict[str, Flapping] = {}
    for row in rows:
        known = by_device.get(row.device)
        if known is None:
            one, other = sorted((row["values"].one, row["values"].other or ""))
            seen = row.quick if row.is_quick else row
            seconds = max(1, (seen.until - seen.since) // 1000)
            usual = row.in_row if row.is_quick else row.usual if row.compared else 0
            by_device[row.device] = Flapping(
                row.device, one, other, seen.flips, usual, seconds, (row.topic,), row.is_quick
            )
        else:
            by_device[row.device] = evolve(known, topics=(*known.topics, row.topic))
    return list(by_device.values())[: LISTED + 1]


def _is_availability() -> Column:
    """Return whether a topic tells that its device is online, by its last level and one of its values."""
    name = F.lower(F.element_at(F.split("topic", "/"), -1))
    said = F.array("values.one", "values.other")
    plain = F.transform(said, lambda text: F.lower(F.regexp_replace(text, r'[\s"{}]|state"?:', "")))
    return name.isin(*AVAILABILITY) & F.exists(plain, lambda text: text.isin(*ONLINE))
