"""JSON Schemas as columns: Spark itself judges a VARIANT, without Python.

How it works. A schema is a condition on a value, and the members of an object are values of their own. Each condition
names its value several times, so plain expressions would grow by that factor with each level. ``transform`` of an array
of one element gives a value a name: the condition then grows with the length of the schema only.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast_pipeline.analysis.messages import json_kind
from holdfast_pipeline.checks.json_schema import JsonSchema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import Column

_MAP, _ARRAY = "map<string,variant>", "array<variant>"


def allows(schema: JsonSchema, value: Column) -> Column:
    """Return whether a schema allows a JSON value; false for NULL. JSON's ``null`` is a VARIANT, and not NULL."""
    return _named(value, lambda named: _named(json_kind(named), lambda kind: _condition(schema, named, kind)))


def _named(value: Column, condition: Callable[[Column], Column]) -> Column:
    """Return a condition on a value that the condition may name often; false for NULL."""
    return F.coalesce(F.get(F.transform(F.array(value), condition), F.lit(0)), F.lit(False))


def _condition(schema: JsonSchema, value: Column, kind: Column) -> Column:
    return F.coalesce(_every(_conditions(schema, value, kind)), F.lit(False)) & kind.isNotNull()


def number_of(value: Column) -> Column:
    """Return the number that a VARIANT is, as a double; NULL for anything else. 1e400 is infinite."""
    return F.when(json_kind(value) == "number", F.try_variant_get(value, "$", "double"))


def _conditions(schema: JsonSchema, value: Column, kind: Column) -> Iterable[Column]:
    if schema.nothing:
        yield F.lit(False)
    if schema.types:
        yield _any(_is_type(each, kind, value) for each in schema.types)
    if schema.values is not None:
        yield _is_listed(schema.values, value, kind)
    yield from _number_conditions(schema, kind, value)
    yield from _text_conditions(schema, kind, value)
    yield from _object_conditions(schema, kind, value)
    yield from _array_conditions(schema, kind, value)
    for each in schema.all_of:
        yield allows(each, value)
    if schema.any_of:
        yield _any(allows(each, value) for each in schema.any_of)
    if schema.one_of:
        yield reduce(lambda sum_, each: sum_ + each, (allows(each, value).cast("int") for each in schema.one_of)) == 1
    if schema.excluded is not None:
        yield ~allows(schema.excluded, value)


def is_one_of(values: Iterable[str | float | bool | None], value: Column) -> Column:
    """Return whether a JSON value is one of some plain values; 1 and 1.0 are the same, 1 and true are not."""
    return _named(value, lambda named: _named(json_kind(named), lambda kind: _is_listed(values, named, kind)))


def _is_listed(values: Iterable[str | float | bool | None], value: Column, kind: Column) -> Column:
    listed = list(values)
    texts = [each for each in listed if isinstance(each, str)]
    truths = [each for each in listed if isinstance(each, bool)]
    numbers = [float(each) for each in listed if isinstance(each, (int, float)) and not isinstance(each, bool)]
    found = [F.lit(False)]
    if texts:
        found.append((kind == "string") & F.try_variant_get(value, "$", "string").isin(texts))
    if truths:
        found.append((kind == "boolean") & F.try_variant_get(value, "$", "boolean").isin(truths))
    if numbers:
        found.append((kind == "number") & F.try_variant_get(value, "$", "double").isin(numbers))
    if None in listed:
        found.append(kind == "null")
    return _any(F.coalesce(each, F.lit(False)) for each in found)


def _is_type(name: str, kind: Column, value: Column) -> Column:
    if name != "integer":
        return kind == name
    number = F.try_variant_get(value, "$", "double")
    return (kind == "number") & (number == F.rint(number))


def _number_conditions(schema: JsonSchema, kind: Column, value: Column) -> Iterable[Column]:
    number = F.try_variant_get(value, "$", "double")
    for keyword, bound in schema.bounds.items():
        match keyword:
            case "minimum":
                kept = number >= bound
            case "maximum":
                kept = number <= bound
            case "exclusiveMinimum":
                kept = number > bound
            case _:
                kept = number < bound
        yield (kind != "number") | kept


def _text_conditions(schema: JsonSchema, kind: Column, value: Column) -> Iterable[Column]:
    text = F.try_variant_get(value, "$", "string")
    yield from _lengths(schema, "Length", kind != "string", F.char_length(text))
    if schema.pattern is not None:
        yield (kind != "string") | text.rlike(schema.pattern)


def _object_conditions(schema: JsonSchema, kind: Column, value: Column) -> Iterable[Column]:
    other, members = kind != "object", F.try_variant_get(value, "$", _MAP)
    yield from _lengths(schema, "Properties", other, F.size(members))
    for name in schema.required:
        yield other | F.map_contains_key(members, F.lit(name))
    for name, below in schema.properties.items():
        member = F.try_element_at(members, F.lit(name))
        yield other | ~F.map_contains_key(members, F.lit(name)) | allows(below, member)
    if schema.additional is not None:
        named, more = list(schema.properties), schema.additional
        yield other | F.forall(
            F.map_entries(members), lambda entry: entry["key"].isin(named) | allows(more, entry["value"])
        )


def _array_conditions(schema: JsonSchema, kind: Column, value: Column) -> Iterable[Column]:
    other, elements = kind != "array", F.try_variant_get(value, "$", _ARRAY)
    yield from _lengths(schema, "Items", other, F.size(elements))
    if schema.items is not None:
        below = schema.items
        yield other | F.forall(elements, lambda element: allows(below, element))


def _lengths(schema: JsonSchema, noun: str, other: Column, length: Column) -> Iterable[Column]:
    if (least := schema.lengths.get(f"min{noun}")) is not None:
        yield other | (length >= least)
    if (most := schema.lengths.get(f"max{noun}")) is not None:
        yield other | (length <= most)


def _every(conditions: Iterable[Column]) -> Column:
    return reduce(lambda one, other: one & other, conditions, F.lit(True))


def _any(conditions: Iterable[Column]) -> Column:
    return reduce(lambda one, other: one | other, conditions, F.lit(False))
