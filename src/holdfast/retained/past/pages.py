"""Pages of the past: what one read of a replay finds.

Each message of a page has a cursor behind it: a text that rises from one message to the next, and behind which a later
read begins. A replay stores it like the topics of other replays. For messages of a time it is the topic. Changes come
in the order of their positions in the history, so their cursor is a position. It also has the position at which the
replay ends, as found when it began: a replay that continues after ``kill -9`` ends there too. An example, behind
position 12 and up to 300, in hexadecimal digits::

    000000000000000c/000000000000012c

Where the replay leaves out some topics, a third number says which (:class:`~holdfast.retained.history.spans.Span`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from attrs import frozen

from holdfast.extensions.past import PastFilter
from holdfast.retained.history.entries import HistoryEvent, retained_by
from holdfast.retained.history.history import RetainedHistory
from holdfast.retained.history.moments import Moment, check_moment, check_recorded, find_moment
from holdfast.retained.history.spans import Span, check_span, find_span, page_of_events
from holdfast.storage.driver import Cursor

#: The topics that one read of a time visits, and the entries that one read of changes visits.
_TOPICS = 200
_ENTRIES = 500
#: Each change gets the QoS of the Subscription. If their QoS differed, changes with a lower one would overtake others,
#: since a delivery with QoS 2 waits for a commit.
_QOS_OF_CHANGES = 2


@frozen
class PastMessage:
    """A message of the past, and the cursor behind it (``after``).

    ``at`` is when it was stored, or when the change was made, in milliseconds since the epoch.
    """

    after: str
    event: HistoryEvent
    qos: int
    at: int


@frozen
class Page:
    """Messages in order. The next page begins after the cursor ``after``; ``done`` says that this page is the last.

    ``lacks_topics`` says that the history does not know some of the topics then.
    """

    messages: Sequence[PastMessage]
    after: str
    done: bool
    lacks_topics: bool = False


class IPages(Protocol):
    """The pages of one Topic Filter of the past. All methods run in the thread of long reads.

    They raise :class:`holdfast.retained.history.moments.HistoryUnavailable`.
    """

    def find(self, cursor: Cursor) -> None:
        """Look whether the history has what is asked for."""

    def read(self, cursor: Cursor, after: str, messages: int, most_bytes: int) -> Page:
        """Read the next page behind a cursor, "" for the beginning."""


def pages_of(history: RetainedHistory, wanted: PastFilter) -> IPages:
    """Return the pages of a Topic Filter."""
    if wanted.since is None:
        return MomentPages(history, wanted)
    return ChangePages(history, wanted, wanted.since)


class MomentPages:
    """The retained messages of a time, in topic order. A page is bounded like one of the operators' API."""

    def __init__(self, history: RetainedHistory, wanted: PastFilter) -> None:
        self._history = history
        self._wanted = wanted
        self._moment: Moment | None = None

    def find(self, cursor: Cursor) -> None:
        """Find the moment."""
        self._found(cursor)

    def read(self, cursor: Cursor, after: str, messages: int, most_bytes: int) -> Page:
        """Read the next page."""
        wanted = self._wanted
        passed = after.removeprefix(wanted.prefix)
        page = self._history.page_of(
            cursor, wanted.topic_filter, self._found(cursor), passed, min(messages, _TOPICS), most_bytes
        )
        found = [
            PastMessage(wanted.prefix + event.topic, event, event.qos, retained_by(event).stored_at)
            for event in page.messages
        ]
        return Page(found, wanted.prefix + page.after, page.done, bool(page.left_out))

    def _found(self, cursor: Cursor) -> Moment:
        self._history.check_kept()
        if self._moment is None:
            moment = find_moment(cursor, self._wanted.at, self._history.now())
            check_recorded(check_moment(cursor, moment), moment.at, self._wanted.topic_filter)
            self._moment = moment
        return self._moment


class ChangePages:
    """The changes between two times, in the order of the history: sets, clears and expiries."""

    def __init__(self, history: RetainedHistory, wanted: PastFilter, since: int) -> None:
        self._history = history
        self._wanted = wanted
        self._since = since

    def find(self, cursor: Cursor) -> None:
        """Find the first and the last change."""
        self._span(cursor, "")

    def read(self, cursor: Cursor, after: str, messages: int, most_bytes: int) -> Page:
        """Read the next page."""
        span = self._span(cursor, after)
        page = page_of_events(cursor, self._wanted.topic_filter, span.after, span.upto, _ENTRIES, messages, most_bytes)
        period = check_span(cursor, span)
        shows = span.shows(period)
        found = [
            PastMessage(_cursor(event.seq, span), event, _QOS_OF_CHANGES, event.changed_at)
            for event in page.events
            if shows(event.topic)
        ]
        return Page(found, _cursor(page.cursor, span), page.done, span.lacks_topics(period, self._wanted.topic_filter))

    def _span(self, cursor: Cursor, after: str) -> Span:
        self._history.check_kept()
        if after:
            return Span(*(int(part, 16) for part in after.split("/")))
        return find_span(cursor, self._since, self._wanted.at, self._history.now(), self._wanted.topic_filter)


def _cursor(passed: int, span: Span) -> str:
    return f"{passed:016x}/{span.upto:016x}" + (f"/{span.left_out:x}" if span.left_out else "")
