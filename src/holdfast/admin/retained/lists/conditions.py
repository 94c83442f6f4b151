"""The conditions of calls that select retained messages: by publisher, time, size, and a part of the topic."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.admin.calls.arguments import bad_cursor, choice_of, digits_of, flag_of, time_of
from holdfast.admin.calls.problems import bad_request
from holdfast.admin.routing.route import query
from holdfast.admin.routing.schemas import FLAG, MOMENT, one_of, whole
from holdfast.retained.store.scans.values import Order, Search, Sorting

_SORTS = {"time": Order.TIME, "size": Order.SIZE}
_ORDERS = ("asc", "desc")
_LONGEST = 65_535
_LARGEST = 1 << 28
_TEXT = {"type": "string", "minLength": 1, "maxLength": _LONGEST, "pattern": "^[^\\u0000]*$"}
_BYTES = whole(0, _LARGEST)
#: The arguments of :func:`search_of` beside the Topic Filter.
CONDITIONS = (
    query("publisher", _TEXT, "only messages of the client with this Client Identifier"),
    query("username", _TEXT, "only messages of this user"),
    query("older_than", MOMENT, "only messages stored before this time"),
    query("newer_than", MOMENT, "only messages stored at this time or later"),
    query("min_size", _BYTES, "only messages whose payload has at least so many bytes"),
    query("max_size", _BYTES, "only messages whose payload has at most so many bytes"),
    query("search", _TEXT, "only topics that have this text in them, in upper and lower case as written"),
    query("expired", FLAG, "only expired messages that the sweep has not removed, instead of the others"),
)
#: Those of a restore, which takes present messages.
PRESENT_CONDITIONS = tuple(each for each in CONDITIONS if each.name != "expired")
#: The arguments of :func:`sorting_of`.
SORTING = (
    query("sort", one_of("topic", *_SORTS), "the order: time is that of the store, size that of the payload"),
    query("order", {"type": "string", "enum": [*_ORDERS]}, "desc (the default for time and size) or asc"),
)


def search_of(arguments: Mapping[str, str], topic_filter: str, now: int) -> Search:
    """Return the search that the arguments describe; ``now`` is in milliseconds since the epoch."""
    return Search(
        topic_filter,
        now,
        expired=flag_of(arguments, "expired"),
        client_id=_text_of(arguments, "publisher"),
        username=_text_of(arguments, "username"),
        stored_from=time_of(arguments, "newer_than", now),
        stored_before=time_of(arguments, "older_than", now),
        least_size=_size_of(arguments, "min_size"),
        most_size=_size_of(arguments, "max_size"),
        contains=_text_of(arguments, "search"),
    )


def sorting_of(arguments: Mapping[str, str]) -> Sorting | None:
    """Return the order that the arguments ask for, None for the order of topics. Newest and largest come first."""
    by = choice_of(arguments, "sort", ("topic", *_SORTS))
    order = choice_of(arguments, "order", _ORDERS, "asc" if by == "topic" else "desc")
    if by == "topic":
        if order != "asc":
            raise bad_request("topics are listed in ascending order; desc needs sort=time or sort=size", "order", "asc")
        return None
    beyond = None
    if cursor := arguments.get("cursor"):
        value, _, topic = cursor.partition(":")
        number = digits_of(value)
        if number is None or not topic or "\0" in topic:
            raise bad_cursor()
        beyond = (number, topic)
    return Sorting(_SORTS[by], order == "desc", beyond)


def _text_of(arguments: Mapping[str, str], name: str) -> str | None:
    text = arguments.get(name)
    if text is not None and (not text or "\0" in text or len(text) > _LONGEST):
        allowed = f"a text of 1 to {_LONGEST} characters without U+0000"
        raise bad_request(f"{name} is {allowed}", name, allowed)
    return text


def _size_of(arguments: Mapping[str, str], name: str) -> int | None:
    text = arguments.get(name)
    if text is None:
        return None
    size = digits_of(text)
    if size is None or size > _LARGEST:
        allowed = f"a number of bytes from 0 to {_LARGEST}"
        raise bad_request(f"{name} is {allowed}", name, allowed)
    return size
