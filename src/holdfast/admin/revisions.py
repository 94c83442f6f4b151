"""Calls about single revisions of a topic: the topics of the history, and the difference of two revisions."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from holdfast.admin.arguments import cursor_of, filter_of, number_of
from holdfast.admin.calls import Answer, Call, Routes, answer, bad_request, not_found
from holdfast.admin.history import record_of
from holdfast.messages import ChangeKind
from holdfast.retained.history.differences import LARGEST_COMPARED, differences
from holdfast.retained.history.entries import HistoryEvent
from holdfast.retained.history.revisions import KnownTopic, NoSuchRevision, RevisionReader
from holdfast.retained.records import date_of
from holdfast.topics import EVERY_TOPIC

#: The most topics of a page.
MOST_TOPICS = 1000
_WHERE = {"json": "path", "text": "line", "bytes": "at"}
_MOST_DIGITS = 19


class RevisionCalls:
    """Answers calls about revisions. ``pause`` fires after the reactor has run its other work."""

    def __init__(self, reader: RevisionReader, pause: Callable[[], Deferred[None]]) -> None:
        self._reader = reader
        self._pause = pause
        self.routes: Routes = {
            "/history/topics": {"GET": (self.topics, ("topic", "limit", "cursor"))},
            "/diff": {"GET": (self.diff, ("topic", "from", "to"))},
        }

    @inlineCallbacks
    def topics(self, call: Call) -> Generator[Deferred[Any], Any, Answer]:
        """List the topics that the history knows, also those without a message now, with their latest change."""
        arguments = call.arguments
        topic_filter = filter_of(arguments, EVERY_TOPIC)
        limit = number_of(arguments, "limit", 100, MOST_TOPICS)
        after, done = cursor_of(arguments), False
        found: list[KnownTopic] = []
        while not done and len(found) <= limit:
            page = yield self._reader.topics(topic_filter, after)
            found += page.topics
            after, done = page.after, page.done
            yield self._pause()
        more = len(found) > limit
        cursor = found[limit - 1].topic if more else None
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
            raise bad_request("topic: name one topic, without wildcards")
        earlier, later = _revision_of(arguments, "from"), _revision_of(arguments, "to")
        try:
            old, new = yield self._reader.pair(topic, earlier, later)
        except NoSuchRevision as refusal:
            raise not_found(str(refusal)) from None
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
        raise bad_request(f"{name} is a revision of the topic, as GET /history shows it")
    return int(text)


def _payload_of(event: HistoryEvent | None) -> bytes | None:
    return None if event is None or event.kind is not ChangeKind.SET else event.payload


def _change_of(event: HistoryEvent) -> dict[str, Any]:
    record = record_of(event)
    record.pop("payload", None)
    return record
