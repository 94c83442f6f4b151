"""Find the figures of findings without rules: topics that differ from their siblings, and events in the history.

Most figures of shapes cannot have a finding, which their totals tell: Spark looks only at the topics of the others. So
there is a bounded number of jobs, whatever the number of shapes. The driver gets a few rows for each shape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast.core.messages import STALE_AFTER, ChangeKind, ChangeOrigin, stale_after
from holdfast_pipeline.analysis.history import TopicChanges
from holdfast_pipeline.analysis.shapes import ShapeChanges, Shaped, ShapeNumbers
from holdfast_pipeline.checks.discovered import (
    AVAILABILITY,
    EXAMPLES,
    LEAST_CHANGES,
    LEAST_TURNS,
    LEAST_VALUES,
    LISTED,
    NAMED,
    ONLINE,
    SECOND_KIND,
    SIBLINGS,
    STILL_THERE,
    TIMES_MORE,
    Z_SCORE,
    Chatty,
    Discovered,
    FarValues,
    Flapping,
    Gone,
    Lost,
    Malformed,
    Publishers,
    Stale,
    Stuck,
)
from holdfast_pipeline.judging.devices import (
    ANNOUNCED,
    by_shape,
    compare_families,
    device_of,
    find_clocks,
    find_undiscovered,
    is_time,
    place_of,
)
from holdfast_pipeline.judging.past_values import find_in_values
from holdfast_pipeline.progress import phase
from holdfast_pipeline.report.figures import WHOLE
from holdfast_pipeline.shapes import NO_SHAPE
from holdfast_pipeline.sources.columns import NOW
from holdfast_pipeline.sources.snapshot import Snapshot
from holdfast_pipeline.sources.tables import age

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame, Row

#: The normal distribution's share of a standard deviation that is a median deviation.
_NORMAL = 0.6745
#: Stale devices that are looked at, and those below one level that are one group.
_STALE, _GROUP = 2_000, 5
#: Values of so many devices with the same last name, such as ``co2``, may be a quantity of their own.
_PEERS = 5
#: Quantiles are approximate: fields whose score may be so much of the limit are looked at.
_ALMOST = 0.9
_MEDIANS = "shape int, field string, median double"


def discover(snapshot: Snapshot, shaped: Shaped) -> Discovered:
    """Return the figures of messages with shapes, and of the numbers in their payloads if they were found."""
    taken_at = shaped.found.taken_at
    with phase("comparing messages"):
        malformed = _malformed(shaped)
        stale = _stale(shaped, taken_at)
        far = [] if shaped.numbers is None else _far(shaped, shaped.numbers)
        gone = _gone(shaped, taken_at)
        missing, lone, commands, uncompared = compare_families(shaped)
        undiscovered = find_undiscovered(shaped)
        clocks = find_clocks(shaped)
    chatty: list[Chatty] = []
    stuck: list[Stuck] = []
    flapping: list[Flapping] = []
    lost: list[Lost] = []
    publishers: list[Publishers] = []
    if shaped.changes is not None and shaped.changes.totals:
        whole = shaped.changes.totals[None]
        with phase("comparing changes"):
            chatty = _chatty(shaped.changes, _texts(shaped), taken_at)
            publishers = _publishers(shaped.changes.history) if whole.several else []
            stuck, flapping = find_in_values(snapshot, shaped, {one.topic for one in chatty})
            # What changes by the turns of its publishers has that finding, and a flapping topic is told once.
            by_turns = {one.topic for one in publishers}
            flapping = [one for one in flapping if not by_turns.intersection(one.topics)]
            known = {topic for one in flapping for topic in one.topics}
            chatty = [one for one in chatty if one.topic not in known]
            lost = _lost(shaped.changes.history, known) if whole.wills else []
    return Discovered(
        taken_at,
        malformed,
        stale,
        chatty,
        lost,
        publishers,
        far,
        gone,
        missing,
        lone,
        commands,
        undiscovered,
        clocks,
        stuck,
        flapping,
        uncompared,
    )


def _texts(shaped: Shaped) -> dict[int, str]:
    return {one.number: one.text for one in shaped.shapes.shapes}


def _malformed(shaped: Shaped) -> list[Malformed]:
    texts = _texts(shaped)
    mixed = {one.shape: one for one in shaped.found.shapes if one.unlike}
    usual = {number: mixed[text].kind for number, text in texts.items() if text in mixed}
    examples: dict[int, list[str]] = {}
    if usual:
        others = shaped.messages.where(F.col("kind") != by_shape(usual))
        rows = others.groupBy("shape").agg(F.min_by("topic", "topic", NAMED).alias("topics")).collect()
        examples = {row.shape: row.topics for row in rows}
    return [
        Malformed(text, mixed[text].messages, mixed[text].unlike, mixed[text].kind, examples.get(place, ()))
        for place, text in texts.items()
        if text in mixed
    ]


def _stale(shaped: Shaped, taken_at: int) -> list[Stale]:
    texts, totals = _texts(shaped), {one.shape: one for one in shaped.found.shapes}

    def may_be(number: int) -> bool:
        one = totals[texts[number]]
        usual = max(0, taken_at - shaped.tenth_before[number]) // 1000
        oldest = (taken_at - one.oldest) // 1000
        return one.messages >= SIBLINGS and oldest > stale_after(usual)

    looked_at = [number for number in texts if texts[number] in totals and may_be(number)]
    if not looked_at:
        return []
    messages = shaped.messages.where(F.col("shape").isin(looked_at) & ~F.col("topic").rlike(ANNOUNCED))
    ages = messages.select("shape", "topic", age().alias("age"))
    counted = ages.groupBy("shape").agg(F.count("*").alias("messages"), F.percentile_approx("age", 0.9).alias("usual"))
    usual = {row.shape: row for row in counted.collect()}
    if not usual:
        return []
    limits = by_shape({number: float(stale_after(row.usual)) for number, row in usual.items()})
    counts = ages.where(F.col("age") > limits).groupBy("shape").agg(F.count("*").alias("stale")).collect()
    few = [row.shape for row in counts if row.stale < SECOND_KIND * usual[row.shape].messages]
    if not few:
        return []
    of_device = (
        ages.where(F.col("shape").isin(few) & (F.col("age") > limits))
        .withColumn("usual", by_shape({number: usual[number].usual for number in few}))
        .withColumn("device", device_of([shaped.shapes.shapes[number] for number in few]))
    )
    rows = (
        of_device.join(_online(shaped), "device", "left_anti")
        .groupBy("device")
        .agg(
            F.count("*").alias("stale"),
            F.min("age").alias("youngest"),
            F.max("usual").alias("usual"),
            F.min_by("topic", F.struct(-F.col("age"), "topic"), EXAMPLES).alias("topics"),
        )
        .orderBy(F.desc("stale"), F.desc("youngest"), "device")
        .limit(_STALE)
        .collect()
    )
    return in_groups([Stale(row.device, row.stale, row.youngest, row.usual, tuple(row.topics)) for row in rows])


def _online(shaped: Shaped) -> DataFrame:
    """Return the devices of which a topic tells that they are online: they have nothing new to say."""
    place = F.regexp_extract("topic", r"\A(.+)/([^/]+)\z", 1)
    name = F.lower(F.regexp_extract("topic", r"\A(.+)/([^/]+)\z", 2))
    plain = F.regexp_replace(F.col("payload").cast("string"), r'[\s"{}]', "")
    said = F.lower(F.regexp_replace(plain, r"\Astate:", ""))
    return shaped.messages.where(name.isin(*AVAILABILITY) & said.isin(*ONLINE)).select(place.alias("device")).distinct()


def in_groups(devices: Sequence[Stale]) -> list[Stale]:
    """Join the parts of a device to the device, and many devices below one level to one group."""
    found: list[Stale] = []
    for one in sorted(devices, key=lambda each: (each.device.count("/"), each.device)):
        above = next((place for place, other in enumerate(found) if one.device.startswith(f"{other.device}/")), None)
        if above is None:
            found.append(one)
        else:
            found[above] = _joined(found[above].device, (found[above], one))
    below: dict[str, list[Stale]] = {}
    for one in found:
        below.setdefault(one.device.rpartition("/")[0], []).append(one)
    groups: list[Stale] = []
    for place, some in below.items():
        groups += [_joined(place, some, len(some))] if place and len(some) >= _GROUP else some
    return groups


def _joined(device: str, some: Sequence[Stale], devices: int = 1) -> Stale:
    topics = tuple(topic for one in some for topic in one.topics[:1])[:EXAMPLES] if devices > 1 else some[0].topics
    return Stale(
        device, sum(one.stale for one in some), min(one.youngest for one in some), max(one.usual for one in some),
        topics, devices,
    )  # fmt: skip


def _far(shaped: Shaped, numbers: ShapeNumbers) -> list[FarValues]:
    texts = _texts(shaped)
    # Times are compared with those of storing, not with each other.
    looked_at = {(row.shape, row.field): row for row in numbers.fields if may_be_far(row) and not is_time(row.field)}
    if not looked_at:
        return []
    medians = [(shape, field, row.median) for (shape, field), row in looked_at.items()]
    middle = F.broadcast(numbers.values.sparkSession.createDataFrame(medians, _MEDIANS))
    apart = numbers.values.join(middle, ["shape", "field"])
    places = by_shape({number: place_of(shaped.shapes.shapes[number]) for number, _ in looked_at})
    apart = apart.withColumn("apart", F.abs(F.col("value") - F.col("median")))
    apart = apart.withColumn("peer", F.get(F.split("topic", "/"), places - 1))
    spread = apart.groupBy("shape", "field").agg(F.percentile_approx("apart", 0.5).alias("deviation"))
    far = apart.join(F.broadcast(spread.where(F.col("deviation") > 0)), ["shape", "field"]).where(
        _NORMAL * F.col("apart") / F.col("deviation") > Z_SCORE
    )
    # Where the last variable names a quantity, as in {device}/sensor/{sensor}, values are like those of their peers.
    peers = apart.groupBy("shape", "field", "peer").agg(
        F.count("*").alias("peers"), F.percentile_approx("value", 0.5).alias("among")
    )
    far = far.join(peers, ["shape", "field", "peer"]).where(
        (F.col("peers") < _PEERS) | (F.abs(F.col("value") - F.col("among")) > F.col("apart") / 2)
    )
    rows = far.groupBy("shape", "field", "median", "deviation").agg(
        F.count("*").alias("far"),
        F.min_by(F.struct("topic", "value"), F.struct(-F.col("apart"), "topic"), EXAMPLES).alias("examples"),
    )
    return [
        FarValues(
            texts[row.shape], "" if row.field == WHOLE else row.field, looked_at[row.shape, row.field]["count"],
            row.far, row.median, row.deviation, [(one.topic, one.value) for one in row.examples],
        )
        for row in rows.collect()
    ]  # fmt: skip


def may_be_far(field: Row) -> bool:
    """Tell from the quartiles of a field whether a value may be far from the median.

    Half of all values lie between the quartiles: so the median deviation is not below the smaller of their distances.
    """
    if field["count"] < LEAST_VALUES or field.lower == field.upper:
        return False
    deviation = min(field.median - field.lower, field.upper - field.median)
    apart = max(field.median - field.least, field.most - field.median)
    return bool(_NORMAL * apart > _ALMOST * Z_SCORE * deviation)


def _gone(shaped: Shaped, taken_at: int) -> list[Gone]:
    if shaped.oldest is None or taken_at - shaped.oldest <= STALE_AFTER * 1000:
        return []
    youngest = F.floor(F.min(F.unix_millis(NOW) - F.unix_millis("stored_at")) / 1000)
    clients = shaped.messages.groupBy("client_id").agg(
        F.count("*").alias("messages"), youngest.alias("age"), F.min_by("topic", "topic", EXAMPLES).alias("topics")
    )
    present = F.coalesce(F.sum(F.when(F.col("age") <= STALE_AFTER, F.col("messages"))), F.lit(0))
    is_gone = F.col("client_id").isNotNull() & (F.col("age") > STALE_AFTER) & (F.col("messages") > 1)
    order = F.when(is_gone, F.struct(-F.col("messages"), F.col("client_id")))
    (row,) = clients.agg(
        (present >= STILL_THERE * F.sum("messages")).alias("lives"),
        F.min_by(F.struct("client_id", "messages", "age", "topics"), order, LISTED + 1).alias("gone"),
    ).collect()
    return [Gone(one.client_id, one.messages, one.age, one.topics) for one in row.gone or ()] if row.lives else []


def _chatty(changes: ShapeChanges, texts: dict[int, str], taken_at: int) -> list[Chatty]:
    whole = changes.totals[None]
    # Without siblings, a topic is compared with all others, if they are ten times as many.
    alone = whole.high if whole.topics >= SIBLINGS * SIBLINGS else None
    compared = {
        number: total.usual if number != NO_SHAPE and total.topics >= SIBLINGS else alone
        for number, total in changes.totals.items()
        if number is not None
    }
    than = {number: max(1, usual) for number, usual in compared.items() if usual is not None}
    limits = {number: max(LEAST_CHANGES - 1, TIMES_MORE * usual) for number, usual in than.items()}
    often = {number: limit for number, limit in limits.items() if changes.totals[number].most > limit}
    if not often:
        return []
    topics = changes.topics.where(F.col("changes") > by_shape(often)).select("topic", "shape", "changes")
    rows = topics.orderBy(F.desc("changes"), "topic").limit(LISTED + 1).collect()
    seconds = max(1, (taken_at - whole.since) // 1000)
    with_siblings = {
        number for number, total in changes.totals.items() if number != NO_SHAPE and total.topics >= SIBLINGS
    }
    return [
        Chatty(row.topic, texts[row.shape] if row.shape in with_siblings else "", row.changes, than[row.shape], seconds)
        for row in rows
    ]


def _lost(history: TopicChanges, known: Iterable[str]) -> list[Lost]:
    wills = F.col("origin") == ChangeOrigin.WILL.value
    topics = history.topics.frame.where(F.col("has_will") & ~F.col("topic").isin(list(known))).select("topic")
    order = Window.partitionBy("topic").orderBy("seq")
    told = history.changes.join(topics, "topic", "left_semi").withColumn("back", F.lead("changed_at").over(order))
    away = told.where(wills & (F.col("op") == ChangeKind.SET.value))
    longest = F.desc(F.coalesce("back", F.current_timestamp()) - F.col("changed_at"))
    rows = away.orderBy(longest, "topic", "seq").limit(LISTED + 1).select(
        "topic", "client_id", F.unix_millis("changed_at").alias("at"), F.unix_millis("back").alias("back")
    )  # fmt: skip
    return [Lost(row.topic, row.client_id or "", row["at"], row.back) for row in rows.collect()]


def _publishers(history: TopicChanges) -> list[Publishers]:
    order = Window.partitionBy("topic").orderBy("seq")
    published = history.changes.where((F.col("op") != ChangeKind.EXPIRE.value) & F.col("client_id").isNotNull())
    several = history.topics.frame.where(F.col("one") != F.col("other")).select("topic")
    turns: Any = published.join(several, "topic", "left_semi").withColumn("before", F.lag("client_id").over(order))
    rows = (
        turns.groupBy("topic")
        .agg(
            F.count_if(F.col("before") != F.col("client_id")).alias("turns"),
            F.slice(F.sort_array(F.collect_set("client_id")), 1, EXAMPLES).alias("clients"),
        )
        .where(F.col("turns") >= LEAST_TURNS)
        .orderBy(F.desc("turns"), "topic")
        .limit(LISTED + 1)
        .collect()
    )
    return [Publishers(row.topic, row.turns, row.clients) for row in rows]
