"""The past of the retained messages as Sessions see it: what can be asked for, and the sources of replays."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from holdfast.extensions.past import PastFilter
from holdfast.retained.history.history import RetainedHistory
from holdfast.retained.past.fair_reads import FairReads
from holdfast.retained.past.pages import pages_of
from holdfast.retained.past.sources import PastSource
from holdfast.retained.store.interfaces import IRetainedStore


class PastMessages:
    """The past that a history has. It provides :class:`holdfast.retained.replay.interfaces.IPast`."""

    def __init__(self, history: RetainedHistory, store: IRetainedStore) -> None:
        self._history = history
        self._store = store
        self.reads = FairReads(history.read_apart)

    @inlineCallbacks
    def check(self, client_id: str, wanted: PastFilter) -> Generator[Deferred[Any], Any, None]:
        """Look whether the history has what a Client asks for. Fails with :class:`HistoryUnavailable`."""
        self._history.check_kept()
        yield self._history.stored()
        pages = pages_of(self._history, wanted)
        yield self.reads.read(client_id, ("check", wanted.prefix, wanted.topic_filter), pages.find)

    def source(self, client_id: str, wanted: PastFilter, lost: Callable[[], None]) -> PastSource:
        """Return the source of a replay. ``lost`` is called if the history does not have the time any more."""
        return PastSource(self.reads, client_id, self._store, pages_of(self._history, wanted), wanted, lost)
