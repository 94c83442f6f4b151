"""Calls about retained messages: list, show, retain, clear, export."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from holdfast.admin.arguments import cursor_of, filter_of, flag_of, number_of, time_of
from holdfast.admin.calls import DONE, NDJSON, Answer, Call, Routes, answer, not_found
from holdfast.retained.administration import BYTES, ROWS, Administration
from holdfast.retained.history.entries import retained_by
from holdfast.retained.history.history import IRetainedHistory
from holdfast.retained.history.moments import Moment
from holdfast.retained.records import detail_of, line_of, request_of, summary_of
from holdfast.retained.store.values import ListedMessage, Listing
from holdfast.topics import EVERY_TOPIC

#: The most messages of a page, as in EMQX.
MOST_LISTED = 10_000
#: A page ends after this many bytes of messages, without payloads.
_PAGE_BYTES = 8 << 20
_MOST = 2**53

#: Lists messages: takes a Topic Filter, the topic before, the most messages, their most bytes, and whether to read
#: payloads.
Lister = Callable[[str, str, int, int, bool], Deferred[Listing]]


class MessageCalls:
    """Answers calls about the retained messages of now or of a moment."""

    def __init__(self, administration: Administration, history: IRetainedHistory) -> None:
        self._administration = administration
        self._history = history
        self.routes: Routes = {
            "/messages": {
                "GET": (self.messages, ("topic", "page", "limit", "cursor", "at")),
                "POST": (self.retain, ("quiet",)),
                "DELETE": (self.clear, ("topic", "dry_run", "limit", "cursor", "quiet")),
            },
            "/message": {"GET": (self.message, ("topic", "at")), "DELETE": (self.clear_message, ("topic", "quiet"))},
            "/export": {"GET": (self.export, ("topic", "cursor", "at"))},
        }

    @inlineCallbacks
    def messages(self, call: Call) -> Generator[Deferred[Any], Any, Answer]:
        """List messages: a page by its number, or the page after a cursor."""
        arguments = call.arguments
        topic_filter = filter_of(arguments, EVERY_TOPIC)
        limit = number_of(arguments, "limit", 100, MOST_LISTED)
        page = number_of(arguments, "page", 1, _MOST)
        after = cursor_of(arguments)
        skipped = (page - 1) * limit
        rows: list[dict[str, Any]] = []
        weight, done, full = 0, False, False
        cursor = after
        lister = yield self._lister(arguments)
        while not (done or full):
            listing = yield lister(topic_filter, after, min(ROWS, skipped + limit + 1 - len(rows)), BYTES, False)
            after, done = listing.after, listing.done
            for entry in listing.entries:
                if skipped:
                    skipped -= 1
                    continue
                if len(rows) == limit or (rows and weight > _PAGE_BYTES):
                    full = True
                    break
                row = summary_of(entry)
                weight += 300 + 4 * len(row["topic"]) + len(str(row["properties"]))
                rows.append(row)
                cursor = entry.message.topic
            if not done:
                yield self._administration.pause()
        meta: dict[str, Any] = {"page": page, "limit": limit, "hasnext": full, "cursor": cursor if full else None}
        if "topic" not in arguments and "at" not in arguments:
            statistics = yield self._administration.statistics()
            meta["count"] = statistics.count
        return answer({"data": rows, "meta": meta})

    @inlineCallbacks
    def retain(self, call: Call) -> Generator[Deferred[Any], Any, Answer]:
        """Retain a message. Present subscribers get it, unless the request is quiet."""
        request = request_of(call.body, self._administration.now())
        yield self._administration.set(request.message, request.quiet or flag_of(call.arguments, "quiet"))
        return DONE

    @inlineCallbacks
    def clear(self, call: Call) -> Generator[Deferred[Any], Any, Answer]:
        """Clear the matching messages, or count them. Without a filter, clear all messages, and answer like EMQX.

        Present subscribers get each clear as an empty message, unless the call is quiet.
        """
        arguments = call.arguments
        quiet = flag_of(arguments, "quiet")
        if not arguments.keys() - {"quiet"}:
            yield self._administration.clear(EVERY_TOPIC, quiet=quiet)
            return DONE
        dry_run = flag_of(arguments, "dry_run")
        rows = number_of(arguments, "limit", 0, _MOST) or None
        cleared = yield self._administration.clear(filter_of(arguments), cursor_of(arguments), rows, dry_run, quiet)
        meta = {"hasnext": not cleared.done, "cursor": None if cleared.done else cleared.after}
        return answer({"count": cleared.count, "dry_run": dry_run, "meta": meta})

    @inlineCallbacks
    def message(self, call: Call) -> Generator[Deferred[Any], Any, Answer]:
        """Show the message of a topic, or the first message that matches a filter."""
        topic_filter = filter_of(call.arguments)
        lister = yield self._lister(call.arguments)
        listed = yield self._administration.first(topic_filter, lister)
        if listed is None:
            raise not_found("Viewed message doesn't exist")
        return answer(detail_of(listed))

    @inlineCallbacks
    def clear_message(self, call: Call) -> Generator[Deferred[Any], Any, Answer]:
        """Clear a topic, or all topics that match a filter."""
        quiet = flag_of(call.arguments, "quiet")
        cleared = yield self._administration.clear(filter_of(call.arguments), quiet=quiet)
        if not cleared.count:
            raise not_found("Viewed message doesn't exist")
        return DONE

    @inlineCallbacks
    def export(self, call: Call) -> Generator[Deferred[Any], Any, Answer]:
        """Return the matching messages as lines in topic order, each as it is when the export reaches its topic."""
        topic_filter = filter_of(call.arguments, EVERY_TOPIC)
        after, done = cursor_of(call.arguments), False
        lister = yield self._lister(call.arguments)

        @inlineCallbacks
        def more() -> Generator[Deferred[Any], Any, bytes]:
            nonlocal after, done
            while not done:
                listing = yield lister(topic_filter, after, ROWS, BYTES, True)
                after, done = listing.after, listing.done
                if listing.entries:
                    return b"".join([line_of(entry.message) for entry in listing.entries])
                yield self._administration.pause()
            return b""

        return Answer(content_type=NDJSON, more=more)

    @inlineCallbacks
    def _lister(self, arguments: Mapping[str, str]) -> Generator[Deferred[Any], Any, Lister]:
        """Return the lister for the messages of now, or of the moment in the arguments."""
        at = time_of(arguments, "at", self._administration.now())
        if at is None:
            return self._administration.listing
        moment = yield self._history.moment(at)
        return MomentLister(self._history, moment).listing


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
            return Listing(entries, entries[-1].message.topic, False)
        return Listing(entries, found.after, found.done)
