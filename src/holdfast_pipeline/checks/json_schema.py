"""JSON Schemas, as far as rules check them. Pure.

A schema with a keyword that is not checked is refused: a check that passes over a keyword would be a promise that
nobody keeps. Keywords that only describe (title, description, ...) are allowed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import field, frozen

#: The types of JSON Schema.
TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_DESCRIBING = {"$schema", "$id", "$comment", "title", "description", "default", "examples", "deprecated"}
_MOST_SCHEMAS = 500
_DEEPEST = 12
_MOST_VALUES = 1000


class BadSchema(ValueError):
    """A text is no JSON Schema that can be checked. The text says where and why."""


@frozen(kw_only=True)
class JsonSchema:
    """A schema; None and empty values are keywords that it does not have. ``nothing`` is the schema ``false``.

    ``bounds`` maps minimum, maximum, exclusiveMinimum and exclusiveMaximum to numbers; ``lengths`` maps minLength,
    maxLength, minItems, maxItems, minProperties and maxProperties to whole numbers.
    """

    nothing: bool = False
    types: tuple[str, ...] = ()
    values: tuple[str | float | bool | None, ...] | None = None
    bounds: Mapping[str, float] = field(factory=dict)
    lengths: Mapping[str, int] = field(factory=dict)
    pattern: str | None = None
    properties: Mapping[str, JsonSchema] = field(factory=dict)
    required: tuple[str, ...] = ()
    additional: JsonSchema | None = None
    items: JsonSchema | None = None
    all_of: tuple[JsonSchema, ...] = ()
    any_of: tuple[JsonSchema, ...] = ()
    one_of: tuple[JsonSchema, ...] = ()
    excluded: JsonSchema | None = None


def parsed_schema(text: str) -> JsonSchema:
    """Return the schema that a JSON text describes. Raises :class:`BadSchema`."""
    try:
        content = json.loads(text)
    except ValueError as error:
        raise BadSchema(f"it is not JSON ({error})") from None
    except RecursionError:
        raise BadSchema("it is nested too deeply") from None
    return _Parser().schema(content, "$", 0)


class _Parser:
    def __init__(self) -> None:
        self._left = _MOST_SCHEMAS

    def schema(self, content: Any, at: str, depth: int) -> JsonSchema:
        self._left -= 1
        if self._left < 0 or depth > _DEEPEST:
            raise BadSchema(f"it has more than {_MOST_SCHEMAS} parts, or more than {_DEEPEST} levels")
        if isinstance(content, bool):
            return JsonSchema(nothing=not content)
        if not isinstance(content, dict):
            raise BadSchema(f"{at} is no object")
        found: dict[str, Any] = {"bounds": {}, "lengths": {}}
        for keyword, value in content.items():
            if keyword in _DESCRIBING:
                continue
            self._keyword(found, keyword, value, f"{at}.{keyword}", depth + 1)
        return JsonSchema(**found)

    def _keyword(self, found: dict[str, Any], keyword: str, value: Any, at: str, depth: int) -> None:
        def schemas(each: Any) -> tuple[JsonSchema, ...]:
            return tuple(self.schema(one, f"{at}[{place}]", depth) for place, one in enumerate(each))

        match keyword:
            case "type":
                types = [value] if isinstance(value, str) else value
                _require(isinstance(types, list) and types and all(each in TYPES for each in types), at, _TYPES_ALLOWED)
                found["types"] = tuple(types)
            case "enum" | "const":
                values = value if keyword == "enum" else [value]
                plain = isinstance(values, list) and all(_is_plain(each) for each in values)
                _require(plain and 0 < len(values) <= _MOST_VALUES, at, "texts, numbers, true, false and null")
                _require("values" not in found, at, "either enum or const")
                found["values"] = tuple(values)
            case "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum":
                _require(_is_number(value), at, "a number")
                found["bounds"][keyword] = float(value)
            case "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties":
                _require(type(value) is int and 0 <= value < 2**31, at, "a whole number from 0 on")
                found["lengths"][keyword] = value
            case "pattern":
                _require(isinstance(value, str) and _is_regex(value), at, "a regular expression")
                found["pattern"] = value
            case "required":
                names = isinstance(value, list) and all(isinstance(each, str) for each in value)
                _require(names, at, "a list of names")
                found["required"] = tuple(value)
            case "properties":
                _require(isinstance(value, dict), at, "an object of schemas")
                found["properties"] = {name: self.schema(each, f"{at}.{name}", depth) for name, each in value.items()}
            case "additionalProperties" | "items" | "not":
                name = {"additionalProperties": "additional", "items": "items", "not": "excluded"}[keyword]
                found[name] = self.schema(value, at, depth)
            case "allOf" | "anyOf" | "oneOf":
                _require(isinstance(value, list) and len(value) > 0, at, "a list of schemas")
                found[{"allOf": "all_of", "anyOf": "any_of", "oneOf": "one_of"}[keyword]] = schemas(value)
            case _:
                raise BadSchema(f"{at}: this keyword is not checked; leave it out. Checked are {', '.join(KEYWORDS)}")


_TYPES_ALLOWED = f"one or more of {', '.join(TYPES)}"


def patterns_of(schema: JsonSchema) -> Iterator[str]:
    """Return all regular expressions in a schema."""
    if schema.pattern is not None:
        yield schema.pattern
    single = (schema.additional, schema.items, schema.excluded)
    several = (*schema.properties.values(), *schema.all_of, *schema.any_of, *schema.one_of)
    for below in (*several, *(each for each in single if each is not None)):
        yield from patterns_of(below)


#: The keywords that are checked.
KEYWORDS = (
    "type", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength",
    "pattern", "properties", "required", "additionalProperties", "minProperties", "maxProperties", "items", "minItems",
    "maxItems", "allOf", "anyOf", "oneOf", "not",
)  # fmt: skip


def _require(is_good: Any, at: str, allowed: str) -> None:
    if not is_good:
        raise BadSchema(f"{at}: allowed: {allowed}")


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (str, bool)) or _is_number(value)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def _is_regex(text: str) -> bool:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError):
        return False
    return True
