"""The past of the retained messages as Sessions see it: what can be asked for, and the sources of replays."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred, fail
from twisted.python.failure import Failure

from holdfast.extensions.past import PastFilter
from holdfast.retained.history.history import RetainedHistory
from holdfast.retained.history.moments import HistoryUnavailable
from holdfast.retained.past.fair_reads import FairReads
from holdfast.retained.past.pages import pages_of
from holdfast.retained.past.sources import PastSource
from holdfast.retained.store.interfaces import IRetainedStore


class PastMessages:
    """The past that a history has. It provides :class:`holdfast.retained.replay.interfaces.IPast`."""

    def __init__(self, history: RetainedHistory, store: IRetainedStore) -> None:
        self._history = history
        self._store = store
        self._reads = FairReads(history.read_apart)
        #: by Client and Topic Filter: those who wait for a look into the history
        self._looks: dict[tuple[str, str], list[Deferred[None]]] = {}

    def check(self, client_id: str, wanted: PastFilter) -> Deferred[None]:
        """Look whether the history has what a Client asks for. Fails with :class:`HistoryUnavailable`.

        One look answers all who ask the same before it ends: a Client may name a Topic Filter twice, or come back.
        The messages that wait for their write interval are given to the writer before the look. The history has the
        order of the writes: behind a change that comes during the look, they would be later than the time "-0s".
        """
        try:
            self._history.check_kept()
        except HistoryUnavailable as refusal:  # a broker without a history reads nothing for it
            return fail(refusal)
        self._store.flushed(wanted.topic_filter)
        key = client_id, wanted.prefix + wanted.topic_filter
        answer: Deferred[None] = Deferred()
        waiting = self._looks.setdefault(key, [])
        waiting.append(answer)
        if len(waiting) == 1:
            pages = pages_of(self._history, wanted)
            self._reads.read(client_id, ("look", key), pages.find).addBoth(self._looked, key)
        return answer

    def source(
        self, client_id: str, wanted: PastFilter, lost: Callable[[], None], lacks_topics: Callable[[], None]
    ) -> PastSource:
        """Return the source of a replay.

        ``lost`` is called if the history does not have the time any more, ``lacks_topics`` if it does not know some of
        the topics then.
        """
        pages = pages_of(self._history, wanted)
        return PastSource(self._reads, client_id, self._store, pages, wanted, lost, lacks_topics)

    def _looked(self, outcome: Failure | None, key: tuple[str, str]) -> None:
        for answer in self._looks.pop(key):
            answer.callback(outcome)  # a Failure begins the errbacks
