"""Faults of devices: their clocks, their announcements, and what the others of their family have.

A family has the topics below the last variable of their shapes: those of ``hq/{floor}/{room}/light/state`` and
``hq/{floor}/{room}/window`` belong to devices of the family ``hq/{floor}/{room}``, and have there the *parts*
``light/state`` and ``window``. Spark counts the devices that have the same parts; there are few such sets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import frozen
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast_pipeline.analysis.shapes import Shaped
from holdfast_pipeline.checks.discovered import (
    EXAMPLES,
    FAMILY,
    LISTED,
    NEARLY_ALL,
    SECOND_KIND,
    SIBLINGS,
    Clock,
    Command,
    Lone,
    Missing,
    Uncompared,
    Undiscovered,
)
from holdfast_pipeline.shapes import Shape

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


# Find devices that are announced by retained configurations for discovery, and of whose topics none has a message.
#
# A configuration of Home Assistant is the message of ``homeassistant/sensor/DEVICE/ENTITY/config``, and names the
# topics of the entity, perhaps in short: ``{"~": "plant/p7", "stat_t": "~/state", "avty_t": "~/status"}``. One of
# Tasmota is that of ``tasmota/discovery/MAC/config``: the device has a message in ``tele/DEVICE/LWT``. Where most
# devices have messages, those without any are gone.

#: Topics of configurations, also of other programs: they change seldom.
ANNOUNCED = r"^(homeassistant/.+/config|tasmota/discovery/.+|esphome/discover/.+)$"
_CONFIGS = r"\A(homeassistant/([^/]+/){2,3}config|tasmota/discovery/[^/]+/config)\z"
#: The topics of an entity that tell its state, in full and in short.
_TOLD = ("state_topic", "stat_t", "availability_topic", "avty_t", "json_attributes_topic", "json_attr_t")
#: From this share of the devices on, those without messages are no exception.
_EXCEPTIONS = 0.25


def find_undiscovered(shaped: Shaped) -> list[Undiscovered]:
    """Return the devices without messages, those with the most configurations first."""
    if not any(one.example.startswith(("homeassistant/", "tasmota/")) for one in shaped.found.shapes):
        return []
    configs = shaped.messages.where(F.col("topic").rlike(_CONFIGS)).select("topic", F.col("payload").cast("string"))
    named = configs.select("topic", _device().alias("device"), F.explode(_topics()).alias("told"))
    known = shaped.messages.select(F.col("topic").alias("told"), F.lit(True).alias("known"))
    devices = (
        named.join(known, "told", "left")
        .groupBy("device")
        .agg(
            F.bool_or(F.coalesce("known", F.lit(False))).alias("lives"),
            F.count_distinct("topic").alias("configs"),
            F.array_sort(F.collect_set("topic")).alias("topics"),
        )
    )
    return _gone(devices)


def _gone(devices: DataFrame) -> list[Undiscovered]:
    (row,) = devices.agg(
        F.count("*").alias("devices"),
        F.count_if(~F.col("lives")).alias("gone"),
        F.min_by(
            F.struct("device", "configs", F.slice("topics", 1, EXAMPLES).alias("topics")),
            F.when(~F.col("lives"), F.struct(-F.col("configs"), F.col("device"))),
            LISTED + 1,
        ).alias("listed"),
    ).collect()
    if row.gone > max(1, _EXCEPTIONS * row.devices) or row.gone == row.devices:
        return []
    return [Undiscovered(_name(one.device), one.configs, one.topics) for one in row.listed or ()]


def _name(device: str) -> str:
    """Return an identifier, of several ones the first: Spark gives the JSON of an array."""
    try:
        found = json.loads(device)
    except ValueError:
        return device
    return str(found[0]) if isinstance(found, list) and found else device


def _device() -> Column:
    """Return the device of a configuration: by its identifiers, or by the level of the topic that names it."""
    given = [
        F.get_json_object("payload", path)
        for path in ("$.device.identifiers", "$.dev.ids", "$.device.ids", "$.dev.identifiers", "$.t")
    ]
    return F.coalesce(*given, F.get(F.split("topic", "/"), F.lit(2)))


def _topics() -> Column:
    """Return the topics that a configuration names."""
    base = F.coalesce(F.get_json_object("payload", "$['~']"), F.lit(""))
    given = F.array(*(F.get_json_object("payload", f"$.{name}") for name in _TOLD))
    full = F.transform(F.array_compact(given), lambda each: F.replace(each, F.lit("~"), base))
    tasmota = F.concat(F.lit("tele/"), F.get_json_object("payload", "$.t"), F.lit("/LWT"))
    return F.when(F.col("topic").startswith("tasmota/"), F.array(tasmota)).otherwise(full)


#: Sets of parts that are looked at, of all families: devices that are as different as this are no family.
_SETS = 20_000
#: Devices belong to a family that have half of what half of it has.
_HALF = 0.5
#: Only a device among so many is alone with a part, and with at most so many of them: others are of another kind.
_MANY, _FEW_PARTS = 100, 2
#: A part may be misspelled if so many others have the right one; shorter names are too much alike.
_SEVERAL, _SHORT = 5, 4
_DIGITS = re.compile(r"\d+")
#: The names of levels that take commands, behind a device or before all devices (as in Tasmota's topics).
_COMMANDS, _LEADING = frozenset({"set", "cmd", "cmnd", "command", "commands"}), "cmnd"
_ANSWERS = ("tele", "stat")


@frozen
class _Devices:
    """Devices of a family with the same parts, as the numbers of shapes, and some of them."""

    parts: frozenset[int]
    count: int
    examples: Sequence[str]


def place_of(shape: Shape) -> int:
    """Return the number of levels that name a device: up to the last variable, or all but the last level."""
    variables = [place for place, level in enumerate(shape.levels, 1) if level.is_variable]
    return variables[-1] if variables else max(1, len(shape.levels) - 1)


def by_shape(values: Mapping[int, Any]) -> Column:
    """Return the value of a row's ``shape``, NULL for another shape."""
    return F.element_at(F.create_map(*(F.lit(each) for pair in values.items() for each in pair)), F.col("shape"))


