"""The change feed: what running replays hear of changes of the retained messages.

It announces every accepted change once. Those of an import come in parts, and each part is announced as a whole before.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.messages import ChangeKind, ChangeOrigin
from holdfast.core.tickets import CommitTicket
from holdfast.core.topics import EVERY_TOPIC, TopicTree
from holdfast.hot_values import hot_frozen


@hot_frozen
class Change:
    """One accepted change. The store can read it once ``ticket`` is settled.

    ``live`` tells that matching subscribers were sent the message live, or were not allowed to get it. ``is_foreign``
    tells that another node has stored it.
    """

    topic: str
    revision: int
    kind: ChangeKind
    origin: ChangeOrigin
    live: bool
    ticket: CommitTicket
    is_foreign: bool = False


def _ignore(revision: int) -> None:
    """Nobody follows imports."""


class ChangeFeed:
    """Tells each listener of the changes of its topics, at once. Only imports may be out of the order of revisions.

    A change costs its topic's levels and the listeners that it concerns, however many others there are.
    """

    def __init__(self) -> None:
        self._by_filter: TopicTree[int, Callable[[Change], None]] = TopicTree()
        self._of_all: dict[int, Callable[[Change], None]] = {}
        self._filters: dict[int, str] = {}
        self._next = 0
        #: the highest revision of a change that this process has not sent live
        self.unsent_revision = 0
        #: are called with the highest revision of an import that begins, and of one that is committed or has failed
        self.import_begun: Callable[[int], None] = _ignore
        self.import_ended: Callable[[int], None] = _ignore

    def listen(self, listener: Callable[[Change], None], topic_filter: str = EVERY_TOPIC) -> int:
        """Add a listener to the topics of a (non-shared) Topic Filter. Returns the key for :meth:`forget`."""
        self._next += 1
        self._filters[self._next] = topic_filter
        if topic_filter == EVERY_TOPIC:
            self._of_all[self._next] = listener
        else:
            self._by_filter.add(topic_filter, self._next, listener)
        return self._next

    def forget(self, key: int) -> None:
        """Remove a listener, if it is there."""
        topic_filter = self._filters.pop(key, None)
        if topic_filter is None:
            return
        if topic_filter == EVERY_TOPIC:
            del self._of_all[key]
        else:
            self._by_filter.remove(topic_filter, key)

    def note_unsent(self, revision: int) -> None:
        """Note that a change is not sent live."""
        self.unsent_revision = max(self.unsent_revision, revision)

    def begin_import(self, revision: int) -> None:
        """Tell that changes up to a revision, of any topic, can be read soon. No client is sent them live."""
        self.note_unsent(revision)
        self.import_begun(revision)

    def announce(self, change: Change) -> None:
        """Tell all listeners to the change's topic."""
        for listener in tuple(self._of_all.values()):
            listener(change)
        if self._by_filter:
            for _, listener in self._by_filter.match(change.topic):
                listener(change)

    def __len__(self) -> int:
        return len(self._filters)
