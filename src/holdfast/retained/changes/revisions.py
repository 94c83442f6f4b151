"""Single revisions of a topic in the history, and the topics that the history knows."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Sequence
from functools import partial
from typing import Any

from attrs import field, frozen
from twisted.internet.defer import Deferred, inlineCallbacks

from holdfast.retained.changes.entries import HistoryEvent
from holdfast.retained.changes.history import RetainedHistory
from holdfast.retained.changes.moments import Moment, fetch, states_at
from holdfast.retained.changes.periods import read_state
from holdfast.storage.driver import Cursor

#: The entries of a topic that one read visits, and the most reads of one question.
_ENTRIES = 1000
_MOST_READS = 100
#: The topics that one read visits.
_TOPICS = 200
_NEWEST = "SELECT seq, revision FROM retained_history WHERE topic = ? AND seq < ? ORDER BY seq DESC LIMIT ?"
_LATEST_CHANGES = "SELECT seq, topic, op, changed_at, size, revision FROM retained_history WHERE seq IN ({places})"
_ANY = 2**63 - 1


class NoSuchRevision(Exception):
    """The history does not have a revision; the text says which one."""


@frozen
class KnownTopic:
    """A topic in the history, with its latest change: kind, time in milliseconds, payload bytes and revision."""

    topic: str
    op: str
    changed_at: int
    size: int
    revision: int


@frozen
class KnownTopics:
    """A page of topics. The next page begins after ``after``, unless ``done``."""

    topics: Sequence[KnownTopic]
    after: str
    done: bool


class RevisionReader:
    """Reads the history. All methods fail with HistoryUnavailable or StorageFailure."""

    def __init__(self, history: RetainedHistory) -> None:
        self._history = history

    @inlineCallbacks
    def topics(self, topic_filter: str, after: str) -> Generator[Deferred[Any], Any, KnownTopics]:
        """Return the next topics that match a Topic Filter. A page may be empty without being the last."""
        self._history.check_kept()

        def work(cursor: Cursor) -> KnownTopics:
            everything = Moment(0, 0, read_state(cursor).last_seq)
            found = states_at(cursor, topic_filter, after, (everything,), _TOPICS)
            positions = [seq for _, (seq,) in found.entries if seq is not None]
            latest: list[KnownTopic] = []
            if positions:
                cursor.execute(_LATEST_CHANGES.format(places=", ".join("?" * len(positions))), positions)
                latest = sorted((KnownTopic(*row[1:]) for row in cursor.fetchall()), key=lambda one: one.topic)
            return KnownTopics(latest, found.after, found.done)

        page: KnownTopics = yield self._history.read(work)
        return page

    @inlineCallbacks
    def pair(
        self, topic: str, earlier: int | None, later: int | None
    ) -> Generator[Deferred[Any], Any, tuple[HistoryEvent | None, HistoryEvent]]:
        """Return the changes with two revisions of a topic.

        Without ``later``, the latest change; without ``earlier``, the change before ``later`` (None if there is none).
        Fails with :class:`NoSuchRevision`.
        """
        self._history.check_kept()
        yield self._history.stored()
        second = yield from self._position(topic, later, _ANY)
        if second is None:
            raise NoSuchRevision(_absent(topic, later))
        if earlier is None:
            first = yield from self._position(topic, None, second)
        else:
            first = yield from self._position(topic, earlier, _ANY)
            if first is None:
                raise NoSuchRevision(_absent(topic, earlier))
        wanted = [seq for seq in (first, second) if seq is not None]
        events = yield self._history.read(lambda cursor: fetch(cursor, wanted))
        if len(events) < len(set(wanted)):
            raise NoSuchRevision(f"{topic}: a revision was pruned just now")
        return None if first is None else events[first], events[second]

    def _position(self, topic: str, revision: int | None, before: int) -> Generator[Deferred[Any], Any, int | None]:
        """Return the latest position with a revision (None: with any) before another position, None if there is none.

        The history has no index of revisions, so the topic's entries are read from the latest one on.
        """
        for _ in range(_MOST_READS):
            found = yield self._history.read(partial(_entries, topic=topic, before=before))
            for seq, stored in found:
                if revision is None or stored == revision:
                    position: int = seq
                    return position
            if len(found) < _ENTRIES:
                return None
            before = found[-1][0]
            yield self._history.turn()
        return None


def _entries(cursor: Cursor, topic: str, before: int) -> list[tuple[int, int]]:
    cursor.execute(_NEWEST, (topic, before, _ENTRIES))
    return list(cursor.fetchall())


def _absent(topic: str, revision: int | None) -> str:
    if revision is None:
        return f"the history has no change of {topic}"
    return f"the history has no revision {revision} of {topic} among its latest {_MOST_READS * _ENTRIES} changes"


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