def device_of(shapes: Iterable[Shape]) -> Column:
    """Return the column of the device of a row's ``topic``, from the number of its ``shape``."""
    places = by_shape({one.number: place_of(one) for one in shapes})
    return F.array_join(F.slice(F.split("topic", "/"), F.lit(1), places), "/")


def compare_families(shaped: Shaped) -> tuple[list[Missing], list[Lone], list[Command], list[Uncompared]]:
    """Return the devices that lack a part or have one alone, the retained commands, and the families left out."""
    messages = {one.shape: one.messages for one in shaped.found.shapes}
    families: dict[str, list[Shape]] = {}
    for shape in shaped.shapes.shapes:
        is_told = shape.text in messages and not re.match(ANNOUNCED, shape.text)
        if is_told and any(level.is_variable for level in shape.levels):
            families.setdefault(_text(shape, place_of(shape)), []).append(shape)
    compared = {
        name: shapes
        for name, shapes in families.items()
        if len(shapes) > 1 and max(messages[one.text] for one in shapes) >= FAMILY
    }
    sets, left_out = _sets(shaped, compared)
    missing, lone = list[Missing](), list[Lone]()
    for name, shapes in compared.items():
        more, alone = _compared(name, {one.number: _part(one) for one in shapes}, sets.get(name, ()))
        missing += more
        lone += alone
    return missing, lone, list(_commands(shaped, families, messages)), left_out


def _sets(
    shaped: Shaped, families: Mapping[str, Sequence[Shape]]
) -> tuple[dict[str, list[_Devices]], list[Uncompared]]:
    """Return the sets of parts of each family, and the families that have too many."""
    shapes = [one for each in families.values() for one in each]
    if not shapes:
        return {}, []
    names = {one.number: name for name, each in families.items() for one in each}
    topics = shaped.messages.where(F.col("shape").isin(list(names)))
    devices = topics.select(by_shape(names).alias("family"), device_of(shapes).alias("device"), "shape")
    having = devices.groupBy("family", "device").agg(F.sort_array(F.collect_set("shape")).alias("parts"))
    sets = having.groupBy("family", "parts").agg(
        F.count("*").alias("count"), F.min_by("device", "device", EXAMPLES).alias("examples")
    )
    rows = sets.limit(_SETS + 1).collect()
    left_out: list[Uncompared] = []
    if len(rows) > _SETS:
        # Families of few sets are compared first: one whose devices all differ hides no other.
        fitting, whole = list[str](), 0
        for row in sets.groupBy("family").agg(F.count("*").alias("sets")).orderBy("sets", "family").collect():
            whole += row.sets
            if whole <= _SETS:
                fitting.append(row.family)
            else:
                left_out.append(Uncompared(row.family, row.sets))
        rows = sets.where(F.col("family").isin(fitting)).collect()
    found: dict[str, list[_Devices]] = {}
    for row in rows:
        found.setdefault(row.family, []).append(_Devices(frozenset(row.parts), row["count"], row.examples))
    return found, left_out


