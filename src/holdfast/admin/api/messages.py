"""Calls about retained messages: list, show, retain, clear."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

from attrs import evolve

from holdfast.admin.address import API_PREFIX
from holdfast.admin.api.jobs import JOB
from holdfast.admin.api.lists import (
    CONDITIONS,
    MOST_READS,
    PAGE_BYTES,
    SORTING,
    ReadLimit,
    SearchAnswers,
    Tokens,
    lister_of,
    search_of,
    sorting_of,
)
from holdfast.admin.api.parameters import AT, BEGINNING, CURSOR, FILTER, PAYLOAD, QUIET, REFUSALS, SUMMARY
from holdfast.admin.arguments import (
    BOOLEAN,
    FLAG,
    INTEGER,
    TOPIC_FILTER,
    cursor_of,
    filter_of,
    flag_of,
    json_of,
    nullable,
    number_of,
    one_of,
    page,
    record,
    request,
    whole,
)
from holdfast.admin.call import DONE, Answer, Call, Scope, answer, bad_request, not_found
from holdfast.admin.jobs import Job, Jobs, accepted
from holdfast.admin.routing import NOTHING, Content, Route, in_path, query, routes_of
from holdfast.changes.history import RetainedHistory
from holdfast.core.topics import EVERY_TOPIC
from holdfast.retained.administration import BYTES_IN_TURN, ROWS_IN_TURN, Administration, Cleared
from holdfast.retained.records import detail_of, request_of, summary_of
from holdfast.retained.store.values import Search
from holdfast.scheduling.fair_line import LineFull
from holdfast.scheduling.waiting import as_deferred

#: The most messages of a page, as in EMQX.
MOST_LISTED = 10_000
_MOST = 2**53

#: null stands for a field that is absent
_REQUEST = request(
    {
        "topic": {"type": "string", "minLength": 1},
        "payload": {"type": "string", "minLength": 1},
        "payload_encoding": nullable(one_of("plain", "base64")),
        "qos": nullable(whole(0, 2, 0)),
        "properties": nullable({"type": "object"}),
        "quiet": nullable(FLAG),
    },
    required=("topic", "payload"),
)
_TOPIC = in_path("topic", TOPIC_FILTER, "a topic or a filter, percent-encoded", rest=True)
_CLEARED = record({"count": INTEGER, "dry_run": BOOLEAN, "meta": {"type": "object"}})


class MessageCalls:
    """Answers calls about the retained messages of now or of a moment."""

    def __init__(self, administration: Administration, history: RetainedHistory, tokens: Tokens, jobs: Jobs) -> None:
        self._administration = administration
        self._jobs = jobs
        self._history = history
        self._tokens = tokens
        self._searches = SearchAnswers(administration.searches)
        self.routes = routes_of(self)

    @Route(
        method="GET",
        path=f"{API_PREFIX}/messages",
        scope=Scope.READ,
        summary="List a page of retained messages, sorted by topic unless sort names another order",
        parameters=(
            FILTER,
            query("page", whole(1, _MOST, 1), "the number of the page"),
            query("limit", whole(1, MOST_LISTED, 100), "the most messages of a page"),
            CURSOR,
            AT,
            PAYLOAD,
            BEGINNING,
            *SORTING,
            *CONDITIONS,
        ),
        answers={200: Content(page(SUMMARY), "the page")},
        refusals=REFUSALS,
    )
    @as_deferred
    async def messages(self, call: Call) -> Answer:
        """List messages: a page by its number, or the page after a cursor. Conditions and an order need a cursor."""
        arguments = call.arguments
        topic_filter = filter_of(arguments, EVERY_TOPIC)
        search = search_of(arguments, topic_filter, self._administration.now())
        sorting = sorting_of(arguments)
        payloads = flag_of(arguments, "payload")
        if sorting is not None or not search.plain:
            for name in ("page", "at"):
                if name in arguments:
                    raise bad_request(f"{name} is not allowed together with conditions or an order", name, "nothing")
            searching = self._searches.found if sorting is None else partial(self._searches.sorted, sorting=sorting)
            token = await self._tokens.of_first_page(arguments)
            found: Answer = await searching(call, search, token)
            return found
        if "at" in arguments and "beginning" in arguments:
            raise bad_request("beginning is not allowed together with at: ask for payload=true", "beginning", "nothing")
        limit = number_of(arguments, "limit", 100, MOST_LISTED)
        number = number_of(arguments, "page", 1, _MOST)
        after = cursor_of(arguments)
        skipped = (number - 1) * limit
        rows: list[dict[str, Any]] = []
        weight, done, full, over = 0, False, False, False
        cursor, read_limit = after, ReadLimit(self._administration.now)
        token = await self._tokens.of_first_page(arguments)
        lister = await lister_of(arguments, self._administration, self._history, topic_filter)
        while not (done or full or over):
            listing = await lister(
                topic_filter, after, min(ROWS_IN_TURN, skipped + limit + 1 - len(rows)), BYTES_IN_TURN, payloads
            )
            after, done, over = listing.after, listing.done, read_limit.is_reached()
            for entry in listing.entries:
                if skipped:
                    skipped -= 1
                    continue
                if len(rows) == limit or (rows and weight > PAGE_BYTES):
                    full = True
                    break
                row = detail_of(entry) if payloads else summary_of(entry)
                weight += 300 + 4 * len(row["topic"]) + len(str(row["properties"])) + len(row.get("payload", ""))
                rows.append(row)
                cursor = entry.message.topic
            if not done:
                await self._administration.pause()
        if not (done or full):
            if skipped:
                allowed = f"a page among the first {MOST_READS * ROWS_IN_TURN} messages; use cursor instead"
                raise bad_request(f"page is {allowed}", "page", allowed)
            full, cursor = True, after  # few messages match: the caller goes on
        rows = await self._searches.begun(call, search, rows)
        meta: dict[str, Any] = {"page": number, "limit": limit, "hasnext": full, "cursor": cursor if full else None}
        if "at" in arguments:
            meta["left_out"] = list(listing.left_out)
        if token is not None:
            meta["token"] = token
        if "topic" not in arguments and "at" not in arguments:
            statistics = await self._administration.statistics()
            meta["count"] = statistics.count
        return answer({"data": rows, "meta": meta})

    @Route(
        method="POST",
        path=f"{API_PREFIX}/messages",
        scope=Scope.RETAINED_WRITE,
        stores=True,
        summary="Retain a message, and send it to present subscribers unless quiet is true",
        parameters=(QUIET,),
        body=Content(_REQUEST, "the message", most_bytes=None),
        answers={204: NOTHING},
        refusals=REFUSALS,
    )
    @as_deferred
    async def retain(self, call: Call) -> Answer:
        """Retain a message. Present subscribers get it, unless the request is quiet."""
        quiet = flag_of(call.arguments, "quiet")
        request = request_of(json_of(call), self._administration.now())
        message = evolve(request.message, operator=str(call.caller))
        await self._administration.set(message, request.quiet or quiet)
        return DONE

    @Route(
        method="DELETE",
        path=f"{API_PREFIX}/messages",
        scope=Scope.RETAINED_WRITE,
        stores=True,
        summary="Clear the matching messages, or all messages without a filter; with dry_run, only count them",
        parameters=(
            FILTER,
            query("dry_run", FLAG, "whether nothing is changed"),
            query("limit", whole(1, _MOST), "the most messages of this call"),
            CURSOR,
            QUIET,
            *CONDITIONS,
        ),
        answers={
            200: Content(_CLEARED, "the number of messages"),
            202: Content(JOB, "the job, if the header is Prefer: respond-async, without dry_run and limit"),
            204: NOTHING,
        },
        refusals=REFUSALS,
    )
    @as_deferred
    async def clear(self, call: Call) -> Answer:
        """Clear the matching messages, or count them. Without a filter, clear all messages, and answer like EMQX.

        Present subscribers get each clear as an empty message, unless the call is quiet. With ``Prefer: respond-async``
        a job clears them; a dry run, or a call with a limit, is short and ignores that.
        """
        arguments = call.arguments
        quiet = flag_of(arguments, "quiet")
        if call.prefers_job and "limit" not in arguments and not flag_of(arguments, "dry_run"):
            return self._begin_clear(call)
        if not arguments.keys() - {"quiet"}:
            await self._administration.clear(EVERY_TOPIC, quiet=quiet, operator=str(call.caller))
            return DONE
        dry_run = flag_of(arguments, "dry_run")
        rows = number_of(arguments, "limit", 0, _MOST) or None
        topic_filter = filter_of(arguments)
        search = search_of(arguments, topic_filter, self._administration.now())
        after = cursor_of(arguments)
        cleared = await self._administration.clear(
            topic_filter, after, rows, dry_run, quiet, search, operator=str(call.caller)
        )
        meta = {"hasnext": not cleared.done, "cursor": None if cleared.done else cleared.after}
        return answer({"count": cleared.count, "dry_run": dry_run, "meta": meta})

    def _begin_clear(self, call: Call) -> Answer:
        everything = not call.arguments.keys() - {"quiet"}
        topic_filter = EVERY_TOPIC if everything else filter_of(call.arguments)
        search = search_of(call.arguments, topic_filter, self._administration.now())
        after, quiet = cursor_of(call.arguments), flag_of(call.arguments, "quiet")
        operator = str(call.caller)
        work = partial(
            self._clear_all, topic_filter=topic_filter, search=search, after=after, quiet=quiet, operator=operator
        )
        return accepted(self._jobs.begin("clear", operator, work, topic_filter or "all topics", REFUSALS))

    @as_deferred
    async def _clear_all(
        self, job: Job, *, topic_filter: str, search: Search, after: str, quiet: bool, operator: str
    ) -> dict[str, Any]:
        """Clear the messages that are there now: one job, so later messages stay. First count them."""

        def told(cleared: Cleared) -> None:
            meta = {"hasnext": not cleared.done, "cursor": None if cleared.done else cleared.after}
            job.done, job.result = cleared.count, {"count": cleared.count, "dry_run": False, "meta": meta}

        if not after:
            with suppress(LineFull):  # then the total stays unknown
                counted = await self._administration.clear(topic_filter, dry_run=True, search=search)
                job.total = counted.count
        cleared = await self._administration.clear(
            topic_filter, after, quiet=quiet, search=search, progress=told, operator=operator
        )
        told(cleared)
        result: dict[str, Any] = job.result
        return result

    @Route(
        method="GET",
        path=f"{API_PREFIX}/message/{{topic}}",
        scope=Scope.READ,
        summary="Show the message of a topic, or the first one that matches a filter, with its payload",
        parameters=(_TOPIC, AT),
        answers={200: Content(SUMMARY, "the message")},
        refusals=REFUSALS,
    )
    @as_deferred
    async def message(self, call: Call) -> Answer:
        """Show the message of a topic, or the first message that matches a filter."""
        topic_filter = filter_of(call.arguments)
        lister = await lister_of(call.arguments, self._administration, self._history, topic_filter)
        listed = await self._administration.first(topic_filter, lister)
        if listed is None:
            raise not_found("Viewed message doesn't exist")
        return answer(detail_of(listed))

    @Route(
        method="DELETE",
        path=f"{API_PREFIX}/message/{{topic}}",
        scope=Scope.RETAINED_WRITE,
        stores=True,
        summary="Clear a topic, or all topics that match a filter",
        parameters=(_TOPIC, QUIET),
        answers={204: NOTHING},
        refusals=REFUSALS,
    )
    @as_deferred
    async def clear_message(self, call: Call) -> Answer:
        """Clear a topic, or all topics that match a filter."""
        quiet = flag_of(call.arguments, "quiet")
        cleared = await self._administration.clear(filter_of(call.arguments), quiet=quiet, operator=str(call.caller))
        if not cleared.count:
            raise not_found("Viewed message doesn't exist")
        return DONE
