"""The rows that the reads of one replay see, and the changes that they must see though the client is not sent them."""

from __future__ import annotations

from holdfast.retained.replay.interfaces import ReplayForm
from holdfast.retained.sources.stretches import Stretch
from holdfast.retained.store.values import QueuedRows, Selection


class VisibleRows:
    """The rows of a Topic Filter: those of this ``node`` up to the revision ``newest``, except the ``queued`` ones."""

    __slots__ = ("_unsent", "newest", "node", "queued", "topic_filter")

    def __init__(self, topic_filter: str, node: int, newest: int, queued: QueuedRows | None) -> None:
        self.topic_filter = topic_filter
        self.node = node
        self.newest = newest
        self.queued = queued
        #: revisions and topics (None for any) of uncommitted changes that the client is not sent live
        self._unsent: set[tuple[int, str | None]] = set()

    def raise_to(self, revision: int) -> bool:
        """Let later reads see changes up to this revision. Return False if they do already."""
        if revision <= self.newest:
            return False
        self.newest = revision
        return True

    def await_commit(self, revision: int, topic: str | None) -> None:
        """Note an uncommitted change (of any topic: None) that the client is not sent live."""
        self._unsent.add((revision, topic))

    def committed(self, revision: int, topic: str | None) -> bool:
        """Note that the change can be read now, or failed. Return False if it was not awaited."""
        if (revision, topic) not in self._unsent:
            return False
        self._unsent.remove((revision, topic))
        return True

    def is_changing(self, after: str, last: str) -> bool:
        """Tell whether such a change of a topic above ``after`` and up to ``last`` is not committed yet."""
        return any(topic is None or after < topic <= last for _, topic in self._unsent)

    def forget(self) -> None:
        """Await no commit any more."""
        self._unsent.clear()

    def selection(self, form: ReplayForm, now: int, stretch: Stretch) -> Selection:
        """Return what the next read selects, in this form; ``now`` is in milliseconds since the epoch."""
        return Selection(
            self.topic_filter,
            form.protocol_version,
            self.newest,
            self.node,
            now,
            form.except_client,
            form.max_packet_size,
            self.queued,
            form.within,
            stretch.until,
            stretch.looked,
            form.facts,
        )

    def __bool__(self) -> bool:
        """Tell whether a commit is awaited."""
        return bool(self._unsent)
