"""Lists of retained messages part by part: those of now, of a moment, or of a search."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from holdfast.admin.calls.arguments import time_of
from holdfast.retained.administration import Administration
from holdfast.retained.history.entries import retained_by
from holdfast.retained.history.history import IRetainedHistory
from holdfast.retained.history.moments import Moment
from holdfast.retained.queries.searches import Searches
from holdfast.retained.store.scans.values import Search
from holdfast.retained.store.values import ListedMessage, Listing

#: Lists messages: takes a Topic Filter, the topic before, the most messages, their most bytes, and whether to read
#: payloads.
Lister = Callable[[str, str, int, int, bool], Deferred[Listing]]


@inlineCallbacks
def lister_of(
    arguments: Mapping[str, str], administration: Administration, history: IRetainedHistory, topic_filter: str
) -> Generator[Deferred[Any], Any, Lister]:
    """Return the lister for the messages of now, or of the moment in the arguments."""
    at = time_of(arguments, "at", administration.now())
    if at is None:
        return administration.listing
    moment = yield history.moment(at, topic_filter)
    return MomentLister(history, moment).listing


class MomentLister:
    """Lists the retained messages of a moment."""

    def __init__(self, history: IRetainedHistory, moment: Moment) -> None:
        self._history = history
        self._moment = moment

    @inlineCallbacks
    def listing(
        self, topic_filter: str, after: str, rows: int, _max_bytes: int, _payloads: bool
    ) -> Generator[Deferred[Any], Any, Listing]:
        """List messages, always with their payloads. The history bounds the bytes of a page itself."""
        found = yield self._history.as_of(topic_filter, self._moment, after)
        entries = [ListedMessage(retained_by(event), len(event.payload)) for event in found.messages[:rows]]
        if len(entries) < len(found.messages):
            return Listing(entries, entries[-1].message.topic, False, found.left_out)
        return Listing(entries, found.after, found.done, found.left_out)


class SearchLister:
    """Lists the messages of a search."""

    def __init__(self, searches: Searches, search: Search) -> None:
        self._searches = searches
        self._search = search

    @inlineCallbacks
    def listing(
        self, _topic_filter: str, after: str, rows: int, max_bytes: int, payloads: bool
    ) -> Generator[Deferred[Any], Any, Listing]:
        """List messages. The search has the Topic Filter itself."""
        page = yield self._searches.page(self._search, after, rows, max_bytes, payloads)
        return Listing(page.entries, page.after, page.done)