def _compared(
    family: str, parts: Mapping[int, str], sets: Sequence[_Devices]
) -> tuple[list[Missing], list[Lone]]:  # fmt: skip
    everyone = sum(one.count for one in sets)
    core = {part for part in parts if _having(part, sets) >= _HALF * everyone}
    members = [one for one in sets if len(one.parts & core) >= _HALF * len(core)] if core else []
    devices = sum(one.count for one in members)
    if devices < FAMILY:
        return [], []
    most = max(1, (1 - NEARLY_ALL) * devices)
    usual = {part for part in core if 0 < devices - _having(part, members) <= most}
    single = {part for part in parts if _having(part, members) == 1 and not _is_command(parts[part])}
    missing, lone = list[Missing](), list[Lone]()
    for one in members:
        own, lacking = single & one.parts, usual - one.parts
        for part in sorted(own):
            meant = _meant(part, parts, one, members)
            if meant is not None:
                lone.append(
                    Lone(one.examples[0], family, (parts[part],), devices, parts[meant], _having(meant, members))
                )
                own, lacking = own - {part}, lacking - {meant}
        if lacking:
            missing.append(
                Missing(family, tuple(sorted(parts[part] for part in lacking)), devices, one.count, one.examples)
            )
        if devices >= _MANY and 0 < len(own) <= _FEW_PARTS:
            lone.append(Lone(one.examples[0], family, tuple(sorted(parts[part] for part in own)), devices))
    return missing, lone


def _meant(part: int, parts: Mapping[int, str], device: _Devices, members: Sequence[_Devices]) -> int | None:
    """Return the part that a device lacks, several others have, and whose name is nearly the same."""
    for other, name in parts.items():
        if other not in device.parts and _having(other, members) >= _SEVERAL and is_misspelled(parts[part], name):
            return other
    return None


def is_misspelled(one: str, other: str) -> bool:
    """Tell whether two texts differ by one letter, by two exchanged letters, or by their case; not by digits."""
    if one.lower() == other.lower():
        return one != other
    short, long = sorted((one, other), key=len)
    if len(short) < _SHORT or _DIGITS.sub("", short) == _DIGITS.sub("", long):
        return False
    place = next((at for at in range(len(short)) if short[at] != long[at]), len(short))
    if len(long) == len(short) + 1:
        return short[place:] == long[place + 1 :]
    if len(long) != len(short):
        return False
    exchanged = long[place + 1 : place + 2] + long[place : place + 1] + long[place + 2 :]
    return short[place + 1 :] == long[place + 1 :] or short[place:] == exchanged


def _having(part: int, sets: Sequence[_Devices]) -> int:
    return sum(one.count for one in sets if part in one.parts)


def _commands(
    shaped: Shaped, families: Mapping[str, Sequence[Shape]], messages: Mapping[str, int]
) -> Iterator[Command]:  # fmt: skip
    totals = {one.shape: one for one in shaped.found.shapes}
    answering = max((count for text, count in messages.items() if text.split("/")[0] in _ANSWERS), default=0)
    for shape in shaped.shapes.shapes:
        one = totals.get(shape.text)
        if one is None:
            continue
        if shape.levels[0].name == _LEADING:
            others = answering
        elif _is_command(_part(shape)):
            others = _beside(shape, families, messages)
        else:
            continue
        if one.messages < _HALF * others or (others and others < SIBLINGS):  # more are no accident
            yield Command(one.shape, one.messages, others, (one.example,))


def _beside(shape: Shape, families: Mapping[str, Sequence[Shape]], messages: Mapping[str, int]) -> int:
    """Return how many devices of the family of a command have other topics; 0 if it looks like no family."""
    family = _text(shape, place_of(shape))
    if family in families:
        return max((messages[one.text] for one in families[family] if not _is_command(_part(one))), default=0)
    return int(any(text == family or (text.startswith(f"{family}/") and text != shape.text) for text in messages))


def _is_command(part: str) -> bool:
    return any(level.lower() in _COMMANDS for level in part.split("/"))


def _part(shape: Shape) -> str:
    return "/".join(level.name for level in shape.levels[place_of(shape) :])


def _text(shape: Shape, places: int) -> str:
    return Shape(shape.number, shape.levels[:places]).text


# Find devices whose clocks are wrong, by the times in their payloads.
#
# A field of a shape holds the time of publishing if in most messages it differs from the time of storing by about as
# much: by nothing, or by an hour where clocks tell local times. A device whose difference is another one has a wrong
# clock, or sends old messages.

