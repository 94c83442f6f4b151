"""Calls about the history and the telemetry: list changes and messages, confirm archived changes, restore messages."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from attrs import asdict
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from holdfast.admin.address import API_PREFIX
from holdfast.admin.api.jobs import JOB
from holdfast.admin.api.lists import PRESENT_CONDITIONS, ReadLimit, search_of
from holdfast.admin.api.parameters import CURSOR, FILTER, REFUSALS
from holdfast.admin.arguments import (
    FLAG,
    INTEGER,
    MOMENT,
    STRING,
    TIME,
    TOPIC_FILTER,
    check_fields,
    choice_of,
    cursor_of,
    digits_of,
    filter_of,
    flag_of,
    nullable,
    number_of,
    object_of,
    one_of,
    page,
    position_of,
    record,
    request,
    time_of,
    whole,
)
from holdfast.admin.call import Answer, Call, Scope, answer, bad_request
from holdfast.admin.jobs import Job, Jobs, accepted
from holdfast.admin.routing import Content, Parameter, Route, query, routes_of
from holdfast.changes.entries import HistoryEvent
from holdfast.changes.history import RetainedHistory
from holdfast.changes.restoring import Restored, Restorer
from holdfast.changes.telemetry import Telemetry
from holdfast.changes.telemetry_table import TelemetryMessage
from holdfast.core.terminal import counted
from holdfast.core.topics import EVERY_TOPIC
from holdfast.core.units import date_of
from holdfast.retained.records import LARGEST_SHOWN, properties_of
from holdfast.retained.store.values import Search
from holdfast.scheduling.waiting import as_deferred

#: The most events of a page.
MOST_EVENTS = 1000
#: The topics that one call restores by default: few enough for a short commit.
_TOPICS = 1000
_MOST = 2**53
#: the records of a page, the cursor behind it, and whether it is the last one
_Page = tuple[Sequence[dict[str, Any]], int, bool]
_EXAMPLE = '{"seq": "123"}'
_ORDERS = ("oldest", "newest")
_EVENT = record(
    {
        "seq": STRING,
        "changed_at": TIME,
        "op": STRING,
        "origin": STRING,
        "topic": STRING,
        "qos": INTEGER,
        "size": INTEGER,
        "from_clientid": nullable(STRING),
        "from_username": nullable(STRING),
        "operator": nullable(STRING),
        "expiry_at": nullable(TIME),
        "properties": {"type": "object"},
        "revision": STRING,
    }
)
_MESSAGE = record(
    {
        "seq": STRING,
        "received_at": TIME,
        "topic": STRING,
        "qos": INTEGER,
        "size": INTEGER,
        "from_clientid": nullable(STRING),
        "from_username": nullable(STRING),
        "expiry_at": nullable(TIME),
        "properties": {"type": "object"},
    }
)


def _of_a_page(noun: str) -> tuple[Parameter, ...]:
    """Return the parameters of a list by time, of changes or of messages."""
    return (
        FILTER,
        query("since", MOMENT, f"the time of the oldest {noun}"),
        query("until", MOMENT, f"the time of the newest {noun}"),
        query("limit", whole(1, MOST_EVENTS, 100), f"the most {noun}s of a page"),
        CURSOR,
        query("first", one_of(*_ORDERS), f"which {noun}s come first"),
    )


class HistoryCalls:
    """Answers calls about the history and the telemetry.

    ``now`` returns milliseconds since the epoch; ``pause`` fires after the reactor has run its other work.
    """

    _log = Logger()

    def __init__(
        self,
        history: RetainedHistory,
        telemetry: Telemetry,
        restorer: Restorer,
        now: Callable[[], int],
        pause: Callable[[], Deferred[None]],
        jobs: Jobs,
    ) -> None:
        self._jobs = jobs
        self._history = history
        self._telemetry = telemetry
        self._restorer = restorer
        self._now = now
        self._pause = pause
        self.routes = routes_of(self)

    @Route(
        method="GET",
        path=f"{API_PREFIX}/history",
        scope=Scope.READ,
        summary="List a page of changes of retained messages; an empty page is the last one",
        parameters=_of_a_page("change"),
        answers={200: Content(page(_EVENT), "the page")},
        refusals=REFUSALS,
    )
    @as_deferred
    async def events(self, call: Call) -> Answer:
        """List a page of changes, from a cursor on. A page may be empty without being the last one."""

        async def read(*asked: Any) -> _Page:
            page = await self._history.events(*asked)
            return [record_of(event) for event in page.events], page.cursor, page.done

        return await self._listed(call, read)

    @Route(
        method="GET",
        path=f"{API_PREFIX}/telemetry",
        scope=Scope.READ,
        summary="List a page of recorded messages without RETAIN; an empty page is the last one",
        parameters=_of_a_page("message"),
        answers={200: Content(page(_MESSAGE), "the page")},
        refusals=REFUSALS,
    )
    @as_deferred
    async def messages(self, call: Call) -> Answer:
        """List a page of the telemetry, from a cursor on. A page may be empty without being the last one."""

        async def read(*asked: Any) -> _Page:
            page = await self._telemetry.messages(*asked)
            return [message_record(message) for message in page.messages], page.cursor, page.done

        return await self._listed(call, read)

    async def _listed(self, call: Call, read: Callable[..., Awaitable[_Page]]) -> Answer:
        """Answer with the first page that has anything, or the last one, as ``read`` reads them."""
        arguments = call.arguments
        topic_filter = filter_of(arguments, EVERY_TOPIC)
        limit = number_of(arguments, "limit", 100, MOST_EVENTS)
        since = time_of(arguments, "since", self._now())
        until = time_of(arguments, "until", self._now())
        first = choice_of(arguments, "first", _ORDERS)
        cursor, done = position_of(arguments), False
        data: Sequence[dict[str, Any]] = ()
        read_limit, over = ReadLimit(self._now), False
        while not (data or done or over):
            data, cursor, done = await read(topic_filter, since, limit, cursor, until, first == "newest")
            over = read_limit.is_reached()
            if not done:
                await self._pause()
        return answer({"data": data, "meta": {"limit": limit, "hasnext": not done, "cursor": str(cursor)}})

    @Route(
        method="POST",
        path=f"{API_PREFIX}/history/archived",
        scope=Scope.ADMIN,
        stores=True,
        summary="Confirm that an archive holds all changes up to one: only these may be pruned",
        body=Content(request({"seq": STRING}, required=("seq",)), "the number of the change"),
        answers={200: Content(record({"seq": STRING}), "the number that is recorded")},
        refusals=REFUSALS,
    )
    @as_deferred
    async def archived(self, call: Call) -> Answer:
        """Record the last change that an archive has: later changes are not pruned."""
        recorded = await self._history.archived(_seq_in(call))
        return answer({"seq": str(recorded)})

    @Route(
        method="POST",
        path=f"{API_PREFIX}/restore",
        scope=Scope.RETAINED_WRITE,
        stores=True,
        summary="Restore the messages that were retained at a time, for the next topics after a cursor",
        parameters=(
            query("topic", TOPIC_FILTER, "the Topic Filter", required=True),
            query("at", MOMENT, "the time as of which", required=True),
            query("dry_run", FLAG, "whether nothing is changed"),
            query("clear", FLAG, "whether topics that had no message then are cleared"),
            query("limit", whole(1, _MOST, _TOPICS), "the most topics of this call"),
            CURSOR,
            *PRESENT_CONDITIONS,
        ),
        answers={
            200: Content({"type": "object"}, "the numbers of topics"),
            202: Content(JOB, "the job, if the header is Prefer: respond-async, without dry_run and limit"),
        },
        refusals=REFUSALS,
    )
    @as_deferred
    async def restore(self, call: Call) -> Answer:
        """Restore the retained messages of a moment, for the next topics after a cursor.

        Conditions select topics by their present message. With ``Prefer: respond-async`` a job restores all topics; a
        dry run, or a call with a limit, ignores that.
        """
        arguments = call.arguments
        topic_filter = filter_of(arguments)
        at = time_of(arguments, "at", self._now())
        if at is None:
            raise bad_request("name a time: ?at=...", "at")
        dry_run, clear = flag_of(arguments, "dry_run"), flag_of(arguments, "clear")
        most = number_of(arguments, "limit", _TOPICS, _MOST)
        after = cursor_of(arguments)
        search = search_of(arguments, topic_filter, self._now())
        if call.prefers_job and "limit" not in arguments and not dry_run:
            work = partial(
                self._restore_all, topic_filter=topic_filter, at=at, clear=clear, after=after,
                operator=str(call.caller), search=search,
            )  # fmt: skip
            return accepted(self._jobs.begin("restore", str(call.caller), work, topic_filter, REFUSALS))
        counts = await self._restorer.restore(
            topic_filter, at, dry_run, clear, after, most, operator=str(call.caller), search=search
        )
        self._log_restored(counts, topic_filter, at, dry_run)
        return answer(_told(counts, at, dry_run))

    @as_deferred
    async def _restore_all(
        self, job: Job, *, topic_filter: str, at: int, clear: bool, after: str, operator: str, search: Search
    ) -> dict[str, Any]:
        def told(counts: Restored) -> None:
            job.done, job.result = counts.topics, _told(counts, at, False)

        counts = await self._restorer.restore(
            topic_filter, at, False, clear, after, progress=told, operator=operator, search=search
        )
        self._log_restored(counts, topic_filter, at, False)
        return _told(counts, at, False)

    def _log_restored(self, counts: Restored, topic_filter: str, at: int, dry_run: bool) -> None:
        if counts.topics and not dry_run:
            self._log.info(
                "restored {topics} as of {at}: {filter}",
                topics=counted(counts.topics, "topic"), count=counts.topics, at=date_of(at), filter=topic_filter,
            )  # fmt: skip


def _told(counts: Restored, at: int, dry_run: bool) -> dict[str, Any]:
    """Return the numbers of a restore as JSON."""
    told = asdict(counts)
    after, done = told.pop("after"), told.pop("done")
    meta = {"hasnext": not done, "cursor": None if done else after}
    return {**told, "at": date_of(at), "dry_run": dry_run, "meta": meta}


def _seq_in(call: Call) -> int:
    """Return the number in ``{"seq": "..."}``; no other key is allowed."""
    fields = object_of(call, _EXAMPLE)
    check_fields(fields, ("seq",))
    text = fields.get("seq")
    seq = digits_of(text) if isinstance(text, str) else None
    if seq is None:
        raise bad_request(
            f"the body is {_EXAMPLE}: the number of the last change that the archive has", "seq", "digits in a string"
        )
    return seq


def record_of(event: HistoryEvent) -> dict[str, Any]:
    """Return a change as JSON, without its payload if that is too large."""
    shown = {
        "seq": str(event.seq),
        "changed_at": date_of(event.changed_at),
        "op": event.kind.value,
        "origin": event.origin.value,
        "topic": event.topic,
        "qos": event.qos,
        "size": len(event.payload),
        "from_clientid": event.client_id,
        "from_username": event.username,
        "operator": event.operator,
        "expiry_at": None if event.expires_at is None else date_of(event.expires_at),
        "properties": properties_of(event.properties),
        "revision": str(event.revision),
    }
    return _with_payload(shown, event.payload)


def message_record(message: TelemetryMessage) -> dict[str, Any]:
    """Return a recorded message as JSON, without its payload if that is too large."""
    shown = {
        "seq": str(message.seq),
        "received_at": date_of(message.received_at),
        "topic": message.topic,
        "qos": message.qos,
        "size": len(message.payload),
        "from_clientid": message.client_id,
        "from_username": message.username,
        "expiry_at": None if message.expires_at is None else date_of(message.expires_at),
        "properties": properties_of(message.properties),
    }
    return _with_payload(shown, message.payload)


def _with_payload(shown: dict[str, Any], payload: bytes) -> dict[str, Any]:
    if len(payload) <= LARGEST_SHOWN:
        shown["payload"] = b64encode(payload).decode()
    return shown
