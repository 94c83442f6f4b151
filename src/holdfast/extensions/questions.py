"""Questions about retained messages: what a Client publishes to ``$retained/get``, ``count`` and ``tree``."""

from __future__ import annotations

from typing import Any

from attrs import frozen

from holdfast.extensions.bad_request import BadRequest
from holdfast.strict_json import BadJSON, read_json
from holdfast.topics import (
    ASK_COUNT,
    ASK_GET,
    ASK_TREE,
    SHARED_PREFIX,
    InvalidTopicFilter,
    InvalidTopicName,
    check_topic_filter,
    check_topic_name,
)

#: The longest payload of a question, in bytes: two of the longest topics, in base64. And the most commas in it.
LONGEST, _MOST_COMMAS = 176 * 1024, 1000
#: The messages or nodes of one answer: the most, and if the question does not say.
MOST, USUAL = 1000, 100
#: What an answer to ``$retained/get`` can tell of a message; its topic is always told.
FIELDS = ("topic", "payload", "qos", "size", "revision", "stored_at", "expires_at", "properties")

_ALLOWED = {
    ASK_GET: ("filter", "limit", "after", "fields"),
    ASK_COUNT: ("filter", "after"),
    ASK_TREE: ("topic", "limit", "after"),
}


@frozen
class Question:
    """One question. ``kind`` is the topic that it was published to.

    ``parent`` is the topic whose next level is asked for, None for the first level; only of ``$retained/tree``.
    ``topic_filter`` matches all that the answer may tell of. ``after`` is what an earlier answer said, "" at the
    beginning.
    """

    kind: str
    topic_filter: str
    limit: int = USUAL
    after: str = ""
    fields: tuple[str, ...] = FIELDS
    parent: str | None = None


def question_of(kind: str, payload: bytes, max_levels: int) -> Question:
    """Return the question in a payload. A Topic Filter may have ``max_levels`` levels. Raises :class:`BadRequest`."""
    given = _object_of(payload)
    allowed = _ALLOWED[kind]
    for name in given:
        if name not in allowed:
            raise BadRequest(f"{name[:40]} is not known for {kind}, only {', '.join(allowed)}")
    limit = given.get("limit", USUAL)
    if type(limit) is not int or not 1 <= limit <= MOST:
        raise BadRequest(f"limit is a whole number, 1 to {MOST}")
    after = _text(given, "after") or ""
    if kind == ASK_TREE:
        parent = _text(given, "topic")
        topic_filter = "#" if parent is None else f"{parent}/+/#"
        if parent is not None:
            _check_parent(parent, max_levels)
        return Question(kind, topic_filter, limit, after, parent=parent)
    topic_filter = _text(given, "filter") or ""
    if topic_filter.startswith(SHARED_PREFIX):
        raise BadRequest("filter is a Topic Filter without $share")
    try:
        check_topic_filter(topic_filter, max_levels)
    except InvalidTopicFilter as wrong:
        raise BadRequest(f"filter: {wrong}") from None
    return Question(kind, topic_filter, limit, after, _fields(given))


def _object_of(payload: bytes) -> dict[str, Any]:
    if len(payload) > LONGEST:
        raise BadRequest(f"the payload has at most {LONGEST} bytes")
    if payload.count(b",") > _MOST_COMMAS:
        raise BadRequest(f"the payload has at most {_MOST_COMMAS} commas")
    try:
        given = read_json(payload or b"{}")
    except BadJSON as wrong:
        raise BadRequest(str(wrong)) from None
    if not isinstance(given, dict):
        raise BadRequest("the payload is a JSON object")
    return given


def _text(given: dict[str, Any], name: str) -> str | None:
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise BadRequest(f"{name} is a string")
    return value


def _check_parent(parent: str, max_levels: int) -> None:
    try:
        check_topic_name(parent, max_levels)
    except InvalidTopicName as wrong:
        raise BadRequest(f"topic: {wrong}") from None


def _fields(given: dict[str, Any]) -> tuple[str, ...]:
    wanted = given.get("fields")
    if wanted is None:
        return FIELDS
    if not isinstance(wanted, list) or any(one not in FIELDS for one in wanted):
        raise BadRequest(f"fields is a list of {', '.join(FIELDS)}")
    return tuple(name for name in FIELDS if name == "topic" or name in wanted)
