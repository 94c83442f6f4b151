"""The arguments of calls: taken from the query string and checked. A refusal says which values are allowed."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from holdfast.admin.call import UNREAD, Call, RefusedCall, bad_request
from holdfast.core.strict_json import BadJSON, read_json
from holdfast.core.topics import MOST_LEVELS, InvalidTopicFilter, check_topic_filter
from holdfast.core.units import BadTime, moment_of

# JSON schemas of arguments, bodies and answers, as OpenAPI 3.1 has them.


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
CURSOR_SCHEMA: Schema = {"type": "string"}

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


_SURROGATE = re.compile(r"[\ud800-\udfff]")
#: All numbers with this many digits fit in 64 bits.
_MOST_DIGITS = 18


def decoded(text: str) -> str:
    """Return the text of a percent-encoded path."""
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise bad_request("the path is not percent-encoded UTF-8") from None


def filter_of(arguments: Mapping[str, str], default: str | None = None) -> str:
    """Return the Topic Filter."""
    topic_filter = optional_filter_of(arguments, "topic")
    if topic_filter is None:
        if default is None:
            raise bad_request("name a topic or a filter: ?topic=...", "topic", "a Topic Filter")
        return default
    return topic_filter


def optional_filter_of(arguments: Mapping[str, str], name: str) -> str | None:
    """Return a Topic Filter, None if it is not given."""
    topic_filter = arguments.get(name)
    if topic_filter is not None:
        try:
            check_topic_filter(topic_filter, MOST_LEVELS)
        except InvalidTopicFilter as error:
            raise bad_request(f"{name}: {error}", name, "a Topic Filter") from None
    return topic_filter


def bad_cursor() -> RefusedCall:
    """Return the refusal of a cursor that no page has given."""
    return bad_request("cursor: copy it unchanged from meta.cursor", "cursor", "a cursor of this list")


def cursor_of(arguments: Mapping[str, str]) -> str:
    """Return the topic after which the page begins."""
    cursor = arguments.get("cursor", "")
    if "\0" in cursor or _SURROGATE.search(cursor):  # no database has such text
        raise bad_cursor()
    return cursor


def number_of(arguments: Mapping[str, str], name: str, default: int, most: int) -> int:
    """Return a whole number of 1 or more."""
    text = arguments.get(name)
    if text is None:
        return default
    number = digits_of(text)
    if number is None or not 1 <= number <= most:
        allowed = f"a whole number from 1 to {most}"
        raise bad_request(f"{name} is {allowed}", name, allowed)
    return number


def digits_of(text: str) -> int | None:
    """Return the number in ASCII digits, None if the text is something else.

    Longer numbers than those of the database are refused: Python would take seconds to read thousands of digits.
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None


def flag_of(arguments: Mapping[str, str], name: str) -> bool:
    """Return a flag, false by default."""
    return choice_of(arguments, name, ("true", "false"), "false") == "true"


def choice_of(arguments: Mapping[str, str], name: str, choices: Sequence[str], default: str | None = None) -> str:
    """Return one of several words; the default is the first one, unless another one is given."""
    text = arguments.get(name, choices[0] if default is None else default)
    if text not in choices:
        allowed = f"{', '.join(choices[:-1])} or {choices[-1]}"
        raise bad_request(f"{name} is {allowed}", name, allowed)
    return text


def position_of(arguments: Mapping[str, str]) -> int:
    """Return the position in the history at which the page begins, 0 for its beginning."""
    position = digits_of(arguments.get("cursor", "0"))
    if position is None:
        raise bad_cursor()
    return position


def time_of(arguments: Mapping[str, str], name: str, now: int) -> int | None:
    """Return a time, None if it is not given; the result and ``now`` are in milliseconds since the epoch."""
    text = arguments.get(name)
    try:
        return None if text is None else moment_of(text, now)
    except BadTime as error:
        raise bad_request(f"{name}: {error}", name) from None


# The JSON in the body of a call. It is read strictly: what is ambiguous is refused, with the path of the value.


#: Bytes of a body that is read at once. A thread reads longer ones.
SHORT_BODY = 1 << 16


def json_of(call: Call) -> Any:
    """Return the JSON in the body."""
    if call.parsed is not UNREAD:
        return call.parsed
    try:
        return read_json(call.body)
    except BadJSON as error:
        raise not_json(error) from None


def not_json(error: BadJSON) -> RefusedCall:
    """Return the refusal of a body that is not JSON."""
    return bad_request(f"the body: {error}", error.field or None, error.allowed)


def object_of(call: Call, example: str) -> dict[str, Any]:
    """Return the JSON object in the body."""
    found = json_of(call)
    if not isinstance(found, dict):
        raise bad_request(f"the body is a JSON object such as {example}", allowed="a JSON object")
    return found


def check_fields(fields: dict[str, Any], known: Collection[str]) -> None:
    """Refuse unknown fields."""
    for name in fields:
        if name not in known:
            raise bad_request(
                f"there is no field {name[:40]!a}; there are: {', '.join(known)}", name[:40], ", ".join(known)
            )