#: The usual names of fields with the time of a message, in small letters.
_NAMES = frozenset(
    ("time", "timestamp", "ts", "at", "date", "datetime", "date_time", "last_seen", "lastseen", "measured_at")
)
#: Fields in Spark's text of a type.
_FIELD = re.compile(r"[<\s]`?(\w+)`?: (?:STRING|BIGINT|DOUBLE|DECIMAL)")
#: Most differences are within so many milliseconds, and that of a wrong clock is further away from them.
_USUAL, _WRONG = 60_000, 300_000
#: The units of times since the epoch, in milliseconds, and the least number that is in them: some day in 2001.
_UNITS = ((1e15, 1e-3), (1e12, 1.0), (1e9, 1e3))
_MEDIANS = "shape int, field string, median long"


def is_time(field: str) -> bool:
    """Tell whether a field of the first level has the usual name of a time."""
    return field.lstrip(".").lower() in _NAMES


def find_clocks(shaped: Shaped) -> list[Clock]:
    """Return the devices with wrong clocks, the most wrong ones first."""
    shapes_with = _with_times(shaped)
    if not shapes_with:
        return []
    apart = _differences(shaped, shapes_with)
    low, middle, high = 0.2, 0.5, 0.8
    rows = (
        apart.groupBy("shape", "field")
        .agg(F.count("*").alias("values"), F.percentile_approx("apart", [low, middle, high]).alias("apart"))
        .collect()
    )
    usual = {
        (row.shape, row.field): row
        for row in rows
        if row["values"] >= SIBLINGS and row.apart[2] - row.apart[0] < _USUAL
    }
    if not usual:
        return []
    medians = [(shape, field, row.apart[1]) for (shape, field), row in usual.items()]
    known = F.broadcast(apart.sparkSession.createDataFrame(medians, _MEDIANS))
    wrong = apart.join(known, ["shape", "field"]).withColumn("off", F.col("apart") - F.col("median"))
    wrong = wrong.where(F.abs("off") > _WRONG)
    counts = wrong.groupBy("shape", "field").count().collect()
    few = {
        (row.shape, row.field) for row in counts if row["count"] < SECOND_KIND * usual[row.shape, row.field]["values"]
    }
    if not few:
        return []
    is_one = F.concat_ws(" ", "shape", "field").isin([f"{shape} {field}" for shape, field in few])
    shapes = [shaped.shapes.shapes[number] for number in {shape for shape, _ in few}]
    devices = (
        wrong.where(is_one)
        .withColumn("device", device_of(shapes))
        .groupBy("device")
        .agg(
            F.count("*").alias("times"),
            F.max_by("off", F.abs("off")).alias("off"),
            F.min("field").alias("field"),
            F.min_by("topic", "topic", EXAMPLES).alias("topics"),
        )
        .orderBy(F.desc(F.abs("off")), "device")
        .limit(LISTED + 1)
    )
    return [Clock(row.device, row.field, row.off // 1000, row.topics) for row in devices.collect()]


def _with_times(shaped: Shaped) -> list[int]:
    """Return the shapes that have fields with the names of times."""
    schemas = {one.shape: one.schema or "" for one in shaped.found.shapes if one.messages >= SIBLINGS}
    return [one.number for one in shaped.shapes.shapes if any(map(is_time, _FIELD.findall(schemas.get(one.text, ""))))]


def _differences(shaped: Shaped, shapes: list[int]) -> DataFrame:
    """Return the milliseconds by which messages were stored after the times in them."""
    messages = shaped.messages.where(F.col("shape").isin(shapes) & (F.col("kind") == "object"))
    # A map, since Spark takes names that differ in their case only for the same field of a structure.
    told = F.from_json(F.col("payload").cast("string"), "map<string, string>")
    values = messages.select("shape", "topic", "stored_at", F.explode(told).alias("field", "text"))
    at = _milliseconds(F.col("text"))
    return (
        values.where(F.lower("field").isin(list(_NAMES)))
        .select("shape", "topic", "field", (F.unix_millis("stored_at") - at).alias("apart"))
        .where("apart IS NOT NULL")
    )


def _milliseconds(text: Column) -> Column:
    """Return the time that a text tells, in milliseconds since the epoch; NULL for none."""
    number = text.try_cast("double")
    scaled = F.lit(None).cast("double")
    for least, unit in reversed(_UNITS):
        scaled = F.when(number >= least, number * unit).otherwise(scaled)
    return F.coalesce(scaled.cast("long"), F.unix_millis(F.try_to_timestamp(text)))
