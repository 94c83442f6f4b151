"""Lists of retained messages, part by part: their conditions, tokens, limits and orders."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.defer import Deferred, succeed

from holdfast.admin.api.parameters import MOST_BEGINNING
from holdfast.admin.arguments import (
    FLAG,
    MOMENT,
    bad_cursor,
    choice_of,
    cursor_of,
    digits_of,
    flag_of,
    number_of,
    one_of,
    time_of,
    whole,
)
from holdfast.admin.call import Answer, Call, answer, bad_request
from holdfast.admin.routing import query
from holdfast.changes.entries import retained_by
from holdfast.changes.history import RetainedHistory
from holdfast.changes.moments import Moment
from holdfast.changes.watch import ChangeWatch
from holdfast.retained.administration import Administration
from holdfast.retained.records import detail_of, summary_of
from holdfast.retained.searches import Searches
from holdfast.retained.store.values import ListedMessage, Listing, Order, Search, Sorting
from holdfast.scheduling.waiting import as_deferred

# The conditions of calls that select retained messages: by publisher, time, size, and a part of the topic.


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


# The tokens of lists: with a token, a caller follows the changes after its list.


class Tokens:
    """Gives lists their tokens. Without ``changes`` there are none."""

    def __init__(self, changes: ChangeWatch | None) -> None:
        self._changes = changes

    def of_first_page(self, arguments: Mapping[str, str]) -> Deferred[str | None]:
        """Return the token of a list that is read after this.

        Later pages have none: what has changed since the first page may be missing in them. Nor has a list of the past.
        """
        later = "cursor" in arguments or "at" in arguments or arguments.get("page", "1") != "1"
        if self._changes is None or later:
            return succeed(None)
        token: Deferred[str | None] = self._changes.token()
        return token


# The limit of one call's reads while few entries match. At the limit, it answers with its matches and a cursor.


#: The reads of one call; each visits up to 1000 messages, or 10,000 positions of the history.
MOST_READS = 200
#: Milliseconds after which a call begins no further read.
MOST_TIME = 5000


class ReadLimit:
    """Counts the reads of one call. ``now`` returns milliseconds."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._ends_at = now() + MOST_TIME
        self._left = MOST_READS

    def is_reached(self) -> bool:
        """Count a read; tell whether it was the last one."""
        self._left -= 1
        return self._left <= 0 or self._now() >= self._ends_at


# Lists of retained messages part by part: those of now, of a moment, or of a search.


#: Lists messages: takes a Topic Filter, the topic before, the most messages, their most bytes, and whether to read
#: payloads.
Lister = Callable[[str, str, int, int, bool], Deferred[Listing]]


@as_deferred
async def lister_of(
    arguments: Mapping[str, str], administration: Administration, history: RetainedHistory, topic_filter: str
) -> Lister:
    """Return the lister for the messages of now, or of the moment in the arguments."""
    at = time_of(arguments, "at", administration.now())
    if at is None:
        return administration.listing
    moment = await history.moment(at, topic_filter)
    return MomentLister(history, moment).listing


class MomentLister:
    """Lists the retained messages of a moment."""

    def __init__(self, history: RetainedHistory, moment: Moment) -> None:
        self._history = history
        self._moment = moment

    @as_deferred
    async def listing(self, topic_filter: str, after: str, rows: int, _max_bytes: int, _payloads: bool) -> Listing:
        """List messages, always with their payloads. The history bounds the bytes of a page itself."""
        found = await self._history.as_of(topic_filter, self._moment, after)
        entries = [ListedMessage(retained_by(event), len(event.payload)) for event in found.messages[:rows]]
        if len(entries) < len(found.messages):
            return Listing(entries, entries[-1].message.topic, False, found.left_out)
        return Listing(entries, found.after, found.done, found.left_out)


class SearchLister:
    """Lists the messages of a search."""

    def __init__(self, searches: Searches, search: Search) -> None:
        self._searches = searches
        self._search = search

    @as_deferred
    async def listing(self, _topic_filter: str, after: str, rows: int, max_bytes: int, payloads: bool) -> Listing:
        """List messages. The search has the Topic Filter itself."""
        page = await self._searches.page(self._search, after, rows, max_bytes, payloads)
        return Listing(page.entries, page.after, page.done)


# Pages of retained messages that are selected by conditions, or sorted by time or size.


#: The most messages of a page in the order of topics, and in another one.
MOST_FOUND = 10_000
MOST_SORTED = 1000
#: A page ends after about this many bytes of messages.
PAGE_BYTES = 8 << 20


class SearchAnswers:
    """Answers calls that list messages by conditions."""

    def __init__(self, searches: Searches) -> None:
        self._searches = searches

    @as_deferred
    async def found(self, call: Call, search: Search, token: str | None) -> Answer:
        """Search in the order of topics. A page may be empty without being the last."""
        limit = number_of(call.arguments, "limit", 100, MOST_FOUND)
        payloads = flag_of(call.arguments, "payload")
        page = await self._searches.page(search, cursor_of(call.arguments), limit, PAGE_BYTES, payloads)
        rows = [detail_of(entry) if payloads else summary_of(entry) for entry in page.entries]
        rows = await self.begun(call, search, rows)
        return _page(rows, limit, None if page.done else page.after, page.scanned, token)

    @as_deferred
    async def sorted(self, call: Call, search: Search, token: str | None, sorting: Sorting) -> Answer:
        """Search in another order: look at all messages, and show the first ones behind the cursor."""
        if flag_of(call.arguments, "payload"):
            raise bad_request("payload is not allowed together with sort=time or sort=size", "payload", "false")
        limit = number_of(call.arguments, "limit", 100, MOST_SORTED)
        page = await self._searches.sorted(search, sorting, limit, call.caller)
        cursor = None if page.last is None else f"{page.last[0]}:{page.last[1]}"
        rows = await self.begun(call, search, [summary_of(entry) for entry in page.entries])
        return _page(rows, limit, cursor, page.scanned, token)

    @as_deferred
    async def begun(self, call: Call, search: Search, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the rows with the beginnings of their payloads, as far as the call asks for them.

        A message that is gone meanwhile has none.
        """
        most = number_of(call.arguments, "beginning", 0, MOST_BEGINNING)
        if not most:
            return rows
        found = await self._searches.beginnings(search, [row["topic"] for row in rows], most)
        return [
            {**row, "beginning": b64encode(found[row["topic"]]).decode()} if row["topic"] in found else row
            for row in rows
        ]


def _page(rows: list[dict[str, Any]], limit: int, cursor: str | None, scanned: int, token: str | None) -> Answer:
    meta: dict[str, Any] = {"limit": limit, "hasnext": cursor is not None, "cursor": cursor, "scanned": scanned}
    if token is not None:
        meta["token"] = token
    return answer({"data": rows, "meta": meta})
