"""Calls about single revisions of a topic: the topics of the history, and the difference of two revisions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from attrs import field, frozen
from twisted.internet.defer import Deferred

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
from holdfast.admin.routing import Content, Route, query, routes_of
from holdfast.changes.entries import HistoryEvent
from holdfast.changes.history import KnownTopic, RetainedHistory
from holdfast.core.messages import ChangeKind
from holdfast.core.topics import EVERY_TOPIC
from holdfast.core.units import date_of
from holdfast.scheduling.waiting import as_deferred

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

    def __init__(self, history: RetainedHistory, now: Callable[[], int], pause: Callable[[], Deferred[None]]) -> None:
        self._history = history
        self._now = now
        self._pause = pause
        self.routes = routes_of(self)

    @Route(
        method="GET",
        path=f"{API_PREFIX}/history/topics",
        scope=Scope.READ,
        summary="List a page of the topics in the history, with their latest changes",
        parameters=(FILTER, query("limit", whole(1, MOST_TOPICS, 100), "the most topics of a page"), CURSOR),
        answers={200: Content(page(_KNOWN), "the page")},
        refusals=REFUSALS,
    )
    @as_deferred
    async def topics(self, call: Call) -> Answer:
        """List the topics that the history knows, also those without a message now, with their latest change."""
        arguments = call.arguments
        topic_filter = filter_of(arguments, EVERY_TOPIC)
        limit = number_of(arguments, "limit", 100, MOST_TOPICS)
        after, done = cursor_of(arguments), False
        found: list[KnownTopic] = []
        read_limit, over = ReadLimit(self._now), False
        while not (done or over or len(found) > limit):
            known = await self._history.topics(topic_filter, after)
            found += known.topics
            after, done, over = known.after, known.done, read_limit.is_reached()
            await self._pause()
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

    @Route(
        method="GET",
        path=f"{API_PREFIX}/diff",
        scope=Scope.READ,
        summary="Compare two revisions of a topic: by default, the latest one and the one before",
        parameters=(
            query("topic", {**TOPIC, "minLength": 1}, "the topic", required=True),
            query("from", _REVISION, "the revision before"),
            query("to", _REVISION, "the revision after"),
        ),
        answers={200: Content(_DIFFERENCES, "the differences")},
        refusals=REFUSALS,
    )
    @as_deferred
    async def diff(self, call: Call) -> Answer:
        """Compare two revisions of a topic: by default the latest one with the one before it."""
        arguments = call.arguments
        topic = filter_of(arguments)
        if "+" in topic or "#" in topic:
            raise bad_request("topic: name one topic, without wildcards", "topic", "a Topic Name")
        earlier, later = _revision_of(arguments, "from"), _revision_of(arguments, "to")
        old, new = await self._history.pair(topic, earlier, later)
        await self._pause()
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


# The differences between two payloads: by path where both are JSON, by line where both are text. Pure.
#
# How it works. Two JSON values are compared member by member; a path is a JSON Pointer (RFC 6901)::
#
#     {"a": 1, "b": [1, 2]}   {"a": 2, "b": [1]}      changed /a: 1, 2; removed /b/1: 2
#
# Texts lose their common first and last lines. What is left is compared by the longest common subsequence if it is
# short, and is one changed block otherwise. The comparison runs in the reactor's turn, so its cost is bounded: larger
# payloads are only compared for equality.


#: The bytes of a payload whose content is compared.
LARGEST_COMPARED = 64 * 1024
#: The most differences that are told.
MOST_CHANGES = 500
#: The most pairs of lines that are compared.
_MOST_PAIRS = 40_000
_ABSENT: Any = object()


@frozen
class Difference:
    """One difference. A difference that is "added" has no ``before``, one that is "removed" no ``after``."""

    kind: str  #: "added", "removed" or "changed"
    where: str | int  #: the path of a JSON value; the number of a line, from 1 on, in the later text
    before: Any = _ABSENT
    after: Any = _ABSENT

    def record(self, name: str) -> dict[str, Any]:
        """Return it as JSON; ``name`` is the name of ``where``."""
        told = {"kind": self.kind, name: self.where}
        if self.before is not _ABSENT:
            told["before"] = self.before
        if self.after is not _ABSENT:
            told["after"] = self.after
        return told


@frozen
class Differences:
    """What two payloads are ("json", "text" or "bytes"), and their differences: the first ``MOST_CHANGES``.

    Bytes have none: they are equal or not.
    """

    content: str
    equal: bool
    changes: Sequence[Difference] = field(factory=tuple)
    truncated: bool = False


def differences(before: bytes | None, after: bytes | None) -> Differences:
    """Compare two payloads; None is no message."""
    equal = before == after
    present = [one for one in (before, after) if one is not None]
    if any(len(one) > LARGEST_COMPARED for one in present):
        return Differences("bytes", equal)
    values = [_json_of(one) for one in present]
    if present and all(value is not _ABSENT for value in values):
        old, new = (_json_of(one) if one is not None else _ABSENT for one in (before, after))
        return _told("json", equal, _json_changes(old, new))
    try:
        texts = [None if one is None else one.decode() for one in (before, after)]
    except UnicodeDecodeError:
        return Differences("bytes", equal)
    return _told("text", equal, _line_changes(*([] if text is None else text.split("\n") for text in texts)))


def _told(content: str, equal: bool, found: Iterator[Difference]) -> Differences:
    changes: list[Difference] = []
    for change in found:
        if len(changes) == MOST_CHANGES:
            return Differences(content, equal, changes, True)
        changes.append(change)
    return Differences(content, equal, changes)


def _json_of(payload: bytes) -> Any:
    """Return the value of a payload, ``_ABSENT`` if it is not JSON that can be written again."""
    try:
        value = json.loads(payload.decode())
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()  # NaN and half surrogate pairs fail here
    except (ValueError, RecursionError):
        return _ABSENT
    return value


def _json_changes(before: Any, after: Any) -> Iterator[Difference]:
    """Yield the differences in the order of the paths' first occurrence."""
    waiting = [("", before, after)]
    while waiting:
        path, old, new = waiting.pop()
        if old is _ABSENT:
            yield Difference("added", path, after=new)
        elif new is _ABSENT:
            yield Difference("removed", path, before=old)
        elif isinstance(old, dict) and isinstance(new, dict):
            names = list(dict.fromkeys([*old, *new]))
            waiting += [
                (f"{path}/{_escaped(name)}", old.get(name, _ABSENT), new.get(name, _ABSENT)) for name in reversed(names)
            ]
        elif isinstance(old, list) and isinstance(new, list):
            waiting += [
                (f"{path}/{at}", *(one[at] if at < len(one) else _ABSENT for one in (old, new)))
                for at in reversed(range(max(len(old), len(new))))
            ]
        elif type(old) is not type(new) or old != new:  # true equals 1 in Python
            yield Difference("changed", path, old, new)


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _line_changes(before: Sequence[str], after: Sequence[str]) -> Iterator[Difference]:
    """Yield the differences of lines in their order."""
    first, shorter = 0, min(len(before), len(after))
    while first < shorter and before[first] == after[first]:
        first += 1
    last = 0
    while last < shorter - first and before[-1 - last] == after[-1 - last]:
        last += 1
    old, new = before[first : len(before) - last], after[first : len(after) - last]
    if len(old) * len(new) > _MOST_PAIRS:
        yield Difference("changed", first + 1, "\n".join(old), "\n".join(new))
        return
    common = _common_lengths(old, new)
    at, other = 0, 0
    while at < len(old) or other < len(new):
        if at < len(old) and other < len(new) and old[at] == new[other]:
            at, other = at + 1, other + 1
        elif other == len(new) or (at < len(old) and common[at + 1][other] >= common[at][other + 1]):
            yield Difference("removed", first + other + 1, before=old[at])
            at += 1
        else:
            yield Difference("added", first + other + 1, after=new[other])
            other += 1


def _common_lengths(old: Sequence[str], new: Sequence[str]) -> list[list[int]]:
    """Return the length of the longest common subsequence for each pair of rests."""
    lengths = [[0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for at in reversed(range(len(old))):
        row, following = lengths[at], lengths[at + 1]
        for other in reversed(range(len(new))):
            row[other] = following[other + 1] + 1 if old[at] == new[other] else max(following[other], row[other + 1])
    return lengths
