"""Calls about single revisions of a topic: the topics of the history, and the difference of two revisions."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from holdfast.admin.address import API_PREFIX
from holdfast.admin.api.history import record_of
from holdfast.admin.api.lists import ReadLimit
from holdfast.admin.api.parameters import CURSOR, FILTER, REFUSALS
from holdfast.admin.arguments import (
    BOOLEAN,
    INTEGER,
    STRING,
    TIME,
    TOPIC,
    array,
    cursor_of,
    filter_of,
    number_of,
    page,
    record,
    whole,
)
from holdfast.admin.call import Answer, Call, Scope, answer, bad_request
from holdfast.admin.routing import Content, Route, query
from holdfast.core.messages import ChangeKind
from holdfast.core.topics import EVERY_TOPIC
from holdfast.core.units import date_of
from holdfast.retained.changes.entries import HistoryEvent
from holdfast.retained.changes.revisions import LARGEST_COMPARED, KnownTopic, RevisionReader, differences

#: The most topics of a page.
MOST_TOPICS = 1000
_WHERE = {"json": "path", "text": "line", "bytes": "at"}
_MOST_DIGITS = 19
_REVISION = {"type": "string", "pattern": "^[0-9]{1,19}$"}
_KNOWN = record({"topic": STRING, "op": STRING, "changed_at": TIME, "size": INTEGER, "revision": STRING})
_DIFFERENCES = record(
    {
        "topic": STRING,
        "from": {"type": ["object", "null"]},
        "to": {"type": "object"},
        "content": {"type": "string", "enum": [*_WHERE]},
        "equal": BOOLEAN,
        "changes": array({"type": "object"}),
        "truncated": BOOLEAN,
    }
)


class RevisionCalls:
    """Answers calls about revisions.

    ``now`` returns milliseconds since the epoch; ``pause`` fires after the reactor has run its other work.
    """

    def __init__(self, reader: RevisionReader, now: Callable[[], int], pause: Callable[[], Deferred[None]]) -> None:
        self._reader = reader
        self._now = now
        self._pause = pause
        self.routes: tuple[Route, ...] = (
            Route(
                method="GET",
                path=f"{API_PREFIX}/history/topics",
                handler=self.topics,
                scope=Scope.READ,
                summary="List a page of the topics in the history, with their latest changes",
                parameters=(FILTER, query("limit", whole(1, MOST_TOPICS, 100), "the most topics of a page"), CURSOR),
                answers={200: Content(page(_KNOWN), "the page")},
                refusals=REFUSALS,
            ),
            Route(
                method="GET",
                path=f"{API_PREFIX}/diff",
                handler=self.diff,
                scope=Scope.READ,
                summary="Compare two revisions of a topic: by default, the latest one and the one before",
                parameters=(
                    query("topic", {**TOPIC, "minLength": 1}, "the topic", required=True),
                    query("from", _REVISION, "the revision before"),
                    query("to", _REVISION, "the revision after"),
                ),
                answers={200: Content(_DIFFERENCES, "the differences")},
                refusals=REFUSALS,
            ),
        )

    @inlineCallbacks
    def topics(self, call: Call) -> Generator[Deferred[Any], Any, Answer]:
        """List the topics that the history knows, also those without a message now, with their latest change."""
        arguments = call.arguments
        topic_filter = filter_of(arguments, EVERY_TOPIC)
        limit = number_of(arguments, "limit", 100, MOST_TOPICS)
        after, done = cursor_of(arguments), False
        found: list[KnownTopic] = []
        read_limit, over = ReadLimit(self._now), False
        while not (done or over or len(found) > limit):
            known = yield self._reader.topics(topic_filter, after)
            found += known.topics
            after, done, over = known.after, known.done, read_limit.is_reached()
            yield self._pause()
        more = len(found) > limit or not done
        cursor = (found[limit - 1].topic if len(found) > limit else after) if more else None
        data = [
            {
                "topic": one.topic, "op": one.op, "changed_at": date_of(one.changed_at), "size": one.size,
                "revision": str(one.revision),
            }
            for one in found[:limit]
        ]  # fmt: skip
        return answer({"data": data, "meta": {"limit": limit, "hasnext": more, "cursor": cursor}})

    @inlineCallbacks
    def diff(self, call: Call) -> Generator[Deferred[Any], Any, Answer]:
        """Compare two revisions of a topic: by default the latest one with the one before it."""
        arguments = call.arguments
        topic = filter_of(arguments)
        if "+" in topic or "#" in topic:
            raise bad_request("topic: name one topic, without wildcards", "topic", "a Topic Name")
        earlier, later = _revision_of(arguments, "from"), _revision_of(arguments, "to")
        old, new = yield self._reader.pair(topic, earlier, later)
        yield self._pause()
        found = differences(_payload_of(old), _payload_of(new))
        return answer(
            {
                "topic": topic,
                "from": None if old is None else _change_of(old),
                "to": _change_of(new),
                "content": found.content,
                "equal": found.equal,
                "changes": [change.record(_WHERE[found.content]) for change in found.changes],
                "truncated": found.truncated,
                "largest_compared": LARGEST_COMPARED,
            }
        )


def _revision_of(arguments: Mapping[str, str], name: str) -> int | None:
    text = arguments.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS and int(text) < 1 << 63):
        allowed = "a revision of the topic, as GET /history shows it"
        raise bad_request(f"{name} is {allowed}", name, allowed)
    return int(text)


def _payload_of(event: HistoryEvent | None) -> bytes | None:
    return None if event is None or event.kind is not ChangeKind.SET else event.payload


def _change_of(event: HistoryEvent) -> dict[str, Any]:
    record = record_of(event)
    record.pop("payload", None)
    return record
