"""Single revisions of a topic in the history, and the topics that the history knows."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import partial
from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred, inlineCallbacks

from holdfast.retained.history.entries import HistoryEvent
from holdfast.retained.history.history import RetainedHistory
from holdfast.retained.history.moments import Moment, fetch, states_at
from holdfast.retained.history.periods import read_state
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
