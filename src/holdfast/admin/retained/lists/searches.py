"""Pages of retained messages that are selected by conditions, or sorted by time or size."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Generator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from holdfast.admin.calls.arguments import cursor_of, flag_of, number_of
from holdfast.admin.calls.call import Answer, Call, answer
from holdfast.admin.calls.problems import bad_request
from holdfast.admin.retained.parameters import MOST_BEGINNING
from holdfast.retained.queries.searches import Searches
from holdfast.retained.records import detail_of, summary_of
from holdfast.retained.store.scans.values import Search, Sorting

#: The most messages of a page in the order of topics, and in another one.
MOST_FOUND = 10_000
MOST_SORTED = 1000
#: A page ends after about this many bytes of messages.
PAGE_BYTES = 8 << 20


class SearchAnswers:
    """Answers calls that list messages by conditions."""

    def __init__(self, searches: Searches) -> None:
        self._searches = searches

    @inlineCallbacks
    def found(self, call: Call, search: Search, token: str | None) -> Generator[Deferred[Any], Any, Answer]:
        """Search in the order of topics. A page may be empty without being the last."""
        limit = number_of(call.arguments, "limit", 100, MOST_FOUND)
        payloads = flag_of(call.arguments, "payload")
        page = yield self._searches.page(search, cursor_of(call.arguments), limit, PAGE_BYTES, payloads)
        rows = [detail_of(entry) if payloads else summary_of(entry) for entry in page.entries]
        rows = yield self.begun(call, search, rows)
        return _page(rows, limit, None if page.done else page.after, page.scanned, token)

    @inlineCallbacks
    def sorted(
        self, call: Call, search: Search, token: str | None, sorting: Sorting
    ) -> Generator[Deferred[Any], Any, Answer]:
        """Search in another order: look at all messages, and show the first ones behind the cursor."""
        if flag_of(call.arguments, "payload"):
            raise bad_request("payload is not allowed together with sort=time or sort=size", "payload", "false")
        limit = number_of(call.arguments, "limit", 100, MOST_SORTED)
        page = yield self._searches.sorted(search, sorting, limit, call.caller)
        cursor = None if page.last is None else f"{page.last[0]}:{page.last[1]}"
        rows = yield self.begun(call, search, [summary_of(entry) for entry in page.entries])
        return _page(rows, limit, cursor, page.scanned, token)

    @inlineCallbacks
    def begun(
        self, call: Call, search: Search, rows: list[dict[str, Any]]
    ) -> Generator[Deferred[Any], Any, list[dict[str, Any]]]:
        """Return the rows with the beginnings of their payloads, as far as the call asks for them.

        A message that is gone meanwhile has none.
        """
        most = number_of(call.arguments, "beginning", 0, MOST_BEGINNING)
        if not most:
            return rows
        found = yield self._searches.beginnings(search, [row["topic"] for row in rows], most)
        return [
            {**row, "beginning": b64encode(found[row["topic"]]).decode()} if row["topic"] in found else row
            for row in rows
        ]


def _page(rows: list[dict[str, Any]], limit: int, cursor: str | None, scanned: int, token: str | None) -> Answer:
    meta: dict[str, Any] = {"limit": limit, "hasnext": cursor is not None, "cursor": cursor, "scanned": scanned}
    if token is not None:
        meta["token"] = token
    return answer({"data": rows, "meta": meta})
