"""JSON schemas of arguments, bodies and answers, as OpenAPI 3.1 has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]

STRING: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
BOOLEAN: Schema = {"type": "boolean"}
ANYTHING: Schema = {}
FLAG: Schema = {"type": "boolean", "default": False}
#: a time in an answer
TIME: Schema = {"type": "string", "format": "date-time"}
#: a time in an argument: a moment or how long ago
MOMENT: Schema = {"type": "string", "minLength": 1, "examples": ["2026-11-21T10:00:00Z", "1h"]}
#: the format of arguments that name topics: their levels are limited
TOPIC_FORMAT = "mqtt-topic"
TOPIC_FILTER: Schema = {"type": "string", "format": TOPIC_FORMAT, "minLength": 1, "examples": ["plant/+/temperature"]}
#: a topic, or the beginning of one
TOPIC: Schema = {
    "type": "string",
    "format": TOPIC_FORMAT,
    "pattern": "^[^+#\\u0000]*$",
    "examples": ["plant/7"],
}
CURSOR: Schema = {"type": "string"}

PROBLEM_SCHEMA: Schema = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code", "message"],
    "properties": {
        "type": STRING,
        "title": STRING,
        "status": INTEGER,
        "detail": {"type": "string", "description": "what is wrong"},
        "code": {"type": "string", "description": "the kind of refusal, such as BAD_REQUEST or NOT_FOUND"},
        "message": {"type": "string", "description": "the same as detail; the name that EMQX uses"},
        "field": {"type": "string", "description": "the argument or the field of the body that is at fault"},
        "allowed": {"type": "string", "description": "what that field may be"},
    },
}


def nullable(schema: Schema) -> Schema:
    """Return the schema of a value that may also be null."""
    values = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
    return {**schema, "type": [schema["type"], "null"], **values}


def whole(least: int, most: int, default: int | None = None) -> Schema:
    """Return the schema of a whole number."""
    bounds = {"type": "integer", "minimum": least, "maximum": most}
    return bounds if default is None else {**bounds, "default": default}


def one_of(*values: str) -> Schema:
    """Return the schema of one of these words. The first is the default."""
    return {"type": "string", "enum": list(values), "default": values[0]}


def array(items: Schema) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": items}


def record(fields: Mapping[str, Schema], required: tuple[str, ...] | None = None) -> Schema:
    """Return the schema of an object. Without ``required``, it has all these fields. It may have more."""
    return {"type": "object", "properties": dict(fields), "required": list(fields if required is None else required)}


def request(fields: Mapping[str, Schema], required: tuple[str, ...] = ()) -> Schema:
    """Return the schema of an object in a body: other fields are refused."""
    return {**record(fields, required), "additionalProperties": False}


def page(item: Schema) -> Schema:
    """Return the schema of one page of a list."""
    return record({"data": array(item), "meta": {"type": "object"}})
