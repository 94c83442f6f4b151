"""The arguments of calls: each taken from the query string, checked, and refused in words that say what is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

from holdfast.admin.calls import bad_request
from holdfast.times import BadTime, moment_of
from holdfast.topics import InvalidTopicFilter, check_topic_filter

_MOST_LEVELS = 65_536


def decoded(text: str) -> str:
    """Return text from a path."""
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise bad_request("the topic in the path is not UTF-8") from None


def filter_of(arguments: Mapping[str, str], default: str | None = None) -> str:
    """Return the Topic Filter."""
    topic_filter = arguments.get("topic")
    if topic_filter is None:
        if default is None:
            raise bad_request("name a topic or a filter: ?topic=...")
        return default
    try:
        check_topic_filter(topic_filter, _MOST_LEVELS)
    except InvalidTopicFilter as error:
        raise bad_request(f"topic: {error}") from None
    return topic_filter


def cursor_of(arguments: Mapping[str, str]) -> str:
    """Return the topic after which to go on."""
    cursor = arguments.get("cursor", "")
    if "\0" in cursor:
        raise bad_request("cursor: take it as it stands in meta.cursor")
    return cursor


def number_of(arguments: Mapping[str, str], name: str, default: int, most: int) -> int:
    """Return a whole number of 1 or more."""
    text = arguments.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 17 and 1 <= int(text) <= most):
        raise bad_request(f"{name} is a whole number from 1 to {most}")
    return int(text)


def flag_of(arguments: Mapping[str, str], name: str) -> bool:
    """Return true or false, which is the default."""
    text = arguments.get(name, "false")
    if text not in ("true", "false"):
        raise bad_request(f"{name} is true or false")
    return text == "true"


def place_of(arguments: Mapping[str, str]) -> int:
    """Return the place in the history at which to go on, 0 for the beginning."""
    text = arguments.get("cursor", "0")
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise bad_request("cursor: take it as it stands in meta.cursor")
    return int(text)


def time_of(arguments: Mapping[str, str], name: str, now: int) -> int | None:
    """Return a moment, None if it is not given; both in milliseconds since the epoch."""
    text = arguments.get(name)
    try:
        return None if text is None else moment_of(text, now)
    except BadTime as error:
        raise bad_request(f"{name}: {error}") from None
