"""The seam between the store and the history: the store tells a recorder about every change, before it commits.

The store knows only this interface. The history's recorder is
:class:`holdfast.retained.history.recording.HistoryRecorder`; a store without a history has :data:`NO_RECORDER`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple, Protocol

from holdfast.messages import ChangeOrigin
from holdfast.retained.store.rows import Row
from holdfast.storage.driver import Cursor


class ChangedRow(NamedTuple):
    """One change: the row to store, the time of the change (milliseconds since the epoch), its origin and operator."""

    row: Row
    changed_at: int
    origin: ChangeOrigin
    operator: str | None = None


class Recorder(Protocol):
    """Records changes. All methods but :meth:`key_of` run in the writer's thread, inside the changing transaction."""

    def key_of(self, topic: str, revision: int) -> Hashable:
        """Return the key of a change that waits for its commit. A later change with the same key replaces it."""

    def record(self, cursor: Cursor, changes: Sequence[ChangedRow]) -> None:
        """Record changes in this order. The store left out changes that lost to a newer row.

        A commit whose outcome was unknown is repeated, so the same change can arrive twice.
        """

    def record_stored(self, cursor: Cursor, topics: Sequence[str], changed_at: int, origin: ChangeOrigin) -> None:
        """Record the present rows of these topics. This transaction has changed them in place."""

    def record_expired(self, cursor: Cursor, topics: Sequence[str], now: int, revision: int) -> None:
        """Record that the messages of these topics expired."""


class NullRecorder:
    """Records nothing."""

    def key_of(self, topic: str, revision: int) -> Hashable:
        """Return the topic: without a history, only the newest waiting change of a topic is written."""
        return topic

    def record(self, cursor: Cursor, changes: Sequence[ChangedRow]) -> None:
        """Do nothing."""

    def record_stored(self, cursor: Cursor, topics: Sequence[str], changed_at: int, origin: ChangeOrigin) -> None:
        """Do nothing."""

    def record_expired(self, cursor: Cursor, topics: Sequence[str], now: int, revision: int) -> None:
        """Do nothing."""


NO_RECORDER = NullRecorder()
