"""Compare the devices of a family: their common topics, the topics of a single device, and retained commands.

A family has the topics below the last variable of their shapes: those of ``hq/{floor}/{room}/light/state`` and
``hq/{floor}/{room}/window`` belong to devices of the family ``hq/{floor}/{room}``, and have there the *parts*
``light/state`` and ``window``. Spark counts the devices that have the same parts; there are few such sets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import frozen
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast_pipeline.analysis.shaped import Shaped
from holdfast_pipeline.checks.discovered import (
    EXAMPLES,
    FAMILY,
    NEARLY_ALL,
    SIBLINGS,
    Command,
    Lone,
    Missing,
    Uncompared,
)
from holdfast_pipeline.judging.announcements import ANNOUNCED
from holdfast_pipeline.shapes.shapes import Shape

if TYPE_CHECKING:
    from pyspark.sql import Column

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
