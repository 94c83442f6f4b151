"""The arguments of calls: taken from the query string and checked. A refusal says which values are allowed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

from holdfast.admin.calls.problems import RefusedCall, bad_request
from holdfast.times import BadTime, moment_of
from holdfast.topics import MOST_LEVELS, InvalidTopicFilter, check_topic_filter

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
