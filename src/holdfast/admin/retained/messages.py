"""Calls about retained messages: list, show, retain, clear, export."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from holdfast.admin.address import API_PREFIX
from holdfast.admin.callers.caller import Scope
from holdfast.admin.calls.arguments import cursor_of, filter_of, flag_of, number_of, time_of
from holdfast.admin.calls.call import DONE, NDJSON, Answer, Call, answer
from holdfast.admin.calls.problems import not_found
from holdfast.admin.retained.parameters import AT, CURSOR, FILTER, QUIET, SUMMARY
from holdfast.admin.retained.refusals import REFUSALS
from holdfast.admin.routing.route import NOTHING, Content, Parameter, Route, in_path, query
from holdfast.admin.routing.schemas import (
    BOOLEAN,
    FLAG,
    INTEGER,
    STRING,
    TOPIC_FILTER,
    one_of,
    page,
    record,
    request,
    whole,
)
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

_REQUEST = request(
    {
        "topic": {"type": "string", "minLength": 1},
        "payload": {"type": "string", "minLength": 1},
        "payload_encoding": one_of("plain", "base64"),
        "qos": whole(0, 2, 0),
        "properties": {"type": "object"},
        "quiet": FLAG,
    },
    required=("topic", "payload"),
)
_CLEARED = record({"count": INTEGER, "dry_run": BOOLEAN, "meta": {"type": "object"}})

#: Lists messages: takes a Topic Filter, the topic before, the most messages, their most bytes, and whether to read
#: payloads.
Lister = Callable[[str, str, int, int, bool], Deferred[Listing]]


class MessageCalls:
    """Answers calls about the retained messages of now or of a moment."""

    def __init__(self, administration: Administration, history: IRetainedHistory) -> None:
        self._administration = administration
        self._history = history
        self.routes: tuple[Route, ...] = (
            Route(
                method="GET",
                path=f"{API_PREFIX}/messages",
                handler=self.messages,
                scope=Scope.READ,
                summary="A page of retained messages in the order of their topics, without payloads",
                parameters=(
                    FILTER,
                    query("page", whole(1, _MOST, 1), "the number of the page"),
                    query("limit", whole(1, MOST_LISTED, 100), "the most messages of a page"),
                    CURSOR,
                    AT,
                ),
                answers={200: Content(page(SUMMARY), "the page")},
                refusals=REFUSALS,
            ),
            Route(
                method="POST",
                path=f"{API_PREFIX}/messages",
                handler=self.retain,
                scope=Scope.RETAINED_WRITE,
                summary="Retain a message. Present subscribers get it, unless it is quiet",
                parameters=(QUIET,),
                body=Content(_REQUEST, "the message"),
                answers={204: NOTHING},
                refusals=REFUSALS,
            ),
            Route(
                method="DELETE",
                path=f"{API_PREFIX}/messages",
                handler=self.clear,
                scope=Scope.RETAINED_WRITE,
                summary="Clear the matching messages, or all without a filter; with dry_run, only count them",
                parameters=(
                    FILTER,
                    query("dry_run", FLAG, "whether nothing is changed"),
                    query("limit", whole(1, _MOST), "the most messages of this call"),
                    CURSOR,
                    QUIET,
                ),
                answers={200: Content(_CLEARED, "the number of messages"), 204: NOTHING},
                refusals=REFUSALS,
            ),
            *self._message_routes(
                f"{API_PREFIX}/message", query("topic", TOPIC_FILTER, "a topic or a filter", required=True)
            ),
            *self._message_routes(
                f"{API_PREFIX}/message/{{topic}}",
                in_path("topic", TOPIC_FILTER, "a topic or a filter, percent-encoded", rest=True),
            ),
            Route(
                method="GET",
                path=f"{API_PREFIX}/export",
                handler=self.export,
                scope=Scope.READ,
                summary="The matching messages with their payloads, one JSON object a line",
                parameters=(FILTER, CURSOR, AT),
                answers={200: Content(STRING, "the messages", NDJSON)},
                refusals=REFUSALS,
            ),
        )

    def _message_routes(self, path: str, topic: Parameter) -> Iterable[Route]:
        """Return the routes of one message. EMQX has its topic in the path; not every proxy leaves that as it is."""
        yield Route(
            method="GET",
            path=path,
            handler=self.message,
            scope=Scope.READ,
            summary="The message of a topic, or the first that matches a filter, with its payload",
            parameters=(topic, AT),
            answers={200: Content(SUMMARY, "the message")},
            refusals=REFUSALS,
        )
        yield Route(
            method="DELETE",
            path=path,
            handler=self.clear_message,
            scope=Scope.RETAINED_WRITE,
            summary="Clear a topic, or all topics that match a filter",
            parameters=(topic, QUIET),
            answers={204: NOTHING},
            refusals=REFUSALS,
        )

    @inlineCallbacks
    def messages(self, call: Call) -> Generator[Deferred[Any], Any, Answer]:
        """List messages: a page by its number, or the page after a cursor."""
        arguments = call.arguments
        topic_filter = filter_of(arguments, EVERY_TOPIC)
        limit = number_of(arguments, "limit", 100, MOST_LISTED)
        number = number_of(arguments, "page", 1, _MOST)
        after = cursor_of(arguments)
        skipped = (number - 1) * limit
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
        meta: dict[str, Any] = {"page": number, "limit": limit, "hasnext": full, "cursor": cursor if full else None}
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
