"""The conditions of calls that select retained messages: by publisher, time, size, and a part of the topic."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.admin.arguments import digits_of, flag_of, time_of
from holdfast.admin.calls import bad_request
from holdfast.retained.store.scans.values import Order, Search, Sorting

#: The arguments of :func:`search_of` beside the Topic Filter.
CONDITIONS = ("publisher", "username", "older_than", "newer_than", "min_size", "max_size", "search", "expired")
#: The arguments of :func:`sorting_of`.
SORTING = ("sort", "order")
_SORTS = {"time": Order.TIME, "size": Order.SIZE}
_ORDERS = ("asc", "desc")
_LONGEST = 65_535
_LARGEST = 1 << 28


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
    by = arguments.get("sort", "topic")
    if by != "topic" and by not in _SORTS:
        raise bad_request(f"sort is topic, {' or '.join(_SORTS)}")
    order = arguments.get("order", "asc" if by == "topic" else "desc")
    if order not in _ORDERS:
        raise bad_request(f"order is {' or '.join(_ORDERS)}")
    if by == "topic":
        if order != "asc":
            raise bad_request("order: topics are listed in ascending order only; desc needs sort=time or sort=size")
        return None
    beyond = None
    if cursor := arguments.get("cursor"):
        value, _, topic = cursor.partition(":")
        number = digits_of(value)
        if number is None or not topic or "\0" in topic:
            raise bad_request("cursor: copy it unchanged from meta.cursor")
        beyond = (number, topic)
    return Sorting(_SORTS[by], order == "desc", beyond)


def _text_of(arguments: Mapping[str, str], name: str) -> str | None:
    text = arguments.get(name)
    if text is not None and (not text or "\0" in text or len(text) > _LONGEST):
        raise bad_request(f"{name} is a text of 1 to {_LONGEST} characters without U+0000")
    return text


def _size_of(arguments: Mapping[str, str], name: str) -> int | None:
    text = arguments.get(name)
    if text is None:
        return None
    size = digits_of(text)
    if size is None or size > _LARGEST:
        raise bad_request(f"{name} is a number of bytes from 0 to {_LARGEST}")
    return size
