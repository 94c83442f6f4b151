"""One look into the history answers all who ask the same meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from holdfast.changes.history import RetainedHistory
from holdfast.changes.moments import HistoryUnavailable
from holdfast.changes.past import PastMessages
from holdfast.core.extensions import past_filter
from holdfast.storage.revisions import RevisionClock
from tests.retained.store.memory import MemoryRetainedStore
from tests.storage.doubles import result_of

NOW = 1_800_000_000_000


class SlowHistory:
    """A history whose reads the test answers."""

    def __init__(self) -> None:
        self.reads: list[Deferred[Any]] = []

    def check_kept(self) -> None:
        """Keep a history."""

    def read_apart(self, work: Callable[[Any], Any]) -> Deferred[Any]:
        """Return a Deferred for the test."""
        self.reads.append(Deferred())
        return self.reads[-1]


@pytest.mark.parametrize("fails", [False, True])
def test_the_same_asked_twice_has_one_answer(fails: bool) -> None:
    """So nobody waits for ever, is granted by halves, or adds reads by asking again and again."""
    history = SlowHistory()
    past = PastMessages(cast("RetainedHistory", history), MemoryRetainedStore(RevisionClock(1, 0, lambda: NOW)))
    other = past.check("c2", past_filter("$history/at/-1h/#", NOW))
    asked = [past.check("c1", past_filter("$history/changes/-1h/-0s/#", NOW + again)) for again in range(3)]
    assert len(history.reads) == 1
    history.reads[0].callback(None)
    result_of(other)
    assert len(history.reads) == 2
    if fails:
        history.reads[1].errback(HistoryUnavailable("pruned"))
        for answer in asked:
            with pytest.raises(HistoryUnavailable, match="pruned"):
                result_of(answer)
    else:
        history.reads[1].callback(None)
        assert [result_of(answer) for answer in asked] == [None, None, None]
    again = past.check("c1", past_filter("$history/changes/-1h/-0s/#", NOW))
    assert len(history.reads) == 3
    history.reads[2].callback(None)
    result_of(again)
